package sluice.rpc;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.ForwardingClientCall.SimpleForwardingClientCall;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;

/** Adds the metadata of the current {@link Mark} to calls. Calls that carry such metadata keep them. Thread-safe. */
public final class FanOutInterceptor implements ClientInterceptor {
  @Override
  public <Q, P> ClientCall<Q, P> interceptCall(MethodDescriptor<Q, P> method, CallOptions options, Channel next) {
    Mark mark = Mark.current();
    return new SimpleForwardingClientCall<Q, P>(next.newCall(method, options)) {
      @Override
      public void start(Listener<P> listener, Metadata metadata) {
        mark.addTo(metadata);
        super.start(listener, metadata);
      }
    };
  }
}
