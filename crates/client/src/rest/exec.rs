//! Credential plugins (`client.authentication.k8s.io`, KEP-541): programs that print a token, a
//! client certificate, or both.

use std::process::Stdio;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use tokio::process::Command;
use tokio::sync::Semaphore;

use super::error::RestError;
use super::exec_plugin::ExecPlugin;
use super::issued_credentials::{IssuedCredentials, bearer};
use super::material::Identity;

/// Runs a plugin and caches its credentials until they expire.
#[derive(Debug)]
pub(super) struct ExecSource {
    plugin: ExecPlugin,
    last: Mutex<Option<IssuedCredentials>>,
    /// One run serves all waiting requests.
    running: Semaphore,
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

    /// Returns cached or new credentials. Cancel safe: an abandoned program is killed.
    ///
    /// # Errors
    /// The program returns no credentials.
    pub(super) async fn issued(&self) -> Result<IssuedCredentials, RestError> {
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let turn = self
            .running
            .acquire()
            .await
            .expect("the semaphore is never closed");
        // A previous waiter may have obtained new ones.
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

    fn known(&self) -> Option<IssuedCredentials> {
        let last = self.last.lock();
        let known = last.as_ref()?;
        let lasts = known.until.is_none_or(|until| Timestamp::now() < until);
        lasts.then(|| known.clone())
    }

    /// Discards credentials that the server rejected.
    pub(super) fn discard(&self, shown: &IssuedCredentials) {
        drop(self.last.lock().take_if(|last| last == shown));
    }

    async fn run(&self) -> Result<IssuedCredentials, String> {
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
        let request = json!({"kind": "ExecCredential", "apiVersion": api_version, "spec": spec});
        let ran = Command::new(command)
            .args(args)
            .envs(env.iter().map(|(name, value)| (name, value)))
            .env("KUBERNETES_EXEC_INFO", request.to_string())
            .stdin(Stdio::null())
            // The program may print a message for the user.
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .output()
            .await;
        let output = ran.map_err(|error| match install_hint.trim() {
            "" => error.to_string(),
            hint => format!("{error}: {hint}"),
        })?;
        if !output.status.success() {
            return Err(format!("the plugin failed: {}", output.status));
        }
        issued(&output.stdout, api_version)
    }
}

fn issued(output: &[u8], api_version: &str) -> Result<IssuedCredentials, String> {
    let credential: ExecCredential = serde_json::from_slice(output)
        .map_err(|error| format!("the plugin printed no ExecCredential: {error}"))?;
    if credential.api_version != api_version {
        let version = credential.api_version;
        return Err(format!(
            "the plugin was run with {api_version} and responded with {version}"
        ));
    }
    let status = credential.status.ok_or("the plugin returned no status")?;
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
        (Some(_), None) => {
            return Err("the plugin returned a client certificate without its key".to_owned());
        }
        (None, Some(_)) => {
            return Err("the plugin returned a client key without its certificate".to_owned());
        }
    };
    let issued = IssuedCredentials {
        header: header.map_err(|why| format!("the plugin's token {why}"))?,
        identity,
        until: status.expiration_timestamp,
    };
    match issued.header.is_none() && issued.identity.is_none() {
        true => Err("the plugin returned neither a token nor a client certificate".to_owned()),
        false => Ok(issued),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

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

    /// Returns a script that prints this token with the number of its runs.
    fn counting(file: &std::path::Path, until: &str) -> String {
        let file = file.display();
        format!(
            r#"echo x >> {file}; n=$(wc -l < {file} | tr -d ' ');
               printf '{{"apiVersion":"{V1}","kind":"ExecCredential","status":{{"token":"%s-%s"{until}}}}}' $ANSWER $n"#
        )
    }

    async fn authorization_header(program: &ExecSource) -> String {
        let header = program.issued().await.unwrap().header.unwrap();
        header.to_str().unwrap().to_owned()
    }

    #[tokio::test]
    async fn a_plugin_runs_when_a_token_is_needed() {
        let directory = tempfile::tempdir().unwrap();
        let runs = directory.path().join("runs");
        let token = plugin(&counting(&runs, ""));
        let (one, other) = tokio::join!(authorization_header(&token), authorization_header(&token));
        assert_eq!(
            (one.as_str(), other.as_str()),
            ("Bearer from-env-1", "Bearer from-env-1")
        );
        let first = token.issued().await.unwrap();
        token.discard(&first);
        assert_eq!(authorization_header(&token).await, "Bearer from-env-2");
        // The late response to a request with the old token does not discard the new one.
        token.discard(&first);
        assert_eq!(authorization_header(&token).await, "Bearer from-env-2");
        let past = r#","expirationTimestamp":"2020-01-01T00:00:00Z""#;
        let short = plugin(&counting(&runs, past));
        assert_eq!(authorization_header(&short).await, "Bearer from-env-3");
        assert_eq!(authorization_header(&short).await, "Bearer from-env-4");
    }

    #[tokio::test]
    async fn a_plugin_receives_the_request() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().display();
        let token = plugin(&format!(
            "printf %s \"$KUBERNETES_EXEC_INFO\" > {path}; exit 3"
        ));
        let error = token.issued().await.unwrap_err().to_string();
        assert!(
            error.contains("sh: the plugin failed: exit status: 3"),
            "{error}"
        );
        let request: Value = serde_json::from_slice(&std::fs::read(file.path()).unwrap()).unwrap();
        assert_eq!(request["apiVersion"], V1);
        let spec = json!({"interactive": false, "cluster": {"server": "https://a"}});
        assert_eq!(request["spec"], spec);
    }

    #[tokio::test]
    async fn invalid_output_is_an_error() {
        for (answer, message) in [
            ("no JSON", "no ExecCredential"),
            (
                r#"{"apiVersion":"client.authentication.k8s.io/v1beta1"}"#,
                "responded with",
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
            assert!(error.contains(message), "{error}");
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
