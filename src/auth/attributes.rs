//! Whom expressions ask what somebody may do, and what they ask: the words of the variable `authorizer`.
//! Who decides is told by the cluster; nothing here knows a policy.

use std::sync::Arc;

use super::attributes::Attributes;
use crate::api::UserInfo;

/// What somebody wants to do: something to objects, or with a path that names none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deed {
    /// `get`, `create`, …; of a path the method, in small letters.
    pub verb: String,
    /// With this path; empty for objects.
    pub path: String,
    /// To objects of this group, which is empty for the core group.
    pub group: String,
    /// Plural.
    pub resource: String,
    /// Empty for the object itself.
    pub subresource: String,
    /// Empty for all, or for what lives in none.
    pub namespace: String,
    /// Empty for all.
    pub name: String,
}

/// Whether it may be done, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether.
    pub allowed: bool,
    /// Why, for people.
    pub reason: String,
}

/// Decides what users may do.
pub trait Authorizer: Send + Sync {
    /// Whether `user` may do `deed`.
    fn decide(&self, user: &UserInfo, deed: &Deed) -> Decision;
}

/// What the variable `authorizer` is for one write: who is asked, about whom, and what `requestResource`
/// is.
#[derive(Clone)]
pub(super) struct Authorizing {
    pub(super) authorizer: Arc<dyn Authorizer>,
    pub(super) user: UserInfo,
    pub(super) request: Deed,
}

impl Authorizing {
    pub(super) fn of(write: &Attributes<'_>, authorizer: Arc<dyn Authorizer>) -> Self {
        Self {
            authorizer,
            user: write.user.clone(),
            request: Deed {
                group: write.resource.group.clone(),
                resource: write.resource.resource.clone(),
                subresource: write.subresource.to_owned(),
                namespace: write.namespace.to_owned(),
                name: write.name.to_owned(),
                ..Deed::default()
            },
        }
    }
}

impl std::fmt::Debug for Authorizing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authorizing")
            .field("user", &self.user)
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}
