//! The snippets of docs/guides/proxy-by-language.md for Rust: client authority|fan-out WORKER...

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

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let way = std::env::args().nth(1).expect("a way");
    let workers: Vec<String> = std::env::args().skip(2).collect();
    let block = uuid::Uuid::new_v4();
    let mut calls = Vec::new();
    for worker in &workers {
        let mut client = HealthClient::new(by_authority(worker)?);
        let mut request = tonic::Request::new(HealthCheckRequest::default());
        request.set_timeout(std::time::Duration::from_secs(30));
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
