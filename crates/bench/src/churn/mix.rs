//! The request mix of a churn: the verbs and their weights.

use std::fmt;
use std::str::FromStr;

/// A request of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Create,
    Update,
    Patch,
    Delete,
    Get,
    List,
}

impl Verb {
    pub(super) const ALL: [Self; 6] = [
        Self::Create,
        Self::Update,
        Self::Patch,
        Self::Delete,
        Self::Get,
        Self::List,
    ];

    /// Returns the name on the command line and in the report.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::Get => "get",
            Self::List => "list",
        }
    }

    /// Returns the report key of its latencies.
    pub(super) const fn latency_row(self) -> &'static str {
        match self {
            Self::Create => "latency_us_create",
            Self::Update => "latency_us_update",
            Self::Patch => "latency_us_patch",
            Self::Delete => "latency_us_delete",
            Self::Get => "latency_us_get",
            Self::List => "latency_us_list",
        }
    }
}

/// The relative weights of the verbs. Create has no weight: an absent object is created instead of
/// changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mix(Vec<(Verb, u32)>);

/// Why a text is not a valid mix.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MixError {
    #[error("{0:?} must be VERB=WEIGHT, and VERB one of update, patch, delete, get, list")]
    Part(String),
    #[error("{0} is given twice")]
    Twice(&'static str),
    #[error("one of the weights must be more than 0")]
    Empty,
}

impl FromStr for Mix {
    type Err = MixError;

    fn from_str(text: &str) -> Result<Self, MixError> {
        let mut weights: Vec<(Verb, u32)> = Vec::new();
        for part in text.split(',') {
            let parsed = part.split_once('=').and_then(|(name, weight)| {
                let chosen = |verb: &Verb| *verb != Verb::Create && verb.name() == name;
                // So few digits that their sum cannot overflow.
                let weight = weight.parse::<u16>().ok()?;
                Some((Verb::ALL.into_iter().find(chosen)?, weight.into()))
            });
            let (verb, weight) = parsed.ok_or_else(|| MixError::Part(part.to_owned()))?;
            if weights.iter().any(|(other, _)| *other == verb) {
                return Err(MixError::Twice(verb.name()));
            }
            weights.push((verb, weight));
        }
        match weights.iter().any(|(_, weight)| *weight > 0) {
            true => Ok(Self(weights)),
            false => Err(MixError::Empty),
        }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.0.iter();
        let parts = parts.map(|(verb, weight)| format!("{}={weight}", verb.name()));
        f.write_str(&parts.collect::<Vec<_>>().join(","))
    }
}

impl Mix {
    /// Chooses a verb at random by weight.
    pub(super) fn choose(&self, random: &mut fastrand::Rng) -> Verb {
        let sum = self.0.iter().map(|(_, weight)| weight).sum();
        let mut left = random.u32(0..sum);
        for (verb, weight) in &self.0 {
            if left < *weight {
                return *verb;
            }
            left -= weight;
        }
        unreachable!("the remainder is less than the sum of the weights")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_are_chosen_by_their_weights() {
        let mix: Mix = "update=6,get=3,list=0,delete=1".parse().unwrap();
        assert_eq!(mix.to_string(), "update=6,get=3,list=0,delete=1");
        let mut random = fastrand::Rng::with_seed(1);
        let mut chosen = [0_u32; 6];
        for _ in 0..10_000 {
            chosen[mix.choose(&mut random) as usize] += 1;
        }
        let [create, update, patch, delete, get, list] = chosen;
        assert_eq!((create, patch, list), (0, 0, 0));
        assert!(update.abs_diff(6_000) < 300, "{update}");
        assert!(get.abs_diff(3_000) < 300, "{get}");
        assert!(delete.abs_diff(1_000) < 200, "{delete}");
    }

    fn check(text: &str, problem: &str) {
        let error = text.parse::<Mix>().unwrap_err().to_string();
        assert!(error.contains(problem), "{text}: {error}");
    }

    #[test]
    fn invalid_mixes_are_rejected() {
        check("", "must be VERB=WEIGHT");
        check("update", "must be VERB=WEIGHT");
        check("create=1", "must be VERB=WEIGHT");
        check("update=-1", "must be VERB=WEIGHT");
        check("update=65536", "must be VERB=WEIGHT");
        check("get=1,get=2", "get is given twice");
        check("get=0,list=0", "more than 0");
    }
}
