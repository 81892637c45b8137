//! Kubeconfig files: merged as by kubectl, and converted to the [`RestConfig`] of a context.
//! Unsupported credentials are errors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;

use super::config::{Impersonate, RestConfig, Token};
use super::dial::without_password;
use super::kubeconfig_exec::KubeconfigExec;
use super::pem::{ClientCertificate, Pem};

/// Why a kubeconfig cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KubeconfigError {
    /// A file, or one that it refers to, cannot be read.
    #[error("{path:?}: {detail}")]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        detail: String,
    },
    /// None of the files of `KUBECONFIG` exists.
    #[error(
        "KUBECONFIG names {}, which does not exist: correct the variable, or unset it to use ~/.kube/config",
        .paths.iter().map(|path| format!("{path:?}")).collect::<Vec<_>>().join(" and ")
    )]
    NoFile {
        /// The files.
        paths: Vec<PathBuf>,
    },
    /// A file is not a kubeconfig.
    #[error("kubeconfig {path:?} is invalid: {detail}")]
    Syntax {
        /// The file; empty for a text.
        path: PathBuf,
        /// The error.
        detail: String,
    },
    /// A reference to an entry that does not exist.
    #[error("the kubeconfig has no {kind} {name:?}{hint}")]
    Missing {
        /// `context`, `cluster` or `user`.
        kind: &'static str,
        /// The name of the entry.
        name: String,
        /// The existing entries.
        hint: String,
    },
    /// An unsupported feature.
    #[error("user {user:?} of the kubeconfig {detail}")]
    Unsupported {
        /// The user entry with the feature.
        user: String,
        /// The feature.
        detail: String,
    },
    /// An invalid value.
    #[error("the kubeconfig's {what} {detail}")]
    Invalid {
        /// The member.
        what: &'static str,
        /// The error.
        detail: String,
    },
}

/// Merged kubeconfig files.
///
/// ```no_run
/// use watchet_client::{Kubeconfig, RestClient, RestConfig};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let kubeconfig = Kubeconfig::load(&["kubeconfig"]).unwrap();
/// assert_eq!(kubeconfig.current_context(), "watchet");
/// let config = RestConfig::from_kubeconfig(&kubeconfig, None).unwrap();
/// println!("{}", config.server);
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Kubeconfig {
    current_context: String,
    clusters: BTreeMap<String, Entry<Cluster>>,
    users: BTreeMap<String, Entry<User>>,
    contexts: BTreeMap<String, Context>,
}

/// An entry and the directory that its paths are relative to.
#[derive(Debug, Clone)]
struct Entry<T> {
    directory: PathBuf,
    entry: T,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct File {
    current_context: Option<String>,
    clusters: Option<Vec<NamedCluster>>,
    users: Option<Vec<NamedUser>>,
    contexts: Option<Vec<NamedContext>>,
}

#[derive(Debug, Deserialize)]
struct NamedCluster {
    name: String,
    #[serde(default)]
    cluster: Cluster,
}

#[derive(Debug, Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
    user: Option<User>,
}

#[derive(Debug, Deserialize)]
struct NamedContext {
    name: String,
    #[serde(default)]
    context: Context,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
    namespace: Option<String>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Cluster {
    server: String,
    tls_server_name: Option<String>,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    insecure_skip_tls_verify: bool,
    proxy_url: Option<String>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    r#as: Option<String>,
    as_uid: Option<String>,
    as_groups: Option<Vec<String>>,
    as_user_extra: Option<BTreeMap<String, Vec<String>>>,
    username: Option<String>,
    exec: Option<KubeconfigExec>,
    auth_provider: Option<AuthProvider>,
}

#[derive(Debug, Clone, Deserialize)]
struct AuthProvider {
    name: String,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let proxy_url = self.proxy_url.as_deref().map(without_password);
        f.debug_struct("Cluster")
            .field("server", &self.server)
            .field("proxy_url", &proxy_url)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("User(..)")
    }
}

impl FromStr for Kubeconfig {
    type Err = KubeconfigError;

    /// Parses the text of one file; its paths are relative to the working directory.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut merged = Self::default();
        merged.add(Path::new(""), text)?;
        Ok(merged)
    }
}

