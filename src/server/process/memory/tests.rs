//! Tests of the memory monitor with a meter that reports what the test sets.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::api::{ColumnSet, EncodedObject, EventType, Object, ObjectKey, ResourceVersion};

const LIMIT: usize = 64 << 20;

/// Reports the set percentage of the limit; 0 is a failure.
#[derive(Debug, Clone, Default)]
struct FakeMeter(Arc<AtomicUsize>);

impl Meter for FakeMeter {
    fn used(&mut self) -> io::Result<usize> {
        match self.0.load(Ordering::Relaxed) {
            0 => Err(io::ErrorKind::NotFound.into()),
            percent => Ok(LIMIT / 100 * percent),
        }
    }
}

fn monitor() -> (MemoryMonitor, Arc<AtomicUsize>) {
    let meter = FakeMeter::default();
    let percent = Arc::clone(&meter.0);
    let monitor = MemoryMonitor {
        limit: LIMIT,
        server_memory: ServerMemory::new(Some(LIMIT)),
        meter: Box::new(meter),
        encodings: EncodingCache::new(LIMIT),
        responses: Arc::default(),
        connections: Connections::new(8, &Arc::default()),
        last_abort: None,
        last_measurement: None,
        failures: LogInterval::new(FAILURE_INTERVAL),
        abort_log: LogInterval::new(ABORT_LOG_INTERVAL),
    };
    (monitor, percent)
}

/// Encodes each object to 1 MiB.
fn encode(encodings: &Arc<EncodingCache>, objects: &[Arc<Object>]) {
    for object in objects {
        let encode = || Ok::<_, ()>(EncodedObject::new(vec![0; 1 << 20].into(), 0, 0..1));
        let pods = encodings.of_kind("v1", "Pod");
        pods.get_or_encode(object, encode).expect("encoded");
    }
}

fn objects(count: usize) -> Vec<Arc<Object>> {
    let object = |number: usize| {
        let key = ObjectKey::from(&*number.to_string());
        let (version, json) = (ResourceVersion::new(1), br#"{"metadata":{}}"#);
        let decoded = Object::decode(key, version, EventType::Added, json, &ColumnSet::default());
        Arc::new(decoded.expect("an object"))
    };
    (0..count).map(object).collect()
}

#[tokio::test(start_paused = true)]
async fn encodings_are_dropped_by_level_and_retained_again_afterwards() {
    let (mut monitor, percent) = monitor();
    let objects = objects(40);
    monitor.restrict_encodings(MemoryPressure::Low);
    for (used, expected_mib) in [(50, 16), (72, 4), (82, 1), (95, 0), (70, 4), (10, 16)] {
        percent.store(used, Ordering::Relaxed);
        monitor.sample();
        encode(&monitor.encodings, &objects);
        let bytes = monitor.encodings.stats().bytes;
        assert_eq!(bytes >> 20, expected_mib, "at {used} %");
    }
}

#[tokio::test(start_paused = true)]
async fn connections_without_a_request_end_while_the_pressure_is_critical() {
    let (mut monitor, percent) = monitor();
    let stop = tokio_util::sync::CancellationToken::new();
    let slot = monitor.connections.slot(&stop).await.expect("a free slot");
    tokio::time::advance(Duration::from_secs(2)).await;
    for (used, expected) in [(50, false), (85, false), (92, true)] {
        percent.store(used, Ordering::Relaxed);
        monitor.sample();
        let evicted = slot.connection().evicted().is_cancelled();
        assert_eq!(evicted, expected, "at {used} %");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_measurement_changes_nothing() {
    let (mut monitor, percent) = monitor();
    percent.store(95, Ordering::Relaxed);
    monitor.sample();
    percent.store(0, Ordering::Relaxed);
    monitor.sample();
    assert_eq!(monitor.server_memory.pressure(), MemoryPressure::Critical);
}

/// What is counted as allocated between two measurements added up while the memory could not be measured, until all lists and
/// watches waited for ever, although the log said that the limit had no effect.
#[tokio::test(start_paused = true)]
async fn without_measurements_nothing_waits_forever() {
    let (mut monitor, percent) = monitor();
    let memory = Arc::clone(&monitor.server_memory);
    percent.store(50, Ordering::Relaxed);
    monitor.sample();
    percent.store(0, Ordering::Relaxed);
    memory.count_allocated(LIMIT);
    assert!(memory.is_full());
    let waiting = tokio::time::timeout(Duration::from_secs(1), memory.until_not_full());
    let (waited, ()) = tokio::join!(waiting, async { monitor.sample() });
    waited.expect("it is woken");
    assert!(!memory.is_full());
    assert_eq!(memory.stats().used, LIMIT / 100 * 50);

    percent.store(97, Ordering::Relaxed);
    monitor.sample();
    percent.store(0, Ordering::Relaxed);
    monitor.sample();
    assert!(memory.is_full(), "the last measurement counts");
    tokio::time::advance(MEASUREMENT_AGE_MAX).await;
    monitor.sample();
    let state = (memory.is_full(), memory.pressure());
    assert_eq!(state, (false, MemoryPressure::Low));
}

#[tokio::test]
async fn the_monitor_measures_until_its_tasks_stop() {
    let (monitor, percent) = monitor();
    let (server_memory, tasks) = (Arc::clone(&monitor.server_memory), Tasks::new());
    let running = monitor.spawn(&tasks);
    percent.store(95, Ordering::Relaxed);
    let mut pressure = server_memory.subscribe();
    let critical = pressure.wait_for(|pressure| *pressure == MemoryPressure::Critical);
    let reached = tokio::time::timeout(100 * SAMPLE_INTERVAL, critical).await;
    reached.expect("in time").expect("the monitor exists");
    tasks.token().cancel();
    running.await.expect("no panic");
}
