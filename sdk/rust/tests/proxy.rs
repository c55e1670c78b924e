//! Tests with a real sluice-proxy: SLUICE_TEST_PROXY is its address, SLUICE_TEST_HTTP_PROXY the same for CONNECT, and
//! SLUICE_TEST_ADMIN its admin address. The tests serve the workers themselves, at the addresses SLUICE_TEST_WORKERS with
//! port 0, which the proxy must permit. Without these variables, they do nothing.

mod common;

use std::env;

use common::{call, client, patient, Client, Workers, PATIENCE};
use sluice_rpc::{fan_out, Ask, FanOutInterceptor, Mark, Options, ProxyConnector};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::Endpoint;
use tonic::Code;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::HealthCheckRequest;

async fn set_up() -> Option<(Workers, Vec<Client>)> {
    let proxy = env::var("SLUICE_TEST_PROXY").ok()?;
    let listens = env::var("SLUICE_TEST_WORKERS").expect("the addresses of workers");
    let workers = Workers::serve(&listens.split(',').collect::<Vec<_>>()).await;
    let clients = workers.addresses.iter().map(|worker| client(&proxy, worker)).collect();
    Some((workers, clients))
}

fn waiting(clients: &[Client]) -> Vec<Ask<i32>> {
    clients.iter().map(|client| Ask::new(call(client, "wait"))).collect()
}

async fn expect_metric(line: &str) {
    let mut admin = TcpStream::connect(env::var("SLUICE_TEST_ADMIN").unwrap()).await.unwrap();
    admin.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut page = String::new();
    patient(admin.read_to_string(&mut page)).await.unwrap();
    assert!(page.lines().any(|each| each == line), "{line}: {page}");
}

#[tokio::test]
async fn the_proxy_knows_fan_outs_and_marked_calls() {
    let Some((mut workers, clients)) = set_up().await else { return };
    let calls = clients.len();
    let fan_outs: Vec<_> = (0..3).map(|_| tokio::spawn(fan_out(waiting(&clients), Options::new(PATIENCE)))).collect();
    let mark = Mark::fan_out(calls);
    let marked: Vec<_> = clients.iter().map(|client| tokio::spawn(mark.clone().scope(call(client, "wait")))).collect();
    for metadata in workers.seen(4 * calls).await {
        let names = metadata.keys().map(|key| format!("{key:?}"));
        let ours = names.filter(|name| name.contains("sluice-") && !name.contains("sluice-client"));
        assert_eq!(ours.count(), 0, "{metadata:?}");
    }
    expect_metric("sluice_queued_blocks 4").await;
    workers.release();
    for running in fan_outs {
        running.await.unwrap().unwrap().check().unwrap();
    }
    for running in marked {
        running.await.unwrap().unwrap();
    }
    let unknown = client(&env::var("SLUICE_TEST_PROXY").unwrap(), "192.0.2.1:7000");
    let result = fan_out([Ask::new(call(&unknown, "1"))], Options::new(PATIENCE)).await.unwrap();
    assert_eq!(result.errors[0].as_ref().map(tonic::Status::code), Some(Code::PermissionDenied));
}

#[tokio::test]
async fn the_connector_asks_the_proxy_for_a_tunnel() {
    let Some((workers, _)) = set_up().await else { return };
    let proxy = env::var("SLUICE_TEST_HTTP_PROXY").unwrap();
    let worker = Endpoint::from_shared(format!("http://{}", workers.addresses[0])).unwrap();
    let channel = worker.connect_with_connector_lazy(ProxyConnector::new(&proxy).unwrap());
    let mut client = HealthClient::with_interceptor(channel, FanOutInterceptor);
    let request = || HealthCheckRequest { service: "5".into() };
    let status = Mark::fan_out(1).scope(client.check(request())).await.unwrap().into_inner().status;
    assert_eq!(status, 5);
    expect_metric(r#"sluice_proxy_connections_total{kind="connect"} 1"#).await;

    let closed = Endpoint::from_static("http://10.0.0.1:1");
    let channel = closed.connect_with_connector_lazy(ProxyConnector::new(&proxy).unwrap());
    let error = HealthClient::new(channel).check(request()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    let chain = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
    let text = chain.map(ToString::to_string).collect::<Vec<_>>().join("; ");
    assert!(text.contains("CONNECT 10.0.0.1:1: the proxy responded"), "{text}");
}
