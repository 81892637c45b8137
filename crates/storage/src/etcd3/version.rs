//! Determines from a member's etcd version whether its progress responses are correct.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Whether the progress responses of a member are correct, by its last known version. The cluster
/// updates it, and open watches of the member read it.
#[derive(Debug)]
pub(super) struct ProgressSupport {
    /// `UNKNOWN`, `SUPPORTED` or `UNSUPPORTED`. A failed request does not change it: an unavailable
    /// member must not disable the caches of the others.
    state: AtomicU8,
    failures: AtomicU64,
    /// The failure count at the time of the last version request. If it differs, the member has
    /// failed since and may run another version.
    checked_at: AtomicU64,
}

const UNKNOWN: u8 = 0;
const SUPPORTED: u8 = 1;
const UNSUPPORTED: u8 = 2;

impl Default for ProgressSupport {
    /// Returns the state of a member before the first request.
    fn default() -> Self {
        Self {
            state: AtomicU8::new(UNKNOWN),
            failures: AtomicU64::new(1),
            checked_at: AtomicU64::new(0),
        }
    }
}

impl ProgressSupport {
    /// Records a failure: the version must be requested again.
    pub(super) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the failure count; read it before requesting the version.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Records the member's `version`, requested at this failure count. Returns true if the support
    /// has changed.
    pub(super) fn set_version(&self, version: &str, failures: u64) -> bool {
        let state = match supports_progress(version) {
            true => SUPPORTED,
            false => UNSUPPORTED,
        };
        let changed = self.state.swap(state, Ordering::Relaxed) != state;
        self.checked_at.store(failures, Ordering::Relaxed);
        changed
    }

    /// Returns true if the version was not requested since the last failure.
    pub(super) fn is_stale(&self) -> bool {
        self.checked_at.load(Ordering::Relaxed) != self.failures()
    }

    /// Returns true if the last known version answers progress requests correctly.
    pub(super) fn is_supported(&self) -> bool {
        self.state.load(Ordering::Relaxed) == SUPPORTED
    }

    /// Returns true if a progress response that arrives now is correct: the version is known and
    /// the member has not failed since.
    pub(super) fn is_certain(&self) -> bool {
        self.is_supported() && !self.is_stale()
    }
}

/// Returns true if etcd `version` answers progress requests correctly: 3.4.31 or later in 3.4, else
/// 3.5.13 or later. Earlier versions can respond before they have sent the events. An unparsable
/// version returns false. The same rule as upstream's [feature support
/// checker](https://github.com/kubernetes/kubernetes/blob/v1.35.0/staging/src/k8s.io/apiserver/pkg/storage/feature/feature_support_checker.go).
pub(super) fn supports_progress(version: &str) -> bool {
    parse(version).is_some_and(|version| match version {
        (3, 4, patch) => patch >= 31,
        version => version >= (3, 5, 13),
    })
}

/// Returns major, minor and patch; ignores a suffix of the patch (`-rc.1`).
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
    fn failed_request_keeps_the_state_and_failure_requires_another() {
        let member = ProgressSupport::default();
        let state = || (member.is_supported(), member.is_certain());
        assert_eq!(state(), (false, false), "unknown");
        assert!(member.set_version("3.5.16", member.failures()));
        assert_eq!(state(), (true, true));
        member.failed();
        assert_eq!(state(), (true, false), "it may run another version");
        let before = member.failures();
        member.failed();
        assert!(!member.set_version("3.5.16", before));
        assert_eq!(state(), (true, false), "it failed during the request");
        member.set_version("3.5.16", member.failures());
        assert_eq!(state(), (true, true));
        assert!(member.set_version("3.5.12", member.failures()));
        assert_eq!(state(), (false, false), "downgraded");
    }

    #[test]
    fn versions_with_reliable_progress_are_recognized() {
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
            assert!(supports_progress(good), "{good}");
        }
        for bad in [
            "3.4.23", "3.4.30", "3.5.0", "3.5.12", "3.3.99", "2.9.9", "", "unknown", "3.5",
        ] {
            assert!(!supports_progress(bad), "{bad}");
        }
    }
}
