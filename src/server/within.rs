//! A server within another program: built of settings by name, as `main` builds one of flags, but
//! with nothing that is a process's: no signals, no log, no environment, no announcement. Which
//! runtime and directory it gets is its owner's matter.

use std::path::Path;
use std::time::Duration;

use super::build::{BuildError, Server};
use super::config::Config;
use super::run::Running;
use super::settings::{ConfigError, SPECS, Settings, Source};
use crate::tasks::{DrainTimeout, TaskFailed};

/// A server that serves, until it is drained.
#[derive(Debug)]
pub(crate) struct Within {
    running: Running,
    router: axum::Router,
}

/// The server could not be started: what the program would say before it exits.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WithinError {
    /// A setting is wrong.
    #[error("{0}")]
    Config(String),
    /// The directory, a certificate, the storage or a port cannot be used.
    #[error("{0}")]
    Build(String),
    /// A task has panicked before it was ready.
    #[error(transparent)]
    Task(TaskFailed),
}

impl From<ConfigError> for WithinError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error.to_string())
    }
}

impl From<BuildError> for WithinError {
    fn from(error: BuildError) -> Self {
        match error.is_config() {
            true => Self::Config(error.to_string()),
            false => Self::Build(error.to_string()),
        }
    }
}

impl Within {
    /// Starts a server of these settings (names as the flags', without the dashes) and waits until it
    /// is ready. Of two values of a setting the later counts. Must be called in a multi-threaded
    /// runtime.
    ///
    /// # Errors
    /// [`WithinError`]
    pub(crate) async fn start(given: &[(String, String)]) -> Result<Self, WithinError> {
        let mut settings = Settings::default();
        for (name, text) in given {
            let spec = SPECS.iter().find(|spec| spec.name == name);
            let spec = spec.ok_or_else(|| {
                ConfigError::new(format_args!(
                    "no such setting: {name:?}; see `watchet --help`"
                ))
            })?;
            settings.give(spec.setting, text, Source::Flag);
        }
        let server = Server::build(&Config::check(&settings)?).await?;
        let (running, router) = server.spawn_with_router();
        // A failure comes first: what is ready after that is not to be trusted.
        tokio::select! {
            biased;
            failed = running.failed() => return Err(WithinError::Task(failed)),
            () = running.ready() => {}
        }
        Ok(Self { running, router })
    }

    /// The API without a connection: a request needs an `Arc<UserInfo>` among its extensions.
    pub(crate) fn router(&self) -> axum::Router {
        self.router.clone()
    }

    /// `https://127.0.0.1:34567`
    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.running.done.secure)
    }

    /// The file with the admin's credential.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.running.done.kubeconfig
    }

    /// Waits until a task has panicked that the server leans on. Cancel safe.
    pub(crate) async fn failed(&self) -> TaskFailed {
        self.running.failed().await
    }

    /// Ends it: requests in progress get `grace`, or what `shutdown-grace-period` says.
    ///
    /// # Errors
    /// Something had not ended in time.
    pub(crate) async fn drain(self, grace: Option<Duration>) -> Result<(), DrainTimeout> {
        drop(self.router);
        self.running.drain_within(grace).await
    }
}
