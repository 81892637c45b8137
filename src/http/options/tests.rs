//! The rules of §7.1 and §8.6, one line each.

use serde_json::json;

use super::*;

fn query(raw: &str) -> Query {
    Query::parse(raw).unwrap()
}

/// What a refusal says: its code and its message.
fn refusal<T: std::fmt::Debug>(result: Result<T, WireError>) -> String {
    let status = result.unwrap_err().status();
    format!("{} {}", status.code, status.message)
}

fn refused(purpose: ListFor, raw: &str, expect: &str) {
    let told = refusal(list_options(&query(raw), purpose, None));
    assert!(told.contains(expect), "{raw}: {told}");
    if told.starts_with("422") {
        assert!(
            told.starts_with("422 ListOptions.meta.k8s.io \"\" is invalid: "),
            "{told}"
        );
    }
}

#[test]
fn lists_that_are_refused() {
    use ListFor::List;
    let rule = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden";
    refused(List, "resourceVersionMatch=Exact", rule);
    refused(
        List,
        "resourceVersionMatch=Exact&resourceVersion=1&continue=x",
        "forbidden when continue is provided",
    );
    refused(
        List,
        "resourceVersionMatch=New&resourceVersion=1",
        r#"resourceVersionMatch: Unsupported value: "New": supported values: "Exact", "NotOlderThan", """#,
    );
    refused(
        List,
        "resourceVersionMatch=Exact&resourceVersion=0",
        r#"resourceVersionMatch "exact" is forbidden for resourceVersion "0""#,
    );
    refused(
        List,
        "sendInitialEvents=false",
        "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
    );
    // Two problems, two causes.
    let two = list_options(
        &query("resourceVersionMatch=New&sendInitialEvents=1"),
        List,
        None,
    );
    assert_eq!(
        two.unwrap_err().status().details.unwrap().causes.len(),
        3,
        "no version, unknown rule, initial events"
    );
    refused(List, "resourceVersion=abc", "400 invalid resource version");
    refused(List, "resourceVersion=-1", "400 invalid resource version");
    refused(List, "limit=x", "400 invalid value \"x\"");
    refused(List, "limit=", "400 invalid value \"\"");
    refused(List, "timeoutSeconds=", "400 invalid value \"\"");
    // What cannot be decoded comes before what may not be, and the version after both.
    refused(List, "sendInitialEvents=1&limit=x", "400 invalid value");
    refused(
        List,
        "sendInitialEvents=1&labelSelector=a%3D%3D%3D",
        "400 unable",
    );
    refused(
        List,
        "sendInitialEvents=1&fieldSelector=a",
        "400 invalid field",
    );
    refused(List, "sendInitialEvents=1&resourceVersion=x", "422 ");
    refused(List, "labelSelector=a%3D%3D%3D", "400 unable to parse");
    refused(List, "fieldSelector=a", "400 invalid field selector");
}

#[test]
fn watches_that_are_refused() {
    use ListFor::Watch;
    refused(
        Watch,
        "sendInitialEvents=true",
        "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
    );
    refused(
        Watch,
        "sendInitialEvents=true&resourceVersionMatch=Exact",
        r#"Unsupported value: "Exact": supported values: "NotOlderThan""#,
    );
    refused(
        Watch,
        "resourceVersionMatch=NotOlderThan",
        "forbidden for watch unless sendInitialEvents is provided",
    );
    refused(Watch, "resourceVersion=1x", "400 invalid resource version");
}

#[test]
fn lists_and_watches_that_pass() {
    let options = list_options(
        &query("continue=x&resourceVersion=0&limit=-1"),
        ListFor::List,
        None,
    );
    let options = options.unwrap();
    assert_eq!(options.limit, 0);
    assert_eq!(options.resource_version, Some(ResourceVersion::ZERO));
    let options = list_options(
        &query(
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1\
             &timeoutSeconds=3&resourceVersion=",
        ),
        ListFor::Watch,
        Some("a"),
    );
    let options = options.unwrap();
    assert_eq!(options.send_initial_events, Some(true));
    assert_eq!(options.resource_version, None);
    assert!(options.allow_watch_bookmarks);
    assert_eq!(options.timeout, Some(Duration::from_secs(3)));
    assert_eq!(options.fields.exact("metadata.name"), Some("a"));
    // What no clock can add is as long as can be told.
    let options = list_options(
        &query("timeoutSeconds=9223372036854775807"),
        ListFor::Watch,
        None,
    );
    let timeout = options.unwrap().timeout.unwrap();
    assert!(timeout >= Duration::from_secs(24 * 60 * 60), "{timeout:?}");
    assert!(tokio::time::Instant::now().checked_add(timeout).is_some());
    // WC-211: an exact name, and no other, goes with the name of a path.
    let named = |fields: &str| {
        let raw = format!("fieldSelector={fields}");
        list_options(&query(&raw), ListFor::Watch, Some("a"))
    };
    assert!(named("metadata.name%3Da,metadata.namespace%3Dx").is_ok());
    for clash in [
        "metadata.name%3Db",
        "metadata.name!%3Db",
        "metadata.namespace%3Dx",
    ] {
        let told = refusal(named(clash));
        assert!(
            told.starts_with("400 the fieldSelector does not ask"),
            "{clash}: {told}"
        );
    }
}

