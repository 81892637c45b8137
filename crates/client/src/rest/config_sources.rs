//! Where a `RestConfig` comes from: a kubeconfig, or the service account of a pod.

use std::path::{Path, PathBuf};

use super::config::{RestConfig, Token};
use super::kubeconfig::{Kubeconfig, KubeconfigError};
use super::pem::Pem;

/// The directory of a pod's service account credentials.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// No usable configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestConfigError {
    /// The kubeconfig is invalid.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// There is neither a kubeconfig nor a pod's service account.
    #[error(
        "no server configured: set KUBECONFIG, create ~/.kube/config, or run in a pod with a service account"
    )]
    None,
    /// The pod's service account is incomplete.
    #[error("the pod's service account cannot be used: {path:?}: {source}")]
    ServiceAccount {
        /// The missing file.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
}

impl RestConfig {
    /// Creates the configuration of `context`, or of the current context.
    ///
    /// # Errors
    /// The kubeconfig is incomplete, or needs an unsupported feature.
    pub fn from_kubeconfig(
        kubeconfig: &Kubeconfig,
        context: Option<&str>,
    ) -> Result<Self, RestConfigError> {
        Ok(kubeconfig.access(context)?)
    }

    /// Loads the default configuration: from the files of `KUBECONFIG`, else `~/.kube/config`, else
    /// from the service account of the pod.
    ///
    /// # Errors
    /// None of these exists, or it is invalid.
    pub fn infer() -> Result<Self, RestConfigError> {
        let kubeconfig = Kubeconfig::load_default()?;
        if !kubeconfig.is_empty() {
            return Self::from_kubeconfig(&kubeconfig, None);
        }
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let host = variable("KUBERNETES_SERVICE_HOST");
        match host.zip(variable("KUBERNETES_SERVICE_PORT")) {
            Some((host, port)) => Self::in_cluster(&host, &port, Path::new(SERVICE_ACCOUNT)),
            None => Err(RestConfigError::None),
        }
    }

    /// Creates the configuration of a pod: the server's address as in `KUBERNETES_SERVICE_HOST` and
    /// `_PORT`, credentials from the service account directory.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn in_cluster(host: &str, port: &str, directory: &Path) -> Result<Self, RestConfigError> {
        let read = |name: &str| {
            let path = directory.join(name);
            std::fs::read(&path).map_err(|source| RestConfigError::ServiceAccount { path, source })
        };
        let host = match host.contains(':') {
            true => format!("[{host}]"),
            false => host.to_owned(),
        };
        // The token is read at the first request, but its absence should be an error now.
        read("token")?;
        read("ca.crt")?;
        let namespace = String::from_utf8_lossy(&read("namespace")?)
            .trim()
            .to_owned();
        Ok(Self {
            certificate_authority: Some(Pem::File(directory.join("ca.crt"))),
            token: Some(Token::File(directory.join("token"))),
            namespace,
            ..Self::new(format!("https://{host}:{port}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_cluster_config() {
        let directory = tempfile::tempdir().unwrap();
        let error = RestConfig::in_cluster("10.0.0.1", "443", directory.path()).unwrap_err();
        assert!(error.to_string().contains("/token\""), "{error}");
        for (name, text) in [("token", "T"), ("namespace", "shop\n"), ("ca.crt", "CA")] {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        let config = RestConfig::in_cluster("::1", "6443", directory.path()).unwrap();
        assert_eq!(config.server, "https://[::1]:6443");
        assert_eq!(config.namespace, "shop");
        let authority = Pem::File(directory.path().join("ca.crt"));
        assert_eq!(config.certificate_authority, Some(authority));
        assert!(matches!(config.token, Some(Token::File(path)) if path.ends_with("token")));
    }
}
