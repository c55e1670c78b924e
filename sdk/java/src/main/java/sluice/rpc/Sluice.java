package sluice.rpc;

import io.grpc.ChannelCredentials;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannelBuilder;

/** Channels by sluice-proxy, which serves one fan-out before the next. */
public final class Sluice {
  /** The Unix socket of the proxy's default config. Netty needs its native library for it, which Linux on x86-64 has. */
  public static final String DEFAULT_PROXY = "unix:/run/sluice/proxy.sock";

  private Sluice() {}

  /** Returns a builder of a channel to a worker (host:port) by the proxy, in plaintext, with the interceptor. */
  public static ManagedChannelBuilder<?> proxied(String proxy, String worker) {
    ChannelCredentials plaintext = InsecureChannelCredentials.create();
    return Grpc.newChannelBuilder(proxy, plaintext)
        .overrideAuthority(worker)
        .proxyDetector(target -> null) // a proxy of the system's properties would be asked for a tunnel to this one
        .intercept(new FanOutInterceptor());
  }
}