#[test]
fn write_options_are_checked() {
    let check = |purpose, raw: &str, expect: &str| {
        let told = refusal(write_options(&query(raw), purpose));
        assert_eq!(told, expect, "{raw}");
    };
    check(
        WriteFor::Create,
        "dryRun=Some",
        r#"422 CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: "Some": supported values: "All""#,
    );
    check(
        WriteFor::Update,
        "fieldValidation=Loose",
        r#"422 UpdateOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "Loose": supported values: "", "Ignore", "Strict", "Warn""#,
    );
    check(
        WriteFor::Patch,
        "force=false",
        r#"422 PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for non-apply patch"#,
    );
    check(
        WriteFor::Create,
        "fieldManager=a%07",
        r#"422 CreateOptions.meta.k8s.io "" is invalid: fieldManager: Invalid value: "a\u{7}": should only contain printable characters"#,
    );
    let long = format!("fieldManager={}", "x".repeat(129));
    check(
        WriteFor::Create,
        &long,
        r#"422 CreateOptions.meta.k8s.io "" is invalid: fieldManager: Too long: may not be more than 128 bytes"#,
    );
}

#[test]
fn write_options_that_pass() {
    let raw = "dryRun=All&fieldManager=me&fieldValidation=Warn";
    assert!(
        write_options(&query(raw), WriteFor::Create)
            .unwrap()
            .dry_run
    );
    assert!(!write_options(&query(""), WriteFor::Patch).unwrap().dry_run);
}

#[test]
fn delete_options_come_from_the_body_or_the_query() {
    let options = delete_options(
        &query("gracePeriodSeconds=5&propagationPolicy=Orphan&dryRun=All"),
        None,
    );
    let options = options.unwrap();
    assert_eq!(options.grace_period_seconds, Some(5));
    assert_eq!(options.propagation_policy, Some(PropagationPolicy::Orphan));
    assert_eq!(options.dry_run, ["All"]);
    assert_eq!(options.preconditions, None);
    let unsafe_ = "ignoreStoreReadErrorWithClusterBreakingPotential";
    let options = delete_options(&query(&format!("{unsafe_}=true")), None).unwrap();
    assert!(options.ignore_store_read_error_with_cluster_breaking_potential);
    let options = delete_options(&query(""), Some(json!({unsafe_: true}))).unwrap();
    assert!(options.ignore_store_read_error_with_cluster_breaking_potential);

    for version in ["v1", "meta.k8s.io/v1", "apps/v1", "stable.example.com/v7"] {
        let body = json!({
            "kind": "DeleteOptions", "apiVersion": version, "gracePeriodSeconds": 0,
            "preconditions": {"uid": "u"}, "dryRun": null
        });
        let options = delete_options(&query("gracePeriodSeconds=5"), Some(body)).unwrap();
        assert_eq!(options.grace_period_seconds, Some(0), "{version}");
        assert_eq!(options.preconditions.unwrap().uid.as_deref(), Some("u"));
    }
}

#[test]
fn delete_options_are_checked() {
    let check = |raw: &str, body, expect: &str| {
        let told = refusal(delete_options(&query(raw), body));
        assert!(told.contains(expect), "{told}");
    };
    check(
        "propagationPolicy=Sometimes",
        None,
        r#"propagationPolicy: Unsupported value: "Sometimes""#,
    );
    check("", Some(json!({"kind": "Pod"})), "400 the body of a delete");
    check("", Some(json!([])), "400 the body of a delete");
    check(
        "",
        Some(json!({"gracePeriodSeconds": "x"})),
        "400 invalid DeleteOptions",
    );
    check("gracePeriodSeconds=x", None, "400 invalid value");
}