impl Kubeconfig {
    /// Loads the files, all of which must exist. The first file with an entry of a name takes
    /// precedence.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn load(paths: &[impl AsRef<Path>]) -> Result<Self, KubeconfigError> {
        let mut merged = Self::default();
        for path in paths {
            let path = path.as_ref();
            let text = std::fs::read_to_string(path).map_err(|error| KubeconfigError::File {
                path: path.to_owned(),
                detail: error.to_string(),
            })?;
            merged.add(path, &text)?;
        }
        Ok(merged)
    }

    /// Loads kubectl's default files: those of `KUBECONFIG`, else `~/.kube/config`. Files that do
    /// not exist are skipped; the result may be empty.
    ///
    /// # Errors
    /// An existing file cannot be read, or `KUBECONFIG` is set and none of its files exists.
    pub fn load_default() -> Result<Self, KubeconfigError> {
        let variable = std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty());
        let paths: Vec<PathBuf> = match &variable {
            Some(variable) => std::env::split_paths(variable)
                .filter(|path| !path.as_os_str().is_empty())
                .collect(),
            None => std::env::home_dir()
                .map(|home| home.join(".kube/config"))
                .into_iter()
                .collect(),
        };
        let is_set = variable.is_some();
        Self::load_existing(paths, is_set)
    }

    /// Loads those of `paths` that exist; at least one must if `is_required`.
    fn load_existing(paths: Vec<PathBuf>, is_required: bool) -> Result<Self, KubeconfigError> {
        let (there, missing): (Vec<PathBuf>, Vec<PathBuf>) =
            paths.into_iter().partition(|path| path.exists());
        if is_required && there.is_empty() && !missing.is_empty() {
            return Err(KubeconfigError::NoFile { paths: missing });
        }
        Self::load(&there)
    }

    /// Returns true if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.clusters.is_empty() && self.users.is_empty() && self.contexts.is_empty()
    }

    /// Returns the name of the current context; empty if there is none.
    pub fn current_context(&self) -> &str {
        &self.current_context
    }

    /// Returns the names of the contexts.
    pub fn contexts(&self) -> impl Iterator<Item = &str> {
        self.contexts.keys().map(String::as_str)
    }

    fn add(&mut self, path: &Path, text: &str) -> Result<(), KubeconfigError> {
        let options = serde_saphyr::options! { with_snippet: false };
        let parsed = match text.trim() {
            "" => Ok(File::default()),
            text => serde_saphyr::from_str_with_options::<File>(text, options),
        };
        let file = parsed.map_err(|error| KubeconfigError::Syntax {
            path: path.to_owned(),
            detail: error.to_string(),
        })?;
        let directory = path.parent().unwrap_or(Path::new(""));
        if self.current_context.is_empty() {
            self.current_context = file.current_context.unwrap_or_default();
        }
        for NamedCluster { name, cluster } in file.clusters.into_iter().flatten() {
            let entry = Entry::new(directory, cluster);
            self.clusters.entry(name).or_insert(entry);
        }
        for NamedUser { name, user } in file.users.into_iter().flatten() {
            let entry = Entry::new(directory, user.unwrap_or_default());
            self.users.entry(name).or_insert(entry);
        }
        for NamedContext { name, context } in file.contexts.into_iter().flatten() {
            self.contexts.entry(name).or_insert(context);
        }
        Ok(())
    }

    /// Returns the configuration of a context.
    pub(super) fn access(&self, context: Option<&str>) -> Result<RestConfig, KubeconfigError> {
        let name = context.unwrap_or(&self.current_context);
        let context = find(&self.contexts, "context", name)?;
        let cluster = find(&self.clusters, "cluster", &context.cluster)?;
        let mut config = cluster.trust()?;
        if !context.user.is_empty() {
            let user = find(&self.users, "user", &context.user)?;
            user.check(&context.user)?;
            user.identify(&context.user, &mut config)?;
        }
        if let Some(namespace) = context.namespace.as_ref().filter(|name| !name.is_empty()) {
            config.namespace.clone_from(namespace);
        }
        Ok(config)
    }
}

fn find<'a, T>(
    entries: &'a BTreeMap<String, T>,
    kind: &'static str,
    name: &str,
) -> Result<&'a T, KubeconfigError> {
    entries.get(name).ok_or_else(|| {
        let known: Vec<&str> = entries.keys().map(String::as_str).collect();
        let hint = match known.as_slice() {
            [] => String::new(),
            known => format!(": it has {}", known.join(", ")),
        };
        KubeconfigError::Missing {
            kind,
            name: name.to_owned(),
            hint,
        }
    })
}

impl<T> Entry<T> {
    fn new(directory: &Path, entry: T) -> Self {
        Self {
            directory: directory.to_owned(),
            entry,
        }
    }

