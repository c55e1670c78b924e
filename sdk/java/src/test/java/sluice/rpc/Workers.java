package sluice.rpc;

import com.google.common.util.concurrent.ListenableFuture;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ForwardingServerCallListener.SimpleForwardingServerCallListener;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.ServerCalls;
import io.grpc.stub.StreamObserver;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/**
 * One server at several addresses. The request decides about the response: "wait" waits for release(), "unavailable" and
 * "internal" fail, and any other request is the response.
 */
final class Workers implements AutoCloseable {
  static final int PATIENCE_S = 30;

  private static final class Text implements MethodDescriptor.Marshaller<String> {
    @Override
    public InputStream stream(String value) {
      return new ByteArrayInputStream(value.getBytes(StandardCharsets.UTF_8));
    }

    @Override
    public String parse(InputStream stream) {
      try {
        return new String(stream.readAllBytes(), StandardCharsets.UTF_8);
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
  }

  private static MethodDescriptor<String, String> method(String name, MethodDescriptor.MethodType type) {
    return MethodDescriptor.newBuilder(new Text(), new Text()).setType(type).setFullMethodName("test.Test/" + name).build();
  }

  static final MethodDescriptor<String, String> UNARY = method("Method", MethodDescriptor.MethodType.UNARY);
  static final MethodDescriptor<String, String> STREAM = method("Stream", MethodDescriptor.MethodType.SERVER_STREAMING);

  private final BlockingQueue<Metadata> calls = new LinkedBlockingQueue<>();
  private final Semaphore cancelled = new Semaphore(0);
  private final CompletableFuture<Void> released = new CompletableFuture<>();
  private final Server server;
  final List<String> addresses = new ArrayList<>();

  Workers(String... listens) throws IOException {
    List<SocketAddress> sockets = new ArrayList<>();
    for (String listen : listens) {
      sockets.add(new InetSocketAddress(listen.substring(0, listen.lastIndexOf(':')), 0));
    }
    NettyServerBuilder builder = NettyServerBuilder.forAddress(sockets.get(0));
    sockets.subList(1, sockets.size()).forEach(builder::addListenAddress);
    ServerInterceptor recorder =
        new ServerInterceptor() {
          @Override
          public <Q, P> ServerCall.Listener<Q> interceptCall(
              ServerCall<Q, P> call, Metadata metadata, ServerCallHandler<Q, P> next) {
            calls.add(metadata);
            return new SimpleForwardingServerCallListener<Q>(next.startCall(call, metadata)) {
              @Override
              public void onCancel() {
                cancelled.release();
                super.onCancel();
              }
            };
          }
        };
    ServerServiceDefinition service =
        ServerServiceDefinition.builder("test.Test")
            .addMethod(UNARY, ServerCalls.asyncUnaryCall(this::serve))
            .addMethod(STREAM, ServerCalls.asyncServerStreamingCall(this::serve))
            .build();
    server = builder.addService(service).intercept(recorder).build().start();
    for (SocketAddress socket : server.getListenSockets()) {
      InetSocketAddress address = (InetSocketAddress) socket;
      addresses.add(address.getAddress().getHostAddress() + ":" + address.getPort());
    }
  }

  private void serve(String request, StreamObserver<String> observer) {
    switch (request) {
      case "wait" -> {
        ((ServerCallStreamObserver<String>) observer).setOnCancelHandler(() -> {}); // otherwise onNext throws after it
        released.thenRun(() -> respond(observer, "waited"));
      }
      case "unavailable" -> observer.onError(Status.UNAVAILABLE.withDescription("as requested").asException());
      case "internal" -> observer.onError(Status.INTERNAL.withDescription("as requested").asException());
      default -> respond(observer, request);
    }
  }

  private static void respond(StreamObserver<String> observer, String response) {
    observer.onNext(response);
    observer.onCompleted();
  }

  void release() {
    released.complete(null);
  }

  /** Returns the metadata of the next calls that arrive. */
  List<Metadata> seen(int count) throws InterruptedException {
    List<Metadata> all = new ArrayList<>();
    while (all.size() < count) {
      Metadata next = calls.poll(PATIENCE_S, TimeUnit.SECONDS);
      if (next == null) {
        throw new AssertionError(all.size() + " of " + count + " calls arrived");
      }
      all.add(next);
    }
    return all;
  }

  void awaitCancelled() throws InterruptedException {
    if (!cancelled.tryAcquire(PATIENCE_S, TimeUnit.SECONDS)) {
      throw new AssertionError("no call was cancelled");
    }
  }

  static Supplier<ListenableFuture<String>> call(Channel channel, String request) {
    return () -> ClientCalls.futureUnaryCall(channel.newCall(UNARY, CallOptions.DEFAULT), request);
  }

  /** Returns one field of each call, or "" for a call without it. */
  static List<String> values(List<Metadata> all, String name) {
    Metadata.Key<String> key = Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER);
    return all.stream().map(metadata -> metadata.containsKey(key) ? metadata.get(key) : "").toList();
  }

  @Override
  public void close() {
    server.shutdownNow();
  }
}
