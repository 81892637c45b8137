//! The same seed gives the same messages at the same times, with faults; another seed does not.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures::StreamExt as _;
use parking_lot::Mutex;
use watchet_api::{ResourceVersion, StorageKey};
use watchet_simulation::etcd::{Config, FaultRates};
use watchet_storage::{Expect, Put, Storage};
use watchet_tasks::Tasks;

use crate::harness::Simulated;

/// Writes until it has had 100 answers, whatever they are.
async fn write(storage: Arc<dyn Storage>, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    for _ in 0..100 {
        let put = Put {
            key: StorageKey::new(&format!("/pods/ns/{}", rng.u32(0..50))).unwrap(),
            value: bytes::Bytes::from_static(b"{}"),
            expect: Expect::Absent,
            ttl: rng.bool().then_some(Duration::from_secs(30)),
        };
        let outcome = storage.put(put).await;
        tracing::debug!(?outcome, "written");
        tokio::time::sleep(Duration::from_millis(rng.u64(0..400))).await;
    }
}

/// Follows the events, with new watches after failures.
async fn follow(storage: Arc<dyn Storage>) {
    let prefix = StorageKey::new("/pods/").unwrap();
    let mut after = ResourceVersion::ZERO;
    loop {
        if let Ok(mut watch) = storage.watch(&prefix, after).await {
            watch.progress.request();
            while let Some(Ok(batch)) = watch.batches.next().await {
                after = batch.revision;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Changes the cluster at random times.
async fn disturb(simulated: &Simulated, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let cluster = &simulated.cluster;
    loop {
        tokio::time::sleep(Duration::from_millis(rng.u64(0..8000))).await;
        let member = rng.usize(0..cluster.members());
        match rng.u32(0..6) {
            0 => cluster.stop(member),
            1 => cluster.hang(member),
            2 => cluster.isolate(member),
            3 => cluster.elect(),
            4 => cluster.set_lag(member, Duration::from_millis(rng.u64(0..3000))),
            _ => drop(cluster.compact(cluster.revision() - 5)),
        }
        tokio::time::sleep(Duration::from_millis(rng.u64(0..8000))).await;
        cluster.restart(member);
        cluster.resume(member);
        cluster.heal();
    }
}

/// Returns the lines of a run.
fn trace(seed: u64) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let recorded = lines.clone();
    runtime.block_on(async move {
        let config = Config {
            observer: Some(Arc::new(move |line: &str| {
                recorded.lock().push(line.to_owned());
            })),
            ..Config::default()
        };
        let simulated = Simulated::start(config, seed);
        let storage: Arc<dyn Storage> = simulated.storage().await;
        simulated.cluster.set_fault_rates(FaultRates {
            lose_request: 0.01,
            lose_response: 0.01,
            delay: 0.1,
            delay_max: Duration::from_secs(2),
        });
        let tasks = Tasks::new();
        let writers = (0..3).map(|writer| write(storage.clone(), seed + writer));
        let follower = tasks.spawn("follow", follow(storage.clone()));
        tokio::select! {
            biased;
            _ = futures::future::join_all(writers) => {}
            () = disturb(&simulated, seed) => {}
        }
        follower.abort();
    });
    std::mem::take(&mut lines.lock())
}

#[test]
fn same_seed_has_the_same_trace() {
    for seed in 1..4 {
        let (first, second) = (trace(seed), trace(seed));
        for (index, (first, second)) in first.iter().zip(&second).enumerate() {
            assert_eq!(first, second, "line {index} with seed {seed}");
        }
        assert_eq!(first.len(), second.len());
        assert!(first.len() > 500, "{}", first.len());
        assert_ne!(first, trace(seed + 100));
    }
}
