//! The commit of this build.

/// The commit, set by the build script; empty if it is unknown.
pub(super) const GIT_COMMIT: &str = env!("BUILD_GIT_COMMIT");

#[cfg(test)]
mod tests {
    use super::GIT_COMMIT;

    #[test]
    fn the_commit_is_known_in_a_clone() {
        // A build from a source archive without the git history has no commit.
        let manifest = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        if manifest.join(".git").exists() {
            assert_eq!(GIT_COMMIT.len(), 40, "{GIT_COMMIT}");
        }
        assert!(GIT_COMMIT.bytes().all(|b| b.is_ascii_hexdigit()));
    }
}
