//! Fan-outs of gRPC calls through sluice-proxy, which serves one fan-out before the next.
//!
//! [`fan_out`] asks many workers at once. [`Mark`] marks the calls that a program makes itself. Both need channels of
//! [`proxied`], or channels with [`FanOutInterceptor`]. [`ProxyConnector`] sends channels through the proxy that the
//! environment names, which tonic does not do by itself.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod connector;
mod fan_out;
mod mark;

pub use connector::{ProxyConnector, ProxyError};
pub use fan_out::{fan_out, Ask, FanOutError, FanOutResult, OptionError, Options};
pub use mark::{FanOutInterceptor, Mark, MAX_CALLS};

use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint, Error};

/// The Unix socket of the proxy's default config.
pub const DEFAULT_PROXY: &str = "unix:/run/sluice/proxy.sock";

/// A channel whose calls carry the metadata of their fan-out.
pub type ProxiedChannel = InterceptedService<Channel, FanOutInterceptor>;

/// Returns a channel to a worker (host:port) by the proxy, in plaintext, with the interceptor. It connects at the first
/// call. The proxy is `http://host:port` or `unix:PATH`.
pub fn proxied(proxy: &str, worker: &str) -> Result<ProxiedChannel, Error> {
    let origin = Endpoint::from_shared(format!("http://{worker}"))?.uri().clone();
    let channel = Endpoint::from_shared(proxy.to_string())?.origin(origin).connect_lazy();
    Ok(InterceptedService::new(channel, FanOutInterceptor))
}
