//! Passes the stored roles and bindings to the authorizer.

use std::sync::Arc;

use futures_util::future;

use super::resource;
use crate::stored_objects::{StoredObjects, StoredObjectsSource};
use watchet_api::Object;
use watchet_auth::rbac::{RbacAuthorizer, RbacChange, RbacKind};
use watchet_registry::Registry;

/// Passes all roles and bindings to the authorizer, and then every change of them; never returns. `complete` is called
/// once, when the authorizer has received all that were stored.
pub async fn feed_authorizer(
    registry: &Arc<Registry>,
    authorizer: &RbacAuthorizer,
    complete: impl FnOnce() + Send,
) {
    let followers = RbacKind::ALL.map(|kind| RoleSource {
        kind,
        objects: StoredObjectsSource::new(registry.clone(), resource(registry, kind)),
        is_complete: false,
    });
    // Each future resolves to its source when that has passed the stored objects.
    let first = followers.map(|source| source.complete(authorizer));
    let sources = future::join_all(first).await;
    complete();
    let all = sources.into_iter().map(|mut source| async move {
        loop {
            source.step(authorizer).await;
        }
    });
    future::join_all::<_>(all).await;
}

/// The objects of one kind.
struct RoleSource {
    kind: RbacKind,
    objects: StoredObjectsSource,
    is_complete: bool,
}

impl RoleSource {
    async fn complete(mut self, authorizer: &RbacAuthorizer) -> Self {
        while !self.is_complete {
            self.step(authorizer).await;
        }
        self
    }

    /// Waits for the next events and passes them on.
    async fn step(&mut self, authorizer: &RbacAuthorizer) {
        for objects in self.objects.next().await {
            match objects {
                StoredObjects::All(all) => {
                    let all = all.iter().map(|object| change(object, true));
                    self.log(authorizer.replace(self.kind, all));
                    self.is_complete = true;
                }
                StoredObjects::Changed(changed) => {
                    let changes = changed.iter();
                    let changes = changes.map(|(object, exists)| change(object, *exists));
                    self.log(authorizer.change(self.kind, changes));
                }
            }
        }
    }

    fn log(&self, errors: Vec<watchet_auth::rbac::InvalidRbacObject>) {
        for error in errors {
            tracing::error!(%error, "a stored object of RBAC is ignored");
        }
    }
}

fn change(object: &Object, exists: bool) -> RbacChange<'_> {
    RbacChange {
        namespace: object.key().namespace(),
        name: object.key().name(),
        object: exists.then(|| object.body_slice()),
    }
}
