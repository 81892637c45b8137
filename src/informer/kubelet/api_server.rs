//! The API server as a source of pods: those that are bound to one node, by a Reflector that pushes all of
//! them at each change. Which other sources there are is the kubelet's business.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tokio_util::sync::CancellationToken;

use super::mux::{MuxClosed, MuxSource};
use crate::informer::{Objects, UndeltaStore};
use crate::reflector::{Backoff, ListerWatcher, Reflector};

/// The field selector of the pods that are bound to a node.
pub fn pods_of_node(node: &str) -> String {
    format!("spec.nodeName={node}")
}

/// Has `channel` told all pods of `pods` at each change, until `stop`, or until nobody takes them any
/// more.
pub async fn api_server_source<L: ListerWatcher<Object = Pod>>(
    pods: L,
    channel: MuxSource<Vec<Arc<Pod>>>,
    stop: CancellationToken,
) {
    // The group's token stays as it is when only this source has to end.
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
