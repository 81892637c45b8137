//! Passes the stored roles and bindings to the authorizer.

use std::sync::Arc;

use futures_util::future;
use tokio::sync::watch;

use super::{RoleVersions, resource};
use crate::stored_objects::{StoredObjects, StoredObjectsSource};
use watchet_api::Object;
use watchet_auth::rbac::{RbacAuthorizer, RbacChange, RbacKind};
use watchet_registry::Registry;

/// Passes all roles and bindings to the authorizer, and then every change of them; never returns. Raises `received`
/// to the versions up to which the authorizer has all changes.
pub async fn feed_authorizer(
    registry: &Arc<Registry>,
    authorizer: &RbacAuthorizer,
    received: &watch::Sender<RoleVersions>,
) {
    let sources = RbacKind::ALL.map(|kind| async move {
        let mut source = RoleSource {
            kind,
            objects: StoredObjectsSource::new(registry.clone(), resource(registry, kind)),
        };
        loop {
            source.step(authorizer).await;
            if let Some(version) = source.objects.version() {
                received.send_modify(|received| received.raise(kind, version));
            }
        }
    });
    future::join_all::<_>(sources).await;
}

/// The objects of one kind.
struct RoleSource {
    kind: RbacKind,
    objects: StoredObjectsSource,
}

impl RoleSource {
    /// Waits for the next events and passes them on.
    async fn step(&mut self, authorizer: &RbacAuthorizer) {
        for objects in self.objects.next().await {
            match objects {
                StoredObjects::All(all) => {
                    let all = all.iter().map(|object| change(object, true));
                    self.log(authorizer.replace(self.kind, all));
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
