use std::env;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::Uri;
use tower_service::Service;

const MAX_RESPONSE_BYTES: usize = 8192; // of a proxy to CONNECT

/// Connects a channel through the HTTP proxy that the environment names, by CONNECT, as gRPC's own libraries do:
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let worker = tonic::transport::Endpoint::from_static("http://10.0.0.1:7000");
/// let channel = worker.connect_with_connector_lazy(sluice_rpc::ProxyConnector::from_env()?);
/// # Ok(())
/// # }
/// ```
///
/// The first of `grpc_proxy`, `https_proxy` and `http_proxy` that is set names the proxy, `http://host:port`. The first
/// of `no_grpc_proxy` and `no_proxy` lists what is connected directly, separated by commas: hosts, domains with all that is
/// in them (`svc`, `.svc`, `*.svc`), addresses, networks (`10.0.0.0/8`), each also with a port; `*` stands for all.
#[derive(Clone, Debug, Default)]
pub struct ProxyConnector {
    proxy: Option<String>, // host:port
    direct: Arc<[Direct]>,
}

/// One entry of `no_proxy`.
#[derive(Debug)]
struct Direct {
    port: Option<u16>, // none: each
    hosts: Matcher,
}

impl Direct {
    fn parse(entry: &str) -> Self {
        let with_port = entry.rsplit_once(':').filter(|(host, _)| host.ends_with(']') || !host.contains(':'));
        let with_port = with_port.and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let host = with_port.map_or(entry, |(host, _)| host);
        let host = host.trim_matches(['[', ']']).trim_end_matches('.');
        let host = if host.starts_with("*.") { &host[1..] } else { host };
        // The matcher gives the hosts that it does not list to a proxy, whichever that is.
        Self { port: with_port.map(|(_, port)| port), hosts: Matcher::builder().all("http://proxy").no(host).build() }
    }

    fn contains(&self, worker: &Uri, port: u16) -> bool {
        self.port.is_none_or(|own| own == port) && self.hosts.intercept(worker).is_none()
    }
}

impl ProxyConnector {
    /// Reads the environment.
    pub fn from_env() -> Result<Self, ProxyError> {
        Self::from_variables(|name| env::var(name).ok())
    }

    /// Connects every host by this proxy, `http://host:port`.
    pub fn new(proxy: &str) -> Result<Self, ProxyError> {
        Ok(Self { proxy: Some(address_of(proxy)?), direct: Arc::default() })
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ProxyError> {
        let first = |names: &[&str]| names.iter().find_map(|name| variable(name).filter(|value| !value.is_empty()));
        let Some(proxy) = first(&["grpc_proxy", "https_proxy", "http_proxy"]) else { return Ok(Self::default()) };
        let direct = first(&["no_grpc_proxy", "no_proxy"]).unwrap_or_default();
        let direct = direct.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        Ok(Self { direct: direct.map(Direct::parse).collect(), ..Self::new(&proxy)? })
    }

    fn proxy_of(&self, host: &str, port: u16) -> Option<&str> {
        let worker: Option<Uri> = format!("http://{}/", host.trim_end_matches('.')).parse().ok();
        let direct = worker.is_some_and(|worker| self.direct.iter().any(|entry| entry.contains(&worker, port)));
        self.proxy.as_deref().filter(|_| !direct)
    }
}

/// The proxy cannot be used.
#[derive(Debug)]
pub struct ProxyError(String);

impl fmt::Display for ProxyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for ProxyError {}

fn address_of(proxy: &str) -> Result<String, ProxyError> {
    let unusable = || ProxyError(format!("the proxy {proxy:?} is not http://host:port"));
    let uri: Uri = if proxy.contains("://") { proxy.to_string() } else { format!("http://{proxy}") }
        .parse()
        .map_err(|_| unusable())?;
    let host = uri.host().ok_or_else(unusable)?;
    let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    if uri.scheme_str() != Some("http") || has_user {
        return Err(unusable());
    }
    Ok(format!("{host}:{}", uri.port_u16().unwrap_or(80)))
}

impl Service<Uri> for ProxyConnector {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, worker: Uri) -> Self::Future {
        let host = worker.host().unwrap_or_default().to_string();
        let port = worker.port_u16().unwrap_or(if worker.scheme_str() == Some("https") { 443 } else { 80 });
        let proxy = self.proxy_of(&host, port).map(str::to_string);
        Box::pin(async move {
            let worker = format!("{host}:{port}");
            let stream = match proxy {
                Some(proxy) => tunnel(TcpStream::connect(proxy).await?, &worker).await?,
                None => TcpStream::connect(worker).await?,
            };
            stream.set_nodelay(true)?;
            Ok(TokioIo::new(stream))
        })
    }
}

