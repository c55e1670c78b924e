package sluice.examples;

import com.google.common.util.concurrent.ListenableFuture;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import sluice.testbed.v1.AnswersGrpc;
import sluice.testbed.v1.AnswersOuterClass.AnswerRequest;
import sluice.testbed.v1.AnswersOuterClass.AnswerResponse;

/** Calls all workers at once, with grpc-java alone. There is one in a program, and any thread may use it. */
final class FanOut implements AutoCloseable {
  private final List<ManagedChannel> channels = new ArrayList<>();
  private final List<AnswersGrpc.AnswersFutureStub> workers = new ArrayList<>();

  /**
   * Creates a channel to each worker. If the system properties https.proxyHost and https.proxyPort are set, gRPC itself uses
   * that proxy. With {@code via}, channels connect to that address instead, and name their worker in :authority.
   */
  FanOut(List<String> addresses, String via) {
    for (String worker : addresses) {
      ManagedChannelBuilder<?> builder =
          via == null
              ? ManagedChannelBuilder.forTarget(worker)
              : ManagedChannelBuilder.forTarget(via).overrideAuthority(worker);
      ManagedChannel channel = builder.usePlaintext().build();
      channels.add(channel);
      workers.add(AnswersGrpc.newFutureStub(channel));
    }
  }

  /** Returns the responses in the order of the workers, or the first error in that order. Then cancels the other calls. */
  List<AnswerResponse> ask(AnswerRequest request, double timeoutSeconds) throws ExecutionException, InterruptedException {
    long timeoutUs = Math.round(1e6 * timeoutSeconds);
    List<ListenableFuture<AnswerResponse>> calls = new ArrayList<>();
    for (AnswersGrpc.AnswersFutureStub worker : workers) {
      calls.add(worker.withDeadlineAfter(timeoutUs, TimeUnit.MICROSECONDS).answer(request));
    }
    try {
      List<AnswerResponse> responses = new ArrayList<>();
      for (ListenableFuture<AnswerResponse> call : calls) {
        responses.add(call.get());
      }
      return responses;
    } finally {
      calls.forEach(call -> call.cancel(true)); // no effect on calls that have ended
    }
  }

  @Override
  public void close() {
    channels.forEach(ManagedChannel::shutdownNow);
  }
}
