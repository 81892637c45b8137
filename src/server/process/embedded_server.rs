//! An embedded server, for programs other than `main`: without signals, logging, environment and
//! announcement.

use std::path::Path;
use std::time::Duration;

use crate::server::config::server_config::Config;
use crate::server::config::setting_value::{ConfigError, Source};
use crate::server::config::settings::Settings;
use crate::server::process::build::{BuildError, Server};
use crate::server::process::run::Running;
use crate::tasks::{DrainTimeout, TaskFailed};

/// A running server; must be drained.
#[derive(Debug)]
pub(crate) struct EmbeddedServer {
    running: Running,
    router: axum::Router,
}

/// Why the server could not be started, with the message that the program would print.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EmbeddedServerError {
    /// A setting is wrong.
    #[error("{0}")]
    Config(String),
    /// The directory, a certificate, the storage or a port cannot be used.
    #[error("{0}")]
    Build(String),
    /// A task panicked before the server was ready.
    #[error(transparent)]
    Task(TaskFailed),
}

impl From<ConfigError> for EmbeddedServerError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error.to_string())
    }
}

impl From<BuildError> for EmbeddedServerError {
    fn from(error: BuildError) -> Self {
        match error.is_config() {
            true => Self::Config(error.to_string()),
            false => Self::Build(error.to_string()),
        }
    }
}

impl EmbeddedServer {
    /// Starts a server with these settings (flag names without the dashes) and waits until it is
    /// ready. The last value of a setting counts. Must be called in a multi-threaded runtime.
    ///
    /// # Errors
    /// [`EmbeddedServerError`]
    pub(crate) async fn start(given: &[(String, String)]) -> Result<Self, EmbeddedServerError> {
        let mut settings = Settings::default();
        for (name, text) in given {
            if !settings.specs().iter().any(|spec| spec.name == *name) {
                let problem = format_args!("unknown setting: {name:?}; see `watchet --help`");
                return Err(ConfigError::new(problem).into());
            }
            settings.give(name, text, Source::Flag);
        }
        let server = Server::build(&Config::check(&settings)?, None).await?;
        let (running, router) = server.spawn_with_router();
        // A failure comes first: the server cannot be relied on after it. After damage it does not become ready.
        let damage = tokio::select! {
            biased;
            failed = running.failed() => return Err(EmbeddedServerError::Task(failed)),
            damage = running.damaged() => Some(damage),
            () = running.ready() => None,
        };
        if let Some(damage) = damage {
            // What the drain cannot flush was not acknowledged.
            let _drained = running.drain().await;
            return Err(EmbeddedServerError::Build(damage.to_string()));
        }
        Ok(Self { running, router })
    }

    /// Returns the router without a connection: requests need an `Arc<UserInfo>` as an extension.
    pub(crate) fn router(&self) -> axum::Router {
        self.router.clone()
    }

    /// Returns the URL: `https://127.0.0.1:34567`.
    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.running.done.secure)
    }

    /// Returns the path of the kubeconfig with the admin's credential.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.running.done.kubeconfig
    }

    /// Returns a link that logs a browser in to the console as the admin, once; `None` if the console is not served.
    pub(crate) fn console_link(&self) -> Option<String> {
        self.running.console_link()
    }

    /// Waits for the panic of a vital task. Cancel safe.
    pub(crate) async fn failed(&self) -> TaskFailed {
        self.running.failed().await
    }

    /// Drains the server: requests in progress get `grace`, or `shutdown-grace-period`.
    ///
    /// # Errors
    /// A part did not end in time.
    pub(crate) async fn drain(self, grace: Option<Duration>) -> Result<(), DrainTimeout> {
        drop(self.router);
        self.running.drain_within(grace).await
    }
}
