//! Divides the seats of the server between the priority levels by their recent demand (KEP-1040, "Dispatching").

/// The minimum of a target, so that proportions are finite.
const TARGET_MIN: f64 = 0.001;

/// The bounds and the target of the seats of a level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SeatBounds {
    /// The number of seats that the level needs, at least `lower`.
    pub(crate) target: f64,
    pub(crate) lower: f64,
    /// The maximum number of seats, at least `lower`.
    pub(crate) upper: f64,
}

impl SeatBounds {
    fn share(&self, proportion: f64) -> f64 {
        let target = self.target.max(TARGET_MIN);
        (target * proportion).clamp(self.lower, self.upper)
    }
}

/// Divides `sum`: each level gets the same proportion of its target, except where a bound prevents it. `None` if the
/// bounds allow no such division.
pub(crate) fn divide(sum: usize, levels: &[SeatBounds]) -> Option<Vec<f64>> {
    let sum = sum as f64;
    let total =
        |proportion: f64| -> f64 { levels.iter().map(|level| level.share(proportion)).sum() };
    // Between two consecutive bounds the total is linear in the proportion.
    let mut bounds: Vec<f64> = levels
        .iter()
        .flat_map(|level| {
            let target = level.target.max(TARGET_MIN);
            [level.lower / target, level.upper / target]
        })
        .collect();
    bounds.sort_by(f64::total_cmp);
    let mut low = 0.0;
    // A sum that equals the bounds but for rounding is a division at the bounds.
    const ROUNDING: f64 = 1e-6;
    if total(low) > sum + ROUNDING {
        return None;
    }
    for high in bounds {
        let (at_low, at_high) = (total(low), total(high));
        if at_high + ROUNDING >= sum {
            let proportion = match at_high > at_low {
                true => low + (high - low) * ((sum - at_low) / (at_high - at_low)).clamp(0.0, 1.0),
                false => high,
            };
            return Some(levels.iter().map(|level| level.share(proportion)).collect());
        }
        low = high;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use watchet_test_util::seeds::seeds;

    fn level(target: f64, lower: f64, upper: f64) -> SeatBounds {
        SeatBounds {
            target,
            lower,
            upper,
        }
    }

    #[test]
    fn bounds_limit_the_common_proportion() {
        let divide = |sum, levels: &[SeatBounds]| {
            let shares = divide(sum, levels)?;
            Some(
                shares
                    .iter()
                    .map(|share| share.round() as i64)
                    .collect::<Vec<_>>(),
            )
        };
        let free = [level(10.0, 0.0, 100.0), level(30.0, 0.0, 100.0)];
        assert_eq!(divide(80, &free), Some(vec![20, 60]));
        let bounded = [level(10.0, 0.0, 15.0), level(30.0, 0.0, 100.0)];
        assert_eq!(divide(80, &bounded), Some(vec![15, 65]));
        let reserved = [level(30.0, 30.0, 100.0), level(30.0, 0.0, 100.0)];
        assert_eq!(divide(40, &reserved), Some(vec![30, 10]));
        // Without demand everything is divided evenly.
        let idle = [level(0.0, 0.0, 100.0), level(0.0, 0.0, 100.0)];
        assert_eq!(divide(10, &idle), Some(vec![5, 5]));
        assert_eq!(divide(300, &free), None);
        assert_eq!(divide(10, &reserved), None);
        assert_eq!(divide(0, &[]), None);
    }

    #[test]
    fn random_divisions_have_the_sum_and_one_proportion() {
        for seed in seeds(200) {
            let mut rng = fastrand::Rng::with_seed(seed);
            let levels: Vec<SeatBounds> = (0..rng.usize(1..8))
                .map(|_| {
                    let lower = f64::from(rng.u32(0..20));
                    level(
                        lower + f64::from(rng.u32(1..50)),
                        lower,
                        lower + f64::from(rng.u32(0..200)),
                    )
                })
                .collect();
            let low: f64 = levels.iter().map(|level| level.lower).sum();
            let high: f64 = levels.iter().map(|level| level.upper).sum();
            let sum = rng.usize(low as usize..=high as usize);
            let shares = divide(sum, &levels).expect("a division");
            let total: f64 = shares.iter().sum();
            assert!(
                (total - sum as f64).abs() < 1e-3,
                "{total} {sum} {levels:?}"
            );
            let mut free = Vec::new();
            for (share, level) in shares.iter().zip(&levels) {
                assert!(
                    (level.lower..=level.upper).contains(share),
                    "{share} {level:?}"
                );
                if *share > level.lower + 1e-6 && *share < level.upper - 1e-6 {
                    free.push(share / level.target);
                }
            }
            let same = free.windows(2).all(|pair| (pair[0] - pair[1]).abs() < 1e-6);
            assert!(same, "{free:?}");
        }
    }
}
