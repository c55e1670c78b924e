//! The snippets of docs/guides/proxy-by-language.md for Rust: client authority|fan-out|package|connector WORKER...

use std::time::Duration;

use sluice_rpc::{Ask, Options, ProxyConnector};
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint, Error};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::HealthCheckRequest;

fn by_authority(worker: &str) -> Result<Channel, Error> {
    // [snippet]
    let worker = format!("http://{worker}").parse().expect("the address of a worker");
    let channel = Endpoint::from_static("http://127.0.0.1:7400").origin(worker).connect_lazy();
    // [snippet]
    Ok(channel)
}

fn add_fan_out(metadata: &mut MetadataMap, block: uuid::Uuid, workers: usize) {
    // [snippet]
    metadata.insert("sluice-block", block.to_string().parse().expect("an id"));
    metadata.insert("sluice-weight", workers.into());
    // [snippet]
}

fn by_environment(worker: &str) -> Result<Channel, Box<dyn std::error::Error>> {
    // [snippet]
    let worker = Endpoint::from_shared(format!("http://{worker}"))?;
    let channel = worker.connect_with_connector_lazy(ProxyConnector::from_env()?);
    // [snippet]
    Ok(channel)
}

async fn by_package(workers: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let mut asks = Vec::new();
    for worker in workers {
        // [snippet]
        let mut client = HealthClient::new(sluice_rpc::proxied(sluice_rpc::DEFAULT_PROXY, worker)?);
        asks.push(Ask::new(async move { client.check(HealthCheckRequest::default()).await }));
        // [snippet]
    }
    // [snippet]
    let options = Options { quorum: Some(workers.len()), ..Options::new(Duration::from_secs(30)) };
    let result = sluice_rpc::fan_out(asks, options).await?.check()?;
    // [snippet]
    for response in result.responses {
        assert_eq!(response.expect("a response").into_inner().status(), ServingStatus::Serving);
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let way = std::env::args().nth(1).expect("a way");
    let workers: Vec<String> = std::env::args().skip(2).collect();
    if way == "package" {
        by_package(&workers).await?;
        println!("{} served", workers.len());
        return Ok(());
    }
    let block = uuid::Uuid::new_v4();
    let mut calls = Vec::new();
    for worker in &workers {
        let channel = if way == "connector" { by_environment(worker)? } else { by_authority(worker)? };
        let mut client = HealthClient::new(channel);
        let mut request = tonic::Request::new(HealthCheckRequest::default());
        request.set_timeout(Duration::from_secs(30));
        if way == "fan-out" {
            add_fan_out(request.metadata_mut(), block, workers.len());
        }
        calls.push(tokio::spawn(async move { client.check(request).await }));
    }
    for call in calls {
        let answer = call.await??.into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving);
    }
    println!("{} served", workers.len());
    Ok(())
}
