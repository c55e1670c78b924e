#![allow(dead_code)] // each test uses a part

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::codegen::tokio_stream::Stream;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

pub const PATIENCE: Duration = Duration::from_secs(30);

/// One server at several addresses. The request decides about the response: "wait" waits for `release`, "unavailable" and
/// "internal" fail, and a number is the response.
pub struct Workers {
    pub addresses: Vec<String>,
    calls: mpsc::UnboundedReceiver<MetadataMap>,
    cancelled: mpsc::UnboundedReceiver<()>,
    released: watch::Sender<bool>,
}

#[derive(Clone)]
struct Service {
    calls: mpsc::UnboundedSender<MetadataMap>,
    cancelled: mpsc::UnboundedSender<()>,
    released: watch::Receiver<bool>,
}

/// Reports a call that is dropped before it responds.
struct Waiting(Option<mpsc::UnboundedSender<()>>);

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(cancelled) = self.0.take() {
            let _ = cancelled.send(());
        }
    }
}

#[tonic::async_trait]
impl Health for Service {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let _ = self.calls.send(request.metadata().clone());
        let status = match request.get_ref().service.as_str() {
            "wait" => {
                let mut waiting = Waiting(Some(self.cancelled.clone()));
                let _ = self.released.clone().wait_for(|released| *released).await;
                waiting.0 = None;
                0
            }
            "unavailable" => return Err(Status::unavailable("as requested")),
            "internal" => return Err(Status::internal("as requested")),
            number => number.parse().map_err(|_| Status::invalid_argument(number))?,
        };
        Ok(Response::new(HealthCheckResponse { status }))
    }

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let _ = self.calls.send(request.metadata().clone());
        Ok(Response::new(Box::pin(tokio_stream::once(Ok(HealthCheckResponse { status: 1 })))))
    }
}

impl Workers {
    pub async fn serve(listens: &[&str]) -> Self {
        let (calls_sent, calls) = mpsc::unbounded_channel();
        let (cancelled_sent, cancelled) = mpsc::unbounded_channel();
        let (released, released_seen) = watch::channel(false);
        let service = Service { calls: calls_sent, cancelled: cancelled_sent, released: released_seen };
        let mut addresses = Vec::new();
        for listen in listens {
            let listener = TcpListener::bind(listen).await.expect("an address of this host");
            addresses.push(listener.local_addr().expect("a port").to_string());
            let server = tonic::transport::Server::builder().add_service(HealthServer::new(service.clone()));
            tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        }
        Self { addresses, calls, cancelled, released }
    }

    pub fn release(&self) {
        self.released.send_replace(true);
    }

    /// Returns the metadata of the next calls that arrive.
    pub async fn seen(&mut self, calls: usize) -> Vec<MetadataMap> {
        let mut all = Vec::new();
        while all.len() < calls {
            all.push(patient(self.calls.recv()).await.expect("a call"));
        }
        all
    }

    pub async fn cancelled(&mut self) {
        patient(self.cancelled.recv()).await.expect("a call that is cancelled");
    }
}

pub async fn patient<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("an end in time")
}

pub fn value<'a>(metadata: &'a MetadataMap, key: &str) -> &'a str {
    metadata.get(key).map_or("", |value| value.to_str().expect("ASCII"))
}

pub type Client = HealthClient<sluice_rpc::ProxiedChannel>;

pub fn client(proxy: &str, worker: &str) -> Client {
    HealthClient::new(sluice_rpc::proxied(proxy, worker).expect("two addresses"))
}

pub fn call(client: &Client, request: &str) -> impl Future<Output = Result<i32, Status>> + Send + 'static {
    let (mut client, request) = (client.clone(), HealthCheckRequest { service: request.to_string() });
    async move { Ok(client.check(request).await?.into_inner().status) }
}
