//! A server in the process of a test, for tests of operators and controllers. It replaces a cluster
//! or envtest's downloaded binaries. It is the complete server of `watchet serve`,
//! with TLS and certificates, on a free port, and stores objects in memory. Any number of servers can
//! run concurrently. Pass its kubeconfig to the client under test.
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
//! [`Server::kubeconfig_as`] tests an operator under the roles that it ships.
//!
//! A program in another process or language uses [`Server::kubeconfig_path`] as its `KUBECONFIG`.

mod host;
mod manifests;
mod server;

pub use host::{StartError, StopError};
pub use manifests::ManifestError;
pub use server::{Builder, Server};

#[cfg(test)]
mod tests;
