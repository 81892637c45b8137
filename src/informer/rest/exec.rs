//! Programs that get credentials, as clouds have them (`client.authentication.k8s.io`, KEP-541): they are
//! run when some are needed, and answer with a token, a client certificate, or both. How these are shown
//! is not known here.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::HeaderValue;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::Semaphore;

use super::config::{Pem, RestConfig};
use super::credentials::bearer;
use super::error::RestError;
use super::material::Identity;

/// The forms of the question that are known.
const VERSIONS: [&str; 2] = [
    "client.authentication.k8s.io/v1",
    "client.authentication.k8s.io/v1beta1",
];

/// A program that is run for credentials.
#[derive(Clone, PartialEq)]
pub struct ExecPlugin {
    /// Its name, or where it is.
    pub command: PathBuf,
    /// What it is given.
    pub args: Vec<String>,
    /// Added to its environment.
    pub env: Vec<(String, String)>,
    /// In which form it is asked: `client.authentication.k8s.io/v1`.
    pub api_version: String,
    /// What a user is told who does not have it.
    pub install_hint: String,
    /// What it is told of the cluster, if it wants to know.
    pub cluster: Option<Value>,
}

/// Not what it is given, which may be secret.
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
    /// It cannot be asked; in words.
    pub(super) fn check(&self) -> Result<(), String> {
        match VERSIONS.contains(&self.api_version.as_str()) {
            true => Ok(()),
            false => Err(format!(
                "gets its credentials from {:?} by the version {:?}, which is not known",
                self.command, self.api_version
            )),
        }
    }
}

/// As a kubeconfig has it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WrittenExec {
    command: PathBuf,
    #[serde(default)]
    args: Option<Vec<String>>,
    #[serde(default)]
    env: Option<Vec<WrittenVariable>>,
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
struct WrittenVariable {
    name: String,
    value: String,
}

impl WrittenExec {
    /// What is run.
    pub(super) fn command(&self) -> &Path {
        &self.command
    }

    /// Whether it cannot do without a person who answers.
    pub(super) fn asks_its_user(&self) -> bool {
        self.interactive_mode == "Always"
    }