async fn tunnel(mut stream: TcpStream, worker: &str) -> io::Result<TcpStream> {
    stream.write_all(format!("CONNECT {worker} HTTP/1.1\r\nHost: {worker}\r\n\r\n").as_bytes()).await?;
    let mut response = Vec::new();
    // Byte by byte: the bytes that follow belong to the tunnel.
    while !response.ends_with(b"\r\n\r\n") {
        if response.len() == MAX_RESPONSE_BYTES {
            return Err(io::Error::other("the response of the proxy to CONNECT is too long"));
        }
        response.push(stream.read_u8().await?);
    }
    let text = String::from_utf8_lossy(&response);
    let line = text.lines().next().unwrap_or_default();
    match line.split(' ').nth(1) {
        Some(code) if code.starts_with('2') => Ok(stream),
        _ => Err(io::Error::other(format!("CONNECT {worker}: the proxy responded {line:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connector(variables: &[(&str, &str)]) -> Result<ProxyConnector, ProxyError> {
        ProxyConnector::from_variables(|name| {
            variables.iter().find(|(set, _)| *set == name).map(|(_, value)| value.to_string())
        })
    }

    #[test]
    fn the_first_variable_names_the_proxy() {
        let both = connector(&[("http_proxy", "http://b:2"), ("grpc_proxy", "a:1")]).unwrap();
        assert_eq!(both.proxy_of("worker", 1), Some("a:1"));
        assert_eq!(connector(&[("http_proxy", "http://b:2/")]).unwrap().proxy_of("worker", 1), Some("b:2"));
        assert_eq!(connector(&[("http_proxy", "")]).unwrap().proxy_of("worker", 1), None);
        assert_eq!(connector(&[("https_proxy", "http://[::1]:3")]).unwrap().proxy_of("worker", 1), Some("[::1]:3"));
    }

    #[test]
    fn some_hosts_are_connected_directly() {
        let direct = "localhost, .svc,*.local.,10.0.0.1,fd00::/8,[::1]:7,172.16.0.0/12,a.example:7000,[fd01::1]";
        let made = connector(&[("http_proxy", "b:2"), ("no_proxy", direct)]).unwrap();
        for host in [
            "localhost",
            "LOCALHOST",
            "localhost.",
            "svc",
            "a.svc",
            "a.SVC.",
            "x.local",
            "10.0.0.1",
            "[fd00::7]",
            "[::1]",
            "172.17.0.1",
            "a.example",
            "[fd01::1]",
        ] {
            let port = if host == "a.example" { 7000 } else { 7 };
            assert_eq!(made.proxy_of(host, port), None, "{host}");
        }
        for host in
            ["notlocalhost", "asvc", "svc.example", "110.0.0.1", "172.32.0.1", "[fe80::1]", "a.example", "xlocal"]
        {
            assert_eq!(made.proxy_of(host, 7), Some("b:2"), "{host}");
        }
        assert_eq!(made.proxy_of("[::1]", 8), Some("b:2"));
        let all = connector(&[("http_proxy", "b:2"), ("no_grpc_proxy", "*"), ("no_proxy", "x")]).unwrap();
        assert_eq!(all.proxy_of("worker", 1), None);
    }

    #[test]
    fn other_proxies_are_refused() {
        for proxy in ["socks5://a:1", "https://a:1", "http://user@a:1", "http://", "http://a b"] {
            let error = connector(&[("http_proxy", proxy)]).unwrap_err();
            assert_eq!(error.to_string(), format!("the proxy {proxy:?} is not http://host:port"));
        }
    }
}
