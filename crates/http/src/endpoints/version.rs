//! The `/version` document.

use serde_json::{Value, json};

/// The Kubernetes version that the API conforms to.
const KUBERNETES_MAJOR: u32 = 1;
const KUBERNETES_MINOR: u32 = 36;

/// Returns `v1.36.0+watchet-0.1.0`: the Kubernetes version, which clients compare, with the
/// project's own as build metadata.
pub fn git_version() -> String {
    let own = env!("CARGO_PKG_VERSION");
    format!("v{KUBERNETES_MAJOR}.{KUBERNETES_MINOR}.0+watchet-{own}")
}

/// Returns the document of `/version` of a build of `commit`. Fields that the build does not record (date, tree
/// state) are empty; `goVersion` and `compiler` name Rust's.
pub(crate) fn version(commit: &str) -> Value {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({
        "major": KUBERNETES_MAJOR.to_string(),
        "minor": KUBERNETES_MINOR.to_string(),
        "gitVersion": git_version(),
        "gitCommit": commit,
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
    fn the_version_is_semver_with_build_metadata() {
        let version = version("c");
        let text = version["gitVersion"].as_str().unwrap();
        assert!(text.starts_with("v1.36.0+watchet-"), "{text}");
        assert_eq!(
            (&version["minor"], &version["gitCommit"]),
            (&json!("36"), &json!("c"))
        );
        assert!(version["platform"].as_str().unwrap().contains('/'));
    }
}
