//! Programs that get credentials, as clouds have them (`client.authentication.k8s.io`, KEP-541): they are
//! run when a token is needed and answer with one. Client certificates from them are not taken.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::HeaderValue;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::Semaphore;

use super::config::RestConfig;
use super::credentials::bearer;
use super::error::RestError;

/// The forms of the question that are known.
const VERSIONS: [&str; 2] = [
    "client.authentication.k8s.io/v1",
    "client.authentication.k8s.io/v1beta1",
];

/// A program that is run for a token.
#[derive(Debug, Clone, PartialEq)]
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
    pub(super) fn plugin(&self, directory: &Path, config: &RestConfig) -> ExecPlugin {
        // A bare name is looked for where programs are; a path belongs to the file that it is in.
        let command = match self.command.components().count() {
            1 => self.command.clone(),
            _ => directory.join(&self.command),
        };
        let env = self.env.clone().unwrap_or_default();
        let cluster = || {
            let authority = config.certificate_authority.as_ref();
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
        ExecPlugin {
            command,
            args: self.args.clone().unwrap_or_default(),
            env: env
                .into_iter()
                .map(|variable| (variable.name, variable.value))
                .collect(),
            api_version: self.api_version.clone(),
            install_hint: self.install_hint.clone(),
            cluster: self.provide_cluster_info.then(cluster),
        }
    }
}

/// The token of a program, until it ends.
#[derive(Debug)]
pub(super) struct ExecToken {
    plugin: ExecPlugin,
    last: Mutex<Option<Issued>>,
    /// One run serves all who wait for it.
    running: Semaphore,
}

#[derive(Debug, Clone)]
struct Issued {
    header: HeaderValue,
    until: Option<Timestamp>,
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
}

impl ExecToken {
    pub(super) fn new(plugin: ExecPlugin) -> Self {
        Self {
            plugin,
            last: Mutex::default(),
            running: Semaphore::new(1),
        }
    }

    /// The header that shows it. Cancel safe: a program that is not waited for is killed.
    ///
    /// # Errors
    /// The program gives none.
    pub(super) async fn header(&self) -> Result<HeaderValue, RestError> {
        if let Some(header) = self.known() {
            return Ok(header);
        }
        let turn = self.running.acquire().await.expect("it is never closed");
        // Whoever had the turn before may have left one.
        if let Some(header) = self.known() {
            return Ok(header);
        }
        let command = self.plugin.command.display();
        let issued = self.run().await;
        let issued = issued.map_err(|why| RestError::Credentials(format!("{command}: {why}")))?;
        let header = issued.header.clone();
        *self.last.lock() = Some(issued);
        drop(turn);
        Ok(header)
    }

    fn known(&self) -> Option<HeaderValue> {
        let last = self.last.lock();
        let known = last.as_ref()?;
        let lasts = known.until.is_none_or(|until| Timestamp::now() < until);
        lasts.then(|| known.header.clone())
    }

    /// The server did not take it.
    pub(super) fn refused(&self) {
        *self.last.lock() = None;
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
    match status.token.filter(|token| !token.is_empty()) {
        Some(token) => Ok(Issued {
            header: bearer(&token).map_err(|why| format!("its token {why}"))?,
            until: status.expiration_timestamp,
        }),
        None if status.client_certificate_data.is_some() => {
            Err("it gave a client certificate; only tokens are taken from programs".to_owned())
        }
        None => Err("it gave no token".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "client.authentication.k8s.io/v1";

    fn plugin(script: &str) -> ExecToken {
        ExecToken::new(ExecPlugin {
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

    async fn shown(token: &ExecToken) -> String {
        token.header().await.unwrap().to_str().unwrap().to_owned()
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
        token.refused();
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
        let error = token.header().await.unwrap_err().to_string();
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
                "no token",
            ),
            (
                r#"{"apiVersion":"client.authentication.k8s.io/v1","status":{"clientCertificateData":"x"}}"#,
                "only tokens",
            ),
        ] {
            let error = issued(answer.as_bytes(), V1).unwrap_err();
            assert!(error.contains(complaint), "{error}");
        }
        let missing = ExecToken::new(ExecPlugin {
            command: "/nowhere/cloud".into(),
            args: Vec::new(),
            env: Vec::new(),
            api_version: V1.into(),
            install_hint: "get it there".into(),
            cluster: None,
        });
        let error = missing.header().await.unwrap_err().to_string();
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
