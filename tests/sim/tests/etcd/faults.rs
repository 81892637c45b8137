//! Each fault produces the error that a client of etcd sees.

use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, Error, GetOptions, PutOptions, Txn, TxnOp,
};
use tokio::time::{Instant, timeout};
use tonic::Code;
use watchet_simulation::etcd::{Config, FaultRates, Loss, MemberState, RequestFault};

use crate::harness::{Simulated, seconds};

fn start(seed: u64) -> Simulated {
    Simulated::start(Config::default(), seed)
}

/// Returns the code and the message of a failed call.
fn failure<T: std::fmt::Debug>(result: Result<T, Error>) -> (Code, String) {
    match result {
        Err(Error::GRpcStatus(status)) => (status.code(), status.message().to_owned()),
        other => panic!("{other:?}"),
    }
}

async fn put(client: &mut Client, key: &str) -> Result<i64, Error> {
    let answer = client.put(key, "v", None).await?;
    Ok(answer.header().unwrap().revision())
}

async fn serializable(client: &mut Client, key: &str) -> i64 {
    let options = GetOptions::new().with_serializable();
    client.get(key, Some(options)).await.unwrap().count()
}

#[tokio::test(start_paused = true)]
async fn isolated_member_serves_serializable_reads_only() {
    let simulated = start(1);
    let member = simulated.follower();
    let mut client = simulated.client(member).await;
    put(&mut client, "a").await.unwrap();
    simulated.cluster.isolate(member);
    assert_eq!(serializable(&mut client, "a").await, 1);
    let began = Instant::now();
    let timed_out = (
        Code::Unavailable,
        "etcdserver: request timed out".to_owned(),
    );
    assert_eq!(failure(client.get("a", None).await), timed_out);
    assert_eq!(failure(put(&mut client, "b").await), timed_out);
    assert_eq!(began.elapsed().as_secs(), 14, "twice etcd's timeout");
    simulated.cluster.heal();
    assert_eq!(
        client.get("b", None).await.unwrap().count(),
        0,
        "not executed"
    );
    put(&mut client, "b").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn watch_that_requires_a_leader_ends_without_one() {
    let simulated = start(2);
    let member = simulated.follower();
    let options = ConnectOptions::new().with_require_leader(true);
    let mut client = simulated.client_with(member, options).await;
    let mut watch = client.watch("a", None).await.unwrap();
    assert!(watch.message().await.unwrap().unwrap().created());
    let mut patient = simulated.client(member).await;
    let mut silent = patient.watch("a", None).await.unwrap();
    assert!(silent.message().await.unwrap().unwrap().created());
    simulated.cluster.isolate(member);
    let began = Instant::now();
    let no_leader = (Code::Unavailable, "etcdserver: no leader".to_owned());
    assert_eq!(failure(watch.message().await), no_leader);
    assert!(
        (3..=5).contains(&began.elapsed().as_secs()),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(failure(client.watch("a", None).await), no_leader);
    assert!(
        timeout(Duration::from_secs(60), silent.message())
            .await
            .is_err()
    );
}

#[tokio::test(start_paused = true)]
async fn writes_wait_for_the_end_of_an_election_and_reads_fail() {
    let simulated = start(3);
    let member = simulated.follower();
    let [mut writer, mut reader] = [
        simulated.client(member).await,
        simulated.client(member).await,
    ];
    put(&mut writer, "a").await.unwrap();
    simulated.cluster.elect();
    // The member learns that there is no leader.
    seconds(1).await;
    let began = Instant::now();
    let (write, read) = tokio::join!(put(&mut writer, "a"), reader.get("a", None));
    write.unwrap();
    assert!(
        began.elapsed() <= Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
    let changed = (Code::Unavailable, "etcdserver: leader changed".to_owned());
    assert_eq!(failure(read), changed);
}

/// The message names the failure of the leader if the next one was elected within two election timeouts, as in etcd.
#[tokio::test(start_paused = true)]
async fn write_sent_to_a_failed_leader_times_out() {
    let messages = [
        "etcdserver: request timed out",
        "etcdserver: request timed out, possibly due to previous leader failure",
    ];
    let mut seen = [0, 0];
    for seed in 0..10 {
        let simulated = start(seed);
        let (leader, member) = (simulated.cluster.leader().unwrap(), simulated.follower());
        let mut client = simulated.client(member).await;
        put(&mut client, "a").await.unwrap();
        simulated.cluster.stop(leader);
        let began = Instant::now();
        let (code, message) = failure(put(&mut client, "b").await);
        assert_eq!((code, began.elapsed().as_secs()), (Code::Unavailable, 7));
        let known = messages.iter().position(|known| *known == message);
        seen[known.expect("a message of etcd")] += 1;
        assert_ne!(simulated.cluster.leader(), Some(leader));
        assert_eq!(client.get("b", None).await.unwrap().count(), 0);
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn write_in_flight_at_a_leader_failure_is_executed_or_not() {
    let mut executed = [0, 0];
    for seed in 0..20 {
        let simulated = start(seed);
        let (leader, member) = (simulated.cluster.leader().unwrap(), simulated.follower());
        let mut client = simulated.client(member).await;
        put(&mut client, "a").await.unwrap();
        let mut other = client.clone();
        let (write, ()) = tokio::join!(put(&mut other, "b"), async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            simulated.cluster.stop(leader);
        });
        let found = client.get("b", None).await.unwrap().count();
        assert_eq!(write.is_ok(), found == 1, "{write:?}");
        executed[usize::try_from(found).unwrap()] += 1;
    }
    assert!(executed[0] > 0 && executed[1] > 0, "{executed:?}");
}

#[tokio::test(start_paused = true)]
async fn write_that_its_member_does_not_apply_times_out_and_is_executed() {
    let simulated = start(5);
    let member = simulated.follower();
    let mut client = simulated.client(member).await;
    put(&mut client, "a").await.unwrap();
    simulated.cluster.set_lag(member, Duration::from_secs(10));
    let message = "etcdserver: request timed out".to_owned();
    assert_eq!(
        failure(put(&mut client, "b").await),
        (Code::Unavailable, message)
    );
    assert_eq!(serializable(&mut client, "b").await, 0, "not applied here");
    seconds(10).await;
    assert_eq!(serializable(&mut client, "b").await, 1, "executed");
}

#[tokio::test(start_paused = true)]
async fn lagging_member_delays_linearizable_reads() {
    let simulated = start(6);
    let (leader, member) = (simulated.cluster.leader().unwrap(), simulated.follower());
    let mut writer = simulated.client(leader).await;
    let mut reader = simulated.client(member).await;
    simulated.cluster.set_lag(member, Duration::from_secs(4));
    put(&mut writer, "a").await.unwrap();
    assert_eq!(serializable(&mut reader, "a").await, 0);
    let began = Instant::now();
    assert_eq!(reader.get("a", None).await.unwrap().count(), 1);
    assert!(
        began.elapsed() >= Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn lost_answer_is_executed_and_lost_request_is_not() {
    let simulated = start(7);
    let patience = Duration::from_secs(60);
    for (key, fault, executed) in [
        ("a", RequestFault::LoseResponse(Loss::Silence), 1),
        ("b", RequestFault::LoseRequest(Loss::Silence), 0),
        ("c", RequestFault::LoseResponse(Loss::Reset), 1),
        ("d", RequestFault::LoseRequest(Loss::Reset), 0),
    ] {
        let mut client = simulated.client(0).await;
        simulated.cluster.fault_next(0, fault);
        let answer = timeout(patience, put(&mut client, key)).await;
        match fault {
            RequestFault::LoseResponse(Loss::Reset) | RequestFault::LoseRequest(Loss::Reset) => {
                let (code, message) = failure(answer.expect("the connection breaks"));
                let broken = [
                    Code::Unknown,
                    Code::Unavailable,
                    Code::Cancelled,
                    Code::Internal,
                ];
                assert!(broken.contains(&code), "{code:?} {message}");
            }
            _ => assert!(answer.is_err(), "silence"),
        }
        let mut client = simulated.client(1).await;
        assert_eq!(
            client.get(key, None).await.unwrap().count(),
            executed,
            "{fault:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn requests_are_delayed() {
    let simulated = start(8);
    let mut client = simulated.client(0).await;
    simulated
        .cluster
        .fault_next(0, RequestFault::Delay(Duration::from_secs(3)));
    let began = Instant::now();
    put(&mut client, "a").await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn fault_rates_apply_to_every_request() {
    let simulated = start(9);
    simulated.cluster.set_fault_rates(FaultRates {
        lose_response: 1.0,
        ..FaultRates::default()
    });
    let mut client = simulated.client(0).await;
    let limit = Duration::from_secs(1);
    assert!(!matches!(
        timeout(limit, put(&mut client, "a")).await,
        Ok(Ok(_))
    ));
    simulated.cluster.set_fault_rates(FaultRates::default());
    let mut client = simulated.client(0).await;
    assert_eq!(client.get("a", None).await.unwrap().count(), 1);
}

#[tokio::test(start_paused = true)]
async fn stopped_member_breaks_connections_and_keeps_its_data() {
    let simulated = start(10);
    let member = simulated.follower();
    let mut client = simulated.client(member).await;
    let revision = put(&mut client, "a").await.unwrap();
    let mut watch = client.watch("a", None).await.unwrap();
    watch.message().await.unwrap();
    simulated.cluster.stop(member);
    assert_eq!(simulated.cluster.member_state(member), MemberState::Stopped);
    assert!(!simulated.cluster.accepts_connections(member));
    assert!(!matches!(watch.message().await, Ok(Some(_))));
    assert!(client.get("a", None).await.is_err());
    simulated.cluster.restart(member);
    assert_eq!(simulated.cluster.applied_revision(member), revision);
    let mut client = simulated.client(member).await;
    assert_eq!(client.get("a", None).await.unwrap().count(), 1);
}

#[tokio::test(start_paused = true)]
async fn hung_member_accepts_connections_and_answers_later() {
    let simulated = start(11);
    let member = simulated.follower();
    simulated.cluster.hang(member);
    let mut client = simulated.client(member).await;
    let minute = Duration::from_secs(60);
    assert!(timeout(minute, client.get("a", None)).await.is_err());
    simulated.cluster.resume(member);
    assert_eq!(client.get("a", None).await.unwrap().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn full_database_refuses_puts_only() {
    let simulated = start(12);
    let mut client = simulated.client(0).await;
    put(&mut client, "a").await.unwrap();
    simulated.cluster.set_no_space(true);
    let full = (
        Code::ResourceExhausted,
        "etcdserver: mvcc: database space exceeded".to_owned(),
    );
    assert_eq!(failure(put(&mut client, "b").await), full);
    assert_eq!(failure(client.lease_grant(60, None).await), full);
    let txn = Txn::new().or_else([TxnOp::put("b", "", None)]);
    assert_eq!(
        failure(client.txn(txn).await),
        full,
        "also in the other branch"
    );
    let delete = Txn::new()
        .when([Compare::version("a", CompareOp::Equal, 1)])
        .and_then([TxnOp::delete("a", None)]);
    assert!(client.txn(delete).await.unwrap().succeeded());
    simulated.cluster.set_no_space(false);
    put(&mut client, "b").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn corrupt_cluster_refuses_everything() {
    let simulated = start(13);
    let mut client = simulated.client(0).await;
    simulated.cluster.set_corrupt(true);
    let corrupt = (Code::DataLoss, "etcdserver: corrupt cluster".to_owned());
    assert_eq!(failure(put(&mut client, "a").await), corrupt);
    assert_eq!(failure(client.get("a", None).await), corrupt);
}

#[tokio::test(start_paused = true)]
async fn restored_cluster_has_earlier_revisions_and_another_id() {
    let simulated = start(14);
    let mut client = simulated.client(0).await;
    let before = put(&mut client, "a").await.unwrap();
    let id = client
        .get("a", None)
        .await
        .unwrap()
        .header()
        .unwrap()
        .cluster_id();
    let snapshot = simulated.cluster.snapshot();
    put(&mut client, "b").await.unwrap();
    simulated.cluster.restore(&snapshot);
    seconds(4).await;
    let mut client = simulated.client(0).await;
    let answer = client.get("b", None).await.unwrap();
    let header = answer.header().unwrap();
    assert_eq!((answer.count(), header.revision()), (0, before));
    assert_ne!(header.cluster_id(), id);
    let options = GetOptions::new().with_revision(before + 1);
    let future = "etcdserver: mvcc: required revision is a future revision".to_owned();
    let read = client.get("a", Some(options)).await;
    assert_eq!(failure(read), (Code::OutOfRange, future));
}

#[tokio::test(start_paused = true)]
async fn leases_expire_at_the_leader_and_restart_after_an_election() {
    let simulated = start(15);
    let mut client = simulated.client(simulated.follower()).await;
    for (elects, expected) in [(false, 10..12), (true, 17..22)] {
        let lease = client.lease_grant(10, None).await.unwrap().id();
        let options = PutOptions::new().with_lease(lease);
        client.put("a", "v", Some(options)).await.unwrap();
        let began = Instant::now();
        if elects {
            seconds(6).await;
            simulated.cluster.elect();
            seconds(4).await;
        }
        while serializable(&mut client, "a").await == 1 {
            assert!(began.elapsed().as_secs() < 60);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let elapsed = began.elapsed().as_secs();
        assert!(expected.contains(&elapsed), "{elapsed} s, {elects}");
    }
}

#[tokio::test(start_paused = true)]
async fn storage_survives_the_loss_of_each_member_in_turn() {
    use watchet_storage::{Expect, Put, Storage as _};
    let simulated = start(16);
    let storage = simulated.storage().await;
    for round in 0..6 {
        let member = round % simulated.cluster.members();
        simulated.cluster.stop(member);
        seconds(5).await;
        let put = Put {
            key: watchet_api::StorageKey::new(&format!("/pods/ns/{round}")).unwrap(),
            value: bytes::Bytes::from_static(b"{}"),
            expect: Expect::Absent,
            ttl: None,
        };
        let key = put.key.clone();
        // A write whose connection broke is not repeated; the next one uses another member.
        if storage.put(put.clone()).await.is_err() {
            storage.put(put).await.unwrap();
        }
        assert!(storage.get(&key).await.unwrap().0.is_some());
        simulated.cluster.restart(member);
        seconds(1).await;
    }
}
