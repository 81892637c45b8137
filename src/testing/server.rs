//! The server for tests and its builder.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::testing::host::{Host, ServerPlan, StartError, StopError};
use crate::testing::manifests;

/// A running server. Dropping it stops it immediately and aborts requests in progress.
#[derive(Debug)]
pub struct Server {
    url: String,
    kubeconfig: String,
    kubeconfig_path: PathBuf,
    host: Host,
}

/// The options of a [`Server`]; see [`Server::builder`].
#[derive(Debug, Clone, Default)]
#[must_use = "nothing runs until `start`"]
pub struct Builder {
    settings: Vec<(String, String)>,
    tokens: String,
    manifests: Vec<String>,
    data_dir: Option<PathBuf>,
}

impl Server {
    /// Starts a server with objects in memory on a free port of the loopback address, and waits
    /// until it is ready. It has its own threads, so it continues while the caller blocks or pauses
    /// tokio's time.
    ///
    /// # Errors
    /// [`StartError`]: the machine has no free port or no temporary directory.
    pub async fn start() -> Result<Self, StartError> {
        Self::builder().start().await
    }

    /// Returns a builder for a server with other options.
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

    /// Returns the URL: `https://127.0.0.1:34567`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns a kubeconfig with the credential of a cluster administrator, as JSON, which is valid
    /// YAML.
    pub fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// Returns a kubeconfig that acts as `user`, a member of `groups`, as `kubectl --as` does. So an operator is tested
    /// under the roles that it ships: [`Builder::manifests`] creates them, and everything else is a 403. The groups of a
    /// service account (`system:serviceaccount:NAMESPACE:NAME`) are added if `groups` is empty.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// use k8s_openapi::api::core::v1::Secret;
    /// use kube::config::{KubeConfigOptions, Kubeconfig};
    /// use watchet::testing::Server;
    ///
    /// let server = Server::start().await?;
    /// let kubeconfig = server.kubeconfig_as("system:serviceaccount:shop:operator", &[]);
    /// let kubeconfig = Kubeconfig::from_yaml(&kubeconfig)?;
    /// let options = KubeConfigOptions::default();
    /// let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    /// let secrets: kube::Api<Secret> = kube::Api::all(kube::Client::try_from(config)?);
    /// let forbidden = secrets.list(&Default::default()).await.unwrap_err();
    /// assert!(forbidden.to_string().contains("secrets is forbidden"));
    /// server.stop().await?;
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the kubeconfig of the server is not JSON, which is a bug.
    pub fn kubeconfig_as(&self, user: &str, groups: &[&str]) -> String {
        let config = serde_json::from_str::<Value>(&self.kubeconfig);
        let mut config = config.expect("the kubeconfig of a server is JSON");
        let credential = &mut config["users"][0]["user"];
        credential["as"] = user.into();
        credential["as-groups"] = groups.into();
        format!("{config:#}\n")
    }

    /// Returns the path of the file with [`Self::kubeconfig`]. A temporary directory is removed
    /// with the server.
    pub fn kubeconfig_path(&self) -> &Path {
        &self.kubeconfig_path
    }

    /// Stops the server: ends watches, completes requests in progress, flushes storage. The port is
    /// free and the temporary directory removed when this returns.
    ///
    /// # Errors
    /// [`StopError`], also if the server had failed before.
    pub async fn stop(self) -> Result<(), StopError> {
        self.host.stop().await
    }
}

impl Builder {
    /// Stores objects and certificates in `directory`, where a later server can reuse them, instead
    /// of in memory and in a temporary directory.
    pub fn data_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(directory.into());
        self
    }

    /// Stores objects in the etcd at these endpoints, such as `http://127.0.0.1:2379`.
    pub fn etcd(self, endpoints: &[&str]) -> Self {
        self.set("storage", "etcd")
            .set("etcd-servers", endpoints.join(","))
    }

    /// Sets an option of `watchet serve` by its flag's name without dashes. The last value of a
    /// name counts, and overrides the other methods and the defaults for tests.
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Accepts this bearer token for `user`, a member of `groups`.
    pub fn token(mut self, token: &str, user: &str, groups: &[&str]) -> Self {
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        let fields = [token, user, user, &groups.join(",")].map(quoted);
        self.tokens += &fields.join(",");
        self.tokens.push('\n');
        self
    }

    /// Creates these objects before the server is ready (roles take effect some milliseconds later): YAML (or JSON) documents, definitions
    /// before their objects. Existing objects, in a given directory or in etcd, are merged with a
    /// patch.
    pub fn manifests(mut self, yaml: impl Into<String>) -> Self {
        self.manifests.push(yaml.into());
        self
    }

    /// Starts the server; see [`Server::start`].
    ///
    /// # Errors
    /// [`StartError`]
    pub async fn start(self) -> Result<Server, StartError> {
        let manifests = manifests::parse(&self.manifests)?;
        // Options from `set` come last, so that they override.
        let mut settings = vec![("secure-port".to_owned(), "0".to_owned())];
        if self.data_dir.is_none() {
            settings.push(("storage".to_owned(), "memory".to_owned()));
        }
        settings.extend(self.settings);
        let plan = ServerPlan {
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
