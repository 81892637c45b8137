//! Passes the stored roles and bindings to the authorizer.

use std::sync::Arc;

use futures_util::future;

use super::resource;
use crate::follower::{Follower, FollowerEvent};
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
    let followers = RbacKind::ALL.map(|kind| {
        let follower = Follower::new(registry.clone(), resource(registry, kind));
        RoleSource::new(kind, follower)
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
    follower: Follower,
    /// The objects of an incomplete list.
    listed: Option<Vec<Arc<Object>>>,
    is_complete: bool,
}

impl RoleSource {
    fn new(kind: RbacKind, follower: Follower) -> Self {
        Self {
            kind,
            follower,
            listed: None,
            is_complete: false,
        }
    }

    async fn complete(mut self, authorizer: &RbacAuthorizer) -> Self {
        while !self.is_complete {
            self.step(authorizer).await;
        }
        self
    }

    /// Waits for the next events and passes them on, in one change.
    async fn step(&mut self, authorizer: &RbacAuthorizer) {
        let mut changed: Vec<(Arc<Object>, bool)> = Vec::new();
        for event in self.follower.next().await {
            match (event, &mut self.listed) {
                (FollowerEvent::SyncStarted, _) => self.listed = Some(Vec::new()),
                (FollowerEvent::Object(object), Some(listed)) => listed.push(object),
                (FollowerEvent::Object(object), None) => changed.push((object, true)),
                // A deletion during a list: the object is not in the list.
                (FollowerEvent::Deleted(_), Some(_)) => {}
                (FollowerEvent::Deleted(object), None) => changed.push((object, false)),
                (FollowerEvent::SyncComplete, _) => {
                    let listed = self.listed.take().unwrap_or_default();
                    let all = listed.iter().map(|object| change(object, true));
                    self.log(authorizer.replace(self.kind, all));
                    self.is_complete = true;
                }
            }
        }
        if !changed.is_empty() {
            let changes = changed
                .iter()
                .map(|(object, exists)| change(object, *exists));
            self.log(authorizer.change(self.kind, changes));
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
