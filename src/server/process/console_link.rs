//! Links to the console: `watchet console` requests one from a running server, as the user of a kubeconfig.

use std::path::Path;

use serde::Deserialize;

use crate::client::{
    InvalidRestConfig, Kubeconfig, KubeconfigError, RestClient, RestConfig, RestConfigError,
    RestError,
};
use crate::console;

/// Why there is no link.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "documented by their sources")]
pub(super) enum ConsoleLinkError {
    #[error("--kubeconfig {0}; name the kubeconfig that the server has written")]
    Kubeconfig(#[from] KubeconfigError),
    #[error(transparent)]
    Config(#[from] RestConfigError),
    #[error(transparent)]
    Client(#[from] InvalidRestConfig),
    #[error("no link to the console of {server}: {error}")]
    Request { server: String, error: RestError },
}

impl ConsoleLinkError {
    /// Returns true if the configuration is wrong.
    pub(super) fn is_config(&self) -> bool {
        !matches!(self, Self::Request { .. })
    }
}

/// The response of the server.
#[derive(Deserialize)]
struct NewCode {
    code: String,
}

/// Requests a link from the server in the kubeconfig, or in the default one.
///
/// # Errors
/// The kubeconfig is invalid, the server is not reached, or it does not allow the user to request a link.
pub(super) async fn request(kubeconfig: Option<&Path>) -> Result<String, ConsoleLinkError> {
    let mut config = match kubeconfig {
        Some(path) => RestConfig::from_kubeconfig(&Kubeconfig::load(&[path])?, None)?,
        None => RestConfig::infer()?,
    };
    config.user_agent = concat!("watchet-console/", env!("CARGO_PKG_VERSION")).to_owned();
    let client = RestClient::new(&config)?;
    let server = client.server().trim_end_matches('/').to_owned();
    let response = client.post_to::<NewCode>(console::LINK_PATH, "{}".into());
    match response.await {
        Ok(NewCode { code }) => Ok(link(&server, &code)),
        Err(error) => Err(ConsoleLinkError::Request { server, error }),
    }
}

/// Returns the link with a one-time code to the console of the server with this URL.
pub(super) fn link(server: &str, code: &str) -> String {
    let (path, fragment) = (console::PATH, console::LOGIN_FRAGMENT);
    format!("{server}{path}{fragment}{code}")
}