    /// Returns the data, or the file, which must exist; data takes precedence, as in client-go.
    fn pem(
        &self,
        what: &'static str,
        data: Option<&String>,
        path: Option<&PathBuf>,
    ) -> Result<Option<Pem>, KubeconfigError> {
        if let Some(data) = data.filter(|data| !data.is_empty()) {
            let decoded = BASE64_STANDARD.decode(data);
            let text = decoded.map_err(|error| KubeconfigError::Invalid {
                what,
                detail: format!("is not base64: {error}"),
            })?;
            return Ok(Some(Pem::Text(text)));
        }
        let Some(path) = path.filter(|path| !path.as_os_str().is_empty()) else {
            return Ok(None);
        };
        let path = self.directory.join(path);
        match std::fs::read(&path) {
            Ok(_) => Ok(Some(Pem::File(path))),
            Err(error) => Err(KubeconfigError::File {
                path,
                detail: error.to_string(),
            }),
        }
    }
}

impl Entry<Cluster> {
    fn trust(&self) -> Result<RestConfig, KubeconfigError> {
        let Cluster {
            server,
            tls_server_name,
            certificate_authority,
            certificate_authority_data,
            insecure_skip_tls_verify,
            proxy_url,
        } = &self.entry;
        let filled = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        Ok(RestConfig {
            certificate_authority: self.pem(
                "certificate-authority-data",
                certificate_authority_data.as_ref(),
                certificate_authority.as_ref(),
            )?,
            insecure_skip_tls_verify: *insecure_skip_tls_verify,
            tls_server_name: filled(tls_server_name),
            proxy_url: filled(proxy_url),
            ..RestConfig::new(server.trim_end_matches('/'))
        })
    }
}

impl Entry<User> {
    /// Rejects unsupported credentials: ignoring them would make the client anonymous.
    fn check(&self, user: &str) -> Result<(), KubeconfigError> {
        let asks = |exec: &&KubeconfigExec| exec.is_interactive();
        let detail = if let Some(exec) = self.entry.exec.as_ref().filter(asks) {
            format!(
                "gets its credentials from the program {:?}, which is interactive: that is not supported",
                exec.command()
            )
        } else if let Some(provider) = &self.entry.auth_provider {
            format!(
                "uses the auth provider {:?}, which clients no longer have: use a token or a client \
                 certificate",
                provider.name
            )
        } else if self
            .entry
            .username
            .as_ref()
            .is_some_and(|name| !name.is_empty())
        {
            "has a password, which servers no longer take: use a token or a client certificate"
                .to_owned()
        } else {
            return Ok(());
        };
        Err(KubeconfigError::Unsupported {
            user: user.to_owned(),
            detail,
        })
    }

    fn identify(&self, name: &str, config: &mut RestConfig) -> Result<(), KubeconfigError> {
        let user = &self.entry;
        let certificate = self.pem(
            "client-certificate-data",
            user.client_certificate_data.as_ref(),
            user.client_certificate.as_ref(),
        )?;
        let key = self.pem(
            "client-key-data",
            user.client_key_data.as_ref(),
            user.client_key.as_ref(),
        )?;
        config.client_certificate = match (certificate, key) {
            (Some(certificate), Some(key)) => Some(ClientCertificate { certificate, key }),
            (None, None) => None,
            (Some(_), None) => return Err(lonely("client-certificate", "has no client-key")),
            (None, Some(_)) => return Err(lonely("client-key", "has no client-certificate")),
        };
        // A token file takes precedence, as in client-go: its token is more recent.
        let file = user
            .token_file
            .as_ref()
            .filter(|path| !path.as_os_str().is_empty());
        let fixed = user.token.clone().filter(|token| !token.is_empty());
        config.token = match file {
            Some(path) => Some(Token::File(self.directory.join(path))),
            None => fixed.map(Token::Fixed),
        };
        if let (None, Some(exec)) = (&config.token, &user.exec) {
            let plugin = exec.plugin(&self.directory, config);
            let checked = plugin.and_then(|plugin| plugin.check().map(|()| plugin));
            let plugin = checked.map_err(|detail| KubeconfigError::Unsupported {
                user: name.to_owned(),
                detail,
            })?;
            config.token = Some(Token::Exec(plugin));
        }
        config.impersonate = user.r#as.as_ref().map(|name| Impersonate {
            user: name.clone(),
            uid: user.as_uid.clone(),
            groups: user.as_groups.clone().unwrap_or_default(),
            extra: user
                .as_user_extra
                .clone()
                .unwrap_or_default()
                .into_iter()
                .collect(),
        });
        Ok(())
    }
}

fn lonely(what: &'static str, detail: &str) -> KubeconfigError {
    KubeconfigError::Invalid {
        what,
        detail: detail.to_owned(),
    }
}

#[cfg(test)]
mod tests;
