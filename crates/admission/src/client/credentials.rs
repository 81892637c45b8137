//! The credentials that this server presents to webhooks: the users of a kubeconfig. The name of a user selects the
//! webhooks that get its credentials. The names and their order of preference are upstream's.
//!
//! See <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#authenticate-apiservers>.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::Deserialize;

use super::{Address, HTTPS_PORT};

/// The credentials of a kubeconfig, by the names of its users. The default contains no credentials.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WebhookCredentials {
    users: BTreeMap<String, Arc<Credential>>,
    /// The user of the current context. A webhook that matches no user by name gets its credentials.
    current: Option<String>,
}

/// The credentials of one user.
#[derive(Default)]
pub(super) struct Credential {
    authorization: Authorization,
    /// The client certificate of the TLS handshake.
    pub(super) certificate: Option<Arc<CertifiedKey>>,
}

/// The value of the header `Authorization`.
#[derive(Default)]
enum Authorization {
    #[default]
    None,
    Fixed(HeaderValue),
    /// The bearer token in this file, which is read for each call.
    TokenFile(PathBuf),
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct File {
    current_context: Option<String>,
    contexts: Option<Vec<NamedContext>>,
    users: Option<Vec<NamedUser>>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    #[serde(default)]
    context: Context,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Context {
    user: String,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
    user: User,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    token: String,
    #[serde(rename = "tokenFile")]
    token_file: String,
    username: String,
    password: String,
    client_certificate: String,
    client_certificate_data: String,
    client_key: String,
    client_key_data: String,
    r#as: String,
    exec: Option<serde_json::Value>,
    auth_provider: Option<serde_json::Value>,
}

impl WebhookCredentials {
    /// Reads a kubeconfig whose paths are relative to `directory`, and the certificates that it names.
    ///
    /// # Errors
    /// It is no kubeconfig, or a user has credentials that cannot be used.
    pub fn parse(text: &str, directory: &Path) -> Result<Self, String> {
        let options = serde_saphyr::options! { with_snippet: false };
        let file: File = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| format!("is no kubeconfig: {error}"))?;
        let mut users = BTreeMap::new();
        for NamedUser { name, user } in file.users.into_iter().flatten() {
            let credential = Credential::read(user, directory);
            let credential = credential.map_err(|problem| format!("user {name:?}: {problem}"))?;
            users.insert(name, Arc::new(credential));
        }
        let current = file.current_context.unwrap_or_default();
        let mut contexts = file.contexts.into_iter().flatten();
        let context = contexts.find(|context| context.name == current);
        Ok(Self {
            users,
            current: context.map(|context| context.context.user),
        })
    }

    /// Returns the credential for a webhook.
    pub(super) fn of(&self, address: &Address) -> Option<Arc<Credential>> {
        let (host, port) = match address {
            Address::Url { host, port, .. } => (host.clone(), *port),
            Address::Service {
                namespace,
                name,
                port,
                ..
            } => (format!("{name}.{namespace}.svc"), *port),
        };
        let joined = match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        let without_port = Some(host).filter(|_| port == HTTPS_PORT);
        let found = [Some(joined), without_port].into_iter().flatten();
        let found = found.filter_map(|target| self.named(&target)).next();
        let found = found.or_else(|| self.users.get("*"));
        let current = || self.users.get(self.current.as_ref()?);
        found.or_else(current).cloned()
    }

    /// Returns the user of exactly this name, or the user `*.SUFFIX` with the longest suffix of this name.
    fn named(&self, target: &str) -> Option<&Arc<Credential>> {
        let exact = self.users.get(target);
        exact.or_else(|| {
            let ends = target.match_indices('.').map(|(at, _)| &target[at..]);
            let mut ends = ends.map(|end| self.users.get(&format!("*{end}")));
            ends.find_map(|found| found)
        })
    }
}

impl Credential {
    fn read(user: User, directory: &Path) -> Result<Self, String> {
        let unsupported = [
            (user.exec.is_some(), "exec"),
            (user.auth_provider.is_some(), "auth-provider"),
            (!user.r#as.is_empty(), "as"),
        ];
        if let Some((_, member)) = unsupported.iter().find(|(is_written, _)| *is_written) {
            return Err(format!(
                "{member} is not supported for webhooks: use a token, a password or a client certificate"
            ));
        }
        let header = |text: String| {
            let value = HeaderValue::try_from(text);
            let mut value = value.map_err(|_| "the token cannot be sent in a header".to_owned())?;
            value.set_sensitive(true);
            Ok::<_, String>(Authorization::Fixed(value))
        };
        let authorization = if !user.token.is_empty() {
            header(format!("Bearer {}", user.token))?
        } else if !user.token_file.is_empty() {
            let path = directory.join(&user.token_file);
            bearer(&path)?;
            Authorization::TokenFile(path)
        } else if !user.username.is_empty() || !user.password.is_empty() {
            let pair = STANDARD.encode(format!("{}:{}", user.username, user.password));
            header(format!("Basic {pair}"))?
        } else {
            Authorization::None
        };
        let pem = |data: &str, path: &str| pem(data, path, directory);
        let certificate = pem(&user.client_certificate_data, &user.client_certificate)?;
        let key = pem(&user.client_key_data, &user.client_key)?;
        let certificate = match (certificate, key) {
            (Some(certificate), Some(key)) => Some(Arc::new(certified(&certificate, &key)?)),
            (None, None) => None,
            (Some(_), None) => return Err("client-certificate needs client-key too".to_owned()),
            (None, Some(_)) => return Err("client-key needs client-certificate too".to_owned()),
        };
        Ok(Self {
            authorization,
            certificate,
        })
    }

    /// Returns the value of the header `Authorization`.
    ///
    /// # Errors
    /// The file of the token cannot be read.
    pub(super) fn authorization(&self) -> Result<Option<HeaderValue>, String> {
        match &self.authorization {
            Authorization::None => Ok(None),
            Authorization::Fixed(value) => Ok(Some(value.clone())),
            Authorization::TokenFile(path) => bearer(path).map(Some),
        }
    }
}

fn bearer(path: &Path) -> Result<HeaderValue, String> {
    let unusable = |problem: &dyn fmt::Display| format!("tokenFile {}: {problem}", path.display());
    let token = std::fs::read_to_string(path).map_err(|error| unusable(&error))?;
    let value = HeaderValue::try_from(format!("Bearer {}", token.trim()));
    let mut value = value.map_err(|_| unusable(&"the token cannot be sent in a header"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the content of `data`, or else of the file at `path`; `None` if both are empty.
fn pem(data: &str, path: &str, directory: &Path) -> Result<Option<Vec<u8>>, String> {
    if !data.is_empty() {
        let decoded = STANDARD.decode(data);
        let decoded = decoded.map_err(|error| format!("is no base64: {error}"))?;
        return Ok(Some(decoded));
    }
    if path.is_empty() {
        return Ok(None);
    }
    let path = directory.join(path);
    let text = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Some(text))
}

fn certified(certificate: &[u8], key: &[u8]) -> Result<CertifiedKey, String> {
    let unusable = |problem: &dyn fmt::Display| format!("client certificate: {problem}");
    let chain = CertificateDer::pem_slice_iter(certificate);
    let chain = chain.collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| unusable(&error))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| unusable(&error))?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    CertifiedKey::from_der(chain, key, &provider).map_err(|error| unusable(&error))
}

impl fmt::Debug for Credential {
    /// Prints no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").finish_non_exhaustive()
    }
}

impl PartialEq for Credential {
    /// Credentials are compared by identity.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Credential {}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBECONFIG: &str = r#"
apiVersion: v1
kind: Config
current-context: main
contexts: [{name: main, context: {user: last}}]
users:
- {name: "a.ns.svc:8443", user: {token: exact-port}}
- {name: "a.ns.svc", user: {token: exact}}
- {name: "*.ns.svc", user: {token: namespace}}
- {name: "*.example.com:8443", user: {token: suffix-port}}
- {name: "*.com", user: {username: u, password: p}}
- {name: last, user: {token: current}}
"#;

