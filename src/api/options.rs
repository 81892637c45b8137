//! Options of the verbs, typed. Reading them from a query or a body, and refusing bad ones, is the
//! business of `http`; what they mean is told by `cacher` (reads) and `registry` (writes).

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    AuditAnnotations, FieldSelector, LabelSelector, ResourceVersion, ShardSelector, UserInfo,
    Warnings,
};

/// How a list's `resourceVersion` is meant (KEP-2523).
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

/// Options of a list, a watch and a collection delete, already validated by §7.1 of the contract
/// that `http` checks (so `match` never comes without a version, and so on).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// `None` is `""`: the latest. Zero is `"0"`: any.
    pub resource_version: Option<ResourceVersion>,
    /// `resourceVersionMatch`
    pub resource_version_match: Option<ResourceVersionMatch>,
    /// `limit`; 0 is none.
    pub limit: usize,
    /// `continue`, as it came.
    pub continue_token: Option<String>,
    /// `labelSelector`
    pub labels: LabelSelector,
    /// `fieldSelector`, as it came; the registry resolves it.
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

/// What becomes of fields that a kind does not have, and of fields that are given twice (KEP-2885).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// They are dropped.
    Ignore,
    /// They are dropped, and the client is told.
    #[default]
    Warn,
    /// They are refused.
    Strict,
}

/// Options of create, update and patch, and who writes.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// `dryRun=All`: everything but the storage write.
    pub dry_run: bool,
    /// Who asks for it.
    pub user: Arc<UserInfo>,
    /// Under which name the fields that it sets are kept: `fieldManager`, or what the client calls
    /// itself (§1.4).
    pub field_manager: String,
    /// `force`: an apply takes fields from their other managers.
    pub force: bool,
    /// `fieldValidation`
    pub field_validation: FieldValidation,
    /// What was noticed when a patch was read: members that it gives twice.
    pub body_mistakes: Vec<String>,
    /// Where the client's mistakes go that do not stop the write.
    pub warnings: Warnings,
    /// The audit annotations of the request.
    pub audit_annotations: AuditAnnotations,
}

/// What becomes of an object's dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PropagationPolicy {
    /// They are kept.
    Orphan,
    /// They go after it.
    Background,
    /// They go before it.
    Foreground,
}

/// Conditions on the object as it is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Preconditions {
    /// The uid that it must have.
    #[serde(default)]
    pub uid: Option<String>,
    /// The resource version that it must have.
    #[serde(default)]
    pub resource_version: Option<String>,
}

/// `DeleteOptions`, as its body has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeleteOptions {
    /// `["All"]` or nothing.
    pub dry_run: Vec<String>,
    /// How long a graceful deletion may take; `None` is the object's own.
    pub grace_period_seconds: Option<i64>,
    /// Checked against the stored object.
    pub preconditions: Option<Preconditions>,
    /// The older form of `propagation_policy`; giving both is an error.
    pub orphan_dependents: Option<bool>,
    /// What becomes of the dependents.
    pub propagation_policy: Option<PropagationPolicy>,
    /// Delete an object although it cannot be read, and only then; with nothing of what deleting
    /// usually does.
    pub ignore_store_read_error_with_cluster_breaking_potential: bool,
    /// Who asks for it; never in a body.
    #[serde(skip)]
    pub user: Arc<UserInfo>,
    /// Where warnings go; likewise.
    #[serde(skip)]
    pub warnings: Warnings,
    /// The audit annotations of the request; likewise.
    #[serde(skip)]
    pub audit_annotations: AuditAnnotations,
}
