//! `ExecPlugin`: which program provides the credentials.

use std::path::PathBuf;

use serde_json::Value;

/// The supported versions of the protocol.
const VERSIONS: [&str; 2] = [
    "client.authentication.k8s.io/v1",
    "client.authentication.k8s.io/v1beta1",
];

/// A credential plugin.
#[derive(Clone, PartialEq)]
pub struct ExecPlugin {
    /// The name or path of the program.
    pub command: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Additional environment variables.
    pub env: Vec<(String, String)>,
    /// The version of the protocol: `client.authentication.k8s.io/v1`.
    pub api_version: String,
    /// A hint for users who do not have the program.
    pub install_hint: String,
    /// The cluster to pass to the program, if it needs it.
    pub cluster: Option<Value>,
}

/// Omits the arguments and the environment, which may be secret.
impl std::fmt::Debug for ExecPlugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExecPlugin")
            .field("command", &self.command)
            .field("api_version", &self.api_version)
            .finish_non_exhaustive()
    }
}

impl ExecPlugin {
    /// # Errors
    /// The version is not supported.
    pub(super) fn check(&self) -> Result<(), String> {
        match VERSIONS.contains(&self.api_version.as_str()) {
            true => Ok(()),
            false => Err(format!(
                "gets its credentials from {:?} with the version {:?}, which is not supported",
                self.command, self.api_version
            )),
        }
    }
}
