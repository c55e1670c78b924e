//! Calls to the workers directly: the tests read the metadata that a proxy would receive.

mod common;

use std::time::Duration;

use common::{call, client, patient, value, Client, Workers, PATIENCE};
use sluice_rpc::{fan_out, Ask, Mark, Options};
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;

async fn set_up() -> (Workers, Client) {
    let workers = Workers::serve(&["127.0.0.1:0"]).await;
    let client = client(&format!("http://{}", workers.addresses[0]), "worker:1");
    (workers, client)
}

fn asks(worker: &Client, requests: &[&str]) -> Vec<Ask<i32>> {
    requests.iter().map(|request| Ask::new(call(worker, request))).collect()
}

fn codes(errors: &[Option<tonic::Status>]) -> Vec<Option<Code>> {
    errors.iter().map(|error| error.as_ref().map(|status| status.code())).collect()
}

#[tokio::test]
async fn responses_are_in_the_order_of_the_calls() {
    let (mut workers, worker) = set_up().await;
    let options = Options { traffic_class: Some("queries".into()), ..Options::new(PATIENCE) };
    let result = fan_out(asks(&worker, &["1", "2", "3"]), options.clone()).await.unwrap().check().unwrap();
    assert_eq!(result.responses, [Some(1), Some(2), Some(3)]);
    assert_eq!(codes(&result.errors), [None; 3]);
    assert_eq!(result.coverage(), 1.0);
    let seen = workers.seen(3).await;
    for metadata in &seen {
        assert_eq!(value(metadata, "sluice-weight"), "3");
        assert_eq!(value(metadata, "sluice-class"), "queries");
        assert_ne!(value(metadata, "sluice-block"), "");
        assert_eq!(value(metadata, "sluice-block"), value(&seen[0], "sluice-block"));
        assert_ne!(value(metadata, "grpc-timeout"), "");
    }
    fan_out(asks(&worker, &["1"]), options).await.unwrap();
    assert_ne!(value(&workers.seen(1).await[0], "sluice-block"), value(&seen[0], "sluice-block"));
}

#[tokio::test]
async fn errors_are_kept() {
    let (_workers, worker) = set_up().await;
    let result = fan_out(asks(&worker, &["1", "internal", "3"]), Options::new(PATIENCE)).await.unwrap();
    assert_eq!(result.responses, [Some(1), None, Some(3)]);
    assert_eq!(codes(&result.errors), [None, Some(Code::Internal), None]);
    assert!((result.coverage() - 2.0 / 3.0).abs() < 1e-9);
    let error = result.check().unwrap_err();
    assert_eq!(error.to_string(), "2 of 3 calls responded, 3 must respond; call 1: Internal: as requested");
    assert_eq!(error.status().map(tonic::Status::code), Some(Code::Internal));
}

#[tokio::test]
async fn a_quorum_ends_the_fan_out_and_cancels_the_rest() {
    let (mut workers, worker) = set_up().await;
    let (waits, arrived) = tokio::sync::oneshot::channel();
    let second = call(&worker, "2");
    let late = Ask::new(async move {
        arrived.await.expect("the call that waits");
        second.await
    });
    let all: Vec<_> = asks(&worker, &["wait"]).into_iter().chain([late]).collect();
    let options = Options { quorum: Some(1), ..Options::new(PATIENCE) };
    let (result, ()) = tokio::join!(fan_out(all, options), async {
        workers.seen(1).await;
        waits.send(()).expect("the second call");
    });
    let result = result.unwrap().check().unwrap();
    assert_eq!(result.responses, [None, Some(2)]);
    assert_eq!(codes(&result.errors), [None, None]);
    workers.cancelled().await;
}

#[tokio::test]
async fn a_quorum_that_cannot_be_reached_ends_the_fan_out() {
    let (_workers, worker) = set_up().await;
    let options = Options { quorum: Some(2), ..Options::new(PATIENCE) };
    let result = fan_out(asks(&worker, &["wait", "internal", "internal"]), options).await.unwrap();
    assert!(!result.is_ok());
    assert_eq!(result.answered, 0);
}

#[tokio::test]
async fn a_worker_that_is_unavailable_is_replaced() {
    let (mut workers, worker) = set_up().await;
    let replaced = Ask::new(call(&worker, "unavailable")).replica(call(&worker, "7"));
    let all = [replaced, Ask::new(call(&worker, "2"))];
    let result = fan_out(all, Options::new(PATIENCE)).await.unwrap();
    assert_eq!(result.responses, [Some(7), Some(2)]);
    assert_eq!((result.retries, result.hedges), (1, 0));
    let seen = workers.seen(3).await;
    let blocks = seen.iter().filter(|metadata| !value(metadata, "sluice-block").is_empty());
    assert_eq!(blocks.count(), 2, "a replica's call is a block of its own");
}

