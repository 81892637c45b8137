//! Passes the pods, volumes, attachments and slices to the node authorizer.

use std::sync::Arc;

use futures_util::future;

use crate::stored_objects::{StoredObjects, StoredObjectsSource};
use watchet_api::Object;
use watchet_auth::node::{InvalidSource, NodeAuthorizer, SourceChange, SourceKind};
use watchet_registry::Registry;

/// Passes all objects from which the authorizer decides, and then every change of them; never returns.
///
/// # Panics
/// The registry does not have the built-in resources.
pub async fn feed_node_authorizer(registry: &Arc<Registry>, authorizer: &NodeAuthorizer) {
    let feeds = SourceKind::ALL.map(|kind| async move {
        let (group, plural) = kind.resource();
        let resource = registry.resource(group, "v1", plural);
        let resource = resource.expect("a built-in resource");
        let mut source = StoredObjectsSource::new(registry.clone(), resource);
        loop {
            for objects in source.next().await {
                pass_on(authorizer, kind, &objects);
            }
        }
    });
    let _never: Vec<()> = future::join_all::<_>(feeds).await;
}

fn pass_on(authorizer: &NodeAuthorizer, kind: SourceKind, objects: &StoredObjects) {
    let errors = match objects {
        StoredObjects::All(all) => {
            authorizer.replace(kind, all.iter().map(|object| change(object, true)))
        }
        StoredObjects::Changed(changed) => {
            let changes = changed.iter();
            authorizer.change(
                kind,
                changes.map(|(object, exists)| change(object, *exists)),
            )
        }
    };
    for error in errors {
        log(&error);
    }
}

fn log(error: &InvalidSource) {
    tracing::error!(%error, "the node authorizer ignores a stored object");
}

fn change(object: &Object, exists: bool) -> SourceChange<'_> {
    SourceChange {
        namespace: object.key().namespace(),
        name: object.key().name(),
        object: exists.then(|| object.body_slice()),
    }
}
