//! Tests of the validation of request options.

use serde_json::json;

use super::*;

fn query(raw: &str) -> Query {
    Query::parse(raw).unwrap()
}

/// Returns the code and message of an error.
fn refusal<T: std::fmt::Debug>(result: Result<T, HttpError>) -> String {
    let status = result.unwrap_err().status();
    format!("{} {}", status.code, status.message)
}

fn check_rejected(purpose: ListFor, raw: &str, expect: &str) {
    let actual = refusal(list_options(&query(raw), purpose, None));
    assert!(actual.contains(expect), "{raw}: {actual}");
    if actual.starts_with("422") {
        assert!(
            actual.starts_with("422 ListOptions.meta.k8s.io \"\" is invalid: "),
            "{actual}"
        );
    }
}

#[test]
fn invalid_list_options_are_rejected() {
    use ListFor::List;
    let rule = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden";
    check_rejected(List, "resourceVersionMatch=Exact", rule);
    check_rejected(
        List,
        "resourceVersionMatch=Exact&resourceVersion=1&continue=x",
        "forbidden when continue is provided",
    );
    check_rejected(
        List,
        "resourceVersionMatch=New&resourceVersion=1",
        r#"resourceVersionMatch: Unsupported value: "New": supported values: "Exact", "NotOlderThan", """#,
    );
    check_rejected(
        List,
        "resourceVersionMatch=Exact&resourceVersion=0",
        r#"resourceVersionMatch "exact" is forbidden for resourceVersion "0""#,
    );
    check_rejected(
        List,
        "sendInitialEvents=false",
        "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
    );
    // Two problems are two causes.
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
    check_rejected(List, "resourceVersion=abc", "400 invalid resource version");
    check_rejected(List, "resourceVersion=-1", "400 invalid resource version");
    check_rejected(List, "limit=x", "400 invalid value \"x\"");
    check_rejected(List, "limit=", "400 invalid value \"\"");
    check_rejected(List, "timeoutSeconds=", "400 invalid value \"\"");
    // Decoding errors come before validation errors, and the version after both.
    check_rejected(List, "sendInitialEvents=1&limit=x", "400 invalid value");
    check_rejected(
        List,
        "sendInitialEvents=1&labelSelector=a%3D%3D%3D",
        "400 unable",
    );
    check_rejected(
        List,
        "sendInitialEvents=1&fieldSelector=a",
        "400 invalid field",
    );
    check_rejected(List, "sendInitialEvents=1&resourceVersion=x", "422 ");
    check_rejected(List, "labelSelector=a%3D%3D%3D", "400 unable to parse");
    check_rejected(List, "fieldSelector=a", "400 invalid field selector");
}

#[test]
fn invalid_watch_options_are_rejected() {
    use ListFor::Watch;
    check_rejected(
        Watch,
        "sendInitialEvents=true",
        "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
    );
    check_rejected(
        Watch,
        "sendInitialEvents=true&resourceVersionMatch=Exact",
        r#"Unsupported value: "Exact": supported values: "NotOlderThan""#,
    );
    check_rejected(
        Watch,
        "resourceVersionMatch=NotOlderThan",
        "forbidden for watch unless sendInitialEvents is provided",
    );
    check_rejected(Watch, "resourceVersion=1x", "400 invalid resource version");
}

#[test]
fn valid_list_and_watch_options() {
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
    // A timeout that overflows the clock is capped.
    let options = list_options(
        &query("timeoutSeconds=9223372036854775807"),
        ListFor::Watch,
        None,
    );
    let timeout = options.unwrap().timeout.unwrap();
    assert!(timeout >= Duration::from_secs(24 * 60 * 60), "{timeout:?}");
    assert!(tokio::time::Instant::now().checked_add(timeout).is_some());
    // The field selector must match the name of the path.
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
        let actual = refusal(named(clash));
        assert!(
            actual.starts_with("400 fieldSelector metadata.name doesn't match"),
            "{clash}: {actual}"
        );
    }
}

#[test]
fn invalid_write_options_are_rejected() {
    let check = |purpose, raw: &str, expect: &str| {
        let actual = refusal(write_options(&query(raw), purpose));
        assert_eq!(actual, expect, "{raw}");
    };
    check(
        WriteFor::Create,
        "dryRun=Some",
        r#"422 CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["Some"]: supported values: "All""#,
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
fn valid_write_options() {
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
fn invalid_delete_options_are_rejected() {
    let check = |raw: &str, body, expect: &str| {
        let actual = refusal(delete_options(&query(raw), body));
        assert!(actual.contains(expect), "{actual}");
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
