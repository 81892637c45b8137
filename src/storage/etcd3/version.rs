//! What an etcd version implies: whether its answers to progress requests are true.

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
