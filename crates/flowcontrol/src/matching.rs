//! Matches requests with the rules of FlowSchemas, as kube-apiserver does.

use std::borrow::Cow;

use crate::objects::{NonResourceRule, ResourceRule, Rule, ServiceAccount, Subject};

/// The wildcard in the lists and names of rules.
const ALL: &str = "*";

/// The attributes of a request that select its flow, as upstream's `RequestDigest`.
#[derive(Debug, Clone)]
pub struct RequestDigest<'a> {
    /// The name of the user; of the impersonated one, if there is one.
    pub user: &'a str,
    /// The groups of the user.
    pub groups: &'a [String],
    /// The verb on a resource, such as `get` or `list`; for a path, the HTTP method in lower case.
    pub verb: Cow<'a, str>,
    /// The resource or the path.
    pub target: DigestTarget<'a>,
}

/// The resource or the path of a request.
#[derive(Debug, Clone)]
pub enum DigestTarget<'a> {
    /// A resource.
    Resource {
        /// The API group; empty for the core group.
        api_group: &'a str,
        /// The plural name.
        resource: &'a str,
        /// The subresource; empty for the object itself.
        subresource: &'a str,
        /// The namespace; empty for all namespaces and for cluster-scoped resources. The namespace of a Namespace is
        /// its name, as in kube-apiserver.
        namespace: &'a str,
    },
    /// A path that is not of a resource, decoded.
    Path(Cow<'a, str>),
}

impl DigestTarget<'_> {
    /// Returns the namespace; empty if there is none.
    pub fn namespace(&self) -> &str {
        match self {
            Self::Resource { namespace, .. } => namespace,
            Self::Path(_) => "",
        }
    }
}

/// Returns true if one of the rules matches the request.
pub(crate) fn is_match(rules: &[Rule], request: &RequestDigest<'_>) -> bool {
    rules.iter().any(|rule| {
        rule.subjects
            .iter()
            .any(|subject| subject_matches(subject, request))
            && match &request.target {
                DigestTarget::Resource { .. } => {
                    let mut rules = rule.resource_rules.iter();
                    rules.any(|rule| resource_matches(rule, request))
                }
                DigestTarget::Path(path) => {
                    let mut rules = rule.non_resource_rules.iter();
                    rules.any(|rule| path_matches(rule, &request.verb, path))
                }
            }
    })
}

fn subject_matches(subject: &Subject, request: &RequestDigest<'_>) -> bool {
    match subject.kind.as_str() {
        "User" => {
            let user = subject.user.as_ref();
            user.is_some_and(|user| user.name == ALL || user.name == request.user)
        }
        "Group" => subject.group.as_ref().is_some_and(|group| {
            let mut groups = request.groups.iter();
            group.name == ALL || groups.any(|of_user| *of_user == group.name)
        }),
        "ServiceAccount" => {
            let account = subject.service_account.as_ref();
            account.is_some_and(|account| account_matches(account, request.user))
        }
        _ => false,
    }
}

fn account_matches(account: &ServiceAccount, user: &str) -> bool {
    let Some((namespace, name)) = user
        .strip_prefix("system:serviceaccount:")
        .and_then(|rest| rest.split_once(':'))
    else {
        return false;
    };
    namespace == account.namespace && (account.name == ALL || account.name == name)
}

fn resource_matches(rule: &ResourceRule, request: &RequestDigest<'_>) -> bool {
    let DigestTarget::Resource {
        api_group,
        resource,
        subresource,
        namespace,
    } = &request.target
    else {
        return false;
    };
    let is_resource = |named: &String| match (named.split_once('/'), subresource.is_empty()) {
        (None, true) => named == resource,
        (Some((first, second)), false) => first == *resource && second == *subresource,
        _ => false,
    };
    contains(&rule.verbs, &request.verb)
        && (is_all(&rule.resources) || rule.resources.iter().any(is_resource))
        && contains(&rule.api_groups, api_group)
        && match namespace.is_empty() {
            true => rule.cluster_scope,
            false => contains(&rule.namespaces, namespace),
        }
}