    /// What it means in a file of `directory`, for the cluster of `config`.
    ///
    /// # Errors
    /// The CA, of which it is told, cannot be read; in words.
    pub(super) fn plugin(
        &self,
        directory: &Path,
        config: &RestConfig,
    ) -> Result<ExecPlugin, String> {
        // A bare name is looked for where programs are; a path belongs to the file that it is in.
        let command = match self.command.components().count() {
            1 => self.command.clone(),
            _ => directory.join(&self.command),
        };
        let env = self.env.clone().unwrap_or_default();
        let authority = config.certificate_authority.as_ref().map(Pem::read);
        let authority = authority.transpose()?;
        let cluster = || {
            let told = json!({
                "server": config.server,
                "tls-server-name": config.tls_server_name,
                "insecure-skip-tls-verify": config.insecure_skip_tls_verify,
                "certificate-authority-data": authority.map(|pem| BASE64_STANDARD.encode(pem)),
                "proxy-url": config.proxy_url,
            });
            match told {
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

/// The credentials of a program, until they end.
#[derive(Debug)]
pub(super) struct ExecSource {
    plugin: ExecPlugin,
    last: Mutex<Option<Issued>>,
    /// One run serves all who wait for it.
    running: Semaphore,
}

/// Credentials that last for a while.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Issued {
    /// The header that shows the token, if there is one.
    pub(super) header: Option<HeaderValue>,
    /// The certificate, if there is one.
    pub(super) identity: Option<Arc<Identity>>,
    until: Option<Timestamp>,
}

impl Issued {
    /// Only a token, without an end.
    pub(super) fn token(header: HeaderValue) -> Self {
        Self {
            header: Some(header),
            identity: None,
            until: None,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    api_version: String,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: Option<String>,
    expiration_timestamp: Option<Timestamp>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

impl ExecSource {
    pub(super) fn new(plugin: ExecPlugin) -> Self {
        Self {
            plugin,
            last: Mutex::default(),
            running: Semaphore::new(1),
        }
    }

    /// What it has issued. Cancel safe: a program that is not waited for is killed.
    ///
    /// # Errors
    /// The program gives nothing.
    pub(super) async fn issued(&self) -> Result<Issued, RestError> {
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let turn = self.running.acquire().await.expect("it is never closed");
        // Whoever had the turn before may have left some.
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let command = self.plugin.command.display();
        let issued = self.run().await;
        let issued = issued.map_err(|why| RestError::Credentials(format!("{command}: {why}")))?;
        *self.last.lock() = Some(issued.clone());
        drop(turn);
        Ok(issued)
    }

    fn known(&self) -> Option<Issued> {
        let last = self.last.lock();
        let known = last.as_ref()?;
        let lasts = known.until.is_none_or(|until| Timestamp::now() < until);
        lasts.then(|| known.clone())
    }

    /// The server did not take this.
    pub(super) fn refused(&self, shown: &Issued) {
        drop(self.last.lock().take_if(|last| last == shown));
    }

    async fn run(&self) -> Result<Issued, String> {
        let ExecPlugin {
            command,
            args,
            env,
            api_version,
            install_hint,
            cluster,
        } = &self.plugin;
        let mut spec = json!({"interactive": false});
        if let Some(cluster) = cluster {
            spec["cluster"] = cluster.clone();
        }
        let asked = json!({"kind": "ExecCredential", "apiVersion": api_version, "spec": spec});
        let ran = Command::new(command)
            .args(args)
            .envs(env.iter().map(|(name, value)| (name, value)))
            .env("KUBERNETES_EXEC_INFO", asked.to_string())
            .stdin(Stdio::null())
            // It may tell its user what is wrong.
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .output()
            .await;
        let output = ran.map_err(|error| match install_hint.trim() {
            "" => error.to_string(),
            hint => format!("{error}: {hint}"),
        })?;
        if !output.status.success() {
            return Err(format!("it failed: {}", output.status));
        }
        issued(&output.stdout, api_version)
    }
}

fn issued(output: &[u8], api_version: &str) -> Result<Issued, String> {
    let credential: ExecCredential = serde_json::from_slice(output)
        .map_err(|error| format!("it gave no ExecCredential: {error}"))?;
    if credential.api_version != api_version {
        let version = credential.api_version;
        return Err(format!(
            "it was asked by {api_version} and answers by {version}"
        ));
    }
    let status = credential.status.ok_or("it gave no status")?;
    let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
    let header = filled(status.token).map(|token| bearer(&token));
    let header = header.transpose();
    let certificate = filled(status.client_certificate_data);
    let identity = match (certificate, filled(status.client_key_data)) {
        (Some(certificate), Some(key)) => Some(Arc::new(Identity {
            certificate: certificate.into_bytes(),
            key: key.into_bytes(),
        })),
        (None, None) => None,
        (Some(_), None) => return Err("it gave a client certificate without its key".to_owned()),
        (None, Some(_)) => return Err("it gave a client key without its certificate".to_owned()),
    };
    let issued = Issued {
        header: header.map_err(|why| format!("its token {why}"))?,
        identity,
        until: status.expiration_timestamp,
    };
    match issued.header.is_none() && issued.identity.is_none() {
        true => Err("it gave neither a token nor a client certificate".to_owned()),
        false => Ok(issued),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "client.authentication.k8s.io/v1";

    fn plugin(script: &str) -> ExecSource {
        ExecSource::new(ExecPlugin {
            command: "sh".into(),
            args: vec!["-c".into(), script.into()],
            env: vec![("ANSWER".into(), "from-env".into())],
            api_version: V1.into(),
            install_hint: String::new(),
            cluster: Some(json!({"server": "https://a"})),
        })
    }

    /// Answers with this token and how often it was run.
    fn counting(file: &std::path::Path, until: &str) -> String {
        let file = file.display();
        format!(
            r#"echo x >> {file}; n=$(wc -l < {file} | tr -d ' ');
               printf '{{"apiVersion":"{V1}","kind":"ExecCredential","status":{{"token":"%s-%s"{until}}}}}' $ANSWER $n"#
        )
    }

    async fn shown(program: &ExecSource) -> String {
        let header = program.issued().await.unwrap().header.unwrap();
        header.to_str().unwrap().to_owned()
    }

    #[tokio::test]
    async fn a_program_is_run_when_a_token_is_needed() {
        let directory = tempfile::tempdir().unwrap();
        let runs = directory.path().join("runs");
        let token = plugin(&counting(&runs, ""));
        let (one, other) = tokio::join!(shown(&token), shown(&token));
        assert_eq!(
            (one.as_str(), other.as_str()),
            ("Bearer from-env-1", "Bearer from-env-1")
        );
        let first = token.issued().await.unwrap();
        token.refused(&first);
        assert_eq!(shown(&token).await, "Bearer from-env-2");
        // A request that was sent with the old one is answered only now: the new one is as good as before.
        token.refused(&first);
        assert_eq!(shown(&token).await, "Bearer from-env-2");
        let past = r#","expirationTimestamp":"2020-01-01T00:00:00Z""#;
        let short = plugin(&counting(&runs, past));
        assert_eq!(shown(&short).await, "Bearer from-env-3");
        assert_eq!(shown(&short).await, "Bearer from-env-4");
    }

    #[tokio::test]
    async fn it_is_told_what_is_asked() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().display();
        let token = plugin(&format!(
            "printf %s \"$KUBERNETES_EXEC_INFO\" > {path}; exit 3"
        ));
        let error = token.issued().await.unwrap_err().to_string();
        assert!(error.contains("sh: it failed: exit status: 3"), "{error}");
        let asked: Value = serde_json::from_slice(&std::fs::read(file.path()).unwrap()).unwrap();
        assert_eq!(asked["apiVersion"], V1);
        let spec = json!({"interactive": false, "cluster": {"server": "https://a"}});
        assert_eq!(asked["spec"], spec);
    }

    #[tokio::test]
    async fn what_it_gives_is_checked() {
        for (answer, complaint) in [
            ("no JSON", "no ExecCredential"),
            (
                r#"{"apiVersion":"client.authentication.k8s.io/v1beta1"}"#,
                "answers by",
            ),
            (
                r#"{"apiVersion":"client.authentication.k8s.io/v1"}"#,
                "no status",
            ),
            (
                r#"{"apiVersion":"client.authentication.k8s.io/v1","status":{}}"#,
                "neither a token nor",
            ),
            (
                r#"{"apiVersion":"client.authentication.k8s.io/v1","status":{"clientCertificateData":"x"}}"#,
                "without its key",
            ),
            (
                r#"{"apiVersion":"client.authentication.k8s.io/v1","status":{"token":"t","clientKeyData":"x"}}"#,
                "without its certificate",
            ),
        ] {
            let error = issued(answer.as_bytes(), V1).unwrap_err();
            assert!(error.contains(complaint), "{error}");
        }
        let missing = ExecSource::new(ExecPlugin {
            command: "/nowhere/cloud".into(),
            args: Vec::new(),
            env: Vec::new(),
            api_version: V1.into(),
            install_hint: "get it there".into(),
            cluster: None,
        });
        let error = missing.issued().await.unwrap_err().to_string();
        assert!(error.contains("/nowhere/cloud: No such file"), "{error}");
        assert!(error.ends_with(": get it there"), "{error}");
        assert!(missing.plugin.check().is_ok());
        let old = ExecPlugin {
            api_version: "client.authentication.k8s.io/v1alpha1".into(),
            ..missing.plugin
        };
        assert!(old.check().unwrap_err().contains("v1alpha1"));
    }
}
