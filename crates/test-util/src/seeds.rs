//! The seeds of randomized tests: random ones, printed, or the one of the variable `WATCHET_SEED`, which repeats a run.

const VARIABLE: &str = "WATCHET_SEED";

/// Returns the seed of a test with a single random run, and prints it.
pub fn seed() -> u64 {
    seed_or(fastrand::u64(..))
}

/// Returns the seed in `WATCHET_SEED`, or `default` if it is not set, and prints it. For tests whose length or
/// expectations fit only some seeds.
pub fn seed_or(default: u64) -> u64 {
    let seed = std::env::var(VARIABLE).map_or(default, |seed| {
        seed.parse()
            .unwrap_or_else(|error| panic!("{VARIABLE}={seed} is not a number: {error}"))
    });
    println!("{VARIABLE}={seed}");
    seed
}

/// Returns the seeds of `count` runs, or only the one in `WATCHET_SEED`. Prints each when its run begins.
pub fn seeds(count: usize) -> impl Iterator<Item = u64> {
    let count = if std::env::var_os(VARIABLE).is_some() {
        1
    } else {
        count
    };
    (0..count).map(|_| seed())
}
