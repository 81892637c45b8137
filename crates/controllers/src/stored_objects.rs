//! The stored objects of a resource for a consumer that keeps an index of them: all of them first, then their changes.

use std::sync::Arc;

use crate::follower::{Follower, FollowerEvent};
use watchet_api::{Object, ResourceVersion};
use watchet_registry::{Registry, Resource};

/// What has happened to the stored objects.
#[derive(Debug)]
pub(super) enum StoredObjects {
    /// All objects, at the start and after a watch could not be resumed.
    All(Vec<Arc<Object>>),
    /// Changed objects, in their order; false for those that were deleted.
    Changed(Vec<(Arc<Object>, bool)>),
}

/// The stored objects of one resource.
#[derive(Debug)]
pub(super) struct StoredObjectsSource {
    follower: Follower,
    /// The objects of an incomplete list.
    listed: Option<Vec<Arc<Object>>>,
}

impl StoredObjectsSource {
    pub(super) fn new(registry: Arc<Registry>, resource: Arc<Resource>) -> Self {
        Self {
            follower: Follower::new(registry, resource),
            listed: None,
        }
    }

    /// Returns the version up to which all changes were returned; `None` while a list is incomplete.
    pub(super) fn version(&self) -> Option<ResourceVersion> {
        self.follower.version()
    }

    /// Waits for the next events; there may be none yet.
    pub(super) async fn next(&mut self) -> Vec<StoredObjects> {
        let mut all = Vec::new();
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
                    // Changes of before are in the list.
                    changed.clear();
                    all.push(StoredObjects::All(self.listed.take().unwrap_or_default()));
                }
            }
        }
        if !changed.is_empty() {
            all.push(StoredObjects::Changed(changed));
        }
        all
    }
}
