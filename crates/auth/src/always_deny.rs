//! `AlwaysDeny`: no request is allowed.

use async_trait::async_trait;

use crate::attributes::Attributes;
use crate::authorizer::{Authorizer, Decision, SubjectRules};
use watchet_api::UserInfo;

/// Allows nothing, as upstream's mode `AlwaysDeny`; for tests of what a client does without permissions.
#[derive(Debug, Clone, Copy, Default)]
pub struct AlwaysDeny;

#[async_trait]
impl Authorizer for AlwaysDeny {
    async fn authorize(&self, _: &Attributes) -> Decision {
        Decision::NoOpinion("Everything is forbidden.".into())
    }

    async fn rules(&self, _: &UserInfo, _: &str) -> SubjectRules {
        SubjectRules::default()
    }
}
