//! Tests of reading policies and of matching requests, also against a plain reference matcher.

use proptest::prelude::*;

use super::*;
use watchet_api::UserInfo;

fn policy(rules: &str) -> Policy {
    let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}");
    text.parse().unwrap()
}

fn error(rules: &str) -> String {
    let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}");
    text.parse::<Policy>().unwrap_err().to_string()
}

fn user(name: &str, groups: &[&str]) -> UserInfo {
    UserInfo {
        name: name.to_owned(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        ..UserInfo::default()
    }
}

/// Returns the level for a request by `ann` of group `dev`: `verb path`, or `verb group resource/subresource
/// namespace name` with `-` for absent parts.
fn level(policy: &Policy, request: &str) -> &'static str {
    let ann = user("ann", &["dev", "ops"]);
    let words: Vec<&str> = request
        .split(' ')
        .map(|w| if w == "-" { "" } else { w })
        .collect();
    let (verb, path, resource) = match words[..] {
        [verb, path] => (verb, path, None),
        [verb, group, resource, namespace, name] => {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let resource = ResourceAttributes {
                group,
                version: "v1",
                resource,
                subresource,
                namespace,
                name,
            };
            (verb, "/apis/x", Some(resource))
        }
        _ => panic!("{request}"),
    };
    let request = RequestAttributes {
        user: Some(&ann),
        verb,
        path,
        resource,
    };
    policy.evaluate(&request).level.as_str()
}

fn check(rules: &str, requests: &[(&str, &str)]) {
    let policy = policy(rules);
    for (request, expect) in requests {
        assert_eq!(level(&policy, request), *expect, "{request} with {rules}");
    }
}

#[test]
fn the_first_rule_that_matches_decides() {
    let rules = "rules: [{level: None, verbs: [get]}, {level: Request, verbs: [get, list]}]";
    let requests = [
        ("get - pods d a", "None"),
        ("list - pods d -", "Request"),
        ("watch - pods d -", "None"),
    ];
    check(rules, &requests);
}

#[test]
fn users_and_groups_must_both_match() {
    let ann = "rules: [{level: Metadata, users: [bob, ann]}]";
    check(ann, &[("get /x", "Metadata")]);
    check(
        "rules: [{level: Metadata, users: [bob]}]",
        &[("get /x", "None")],
    );
    let ops = "rules: [{level: Metadata, users: [ann], userGroups: [qa, ops]}]";
    check(ops, &[("get /x", "Metadata")]);
    let qa = "rules: [{level: Metadata, users: [ann], userGroups: [qa]}]";
    check(qa, &[("get /x", "None")]);
}

#[test]
fn unauthenticated_requests_match_whatever_the_users() {
    let request = RequestAttributes {
        user: None,
        verb: "get",
        path: "/x",
        resource: None,
    };
    let bob = policy("rules: [{level: Metadata, users: [bob], userGroups: [qa]}]");
    assert_eq!(bob.evaluate(&request).level, Level::Metadata);
}

#[test]
fn resources_match_by_group_name_and_pattern() {
    let pods = "rules: [{level: Metadata, resources: [{group: '', resources: [pods]}]}]";
    let requests = [
        ("get - pods d a", "Metadata"),
        ("get - pods/log d a", "None"),
        ("get apps pods d a", "None"),
        ("get /api", "None"),
    ];
    check(pods, &requests);
    let below = "rules: [{level: Metadata, resources: [{group: '', resources: ['pods/*']}]}]";
    let requests = [
        ("get - pods d a", "Metadata"),
        ("get - pods/log d a", "Metadata"),
        ("get - nodes/log - a", "None"),
    ];
    check(below, &requests);
    let status = "rules: [{level: Metadata, resources: [{group: '', resources: ['*/status']}]}]";
    let requests = [
        ("get - pods/status d a", "Metadata"),
        ("get - pods d a", "None"),
        ("get - pods/log d a", "None"),
    ];
    check(status, &requests);
    let all = "rules: [{level: Metadata, resources: [{group: apps, resources: ['*']}]}]";
    let requests = [
        ("get apps deployments/scale d a", "Metadata"),
        ("get - pods d a", "None"),
    ];
    check(all, &requests);
    let group = "rules: [{level: Metadata, resources: [{group: apps}]}]";
    check(group, &[("get apps deployments/scale d a", "Metadata")]);
    let named = "rules: [{level: Metadata, resources: [{resources: [pods], resourceNames: [a]}]}]";
    let requests = [
        ("get - pods d a", "Metadata"),
        ("get - pods d b", "None"),
        ("list - pods d -", "None"),
    ];
    check(named, &requests);
}

