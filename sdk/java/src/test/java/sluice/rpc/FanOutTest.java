package sluice.rpc;

import static java.util.Arrays.asList;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static sluice.rpc.Workers.call;
import static sluice.rpc.Workers.values;

import com.google.common.util.concurrent.SettableFuture;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientInterceptors;
import io.grpc.Context;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Calls to the workers directly: the tests read the metadata that a proxy would receive. */
class FanOutTest {
  private static final Duration PATIENCE = Duration.ofSeconds(Workers.PATIENCE_S);

  private Workers workers;
  private ManagedChannel channel;

  @BeforeEach
  void setUp() throws Exception {
    workers = new Workers("127.0.0.1:0");
    channel = Sluice.proxied(workers.addresses.get(0), "worker:1").build();
  }

  @AfterEach
  void tearDown() {
    channel.shutdownNow();
    workers.close();
  }

  private FanOut<String> asks(String... requests) {
    FanOut<String> fanOut = FanOut.within(PATIENCE);
    for (String request : requests) {
      fanOut.ask(call(channel, request));
    }
    return fanOut;
  }

  @Test
  void responsesAreInTheOrderOfTheCalls() throws Exception {
    FanOutResult<String> result = asks("a", "b", "c").withClass("queries").call().check();
    assertEquals(List.of("a", "b", "c"), result.responses());
    assertEquals(Collections.nCopies(3, null), result.errors());
    assertEquals(1, result.coverage());
    List<Metadata> seen = workers.seen(3);
    assertEquals(List.of("3", "3", "3"), values(seen, "sluice-weight"));
    assertEquals(List.of("queries", "queries", "queries"), values(seen, "sluice-class"));
    String block = values(seen, "sluice-block").get(0);
    assertEquals(List.of(block, block, block), values(seen, "sluice-block"));
    asks("a").call().check();
    assertNotEquals(block, values(workers.seen(1), "sluice-block").get(0));
  }

  @Test
  void errorsAreKept() {
    FanOutResult<String> result = asks("a", "internal", "c").call();
    assertEquals(asList("a", null, "c"), result.responses());
    assertEquals(Status.Code.INTERNAL, Status.fromThrowable(result.errors().get(1)).getCode());
    assertEquals(2.0 / 3, result.coverage(), 1e-9);
    FanOutException error = assertThrows(FanOutException.class, result::check);
    assertEquals("2 of 3 calls responded, 3 must respond; call 1: INTERNAL: as requested", error.getMessage());
    assertSame(result.errors().get(1), error.getCause());
  }

  @Test
  void aQuorumEndsTheFanOutAndCancelsTheRest() throws Exception {
    CompletableFuture<FanOutResult<String>> running =
        asks("wait")
            .ask(
                () -> {
                  try {
                    workers.seen(1);
                  } catch (InterruptedException e) {
                    throw new AssertionError(e);
                  }
                  return call(channel, "b").get();
                })
            .withQuorum(1)
            .start();
    FanOutResult<String> result = running.get().check();
    assertEquals(asList(null, "b"), result.responses());
    assertEquals(asList(null, null), result.errors());
    workers.awaitCancelled();
  }

  @Test
  void aQuorumThatCannotBeReachedEndsTheFanOut() {
    FanOutResult<String> result = asks("wait", "internal", "internal").withQuorum(2).call();
    assertFalse(result.ok());
    assertEquals(0, result.answered());
  }

  @Test
  void aWorkerThatIsUnavailableIsReplaced() throws Exception {
    FanOut<String> fanOut = FanOut.within(PATIENCE);
    fanOut.ask(call(channel, "unavailable"), call(channel, "replica")).ask(call(channel, "b"));
    FanOutResult<String> result = fanOut.call();
    assertEquals(List.of("replica", "b"), result.responses());
    assertEquals(1, result.retries());
    assertEquals(0, result.hedges());
    List<String> blocks = values(workers.seen(3), "sluice-block");
    assertEquals(1, Collections.frequency(blocks, ""), "a replica's call is a block of its own");
  }

