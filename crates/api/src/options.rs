//! Typed options of the verbs. `http` parses and validates them; `cacher` (reads) and `registry`
//! (writes) apply them.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    AuditAnnotations, FieldSelector, LabelSelector, ResourceVersion, ShardSelector, UserInfo,
    Warnings,
};

/// `resourceVersionMatch` (KEP-2523).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceVersionMatch {
    /// At least as new.
    NotOlderThan,
    /// Exactly that state.
    Exact,
}

/// Options of a get.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GetOptions {
    /// `None` (`""`): the latest; zero: any; else at least as new.
    pub resource_version: Option<ResourceVersion>,
}

/// Options of list, watch and deletecollection. `http` has validated their combination, for example
/// that `resource_version_match` requires `resource_version`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// `None` is `""`: the latest. Zero is `"0"`: any.
    pub resource_version: Option<ResourceVersion>,
    /// `resourceVersionMatch`
    pub resource_version_match: Option<ResourceVersionMatch>,
    /// `limit`; 0 means no limit.
    pub limit: usize,
    /// `continue`, not decoded.
    pub continue_token: Option<String>,
    /// `labelSelector`
    pub labels: LabelSelector,
    /// `fieldSelector`, unresolved; the registry resolves it.
    pub fields: FieldSelector,
    /// `shardSelector` (KEP-5866)
    pub shard: Option<ShardSelector>,
    /// `sendInitialEvents` (watch only; KEP-3157).
    pub send_initial_events: Option<bool>,
    /// `allowWatchBookmarks` (watch only; KEP-956).
    pub allow_watch_bookmarks: bool,
    /// `timeoutSeconds`
    pub timeout: Option<Duration>,
}

/// `fieldValidation`: the treatment of unknown and duplicate fields (KEP-2885).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drops them.
    Ignore,
    /// Drops them and sends a warning.
    #[default]
    Warn,
    /// Rejects the request.
    Strict,
}

/// Options of create, update and patch, and the user.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// `dryRun=All`: every step except the storage write.
    pub dry_run: bool,
    /// The user of the request.
    pub user: Arc<UserInfo>,
    /// The manager of the fields that the request sets: `fieldManager`, or else the prefix of the
    /// client's User-Agent, as upstream's
    /// [`managerOrUserAgent`](https://github.com/kubernetes/kubernetes/blob/v1.35.0/staging/src/k8s.io/apiserver/pkg/endpoints/handlers/create.go).
    pub field_manager: String,
    /// `force`: an apply takes over fields of other managers.
    pub force: bool,
    /// `fieldValidation`
    pub field_validation: FieldValidation,
    /// Field errors found while the patch body was parsed: duplicate members.
    pub body_mistakes: Vec<String>,
    /// Collects warnings for the client.
    pub warnings: Warnings,
    /// The audit annotations of the request.
    pub audit_annotations: AuditAnnotations,
}

impl WriteOptions {
    /// Returns the options of the server's own writes: its user is `system:apiserver`, its field manager
    /// `kube-apiserver`, as upstream.
    pub fn of_server() -> Self {
        Self {
            user: Arc::new(UserInfo::server()),
            field_manager: "kube-apiserver".to_owned(),
            ..Self::default()
        }
    }
}

/// `propagationPolicy`: the treatment of an object's dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PropagationPolicy {
    /// Removes the owner references of the dependents.
    Orphan,
    /// Deletes the dependents after the object.
    Background,
    /// Deletes the dependents before the object.
    Foreground,
}

/// Conditions that the stored object must meet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Preconditions {
    /// The required uid.
    #[serde(default)]
    pub uid: Option<String>,
    /// The required resourceVersion.
    #[serde(default)]
    pub resource_version: Option<String>,
}

/// `DeleteOptions` of `meta.k8s.io/v1`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeleteOptions {
    /// `["All"]` or empty.
    pub dry_run: Vec<String>,
    /// The grace period; `None` means the object's own.
    pub grace_period_seconds: Option<i64>,
    /// Conditions that the stored object must meet.
    pub preconditions: Option<Preconditions>,
    /// The predecessor of `propagation_policy`; setting both is an error.
    pub orphan_dependents: Option<bool>,
    /// The treatment of dependents.
    pub propagation_policy: Option<PropagationPolicy>,
    /// Deletes an object that cannot be decoded, and only such an object, without finalizers or
    /// preconditions (KEP-3926).
    pub ignore_store_read_error_with_cluster_breaking_potential: bool,
    /// The user of the request; not part of the body.
    #[serde(skip)]
    pub user: Arc<UserInfo>,
    /// Collects warnings for the client; not part of the body.
    #[serde(skip)]
    pub warnings: Warnings,
    /// The audit annotations of the request; likewise.
    #[serde(skip)]
    pub audit_annotations: AuditAnnotations,
}
