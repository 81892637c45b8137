//! `AllowAuthenticated`: the authorizer of the mode `AlwaysAllow`. An authenticated user may do everything, any other
//! user may get the public paths.

use async_trait::async_trait;

use super::attributes::Attributes;
use super::authorizer::{Authorizer, Decision, NonResourceRule, ResourceRule, SubjectRules};
use watchet_api::{SYSTEM_ANONYMOUS, SYSTEM_UNAUTHENTICATED, UserInfo};

/// The paths that need no credentials, without the paths below them. Upstream's cluster role
/// `system:public-info-viewer` allows the same to `system:unauthenticated`.
pub(crate) const PUBLIC_PATHS: &[&str] =
    &["/healthz", "/livez", "/readyz", "/version", "/version/"];

/// Allows everything to authenticated users, and the public paths to the others.
#[derive(Debug, Clone, Copy, Default)]
pub struct AllowAuthenticated;

fn is_unauthenticated(user: &UserInfo) -> bool {
    let has_group = |group: &String| group == SYSTEM_UNAUTHENTICATED;
    user.name == SYSTEM_ANONYMOUS || user.groups.iter().any(has_group)
}

#[async_trait]
impl Authorizer for AllowAuthenticated {
    async fn authorize(&self, attributes: &Attributes) -> Decision {
        let is_public =
            !attributes.is_resource_request && PUBLIC_PATHS.contains(&&*attributes.path);
        match is_unauthenticated(&attributes.user) {
            false => Decision::Allow("every authenticated user may do everything here".into()),
            true if is_public => Decision::Allow("every user may get this path".into()),
            true => Decision::NoOpinion("a credential is needed".into()),
        }
    }

    async fn rules(&self, user: &UserInfo, _namespace: &str) -> SubjectRules {
        let all = || vec!["*".to_owned()];
        let paths = match is_unauthenticated(user) {
            true => PUBLIC_PATHS.iter().copied().map(str::to_owned).collect(),
            false => all(),
        };
        let resource_rule = ResourceRule {
            verbs: all(),
            api_groups: all(),
            resources: all(),
            resource_names: Vec::new(),
        };
        SubjectRules {
            resource_rules: match is_unauthenticated(user) {
                true => Vec::new(),
                false => vec![resource_rule],
            },
            non_resource_rules: vec![NonResourceRule {
                verbs: all(),
                non_resource_urls: paths,
            }],
            ..SubjectRules::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn unauthenticated_users_may_get_public_paths_only() {
        let jane = UserInfo {
            name: "jane".to_owned(),
            ..UserInfo::default()
        };
        let anonymous = UserInfo::anonymous();
        let grouped = UserInfo {
            groups: anonymous.groups.clone(),
            ..jane.clone()
        };
        for (user, path, expected) in [
            (&jane, None, true),
            (&jane, Some("/metrics"), true),
            (&anonymous, None, false),
            (&anonymous, Some("/healthz"), true),
            (&anonymous, Some("/healthz/etcd"), false),
            (&anonymous, Some("/metrics"), false),
            (&grouped, None, false),
        ] {
            let attributes = Attributes {
                user: Arc::new(user.clone()),
                verb: "get".to_owned(),
                is_resource_request: path.is_none(),
                path: path.unwrap_or_default().to_owned(),
                ..Attributes::default()
            };
            let decision = AllowAuthenticated.authorize(&attributes).await;
            assert_eq!(decision.is_allowed(), expected, "{} {path:?}", user.name);
        }
    }
}