#[test]
fn the_empty_namespace_matches_requests_without_one() {
    let rules = "rules: [{level: Metadata, namespaces: ['', kube-system]}]";
    let requests = [
        ("get - nodes - a", "Metadata"),
        ("get - pods kube-system a", "Metadata"),
        ("get - pods default a", "None"),
        ("get /api", "None"),
    ];
    check(rules, &requests);
}

#[test]
fn paths_match_exactly_or_by_prefix() {
    let rules = "rules: [{level: Metadata, nonResourceURLs: [/healthz, '/version*']}]";
    let requests = [
        ("get /healthz", "Metadata"),
        ("get /healthz/ping", "None"),
        ("get /version/x", "Metadata"),
        ("get - pods d a", "None"),
    ];
    check(rules, &requests);
    let all = "rules: [{level: Metadata, nonResourceURLs: ['*']}]";
    check(all, &[("get /x", "Metadata"), ("get - pods d a", "None")]);
}

#[test]
fn omissions_of_the_policy_and_the_rule_are_combined() {
    let policy = policy(
        "omitStages: [RequestReceived]\nomitManagedFields: true\nrules:\n\
         - {level: Request, verbs: [get], omitStages: [Panic], omitManagedFields: false}\n\
         - {level: Request}",
    );
    let request = |verb| RequestAttributes {
        user: None,
        verb,
        path: "/x",
        resource: None,
    };
    let get = policy.evaluate(&request("get"));
    assert_eq!(format!("{:?}", get.omit_stages), "{RequestReceived, Panic}");
    assert!(!get.omit_managed_fields);
    let list = policy.evaluate(&request("list"));
    assert_eq!(format!("{:?}", list.omit_stages), "{RequestReceived}");
    assert!(list.omit_managed_fields);
}

#[test]
fn errors_name_the_rule_and_the_value() {
    for (rules, expect) in [
        ("rules: []", "rules: must have at least one rule"),
        (
            "rules: [{level: Metadata}, {level: metadata}]",
            "rules[1].level: unsupported value \"metadata\": must be one of None, Metadata, Request, RequestResponse",
        ),
        (
            "rules: [{users: [a]}]",
            "rules[0].level: unsupported value \"\"",
        ),
        (
            "rules: [{level: None, verb: [get]}]",
            "rules[0]: unknown field `verb`",
        ),
        (
            "rules: [{level: None, resources: [{groups: apps}]}]",
            "rules[0]: unknown field `groups`",
        ),
        (
            "rules: [{level: None}]\nomitStage: []",
            "unknown field `omitStage`",
        ),
        (
            "rules: [{level: None, omitStages: [Received]}]",
            "rules[0].omitStages[0]: unsupported value \"Received\"",
        ),
        (
            "rules: [{level: None, nonResourceURLs: [healthz]}]",
            "rules[0].nonResourceURLs[0]: \"healthz\" must begin with '/'",
        ),
        (
            "rules: [{level: None, nonResourceURLs: ['/a*b']}]",
            "rules[0].nonResourceURLs[0]: \"/a*b\" may have '*' only as the last character",
        ),
        (
            "rules: [{level: None, nonResourceURLs: [/a], namespaces: [d]}]",
            "rules[0].nonResourceURLs: [\"/a\"]: a rule cannot have both",
        ),
        (
            "rules: [{level: None, resources: [{group: apps/v1}]}]",
            "rules[0].resources[0].group: \"apps/v1\" must be the name of an API group",
        ),
        (
            "rules: [{level: None, resources: [{resourceNames: [a]}]}]",
            "rules[0].resources[0].resourceNames: [\"a\"] have no effect without resources",
        ),
    ] {
        let actual = error(rules);
        assert!(actual.contains(expect), "{rules}: {actual}");
    }
    let other = "apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: None}]";
    let actual = other.parse::<Policy>().unwrap_err().to_string();
    assert!(actual.contains("\"audit.k8s.io/v1beta1\""), "{actual}");
}

