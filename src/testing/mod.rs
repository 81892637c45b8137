//! A server for tests, in the test's own process: what operators and controllers are run against in
//! place of a cluster, or of envtest's downloaded binaries. It is the server that `watchet serve` is,
//! TLS and certificates included, on a free port, with objects in memory; any number can run at once.
//! It is no client: give its kubeconfig to the one that you test.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! use kube::config::{KubeConfigOptions, Kubeconfig};
//! use watchet::testing::Server;
//!
//! let server = Server::start().await?;
//! let kubeconfig = Kubeconfig::from_yaml(server.kubeconfig())?;
//! let options = KubeConfigOptions::default();
//! let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?;
//! let client = kube::Client::try_from(config)?;
//! assert!(client.apiserver_version().await?.git_version.contains("watchet"));
//! server.stop().await?;
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! A program that is tested from outside, in whatever language, gets [`Server::kubeconfig_path`] as its
//! `KUBECONFIG`.

mod host;
mod manifests;

use std::path::{Path, PathBuf};

pub use host::{StartError, StopError};
pub use manifests::ManifestError;

use host::{Host, Plan};

/// A running server. Dropping it ends it too, at once: requests in progress are cut off.
#[derive(Debug)]
pub struct Server {
    url: String,
    kubeconfig: String,
    kubeconfig_path: PathBuf,
    host: Host,
}

/// What a [`Server`] is to be like; see [`Server::builder`].
#[derive(Debug, Clone, Default)]
#[must_use = "nothing runs until it is started"]
pub struct Builder {
    settings: Vec<(String, String)>,
    tokens: String,
    manifests: Vec<String>,
    data_dir: Option<PathBuf>,
}

impl Server {
    /// Starts a server with objects in memory on a free port of the loopback address, and waits until
    /// it is ready. It has threads of its own, so that it goes on while the caller's block, and does
    /// not mind whether their time is paused.
    ///
    /// # Errors
    /// [`StartError`]: a machine without a free port or a place for temporary files.
    pub async fn start() -> Result<Self, StartError> {
        Self::builder().start().await
    }

    /// A server with other options.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// use watchet::testing::Server;
    /// let server = Server::builder()
    ///     .token("s3cret", "jane", &["developers"])
    ///     .manifests("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}")
    ///     .set("watch-history-window", "2m")
    ///     .start()
    ///     .await
    ///     .unwrap();
    /// assert!(server.url().starts_with("https://127.0.0.1:"));
    /// # }
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Where it serves: `https://127.0.0.1:34567`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A kubeconfig with the credential of a user who may do anything. It is JSON, which is YAML too.
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// The file with [`Self::kubeconfig`], which lasts as long as the server if the directory is its
    /// own.
    pub fn kubeconfig_path(&self) -> &Path {
        &self.kubeconfig_path
    }

    /// Ends the server: no more connections, watches are ended, requests in progress are answered,
    /// storage is flushed. Its port is free and its own directory gone when this returns.
    ///
    /// # Errors
    /// [`StopError`], also when the server had failed before.
    pub async fn stop(self) -> Result<(), StopError> {
        self.host.stop().await
    }
}

impl Builder {
    /// Keeps objects and certificates in `directory`, where a later server finds them again, instead
    /// of in memory and in a directory that goes with the server.
    pub fn data_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(directory.into());
        self
    }

    /// Keeps objects in the etcd at these endpoints, such as `http://127.0.0.1:2379`.
    pub fn etcd(self, endpoints: &[&str]) -> Self {
        self.set("storage", "etcd")
            .set("etcd-servers", endpoints.join(","))
    }

    /// Gives an option of `watchet serve` by its flag's name, without the dashes. The last one of a
    /// name counts, also against what the other methods and the defaults for tests say.
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Lets in who shows this bearer token, as `user`, a member of `groups`.
    pub fn token(mut self, token: &str, user: &str, groups: &[&str]) -> Self {
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        let fields = [token, user, user, &groups.join(",")].map(quoted);
        self.tokens += &fields.join(",");
        self.tokens.push('\n');
        self
    }

    /// Makes these objects before anybody can ask for them: YAML (or JSON) documents, in which a
    /// definition comes before what it defines. Those that are there already, in a kept directory or
    /// in etcd, are merged with.
    pub fn manifests(mut self, yaml: impl Into<String>) -> Self {
        self.manifests.push(yaml.into());
        self
    }

    /// Starts it; see [`Server::start`].
    ///
    /// # Errors
    /// [`StartError`]
    pub async fn start(self) -> Result<Server, StartError> {
        let manifests = manifests::parse(&self.manifests)?;
        // What was set comes last, and counts.
        let mut settings = vec![("secure-port".to_owned(), "0".to_owned())];
        if self.data_dir.is_none() {
            settings.push(("storage".to_owned(), "memory".to_owned()));
        }
        settings.extend(self.settings);
        let plan = Plan {
            settings,
            tokens: self.tokens,
            manifests,
            data_dir: self.data_dir,
        };
        let (host, started) = Host::start(plan).await?;
        Ok(Server {
            url: started.url,
            kubeconfig: started.kubeconfig,
            kubeconfig_path: started.kubeconfig_path,
            host,
        })
    }
}

#[cfg(test)]
mod tests;
