//! `UnionAuthorizer`: several authorizers, asked in their order.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Notify;

use crate::attributes::Attributes;
use crate::authorizer::{Authorizer, Decision, SubjectRules};
use watchet_api::UserInfo;

/// Asks authorizers in their order until one allows or denies, as upstream's union of authorization modes. Without
/// authorizers nothing is allowed.
#[derive(Debug)]
pub struct UnionAuthorizer(Vec<Arc<dyn Authorizer>>);

impl UnionAuthorizer {
    /// Returns the union of `authorizers`.
    pub fn new(authorizers: Vec<Arc<dyn Authorizer>>) -> Self {
        Self(authorizers)
    }
}

#[async_trait]
impl Authorizer for UnionAuthorizer {
    async fn authorize(&self, attributes: &Attributes) -> Decision {
        let mut reasons: Vec<Cow<'static, str>> = Vec::new();
        for authorizer in &self.0 {
            match authorizer.authorize(attributes).await {
                Decision::NoOpinion(reason) if reason.is_empty() => {}
                Decision::NoOpinion(reason) => reasons.push(reason),
                decision => return decision,
            }
        }
        Decision::NoOpinion(reasons.join("\n").into())
    }

    fn notify_changes(&self, changed: &Arc<Notify>) {
        for authorizer in &self.0 {
            authorizer.notify_changes(changed);
        }
    }

    async fn rules(&self, user: &UserInfo, namespace: &str) -> SubjectRules {
        let mut all = SubjectRules::default();
        let mut errors = Vec::new();
        for authorizer in &self.0 {
            let rules = authorizer.rules(user, namespace).await;
            all.resource_rules.extend(rules.resource_rules);
            all.non_resource_rules.extend(rules.non_resource_rules);
            all.incomplete |= rules.incomplete;
            if !rules.evaluation_error.is_empty() {
                errors.push(rules.evaluation_error);
            }
        }
        all.evaluation_error = errors.join(", ");
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authorizer::ResourceRule;

    #[derive(Debug)]
    struct Fixed(Decision);

    #[async_trait]
    impl Authorizer for Fixed {
        async fn authorize(&self, _: &Attributes) -> Decision {
            self.0.clone()
        }

        async fn rules(&self, _: &UserInfo, _: &str) -> SubjectRules {
            SubjectRules {
                resource_rules: vec![ResourceRule::default()],
                evaluation_error: self.0.reason().to_owned(),
                ..SubjectRules::default()
            }
        }
    }

    async fn union(decisions: &[Decision]) -> (Decision, SubjectRules) {
        let all = decisions.iter().cloned();
        let union = UnionAuthorizer::new(all.map(|one| Arc::new(Fixed(one)) as _).collect());
        let decision = union.authorize(&Attributes::default()).await;
        (decision, union.rules(&UserInfo::default(), "").await)
    }

    #[tokio::test]
    async fn the_first_opinion_counts() {
        let none = |reason: &'static str| Decision::NoOpinion(reason.into());
        let allow = Decision::Allow("a".into());
        let deny = Decision::Deny("d".into());
        let (decision, _) = union(&[none("n"), deny.clone(), allow.clone()]).await;
        assert_eq!(decision, deny);
        let (decision, rules) = union(&[none("n"), allow.clone(), deny]).await;
        assert_eq!(decision, allow);
        assert_eq!(rules.resource_rules.len(), 3);
        assert_eq!(rules.evaluation_error, "n, a, d");
        assert_eq!(
            union(&[none("n"), none(""), none("m")]).await.0,
            none("n\nm")
        );
        assert_eq!(union(&[]).await.0, none(""));
    }
}
