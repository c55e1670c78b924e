package sluice.rpc;

import com.google.common.util.concurrent.FutureCallback;
import com.google.common.util.concurrent.Futures;
import com.google.common.util.concurrent.ListenableFuture;
import com.google.common.util.concurrent.MoreExecutors;
import io.grpc.Context;
import io.grpc.Status;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/**
 * Makes calls to many workers at once, as one fan-out:
 *
 * <pre>{@code
 * FanOut<Hits> fanOut = FanOut.within(Duration.ofSeconds(1));
 * for (SearchFutureStub stub : stubs) {
 *   fanOut.ask(() -> stub.query(request));
 * }
 * FanOutResult<Hits> result = fanOut.withQuorum(60).call();
 * }</pre>
 *
 * Errors of workers are in the result. A worker that is unavailable is replaced by a replica at once. Not thread-safe;
 * used once.
 */
public final class FanOut<T> {
  private static final ScheduledExecutorService TIMERS =
      Executors.newSingleThreadScheduledExecutor(
          task -> {
            Thread thread = new Thread(task, "sluice-fan-outs");
            thread.setDaemon(true);
            return thread;
          });

  private final Duration timeout;
  private final List<Supplier<ListenableFuture<T>>> asks = new ArrayList<>();
  private final List<Queue<Supplier<ListenableFuture<T>>>> replicas = new ArrayList<>();
  private int quorum; // 0: wait for all calls
  private Duration hedgeAfter; // null: never
  private double replicaRatio = 0.2;
  private String trafficClass;

  private FanOut(Duration timeout) {
    this.timeout = timeout;
  }

  /** Begins a fan-out that has this time, above 0. */
  public static <T> FanOut<T> within(Duration timeout) {
    if (timeout.isNegative() || timeout.isZero()) {
      throw new IllegalArgumentException("timeout " + timeout + " is not above 0");
    }
    return new FanOut<>(timeout);
  }

  /** Adds a call, and calls that make the same request at other workers. A call starts a future of a stub. */
  @SafeVarargs
  public final FanOut<T> ask(Supplier<ListenableFuture<T>> call, Supplier<ListenableFuture<T>>... others) {
    asks.add(call);
    Queue<Supplier<ListenableFuture<T>>> untried = new ArrayDeque<>();
    for (Supplier<ListenableFuture<T>> other : others) {
      untried.add(other);
    }
    replicas.add(untried);
    return this;
  }

  /** Ends the fan-out after this number of responses, or once it cannot reach it, and cancels the rest. */
  public FanOut<T> withQuorum(int responses) {
    if (responses < 1 || responses > asks.size()) {
      throw new IllegalArgumentException(
          "quorum " + responses + " is not a number from 1 to " + asks.size() + ", the number of calls");
    }
    quorum = responses;
    return this;
  }

  /**
   * Repeats calls without a response at a replica after this time. The time that a response waits for the link counts.
   */
  public FanOut<T> withHedgesAfter(Duration time) {
    hedgeAfter = time;
    return this;
  }

  /** Bounds the retries, and the hedges, as a share of the calls, 0 to 1; above 0 one of each or more. Default: 0.2. */
  public FanOut<T> withReplicaRatio(double ratio) {
    if (!(ratio >= 0 && ratio <= 1)) {
      throw new IllegalArgumentException("replicaRatio " + ratio + " is not from 0 to 1");
    }
    replicaRatio = ratio;
    return this;
  }

  /** Puts the calls into a class of traffic, one of the proxy's schedule.classes. */
  public FanOut<T> withClass(String name) {
    trafficClass = name;
    return this;
  }

  /** Makes the calls, and waits for the end. */
  public FanOutResult<T> call() {
    try {
      return start().join();
    } catch (CompletionException e) {
      throw e.getCause() instanceof RuntimeException cause ? cause : e;
    }
  }

  /** Makes the calls. Cancelling the future cancels them. */
  public CompletableFuture<FanOutResult<T>> start() {
    if (asks.isEmpty()) {
      return CompletableFuture.completedFuture(new FanOutResult<>(List.of(), List.of(), 0, 0, 0, 0));
    }
    Mark mark = Mark.fanOut(asks.size());
    return new Run(trafficClass == null ? mark : mark.withClass(trafficClass)).start();
  }

