//! The API server as a source of pods: a Reflector of the pods of one node that sends the complete
//! set at each change.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tokio_util::sync::CancellationToken;

use super::mux::{MuxClosed, MuxSource};
use crate::{Objects, UndeltaStore};
use watchet_reflector::{Backoff, ListerWatcher, Reflector};

/// Returns the field selector of the pods that are bound to a node.
pub fn pods_of_node(node: &str) -> String {
    format!("spec.nodeName={node}")
}

/// Sends all pods of `pods` to `channel` at each change, until `stop` or until the receiver is
/// closed.
pub async fn api_server_source<L: ListerWatcher<Object = Pod>>(
    pods: L,
    channel: MuxSource<Vec<Arc<Pod>>>,
    stop: CancellationToken,
) {
    // A child token, to end only this source.
    let stop = stop.child_token();
    let closed = stop.clone();
    let store = UndeltaStore::new(move |pods: Objects<Pod>| {
        let (channel, closed) = (channel.clone(), closed.clone());
        async move {
            if let Err(MuxClosed) = channel.send(pods.to_vec()).await {
                closed.cancel();
            }
        }
    });
    Reflector::new(pods, store, Backoff::default())
        .run(stop)
        .await;
}
