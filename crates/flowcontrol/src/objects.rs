//! The objects that configure flow control, `FlowSchema` and `PriorityLevelConfiguration` of
//! `flowcontrol.apiserver.k8s.io/v1`: the members that this crate reads.

use serde::Deserialize;

/// The name of the level whose requests are never limited; only this level may have the type `Exempt`.
pub(crate) const EXEMPT: &str = "exempt";

/// The name of the schema, and of its level, for requests that match no other schema.
pub(crate) const CATCH_ALL: &str = "catch-all";

/// A FlowSchema.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct FlowSchema {
    pub(crate) metadata: Metadata,
    pub(crate) spec: FlowSchemaSpec,
}

/// A PriorityLevelConfiguration.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PriorityLevelConfiguration {
    pub(crate) metadata: Metadata,
    pub(crate) spec: PriorityLevelSpec,
}

impl FlowSchema {
    /// Parses the JSON of a FlowSchema.
    ///
    /// # Errors
    /// It is not JSON, or a member has another type.
    pub fn parse(object: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(object)
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Returns the name of the priority level that it refers to.
    pub fn level(&self) -> &str {
        &self.spec.priority_level_configuration.name
    }
}

impl PriorityLevelConfiguration {
    /// Parses the JSON of a PriorityLevelConfiguration.
    ///
    /// # Errors
    /// It is not JSON, or a member has another type.
    pub fn parse(object: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(object)
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Metadata {
    pub(crate) name: String,
    pub(crate) uid: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct FlowSchemaSpec {
    pub(crate) matching_precedence: i32,
    pub(crate) distinguisher_method: Option<DistinguisherMethod>,
    pub(crate) priority_level_configuration: LevelReference,
    pub(crate) rules: Vec<Rule>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) struct DistinguisherMethod {
    #[serde(rename = "type")]
    pub(crate) kind: Distinguisher,
}

/// The attribute by which the requests of a FlowSchema are divided into flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) enum Distinguisher {
    ByUser,
    ByNamespace,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct LevelReference {
    pub(crate) name: String,
}

/// A rule of a FlowSchema. It matches a request if one of its subjects does, and one of its rules for that kind of
/// request.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Rule {
    pub(crate) subjects: Vec<Subject>,
    pub(crate) resource_rules: Vec<ResourceRule>,
    pub(crate) non_resource_rules: Vec<NonResourceRule>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Subject {
    pub(crate) kind: String,
    pub(crate) user: Option<Named>,
    pub(crate) group: Option<Named>,
    pub(crate) service_account: Option<ServiceAccount>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Named {
    pub(crate) name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ServiceAccount {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ResourceRule {
    pub(crate) verbs: Vec<String>,
    pub(crate) api_groups: Vec<String>,
    pub(crate) resources: Vec<String>,
    pub(crate) cluster_scope: bool,
    pub(crate) namespaces: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct NonResourceRule {
    pub(crate) verbs: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    pub(crate) urls: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct PriorityLevelSpec {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) limited: Option<Limited>,
    pub(crate) exempt: Option<Exempt>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Limited {
    pub(crate) nominal_concurrency_shares: Option<i32>,
    pub(crate) limit_response: LimitResponse,
    pub(crate) lendable_percent: Option<i32>,
    pub(crate) borrowing_limit_percent: Option<i32>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Exempt {
    pub(crate) nominal_concurrency_shares: Option<i32>,
    pub(crate) lendable_percent: Option<i32>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct LimitResponse {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) queuing: Option<Queuing>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Queuing {
    pub(crate) queues: i32,
    pub(crate) hand_size: i32,
    pub(crate) queue_length_limit: i32,
}
