//! Tests of the memory limit with samples that the tests record.

use std::pin::{Pin, pin};
use std::task::{Context, Waker};

use super::*;

const LIMIT: usize = 1000 << 20;

fn mib(amount: usize) -> usize {
    amount << 20
}

#[test]
fn a_level_is_left_later_than_it_is_entered() {
    let memory = ServerMemory::new(Some(LIMIT));
    let levels = [
        (699, MemoryPressure::Low),
        (700, MemoryPressure::Moderate),
        (651, MemoryPressure::Moderate),
        (649, MemoryPressure::Low),
        (950, MemoryPressure::Critical),
        (851, MemoryPressure::Critical),
        (849, MemoryPressure::High),
        (899, MemoryPressure::High),
        (751, MemoryPressure::High),
        (749, MemoryPressure::Moderate),
        (799, MemoryPressure::Moderate),
        (0, MemoryPressure::Low),
    ];
    let mut seen = memory.subscribe();
    let mut before = MemoryPressure::Low;
    for (used, expected) in levels {
        let changed = memory.record(mib(used));
        assert_eq!(memory.pressure(), expected, "{used}");
        assert_eq!(changed, (expected != before).then_some(expected), "{used}");
        assert_eq!(seen.has_changed().unwrap(), expected != before, "{used}");
        before = *seen.borrow_and_update();
    }
}

#[test]
fn requests_are_refused_only_if_they_are_large_and_not_exempt() {
    let memory = ServerMemory::new(Some(LIMIT));
    memory.record(mib(800));
    let first = memory.reserve(MemoryUse::List, mib(60), false).unwrap();
    let refused = memory.reserve(MemoryUse::List, mib(60), false).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the server uses 800 MiB of 1000 MiB of memory (--memory-limit minus headroom); this request needs about 61440 KiB \
         more: retry later, list in smaller pages (limit=), or raise --memory-limit"
    );
    drop(first);
    let again = memory.reserve(MemoryUse::List, mib(60), false);
    assert!(again.is_ok(), "the reservation has ended");
    drop(again);
    memory.record(mib(950));
    let reserve = |bytes, exempt| memory.reserve(MemoryUse::Watch, bytes, exempt).is_ok();
    let results = [(65 << 10, false), (64 << 10, false), (mib(60), true)]
        .map(|(bytes, exempt)| reserve(bytes, exempt));
    assert_eq!(results, [false, true, true]);
    let stats = memory.stats();
    assert_eq!((stats.refused_lists, stats.refused_watches), (1, 1));
    assert_eq!(
        stats.reserved, 0,
        "a refused request leaves no reservation behind"
    );
    memory.record(mib(849));
    assert!(reserve(mib(40), false));
}

#[test]
fn a_body_grows_into_the_reserve_of_writes_and_not_beyond() {
    let memory = ServerMemory::new(Some(LIMIT));
    memory.record(mib(940));
    assert!(memory.reserve(MemoryUse::List, mib(1), false).is_err());
    let mut body = memory.reserve(MemoryUse::Write, 0, false).unwrap();
    body.grow(mib(5)).unwrap();
    let refused = body.grow(mib(6)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the server uses 940 MiB of 1000 MiB of memory (--memory-limit minus headroom); this request needs about 11264 KiB \
         more: retry later, or raise --memory-limit"
    );
    drop(body);
    assert_eq!(memory.stats().reserved, 0);
    let mut small = memory.reserve(MemoryUse::Write, 60 << 10, false).unwrap();
    memory.record(mib(999));
    small.grow(4 << 10).unwrap();
    small.grow(1).unwrap_err();
}

fn is_ready(future: Pin<&mut impl Future<Output = ()>>) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    future.poll(&mut cx).is_ready()
}

/// Between two samples, a server with a limit of 256 MiB grew to 277 MiB.
#[test]
fn what_is_allocated_between_two_samples_counts() {
    let memory = ServerMemory::new(Some(LIMIT));
    memory.record(mib(900));
    memory.count_allocated(mib(49));
    assert!(is_ready(pin!(memory.until_not_full())));
    memory.count_allocated(mib(1));
    let mut wait = pin!(memory.until_not_full());
    assert!(!is_ready(wait.as_mut()));
    memory.record(mib(950));
    assert!(!is_ready(wait.as_mut()), "still full");
    memory.record(mib(949));
    assert!(is_ready(wait));
    memory.record(mib(979));
    assert!(!is_ready(pin!(memory.until_not_full())));
    assert!(is_ready(pin!(memory.until_not_exhausted())));
    memory.record(mib(980));
    assert!(!is_ready(pin!(memory.until_not_exhausted())));
}

#[test]
fn histories_shrink_with_the_pressure() {
    let memory = ServerMemory::new(Some(mib(1024)));
    let of = |used| {
        memory.record(mib(used));
        let maximum = memory.history_bytes_max(mib(256)) >> 20;
        (maximum, memory.history_bytes_max(100))
    };
    assert_eq!(
        [of(750), of(850), of(950)],
        [(256, 100), (32, 100), (16, 100)]
    );
    assert_eq!(memory.excess(), mib(950) - mib(1024) / 100 * 85);
}

#[test]
fn without_a_limit_nothing_is_refused() {
    let memory = ServerMemory::new(None);
    assert_eq!(memory.record(usize::MAX), None);
    assert_eq!(
        (memory.pressure(), memory.excess()),
        (MemoryPressure::Low, 0)
    );
    assert!(
        memory
            .reserve(MemoryUse::List, usize::MAX / 2, false)
            .is_ok()
    );
    assert_eq!(memory.history_bytes_max(7), 7);
}