    fn sent(credentials: &WebhookCredentials, config: serde_json::Value) -> String {
        let config = super::super::ClientConfig::parse(&config).unwrap();
        let credential = credentials.of(&config.address);
        let value = credential.and_then(|credential| credential.authorization().unwrap());
        value.map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
    }

    /// <https://github.com/kubernetes/kubernetes/blob/v1.35.0/staging/src/k8s.io/apiserver/pkg/util/webhook/authentication.go>
    #[test]
    fn a_webhook_gets_the_credential_of_the_user_that_is_named_after_it() {
        let credentials = WebhookCredentials::parse(KUBECONFIG, Path::new("")).unwrap();
        let service = |name: &str, namespace: &str, port: u16| serde_json::json!({"service": {"name": name, "namespace": namespace, "port": port}});
        let url = |url: &str| serde_json::json!({"url": url});
        for (config, expected) in [
            (service("a", "ns", 8443), "Bearer exact-port"),
            (service("a", "ns", 443), "Bearer exact"),
            (service("b", "ns", 443), "Bearer namespace"),
            (service("b", "ns", 8443), "Bearer current"),
            (url("https://x.y.example.com:8443/p"), "Bearer suffix-port"),
            (url("https://example.com"), "Basic dTpw"),
            (url("https://example.com:8443"), "Bearer current"),
        ] {
            assert_eq!(sent(&credentials, config.clone()), expected, "{config}");
        }
        let none = WebhookCredentials::default();
        assert_eq!(sent(&none, url("https://example.com")), "");
        let star = KUBECONFIG.replace("name: last", "name: \"*\"");
        let star = WebhookCredentials::parse(&star, Path::new("")).unwrap();
        assert_eq!(sent(&star, url("https://a.b:1")), "Bearer current");
    }

    #[test]
    fn error_of_unusable_credentials_names_their_user() {
        for (user, expected) in [
            (
                "{exec: {}}",
                "user \"u\": exec is not supported for webhooks",
            ),
            ("{as: jane}", "user \"u\": as is not supported for webhooks"),
            (
                "{tokenFile: no-such}",
                "user \"u\": tokenFile no-such: No such file",
            ),
            (
                "{client-certificate-data: aGk=}",
                "user \"u\": client-certificate needs client-key too",
            ),
            (
                "{client-certificate-data: aGk=, client-key-data: aGk=}",
                "user \"u\": client certificate: ",
            ),
        ] {
            let text = format!("users: [{{name: u, user: {user}}}]");
            let error = WebhookCredentials::parse(&text, Path::new("")).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
