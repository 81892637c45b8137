//! Histories of a correct implementation pass.

use fastrand::Rng;
use watchet_test_util::seeds::seeds;

use crate::check::{History, Outcome, check, render, shrink_violation};

use super::model_server::{Size, generate};

pub(super) fn size(rng: &mut Rng) -> Size {
    Size {
        operations: rng.usize(1..250),
        clients: rng.u32(1..12),
        keys: rng.u32(1..12),
        unknown_percent: [0, 5, 30][rng.usize(0..3)],
        watches: rng.u64(0..8),
        has_complete_watch: rng.bool(),
    }
}

fn assert_passes(history: &History) {
    if let Err(violation) = check(history) {
        let history = shrink_violation(history, &violation);
        let violation = check(&history).expect_err("it still fails");
        panic!("{}", render(&history, &violation));
    }
}

#[test]
fn histories_of_a_correct_implementation_pass() {
    for seed in seeds(400) {
        let mut rng = Rng::with_seed(seed);
        let size = size(&mut rng);
        assert_passes(&generate(&mut rng, size));
    }
}

#[test]
fn large_histories_take_little_time() {
    let seed = watchet_test_util::seeds::seed();
    let mut rng = Rng::with_seed(seed);
    for has_complete_watch in [true, false] {
        let history = generate(
            &mut rng,
            Size {
                operations: 2000,
                clients: 20,
                keys: 50,
                unknown_percent: 5,
                watches: if has_complete_watch { 20 } else { 2 },
                has_complete_watch,
            },
        );
        let start = std::time::SystemTime::now();
        let statistics = check(&history);
        let elapsed = start.elapsed().unwrap_or_default();
        println!("{elapsed:?}: {statistics:?}");
        // 10 ms if optimized, 30 ms if not; the rest is for busy machines.
        assert!(elapsed.as_millis() < 1000, "{elapsed:?}");
        assert!(statistics.is_ok(), "{statistics:?}");
        let unknown = |operation: &&crate::check::Operation| operation.outcome == Outcome::Unknown;
        assert!(history.operations.iter().filter(unknown).count() > 50);
    }
}
