//! The `Authorizer` trait.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;
use tokio::sync::Notify;

use super::attributes::Attributes;
use watchet_api::UserInfo;

/// The decision of an authorizer, with its reason; the reason may be empty. Only `Allow` allows the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The request is allowed.
    Allow(Cow<'static, str>),
    /// The request is denied, whatever other authorizers would decide.
    Deny(Cow<'static, str>),
    /// The authorizer has no rule for the request.
    NoOpinion(Cow<'static, str>),
    /// The authorizer cannot decide, for example because its webhook does not respond.
    Failed {
        /// True if the request is denied; otherwise other authorizers decide.
        is_denied: bool,
        /// The reason why it cannot decide.
        error: Cow<'static, str>,
    },
}

impl Decision {
    /// Returns true if the request is allowed.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allow(_))
    }

    /// Returns true if the request is denied explicitly.
    pub fn is_denied(&self) -> bool {
        matches!(
            self,
            Self::Deny(_)
                | Self::Failed {
                    is_denied: true,
                    ..
                }
        )
    }

    /// Returns the reason; empty if there is none.
    pub fn reason(&self) -> &str {
        match self {
            Self::Allow(reason) | Self::Deny(reason) | Self::NoOpinion(reason) => reason,
            Self::Failed { .. } => "",
        }
    }

    /// Returns why the authorizer cannot decide; `None` if it has decided.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Failed { error, .. } => Some(error),
            Self::Allow(_) | Self::Deny(_) | Self::NoOpinion(_) => None,
        }
    }
}

/// The rules of a user in a namespace. It serializes as `SubjectRulesReviewStatus`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SubjectRules {
    /// The rules for resources.
    pub resource_rules: Vec<ResourceRule>,
    /// The rules for paths.
    pub non_resource_rules: Vec<NonResourceRule>,
    /// True if the user may have further permissions.
    pub incomplete: bool,
    /// The reason why the rules are incomplete.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub evaluation_error: String,
}

/// Verbs on resources that are allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRule {
    /// The verbs; `*` is all.
    pub verbs: Vec<String>,
    /// The groups; `*` is all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    /// The resources; `*` is all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// The names; empty is all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
}

/// Verbs on paths that are allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NonResourceRule {
    /// The verbs; `*` is all.
    pub verbs: Vec<String>,
    /// The paths; `*` is all.
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub non_resource_urls: Vec<String>,
}

/// Decides which requests are allowed.
#[async_trait]
pub trait Authorizer: fmt::Debug + Send + Sync {
    /// Decides on a request.
    async fn authorize(&self, attributes: &Attributes) -> Decision;

    /// Notifies `changed`, by [`Notify::notify_one`], after each change that may change decisions, until the last
    /// reference to it is dropped. The default does nothing: decisions never change.
    fn notify_changes(&self, _changed: &Arc<Notify>) {}

    /// Returns the rules of a user in a namespace, for a `SelfSubjectRulesReview`.
    async fn rules(&self, _user: &UserInfo, _namespace: &str) -> SubjectRules {
        SubjectRules {
            incomplete: true,
            evaluation_error: "the authorizer does not support user rule resolution".to_owned(),
            ..SubjectRules::default()
        }
    }
}
