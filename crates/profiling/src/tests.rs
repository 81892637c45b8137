//! Tests of recordings. They run one after another, because a process records one profile at a time.

use std::hint::black_box;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use flate2::read::GzDecoder;
use prost::Message as _;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};
use watchet_tasks::Tasks;

use crate::encode::{Description, Sample, encode};
use crate::error::ProfileError;
use crate::pprof_messages::Profile;
use crate::recording::{Recording, record};
use crate::symbols::Symbols;
use crate::{record_cpu_profile, record_heap_profile};

static SERIAL: Mutex<()> = Mutex::const_new(());

const PATIENCE: Duration = Duration::from_secs(30);

fn decode(profile: &[u8]) -> Profile {
    let mut protobuf = Vec::new();
    GzDecoder::new(profile).read_to_end(&mut protobuf).unwrap();
    Profile::decode(&protobuf[..]).unwrap()
}

fn functions(profile: &Profile) -> Vec<&str> {
    let functions = profile.function.iter();
    let name = |index| &*profile.string_table[usize::try_from(index).unwrap()];
    functions.map(|function| name(function.name)).collect()
}

static IS_RECORDING: AtomicBool = AtomicBool::new(false);
static WAS_ABANDONED: AtomicBool = AtomicBool::new(false);

struct Recorder;

impl Recording for Recorder {
    const PROFILE: &'static str = "test";

    fn start() -> Result<Self, ProfileError> {
        IS_RECORDING.store(true, Ordering::SeqCst);
        Ok(Self)
    }

    fn finish(self) -> Result<Vec<u8>, ProfileError> {
        IS_RECORDING.store(false, Ordering::SeqCst);
        Ok(b"profile".to_vec())
    }

    fn abandon(self) {
        WAS_ABANDONED.store(true, Ordering::SeqCst);
        IS_RECORDING.store(false, Ordering::SeqCst);
    }
}

/// Waits until the recorder has started (`true`) or stopped (`false`).
async fn until_recording(is_recording: bool) {
    let changed = async {
        while IS_RECORDING.load(Ordering::SeqCst) != is_recording {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, changed).await.unwrap();
}

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_recording_excludes_others_and_ends_when_its_future_is_dropped() {
    let _serial = SERIAL.lock().await;
    let tasks = Tasks::new();
    tokio::select! {
        recorded = record::<Recorder>(&tasks, HOUR) => panic!("{recorded:?}"),
        () = until_recording(true) => {}
    }
    // The recording ends in another task, after its future is dropped.
    until_recording(false).await;
    assert!(WAS_ABANDONED.load(Ordering::SeqCst));

    let first = tasks.spawn("first", {
        let tasks = tasks.clone();
        async move { record::<Recorder>(&tasks, HOUR).await }
    });
    until_recording(true).await;
    let refused = record_cpu_profile(&tasks, HOUR).await.unwrap_err();
    assert_eq!(refused, ProfileError::InProgress("test"));
    assert!(refused.to_string().starts_with("a test profile is being"));
    tasks.cancel();
    let recorded = timeout(PATIENCE, first).await.unwrap().unwrap();
    assert_eq!(recorded.unwrap(), b"profile");
    tasks.drain(PATIENCE).await.unwrap();
}

#[inline(never)]
fn spin_for_the_profile(stop: &AtomicBool) -> u64 {
    let mut sum = 0u64;
    while !stop.load(Ordering::Relaxed) {
        sum = black_box(sum.wrapping_mul(3).wrapping_add(1));
    }
    sum
}

#[tokio::test]
async fn a_cpu_profile_has_the_functions_that_run() {
    let _serial = SERIAL.lock().await;
    let tasks = Tasks::new();
    let stop = Arc::new(AtomicBool::new(false));
    let thread = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || spin_for_the_profile(&stop)
    });
    let profile = record_cpu_profile(&tasks, Duration::from_secs(2)).await;
    stop.store(true, Ordering::Relaxed);
    thread.join().unwrap();
    let profile = profile.unwrap();
    let profile = decode(&profile);
    let functions = functions(&profile);
    let is_expected = |name: &&str| name.ends_with("spin_for_the_profile");
    assert!(functions.iter().any(is_expected), "{functions:?}");
    assert!(!functions.contains(&"perf_signal_handler"), "{functions:?}");
    assert!(profile.duration_nanos >= 2_000_000_000);
    assert_eq!(profile.period, 10_000_000);
    let samples: i64 = profile.sample.iter().map(|sample| sample.value[0]).sum();
    assert!(samples > 5, "{samples}");
}

/// The allocator of this program is not jemalloc.
#[tokio::test]
async fn a_program_without_jemalloc_records_no_heap_profile() {
    let _serial = SERIAL.lock().await;
    let recorded = record_heap_profile(&Tasks::new(), HOUR).await;
    assert_eq!(recorded, Err(ProfileError::NoHeapProfiles));
}

#[test]
fn equal_addresses_and_functions_are_encoded_once() {
    let address = spin_for_the_profile as *const () as usize + 1;
    let sample = |addresses: &[usize], thread: Option<&str>| Sample {
        addresses: addresses.to_vec(),
        values: [1, 10],
        thread: thread.map(str::to_owned),
    };
    let samples = [
        sample(&[address, address + 1], Some("worker")),
        sample(&[address], None),
        sample(&[1], None),
    ];
    let description = Description {
        values: [("samples", "count"), ("cpu", "nanoseconds")],
        default_value: "cpu",
        period: (("cpu", "nanoseconds"), 10),
        began: SystemTime::UNIX_EPOCH + Duration::from_secs(5),
        duration: Duration::from_secs(1),
    };
    let profile = decode(&encode(&description, &samples, &mut Symbols::new()).unwrap());
    let locations = |at: usize| &profile.sample[at].location_id[..];
    assert_eq!(
        [locations(0), locations(1), locations(2)],
        [&[1, 2][..], &[1], &[3]]
    );
    assert_eq!(profile.location.len(), 3);
    assert_eq!(functions(&profile).len(), 1);
    // Nothing is at the address 1.
    assert!(profile.location[2].line.is_empty());
    let text = |index: i64| &*profile.string_table[usize::try_from(index).unwrap()];
    let label = profile.sample[0].label[0];
    assert_eq!(
        (text(0), text(label.key), text(label.str)),
        ("", "thread", "worker")
    );
    assert_eq!(text(profile.default_sample_type), "cpu");
    assert_eq!(profile.time_nanos, 5_000_000_000);
}
