//! A watcher of kube-rs.

use std::collections::BTreeMap;
use std::io;
use std::pin::pin;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Config};

use super::SharedLog;
use crate::check::{NotificationKind, Object};
use crate::client::informer::object;

/// Returns a client of the servers at `url`.
pub(super) fn client(url: &str) -> io::Result<Client> {
    let url = url.parse().map_err(io::Error::other)?;
    Client::try_from(Config::new(url)).map_err(io::Error::other)
}

/// Watches, and records the differences that the events make, until the task ends.
pub(super) async fn watch(client: Client, log: SharedLog) {
    let api: Api<ConfigMap> = Api::namespaced(client, "default");
    let events = watcher::watcher(api, watcher::Config::default()).default_backoff();
    let mut events = pin!(events);
    let mut initial = BTreeMap::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => {
                log.listed();
                initial.clear();
            }
            Ok(Event::InitApply(map)) => {
                let object = object(&map);
                initial.insert(object.key.clone(), object);
            }
            Ok(Event::InitDone) => replace(&log, std::mem::take(&mut initial)),
            Ok(Event::Apply(map)) => put(&log, object(&map)),
            Ok(Event::Delete(map)) => log.notify(NotificationKind::Deleted {
                object: object(&map),
                is_final_state_unknown: false,
            }),
            // The watcher tries again.
            Err(error) => tracing::info!(%error, "the watcher of kube-rs failed"),
        }
    }
}

/// Records a list.
fn replace(log: &SharedLog, objects: BTreeMap<String, Object>) {
    for known in log.objects() {
        if !objects.contains_key(&known.key) {
            log.notify(NotificationKind::Deleted {
                object: known,
                is_final_state_unknown: true,
            });
        }
    }
    objects.into_values().for_each(|object| put(log, object));
}

fn put(log: &SharedLog, object: Object) {
    match log.get(&object.key) {
        None => log.notify(NotificationKind::Added(object)),
        Some(known) if known.revision == object.revision => {}
        Some(_) => log.notify(NotificationKind::Updated(object)),
    }
}
