//! The version of a server and, for watchet, its storage.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::timeout;

use super::client::{self, Call};
use super::target::Target;
use watchet_tasks::Tasks;

/// The time limit of each request. The report is complete without these values.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The version and storage of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ServerInfo {
    /// `gitVersion` of `/version`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The storage of watchet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
}

impl ServerInfo {
    /// Requests the values. A value is `None` if the server does not have it or the user may not
    /// read it.
    pub(super) async fn request(target: &Arc<Target>) -> Self {
        Self {
            version: member(target, "/version", "gitVersion").await,
            storage: member(target, "/debug/storage/revisions", "storage").await,
        }
    }
}

/// Returns a string member of the JSON document at a path; `None` if the request fails.
async fn member(target: &Arc<Target>, path: &str, name: &str) -> Option<String> {
    let tasks = Tasks::new();
    let response = client::with_connection(target, &tasks, async |connection| {
        connection.call(Call::get(path)).await
    });
    let response = timeout(TIMEOUT, response).await;
    tasks.cancel();
    let document: Value = serde_json::from_slice(&response.ok()?.ok()?).ok()?;
    Some(document[name].as_str()?.to_owned())
}
