//! Reading a kubeconfig: the server of a context, what it is trusted by and who asks. Programs that
//! fetch credentials (`exec`, auth providers) are refused: the numbers would be theirs too.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;

/// The kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("kubeconfig {path:?}: {problem}")]
pub(super) struct KubeconfigError {
    path: PathBuf,
    problem: String,
}

/// What a client has to know of one context.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Access {
    /// URL of the server.
    pub server: String,
    /// The name in its certificate, when it is not the URL's.
    pub server_name: Option<String>,
    /// PEM.
    pub authority: Option<Vec<u8>>,
    /// The certificate is not verified.
    pub insecure: bool,
    /// PEM, with the key.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// Bearer token.
    pub token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct File {
    #[serde(default)]
    current_context: String,
    #[serde(default)]
    clusters: Vec<NamedCluster>,
    #[serde(default)]
    users: Vec<NamedUser>,
    #[serde(default)]
    contexts: Vec<NamedContext>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    tls_server_name: Option<String>,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    #[serde(default)]
    insecure_skip_tls_verify: bool,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
struct User {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    exec: Option<serde_json::Value>,
    auth_provider: Option<serde_json::Value>,
}

/// The file that is meant when none is named: the first of `$KUBECONFIG`, else the one in `home`.
pub(super) fn default_path(variable: Option<&str>, home: Option<&Path>) -> Option<PathBuf> {
    let first = variable.and_then(|paths| paths.split(':').find(|path| !path.is_empty()));
    match first {
        Some(path) => Some(path.into()),
        None => Some(home?.join(".kube/config")),
    }
}

/// Reads what `path` says of `context`, or of its current one.
///
/// # Errors
/// The file cannot be read or is incomplete, or wants a program to be run.
pub(super) fn read(path: &Path, context: Option<&str>) -> Result<Access, KubeconfigError> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
    let access = text.and_then(|text| parse(path, &text, context));
    access.map_err(|problem| KubeconfigError {
        path: path.to_owned(),
        problem,
    })
}

fn parse(path: &Path, text: &str, context: Option<&str>) -> Result<Access, String> {
    let options = serde_saphyr::options! { with_snippet: false };
    let file: File = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| format!("is no kubeconfig: {error}"))?;
    let wanted = context.unwrap_or(&file.current_context);
    let context = file.contexts.into_iter().find(|named| named.name == wanted);
    let Context { cluster, user } = context
        .ok_or_else(|| format!("has no context {wanted:?}: name one by --context"))?
        .context;
    let named = |kind, name: &str| format!("has no {kind} {name:?}, which its context names");
    let cluster = file.clusters.into_iter().find(|c| c.name == cluster);
    let cluster = cluster.ok_or_else(|| named("cluster", wanted))?.cluster;
    let user = match user.as_str() {
        "" => User::default(),
        name => {
            let found = file.users.into_iter().find(|user| user.name == name);
            found.ok_or_else(|| named("user", name))?.user
        }
    };
    if user.exec.is_some() || user.auth_provider.is_some() {
        return Err("gets its credentials from a program: give --server and --token".to_owned());
    }
    access(path.parent().unwrap_or(Path::new("")), cluster, user)
}

/// Reads the files that are named, relative to the kubeconfig's own directory.
fn access(directory: &Path, cluster: Cluster, user: User) -> Result<Access, String> {
    let contents = |path: &Path| {
        let path = directory.join(path);
        std::fs::read(&path).map_err(|error| format!("names {path:?}: {error}"))
    };
    // Data wins over a file, as in every client.
    let given = |data: Option<String>, path: Option<PathBuf>| match (data, path) {
        (Some(data), _) => BASE64_STANDARD
            .decode(data)
            .map(Some)
            .map_err(|error| format!("holds data that is no base64: {error}")),
        (None, Some(path)) => contents(&path).map(Some),
        (None, None) => Ok(None),
    };
    let authority = given(
        cluster.certificate_authority_data,
        cluster.certificate_authority,
    )?;
    let certificate = given(user.client_certificate_data, user.client_certificate)?;
    let key = given(user.client_key_data, user.client_key)?;
    let token = match (user.token, user.token_file) {
        (None, Some(path)) => {
            let token = String::from_utf8(contents(&path)?);
            let token = token.map_err(|_| format!("names {path:?}: is no text"))?;
            Some(token.trim().to_owned())
        }
        (token, _) => token,
    };
    Ok(Access {
        server: cluster.server,
        server_name: cluster.tls_server_name,
        authority,
        insecure: cluster.insecure_skip_tls_verify,
        certificate: certificate.zip(key),
        token,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
apiVersion: v1
kind: Config
current-context: one
contexts:
- {name: one, context: {cluster: c, user: u}}
- {name: two, context: {cluster: c, user: files}}
- {name: exec, context: {cluster: c, user: e}}
- {name: nobody, context: {cluster: c, user: missing}}
clusters:
- name: c
  cluster: {server: 'https://10.0.0.1:6443', certificate-authority-data: Q0E=, tls-server-name: w}
users:
- {name: u, user: {client-certificate-data: Qw==, client-key-data: Sw==}}
- {name: files, user: {tokenFile: token, client-certificate: crt, client-key: key}}
- {name: e, user: {exec: {command: aws}}}
";

    #[test]
    fn a_context_is_followed_to_its_data_and_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        for (name, text) in [
            ("config", FILE),
            ("token", "T\n"),
            ("crt", "C"),
            ("key", "K"),
        ] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let expected = |token: Option<&str>| Access {
            server: "https://10.0.0.1:6443".into(),
            server_name: Some("w".into()),
            authority: Some(b"CA".to_vec()),
            insecure: false,
            certificate: Some((b"C".to_vec(), b"K".to_vec())),
            token: token.map(str::to_owned),
        };
        assert_eq!(read(&path, None).unwrap(), expected(None));
        assert_eq!(read(&path, Some("two")).unwrap(), expected(Some("T")));
        for (context, complaint) in [
            ("exec", "from a program"),
            ("nobody", "no user \"missing\""),
            ("three", "no context \"three\""),
        ] {
            let error = read(&path, Some(context)).unwrap_err().to_string();
            assert!(error.contains(complaint), "{error}");
        }
        std::fs::remove_file(dir.path().join("token")).unwrap();
        let error = read(&path, Some("two")).unwrap_err().to_string();
        assert!(error.contains("/token\""), "{error}");
        let error = read(&dir.path().join("none"), None).unwrap_err();
        assert!(error.to_string().contains("/none\""), "{error}");
    }

    #[test]
    fn the_default_is_that_of_every_client() {
        let home = Some(Path::new("/home/jane"));
        let check = |variable, expected: &str| {
            assert_eq!(default_path(variable, home), Some(expected.into()));
        };
        check(Some("/a:/b"), "/a");
        check(Some(":/b"), "/b");
        check(Some(""), "/home/jane/.kube/config");
        check(None, "/home/jane/.kube/config");
        assert_eq!(default_path(None, None), None);
    }
}
