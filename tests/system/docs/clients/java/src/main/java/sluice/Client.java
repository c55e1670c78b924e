package sluice;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientInterceptors;
import io.grpc.Grpc;
import io.grpc.HttpConnectProxiedSocketAddress;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.TlsChannelCredentials;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import java.io.ByteArrayInputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import sluice.rpc.FanOut;
import sluice.rpc.FanOutResult;
import sluice.rpc.Sluice;

/** The snippets of docs/guides/proxy-by-language.md for Java: Client environment|authority|detector|tls|fan-out|package WORKER... */
public final class Client {
  /** Messages as they are, so that no generated code is needed. */
  private static final class Bytes implements MethodDescriptor.Marshaller<byte[]> {
    @Override
    public InputStream stream(byte[] value) {
      return new ByteArrayInputStream(value);
    }

    @Override
    public byte[] parse(InputStream stream) {
      try {
        return stream.readAllBytes();
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
  }

  private static final MethodDescriptor<byte[], byte[]> CHECK =
      MethodDescriptor.newBuilder(new Bytes(), new Bytes())
          .setType(MethodDescriptor.MethodType.UNARY)
          .setFullMethodName("grpc.health.v1.Health/Check")
          .build();

  private static ManagedChannel byAuthority(String worker) {
    // [snippet]
    return Grpc.newChannelBuilder("127.0.0.1:7400", InsecureChannelCredentials.create())
        .overrideAuthority(worker)
        .build();
    // [snippet]
  }

  private static ManagedChannel byDetector(String worker) {
    // [snippet]
    return Grpc.newChannelBuilder(worker, InsecureChannelCredentials.create())
        .proxyDetector(
            target ->
                HttpConnectProxiedSocketAddress.newBuilder()
                    .setTargetAddress((InetSocketAddress) target)
                    .setProxyAddress(new InetSocketAddress("127.0.0.1", 7400))
                    .build())
        .build();
    // [snippet]
  }

  private static ManagedChannel byTls() throws IOException {
    // [snippet]
    TlsChannelCredentials.Builder identity =
        TlsChannelCredentials.newBuilder()
            .trustManager(new File("ca.pem"))
            .keyManager(new File("client.pem"), new File("client.key"));
    return Grpc.newChannelBuilder("127.0.0.1:7443", identity.build()).build();
    // [snippet]
  }

  private static Metadata workerMetadata(String worker) {
    Metadata metadata = new Metadata();
    // [snippet]
    metadata.put(Metadata.Key.of("x-worker", Metadata.ASCII_STRING_MARSHALLER), worker);
    // [snippet]
    return metadata;
  }

  private static Metadata fanOutMetadata(List<String> workers) {
    // [snippet]
    Metadata metadata = new Metadata();
    metadata.put(Metadata.Key.of("sluice-block", Metadata.ASCII_STRING_MARSHALLER), UUID.randomUUID().toString());
    metadata.put(Metadata.Key.of("sluice-weight", Metadata.ASCII_STRING_MARSHALLER), "" + workers.size());
    // [snippet]
    return metadata;
  }

  private static ManagedChannel byPackage(String worker) {
    // [snippet]
    return Sluice.proxied(Sluice.DEFAULT_PROXY, worker).build();
    // [snippet]
  }

  private static List<byte[]> askAll(List<ManagedChannel> channels) {
    // [snippet]
    FanOut<byte[]> fanOut = FanOut.within(Duration.ofSeconds(30));
    for (Channel channel : channels) {
      fanOut.ask(() -> ClientCalls.futureUnaryCall(channel.newCall(CHECK, CallOptions.DEFAULT), new byte[0]));
    }
    FanOutResult<byte[]> result = fanOut.withQuorum(channels.size()).call().check();
    // [snippet]
    return result.responses();
  }

  private static ManagedChannel connect(String way, String worker) throws IOException {
    return switch (way) {
      case "environment" -> Grpc.newChannelBuilder(worker, InsecureChannelCredentials.create()).build();
      case "detector" -> byDetector(worker);
      case "tls" -> byTls();
      case "package" -> byPackage(worker);
      default -> byAuthority(worker);
    };
  }

  public static void main(String[] arguments) throws Exception {
    String way = arguments[0];
    List<String> workers = Arrays.asList(arguments).subList(1, arguments.length);
    List<ManagedChannel> channels = new ArrayList<>();
    for (String worker : workers) {
      channels.add(connect(way, worker));
    }
    List<byte[]> responses = way.equals("package") ? askAll(channels) : new ArrayList<>();
    List<Future<byte[]>> calls = new ArrayList<>();
    for (int i = 0; i < workers.size() && !way.equals("package"); i++) {
      Metadata metadata =
          switch (way) {
            case "tls" -> workerMetadata(workers.get(i));
            case "fan-out" -> fanOutMetadata(workers);
            default -> new Metadata();
          };
      Channel channel = ClientInterceptors.intercept(channels.get(i), MetadataUtils.newAttachHeadersInterceptor(metadata));
      CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(30, TimeUnit.SECONDS);
      calls.add(ClientCalls.futureUnaryCall(channel.newCall(CHECK, options), new byte[0]));
    }
    for (Future<byte[]> call : calls) {
      responses.add(call.get());
    }
    for (byte[] response : responses) {
      if (!Arrays.equals(response, new byte[] {8, 1})) {
        throw new IllegalStateException("the worker says " + Arrays.toString(response));
      }
    }
    channels.forEach(ManagedChannel::shutdownNow);
    System.out.println(responses.size() + " served");
  }
}