/// Matches as the documentation of the API describes it, without shortcuts.
fn reference(rule: &PolicyRule, request: &RequestAttributes<'_>) -> bool {
    let mut conditions = Vec::new();
    if let Some(user) = request.user {
        let by_name = rule.users.iter().filter(|name| **name == user.name).count() > 0;
        conditions.push(rule.users.is_empty() || by_name);
        let shared = user
            .groups
            .iter()
            .filter(|group| rule.user_groups.contains(group));
        conditions.push(rule.user_groups.is_empty() || shared.count() > 0);
    }
    conditions.push(rule.verbs.is_empty() || rule.verbs.iter().any(|verb| verb == request.verb));
    if let Some(requested) = &request.resource {
        conditions.push(rule.non_resource_urls.is_empty());
        let in_namespace = rule
            .namespaces
            .iter()
            .any(|name| name == requested.namespace);
        conditions.push(rule.namespaces.is_empty() || in_namespace);
        let mut forms = vec!["*".to_owned(), format!("{}/*", requested.resource)];
        match requested.subresource {
            "" => forms.push(requested.resource.to_owned()),
            sub => forms.extend([format!("*/{sub}"), format!("{}/{sub}", requested.resource)]),
        }
        let selected = rule.resources.iter().any(|group| {
            let named = group.resource_names.is_empty()
                || group
                    .resource_names
                    .iter()
                    .any(|name| name == requested.name);
            let listed = group
                .resources
                .iter()
                .any(|pattern| forms.contains(pattern));
            group.group == requested.group && (group.resources.is_empty() || (named && listed))
        });
        conditions.push(rule.resources.is_empty() || selected);
    } else {
        conditions.push(rule.namespaces.is_empty() && rule.resources.is_empty());
        let prefixes = (0..=request.path.len()).map(|end| format!("{}*", &request.path[..end]));
        let mut forms: Vec<String> = prefixes.collect();
        forms.push(request.path.to_owned());
        let listed = rule.non_resource_urls.iter().any(|url| forms.contains(url));
        conditions.push(rule.non_resource_urls.is_empty() || listed);
    }
    conditions.iter().all(|holds| *holds)
}

fn some_of(words: &'static [&'static str]) -> impl Strategy<Value = Vec<String>> {
    let word = prop::sample::select(words).prop_map(str::to_owned);
    prop::collection::vec(word, 0..3)
}

fn group_resources() -> impl Strategy<Value = GroupResources> {
    let patterns = &[
        "pods", "pods/log", "pods/*", "*/log", "*/status", "*", "nodes",
    ];
    let group = prop::sample::select(&["", "apps"][..]);
    (group, some_of(patterns), some_of(&["a", "b"])).prop_map(|(group, resources, names)| {
        GroupResources {
            group: group.to_owned(),
            resources,
            resource_names: names,
        }
    })
}

prop_compose! {
    fn any_rule()(
        users in some_of(&["ann", "bob"]),
        user_groups in some_of(&["dev", "ops"]),
        verbs in some_of(&["get", "list"]),
        resources in prop::collection::vec(group_resources(), 0..3),
        namespaces in some_of(&["", "d", "e"]),
        urls in some_of(&["*", "/a", "/a*", "/ab/*"]),
        selects_paths: bool,
    ) -> PolicyRule {
        // A policy with a rule for both is invalid.
        let (resources, namespaces, urls) = match selects_paths {
            true => (Vec::new(), Vec::new(), urls),
            false => (resources, namespaces, Vec::new()),
        };
        PolicyRule {
            level: Level::Metadata,
            users,
            user_groups,
            verbs,
            resources,
            namespaces,
            non_resource_urls: urls,
            omit_stages: Stages::default(),
            omit_managed_fields: None,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rules_match_as_the_reference_does(
        rule in any_rule(),
        name in prop::sample::select(&["ann", "bob", "eve"][..]),
        group in prop::sample::select(&["dev", "ops", "qa"][..]),
        is_authenticated: bool,
        verb in prop::sample::select(&["get", "list", "watch"][..]),
        path in prop::sample::select(&["/a", "/ab", "/ab/c", "/"][..]),
        resource in prop::option::of((
            prop::sample::select(&["", "apps"][..]),
            prop::sample::select(&["pods", "nodes"][..]),
            prop::sample::select(&["", "log", "status"][..]),
            prop::sample::select(&["", "d", "e", "f"][..]),
            prop::sample::select(&["", "a", "b", "c"][..]),
        )),
    ) {
        let user = user(name, &[group]);
        let resource = resource.map(|(group, resource, subresource, namespace, name)| {
            ResourceAttributes { group, version: "v1", resource, subresource, namespace, name }
        });
        let request = RequestAttributes {
            user: is_authenticated.then_some(&user),
            verb,
            path,
            resource,
        };
        prop_assert_eq!(rule.matches(&request), reference(&rule, &request));
    }
}