  /** One fan-out that runs. Thread-safe. Calls start and end without the lock, because they call back. */
  private final class Run {
    private final Mark mark;
    private final Context.CancellableContext context =
        Context.current().withDeadlineAfter(timeout.toNanos(), TimeUnit.NANOSECONDS, TIMERS);
    private final CompletableFuture<FanOutResult<T>> end = new CompletableFuture<>();
    private final List<T> responses = new ArrayList<>();
    private final List<Throwable> errors = new ArrayList<>();
    private final int[] running = new int[asks.size()];
    private final boolean[] decided = new boolean[asks.size()];
    private final int needed = quorum > 0 ? quorum : asks.size();
    // Of retries, and of hedges.
    private final int most = replicaRatio > 0 ? Math.max(1, (int) (replicaRatio * asks.size())) : 0;
    private int open = asks.size(); // calls that have neither responded nor failed
    private int answered;
    private int hedges;
    private int retries;

    Run(Mark mark) {
      this.mark = mark;
      for (int i = 0; i < asks.size(); i++) {
        responses.add(null);
        errors.add(null);
        running[i] = 1;
      }
    }

    CompletableFuture<FanOutResult<T>> start() {
      end.whenComplete((result, error) -> context.cancel(null));
      for (int i = 0; i < asks.size(); i++) {
        begin(i, asks.get(i), mark);
      }
      if (hedgeAfter != null) {
        ScheduledFuture<?> timer = TIMERS.schedule(this::hedge, hedgeAfter.toNanos(), TimeUnit.NANOSECONDS);
        end.whenComplete((result, error) -> timer.cancel(false));
      }
      return end;
    }

    private void begin(int index, Supplier<ListenableFuture<T>> call, Mark own) {
      if (end.isDone()) {
        return;
      }
      ListenableFuture<T> response;
      try {
        response = own.in(context).call(call::get);
      } catch (Exception e) {
        end.completeExceptionally(e);
        return;
      }
      FutureCallback<T> callback =
          new FutureCallback<>() {
            @Override
            public void onSuccess(T result) {
              ended(index, result, null);
            }

            @Override
            public void onFailure(Throwable error) {
              ended(index, null, error);
            }
          };
      Futures.addCallback(response, callback, MoreExecutors.directExecutor());
    }

    private void ended(int index, T response, Throwable error) {
      Supplier<ListenableFuture<T>> other = null;
      FanOutResult<T> result = null;
      synchronized (this) {
        running[index]--;
        if (decided[index] || end.isDone()) {
          return;
        }
        if (error == null) {
          decide(index, response, null);
          answered++;
        } else { // replaced even if another attempt is open, because it may hang
          other = Status.fromThrowable(error).getCode() == Status.Code.UNAVAILABLE ? replica(index, retries) : null;
          if (other != null) {
            retries++;
          } else if (running[index] == 0) { // otherwise the other attempt decides
            decide(index, null, error);
          }
        }
        if (open == 0 || answered >= needed || (quorum > 0 && answered + open < needed)) {
          result = new FanOutResult<>(responses, errors, needed, answered, hedges, retries);
        }
      }
      if (other != null) {
        begin(index, other, mark.alone());
      }
      if (result != null) {
        end.complete(result);
      }
    }

    private void decide(int index, T response, Throwable error) {
      responses.set(index, response);
      errors.set(index, error);
      decided[index] = true;
      open--;
    }

    /** The first calls use up the number of calls of the fan-out, so a replica's call belongs to none. */
    private Supplier<ListenableFuture<T>> replica(int index, int made) {
      if (made == most || replicas.get(index).isEmpty()) {
        return null;
      }
      running[index]++;
      return replicas.get(index).remove();
    }

    private void hedge() {
      for (int i = 0; i < asks.size(); i++) {
        Supplier<ListenableFuture<T>> other;
        synchronized (this) {
          other = decided[i] || end.isDone() ? null : replica(i, hedges);
          hedges += other != null ? 1 : 0;
        }
        if (other != null) {
          begin(i, other, mark.alone());
        }
      }
    }
  }
}