  @Test
  void aLateCallIsHedgedWithinTheRatio() throws Exception {
    FanOut<String> fanOut = FanOut.within(PATIENCE);
    for (int i = 0; i < 2; i++) {
      fanOut.ask(call(channel, "wait"), call(channel, "wait"));
    }
    CompletableFuture<FanOutResult<String>> running = fanOut.withHedgesAfter(Duration.ofNanos(1)).start();
    workers.seen(3);
    workers.release();
    assertEquals(1, running.get().check().hedges(), "of 2 calls, one may be repeated");
    FanOut<String> none = FanOut.within(PATIENCE);
    none.ask(call(channel, "unavailable"), call(channel, "a")).withReplicaRatio(0);
    assertEquals(0, none.call().retries());
  }

  @Test
  void aFailureIsReplacedAtOnceWhileAHedgeHangs() throws Exception {
    SettableFuture<String> first = SettableFuture.create();
    FanOut<String> fanOut = FanOut.within(PATIENCE);
    fanOut.ask(() -> first, call(channel, "wait"), call(channel, "third")).withHedgesAfter(Duration.ofNanos(1));
    CompletableFuture<FanOutResult<String>> running = fanOut.start();
    workers.seen(1);
    first.setException(Status.UNAVAILABLE.asException());
    FanOutResult<String> result = running.get();
    assertEquals(List.of("third"), result.responses());
    assertEquals(1, result.hedges());
    assertEquals(1, result.retries());
  }

  @Test
  void aDeadlineIsAnErrorOfTheCall() {
    FanOut<String> late = FanOut.within(Duration.ofMillis(50));
    FanOutResult<String> result = late.ask(call(channel, "wait")).call();
    assertEquals(Status.Code.DEADLINE_EXCEEDED, Status.fromThrowable(result.errors().get(0)).getCode());
  }

  @Test
  void aCancellationEndsTheFanOut() throws Exception {
    CompletableFuture<FanOutResult<String>> running = asks("wait").start();
    workers.seen(1);
    running.cancel(false);
    workers.awaitCancelled();
  }

  @Test
  void optionsOutOfBounds() {
    assertThrows(IllegalArgumentException.class, () -> FanOut.within(Duration.ZERO));
    assertThrows(IllegalArgumentException.class, () -> asks("a").withQuorum(2));
    assertThrows(IllegalArgumentException.class, () -> asks("a").withReplicaRatio(2));
    assertThrows(IllegalArgumentException.class, () -> Mark.fanOut(0));
    assertEquals(1, asks().call().check().coverage());
    FanOut<String> broken = asks("wait");
    broken.ask(
        () -> {
          throw new IllegalStateException("no such method");
        });
    assertThrows(IllegalStateException.class, broken::call);
  }

  @Test
  void markedCallsAreOneFanOut() throws Exception {
    Mark mark = Mark.fanOut(3).withResponseBytes(17);
    call(channel, "a").get().get();
    mark.call(() -> call(channel, "a").get().get());
    Metadata own = new Metadata();
    own.put(Mark.BLOCK, "own");
    Channel withOwn = ClientInterceptors.intercept(channel, MetadataUtils.newAttachHeadersInterceptor(own));
    mark.call(() -> call(withOwn, "a").get().get());
    mark.run(() -> ClientCalls.blockingServerStreamingCall(channel, Workers.STREAM, CallOptions.DEFAULT, "a").next());
    Thread thread = new Thread(mark.in(Context.current()).wrap(() -> join(call(channel, "a").get())));
    thread.start();
    thread.join();
    List<Metadata> seen = workers.seen(5);
    String block = values(seen, "sluice-block").get(1);
    assertNotEquals("", block);
    assertEquals(List.of("", block, "own", block, block), values(seen, "sluice-block"));
    assertEquals(List.of("", "3", "", "3", "3"), values(seen, "sluice-weight"));
    assertEquals(List.of("", "17", "17", "17", "17"), values(seen, "sluice-response-bytes"));
  }

  private static void join(Future<String> response) {
    try {
      response.get();
    } catch (Exception e) {
      throw new AssertionError(e);
    }
  }
}