fn path_matches(rule: &NonResourceRule, verb: &str, path: &str) -> bool {
    let mut urls = rule.urls.iter();
    contains(&rule.verbs, verb)
        && urls.any(|url| {
            url == ALL || url == path || {
                let prefix = url.strip_suffix('*').unwrap_or(url);
                let below = path.strip_prefix(prefix);
                below.is_some_and(|below| prefix.ends_with('/') || below.starts_with('/'))
            }
        })
}

/// Returns true if the list is `["*"]` or has the word.
fn contains(list: &[String], word: &str) -> bool {
    is_all(list) || list.iter().any(|item| item == word)
}

fn is_all(list: &[String]) -> bool {
    matches!(list, [only] if only == ALL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn digest<'a>(user: &'a str, groups: &'a [String], text: &'a str) -> RequestDigest<'a> {
        let words: Vec<&str> = text.split(' ').collect();
        let target = match words[..] {
            [_, path] => DigestTarget::Path(path.into()),
            [_, api_group, resource, namespace] => {
                let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
                DigestTarget::Resource {
                    api_group: api_group.trim_matches('-'),
                    resource,
                    subresource,
                    namespace: namespace.trim_matches('-'),
                }
            }
            _ => panic!("{text}"),
        };
        RequestDigest {
            user,
            groups,
            verb: words[0].into(),
            target,
        }
    }

    /// Checks which of the requests `verb path` and `verb group resource namespace` of ann, in the group g, match.
    fn check(rule: Value, expected: &[(&str, bool)]) {
        let rule: Rule = serde_json::from_value(rule).unwrap();
        for (request, is_expected) in expected {
            let actual = is_match(
                std::slice::from_ref(&rule),
                &digest("ann", &["g".to_owned()], request),
            );
            assert_eq!(actual, *is_expected, "{request}");
        }
    }

    fn everyone() -> Value {
        json!([{"kind": "Group", "group": {"name": "*"}}])
    }

    #[test]
    fn resource_rules_need_every_list() {
        let rule = json!({"verbs": ["get"], "apiGroups": ["apps", ""], "resources": ["pods", "pods/status"],
            "namespaces": ["n"]});
        check(
            json!({"subjects": everyone(), "resourceRules": [rule]}),
            &[
                ("get - pods n", true),
                ("get - pods/status n", true),
                ("get apps pods n", true),
                ("list - pods n", false),
                ("get - pods/log n", false),
                ("get batch pods n", false),
                ("get - pods other", false),
                ("get - pods -", false),
                ("get /api", false),
            ],
        );
        let all =
            json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]});
        check(
            json!({"subjects": everyone(), "resourceRules": [all]}),
            &[("patch x y/z n", true), ("patch x y -", false)],
        );
        let cluster =
            json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true});
        check(
            json!({"subjects": everyone(), "resourceRules": [cluster]}),
            &[("list - pods -", true), ("list - pods n", false)],
        );
    }

    #[test]
    fn paths_match_with_everything_below_them() {
        let rule = json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/api/*"]});
        check(
            json!({"subjects": everyone(), "nonResourceRules": [rule]}),
            &[
                ("get /healthz", true),
                ("get /healthz/etcd", true),
                ("get /healthzz", false),
                ("get /api", false),
                ("get /api/v1", true),
                ("post /healthz", false),
                ("get - pods n", false),
            ],
        );
    }

    #[test]
    fn subjects_are_users_groups_and_service_accounts() {
        let matches = |subject: Value, user: &str| {
            let rule = json!({"subjects": [subject],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]});
            let rule: Rule = serde_json::from_value(rule).unwrap();
            is_match(&[rule], &digest(user, &["g".to_owned()], "get /"))
        };
        let user = |name: &str| json!({"kind": "User", "user": {"name": name}});
        assert!(matches(user("ann"), "ann") && matches(user("*"), "ann"));
        assert!(!matches(user("bob"), "ann"));
        let group = |name: &str| json!({"kind": "Group", "group": {"name": name}});
        assert!(matches(group("g"), "ann") && !matches(group("h"), "ann"));
        let account = |namespace: &str, name: &str| json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": name}});
        let robot = "system:serviceaccount:n:robot";
        assert!(matches(account("n", "robot"), robot) && matches(account("n", "*"), robot));
        assert!(!matches(account("m", "*"), robot) && !matches(account("n", "rob"), robot));
        assert!(!matches(account("n", "*"), "ann"));
        assert!(!matches(json!({"kind": "User"}), "ann"));
    }
}
