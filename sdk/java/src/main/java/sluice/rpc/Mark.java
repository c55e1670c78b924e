package sluice.rpc;

import io.grpc.Context;
import io.grpc.Metadata;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.Callable;

/**
 * The metadata of calls: their fan-out, their class of traffic, and the size of their responses. Immutable.
 *
 * <p>All calls within {@code Mark.fanOut(n).call(...)} are one fan-out of n calls, if their channels have {@link
 * FanOutInterceptor}. The mark is in gRPC's {@link Context}: wrap the tasks of other threads by {@code
 * Context.current().wrap}.
 */
public final class Mark {
  /** The maximum number of calls of a fan-out. */
  public static final int MAX_CALLS = 65536;

  static final Metadata.Key<String> BLOCK = key("sluice-block");
  private static final Metadata.Key<String> WEIGHT = key("sluice-weight");
  private static final Metadata.Key<String> CLASS = key("sluice-class");
  private static final Metadata.Key<String> RESPONSE_BYTES = key("sluice-response-bytes");
  private static final Context.Key<Mark> CURRENT = Context.keyWithDefault("sluice-mark", new Mark(null, 0, null, 0));

  private final String block; // null: the calls belong to no fan-out
  private final int calls;
  private final String trafficClass; // null: the first class
  private final long responseBytes; // 0: unknown

  private Mark(String block, int calls, String trafficClass, long responseBytes) {
    this.block = block;
    this.calls = calls;
    this.trafficClass = trafficClass;
    this.responseBytes = responseBytes;
  }

  private static Metadata.Key<String> key(String name) {
    return Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER);
  }

  /** Returns the mark of one new fan-out of this number of calls, 1 to {@link #MAX_CALLS}. */
  public static Mark fanOut(int calls) {
    if (calls < 1 || calls > MAX_CALLS) {
      throw new IllegalArgumentException("a fan-out of " + calls + " calls; it has 1 to " + MAX_CALLS);
    }
    return new Mark(UUID.randomUUID().toString(), calls, null, 0);
  }

  static Mark current() {
    return CURRENT.get();
  }

  /** Returns a mark that also puts the calls into a class of traffic, one of the proxy's schedule.classes. */
  public Mark withClass(String name) {
    return new Mark(block, calls, Objects.requireNonNull(name), responseBytes);
  }

  /**
   * Returns a mark that also states the size of the responses, if the caller can predict it. A wrong size only costs
   * time. Without it, the proxy learns the size from earlier responses.
   */
  public Mark withResponseBytes(long bytes) {
    if (bytes < 1) {
      throw new IllegalArgumentException("responses of " + bytes + " bytes");
    }
    return new Mark(block, calls, trafficClass, bytes);
  }

  /** Returns a mark without the fan-out. */
  Mark alone() {
    return new Mark(null, 0, trafficClass, responseBytes);
  }

  /** Makes this the mark of the calls of a context. */
  public Context in(Context context) {
    return context.withValue(CURRENT, this);
  }

  /** Calls a function whose calls have this mark, and returns its value. */
  public <T> T call(Callable<T> function) throws Exception {
    return in(Context.current()).call(function);
  }

  /** Runs a function whose calls have this mark. */
  public void run(Runnable function) {
    in(Context.current()).run(function);
  }

  void addTo(Metadata metadata) {
    if (block != null && !metadata.containsKey(BLOCK)) {
      metadata.put(BLOCK, block);
      metadata.put(WEIGHT, Integer.toString(calls));
    }
    if (trafficClass != null && !metadata.containsKey(CLASS)) {
      metadata.put(CLASS, trafficClass);
    }
    if (responseBytes > 0 && !metadata.containsKey(RESPONSE_BYTES)) {
      metadata.put(RESPONSE_BYTES, Long.toString(responseBytes));
    }
  }
}