#[tokio::test]
async fn a_late_call_is_hedged_within_the_ratio() {
    let (mut workers, worker) = set_up().await;
    let hedged = || Ask::new(call(&worker, "wait")).replica(call(&worker, "wait"));
    let options = Options { hedge_after: Some(Duration::ZERO), ..Options::new(PATIENCE) };
    let (result, ()) = tokio::join!(fan_out([hedged(), hedged()], options), async {
        workers.seen(3).await;
        workers.release();
    });
    assert_eq!(result.unwrap().check().unwrap().hedges, 1, "of 2 calls, one may be repeated");
    let none = Options { replica_ratio: 0.0, ..Options::new(PATIENCE) };
    let ask = Ask::new(call(&worker, "unavailable")).replica(call(&worker, "1"));
    assert_eq!(fan_out([ask], none).await.unwrap().retries, 0);
}

#[tokio::test]
async fn a_failure_is_replaced_at_once_while_a_hedge_hangs() {
    let (mut workers, worker) = set_up().await;
    let (hedged, arrived) = tokio::sync::oneshot::channel();
    let fails = async move {
        arrived.await.expect("the hedge");
        Err(tonic::Status::unavailable("as requested"))
    };
    let ask = Ask::new(fails).replica(call(&worker, "wait")).replica(call(&worker, "7"));
    let options = Options { hedge_after: Some(Duration::ZERO), ..Options::new(PATIENCE) };
    let (result, ()) = tokio::join!(fan_out([ask], options), async {
        workers.seen(1).await;
        hedged.send(()).expect("the first call");
    });
    let result = result.unwrap();
    assert_eq!(result.responses, [Some(7)]);
    assert_eq!((result.hedges, result.retries), (1, 1));
}

#[tokio::test]
async fn a_deadline_is_an_error_of_the_call() {
    let (mut workers, worker) = set_up().await;
    let result = fan_out(asks(&worker, &["wait"]), Options::new(Duration::from_millis(50))).await.unwrap();
    assert_eq!(codes(&result.errors), [Some(Code::DeadlineExceeded)]);
    workers.cancelled().await;
}

#[tokio::test]
async fn a_fan_out_that_is_dropped_cancels_its_calls() {
    let (mut workers, worker) = set_up().await;
    let running = tokio::spawn(fan_out(asks(&worker, &["wait"]), Options::new(PATIENCE)));
    workers.seen(1).await;
    running.abort();
    workers.cancelled().await;
}

#[tokio::test]
async fn options_out_of_bounds() {
    let (_workers, worker) = set_up().await;
    let refused = [
        (
            Options { quorum: Some(2), ..Options::new(PATIENCE) },
            "quorum 2 is not a number from 1 to 1, the number of calls",
        ),
        (Options { replica_ratio: 2.0, ..Options::new(PATIENCE) }, "replica_ratio 2 is not from 0 to 1"),
        (
            Options { traffic_class: Some("\n".into()), ..Options::new(PATIENCE) },
            "traffic_class \"\\n\": failed to parse metadata value",
        ),
    ];
    for (options, message) in refused {
        assert_eq!(fan_out(asks(&worker, &["1"]), options).await.unwrap_err().to_string(), message);
    }
    let none = fan_out(Vec::<Ask<i32>>::new(), Options::new(PATIENCE)).await.unwrap();
    assert_eq!(none.check().unwrap().coverage(), 1.0);
}

#[test]
#[should_panic = "a fan-out of 0 calls; it has 1 to 65536"]
fn a_fan_out_without_calls() {
    Mark::fan_out(0);
}

#[tokio::test]
async fn marked_calls_are_one_fan_out() {
    let (mut workers, worker) = set_up().await;
    let mark = Mark::fan_out(3).class("scan").unwrap().response_bytes(17);
    call(&worker, "1").await.unwrap();
    mark.clone().scope(call(&worker, "1")).await.unwrap();
    let mut own = Request::new(HealthCheckRequest { service: "1".into() });
    own.metadata_mut().insert("sluice-block", "own".parse().unwrap());
    mark.clone().scope(worker.clone().check(own)).await.unwrap();
    let mut watching = worker.clone();
    let watch = watching.watch(HealthCheckRequest::default());
    patient(mark.scope(watch)).await.unwrap();
    let seen = workers.seen(4).await;
    let of = |key| seen.iter().map(|metadata| value(metadata, key)).collect::<Vec<_>>();
    let block = value(&seen[1], "sluice-block");
    assert_ne!(block, "");
    assert_eq!(of("sluice-block"), ["", block, "own", block]);
    assert_eq!(of("sluice-weight"), ["", "3", "", "3"]);
    assert_eq!(of("sluice-class"), ["", "scan", "scan", "scan"]);
    assert_eq!(of("sluice-response-bytes"), ["", "17", "17", "17"]);
}
