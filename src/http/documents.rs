//! Documents about the server itself: its version.

use serde_json::{Value, json};

/// The Kubernetes version whose API this is.
const KUBERNETES_MAJOR: u32 = 1;
const KUBERNETES_MINOR: u32 = 35;

/// `v1.35.0+watchet-0.1.0`: a version that clients compare, and a name that people see.
pub(crate) fn git_version() -> String {
    let own = env!("CARGO_PKG_VERSION");
    format!("v{KUBERNETES_MAJOR}.{KUBERNETES_MINOR}.0+watchet-{own}")
}

/// The commit that was built, as the build script found it.
const GIT_COMMIT: &str = env!("WATCHET_GIT_COMMIT");

/// `/version`. What a build does not record (its date, the state of its tree) is empty; the fields about Go
/// say which Rust it takes.
pub(crate) fn version() -> Value {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({
        "major": KUBERNETES_MAJOR.to_string(),
        "minor": KUBERNETES_MINOR.to_string(),
        "gitVersion": git_version(),
        "gitCommit": GIT_COMMIT,
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": concat!("rust", env!("CARGO_PKG_RUST_VERSION")),
        "compiler": "rustc",
        "platform": format!("{}/{arch}", std::env::consts::OS),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_reads_as_semver_with_our_name() {
        let version = version();
        let text = version["gitVersion"].as_str().unwrap();
        assert!(text.starts_with("v1.35.0+watchet-"), "{text}");
        assert_eq!(version["minor"], "35");
        let commit = version["gitCommit"].as_str().unwrap();
        // Sources without git and without a package's notes have none.
        if std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(".git")
            .exists()
        {
            assert_eq!(commit.len(), 40, "{commit}");
        }
        assert!(commit.bytes().all(|b| b.is_ascii_hexdigit()), "{commit}");
        assert!(version["platform"].as_str().unwrap().contains('/'));
    }
}
