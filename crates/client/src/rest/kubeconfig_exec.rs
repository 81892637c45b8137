//! A credential plugin as a kubeconfig has it.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::config::RestConfig;
use super::exec_plugin::ExecPlugin;
use super::pem::Pem;

/// The plugin as written in a kubeconfig.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct KubeconfigExec {
    command: PathBuf,
    #[serde(default)]
    args: Option<Vec<String>>,
    #[serde(default)]
    env: Option<Vec<KubeconfigVariable>>,
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    install_hint: String,
    #[serde(default)]
    provide_cluster_info: bool,
    #[serde(default)]
    interactive_mode: String,
}

#[derive(Debug, Clone, Deserialize)]
struct KubeconfigVariable {
    name: String,
    value: String,
}

impl KubeconfigExec {
    /// Returns the program.
    pub(super) fn command(&self) -> &Path {
        &self.command
    }

    /// Returns true if the program needs an interactive terminal.
    pub(super) fn is_interactive(&self) -> bool {
        self.interactive_mode == "Always"
    }

    /// Returns the plugin of a kubeconfig in `directory`, for the cluster of `config`.
    ///
    /// # Errors
    /// The CA file, which is passed to the program, cannot be read.
    pub(super) fn plugin(
        &self,
        directory: &Path,
        config: &RestConfig,
    ) -> Result<ExecPlugin, String> {
        // A bare name is searched in PATH; a path is relative to the kubeconfig.
        let command = match self.command.components().count() {
            1 => self.command.clone(),
            _ => directory.join(&self.command),
        };
        let env = self.env.clone().unwrap_or_default();
        let authority = config.certificate_authority.as_ref().map(Pem::read);
        let authority = authority.transpose()?;
        let cluster = || {
            let cluster = json!({
                "server": config.server,
                "tls-server-name": config.tls_server_name,
                "insecure-skip-tls-verify": config.insecure_skip_tls_verify,
                "certificate-authority-data": authority.map(|pem| BASE64_STANDARD.encode(pem)),
                "proxy-url": config.proxy_url,
            });
            match cluster {
                Value::Object(mut members) => {
                    members.retain(|_, value| !value.is_null());
                    Value::Object(members)
                }
                other => other,
            }
        };
        Ok(ExecPlugin {
            command,
            args: self.args.clone().unwrap_or_default(),
            env: env
                .into_iter()
                .map(|variable| (variable.name, variable.value))
                .collect(),
            api_version: self.api_version.clone(),
            install_hint: self.install_hint.clone(),
            cluster: self.provide_cluster_info.then(cluster),
        })
    }
}
