//! What an etcd version implies: whether its answers to progress requests are true; and what is known
//! of that about one member. It asks nobody.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// What a member last said of itself. Shared by the cluster, which asks, and the watches on the
/// member, which look at it whenever it matters: it can change while they are open.
#[derive(Debug)]
pub(super) struct Truthfulness {
    /// `UNKNOWN`, `TRUTHFUL` or `UNTRUTHFUL`. Silence changes nothing: a member that is away for a
    /// while must not turn the others' caches off.
    answer: AtomicU8,
    failures: AtomicU64,
    /// The failures there had been when the answer was asked for. Another number says that the
    /// member failed since, and may be another one now.
    answered_at: AtomicU64,
}

const UNKNOWN: u8 = 0;
const TRUTHFUL: u8 = 1;
const UNTRUTHFUL: u8 = 2;

impl Default for Truthfulness {
    /// Of a member that was never asked.
    fn default() -> Self {
        Self {
            answer: AtomicU8::new(UNKNOWN),
            failures: AtomicU64::new(1),
            answered_at: AtomicU64::new(0),
        }
    }
}

impl Truthfulness {
    /// The member failed: what it said is to be asked again.
    pub(super) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// How often it has failed; to be read before it is asked.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// It called itself `version` when asked after so many `failures`. Returns whether that is news.
    pub(super) fn told(&self, version: &str, failures: u64) -> bool {
        let answer = match progress_is_truthful(version) {
            true => TRUTHFUL,
            false => UNTRUTHFUL,
        };
        let news = self.answer.swap(answer, Ordering::Relaxed) != answer;
        self.answered_at.store(failures, Ordering::Relaxed);
        news
    }

    /// Whether it was not asked since it failed last.
    pub(super) fn is_stale(&self) -> bool {
        self.answered_at.load(Ordering::Relaxed) != self.failures()
    }

    /// Whether, by all that it said, its answers are true: what one may count on.
    pub(super) fn is_expected(&self) -> bool {
        self.answer.load(Ordering::Relaxed) == TRUTHFUL
    }

    /// Whether an answer that it gives now is true.
    pub(super) fn is_certain(&self) -> bool {
        self.is_expected() && !self.is_stale()
    }
}

/// Whether an etcd that calls itself `version` answers progress requests truthfully: 3.4.31 or later
/// in 3.4, else 3.5.13 or later. Before that an answer can overtake the events that it vouches for.
/// What cannot be read counts as untruthful.
pub(super) fn progress_is_truthful(version: &str) -> bool {
    parse(version).is_some_and(|version| match version {
        (3, 4, patch) => patch >= 31,
        version => version >= (3, 5, 13),
    })
}

/// Major, minor and patch; what follows the patch's digits (`-rc.1`) is left out.
fn parse(version: &str) -> Option<(u32, u32, u32)> {
    let mut parts = version.trim_start_matches('v').splitn(3, '.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?.parse().ok()?;
    let patch = parts.next()?;
    let digits = patch
        .find(|character: char| !character.is_ascii_digit())
        .map_or(patch, |end| &patch[..end]);
    Some((major, minor, digits.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_keeps_the_last_answer_and_a_failure_asks_for_another() {
        let member = Truthfulness::default();
        let known = || (member.is_expected(), member.is_certain());
        assert_eq!(known(), (false, false), "unknown");
        assert!(member.told("3.5.16", member.failures()));
        assert_eq!(known(), (true, true));
        member.failed();
        assert_eq!(known(), (true, false), "it may have been replaced");
        let before = member.failures();
        member.failed();
        assert!(!member.told("3.5.16", before));
        assert_eq!(known(), (true, false), "it failed while it was asked");
        member.told("3.5.16", member.failures());
        assert_eq!(known(), (true, true));
        assert!(member.told("3.5.12", member.failures()));
        assert_eq!(known(), (false, false), "downgraded");
    }

    #[test]
    fn by_version() {
        for good in [
            "3.4.31",
            "3.4.40",
            "3.5.13",
            "3.5.16",
            "3.6.0",
            "3.6.0-rc.1",
            "v3.7.2",
            "4.0.0",
        ] {
            assert!(progress_is_truthful(good), "{good}");
        }
        for bad in [
            "3.4.23", "3.4.30", "3.5.0", "3.5.12", "3.3.99", "2.9.9", "", "unknown", "3.5",
        ] {
            assert!(!progress_is_truthful(bad), "{bad}");
        }
    }
}
