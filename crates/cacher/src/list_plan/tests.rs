//! Tests of the table of list plans, row by row.

use super::*;
use ResourceVersionMatch::{Exact, NotOlderThan};

fn rv(n: u64) -> ResourceVersion {
    ResourceVersion::new(n)
}

fn check(
    resource_version_match: Option<ResourceVersionMatch>,
    resource_version: Option<u64>,
    limit: usize,
    token: Option<Option<u64>>,
    expect: (ReadVersion, usize),
) {
    let start = "ns/a\0".to_owned();
    let token = token.map(|at| ContinueToken {
        resource_version: at.map(rv),
        start,
        remaining: Some(3),
    });
    let options = ListOptions {
        resource_version: resource_version.map(rv),
        resource_version_match,
        limit,
        continue_token: token.map(|token| token.encode()),
        ..ListOptions::default()
    };
    let plan = plan(&options, false).unwrap();
    assert_eq!((plan.at, plan.limit), expect, "{options:?}");
    assert_eq!(plan.continued, options.continue_token.is_some());
    let same_state = plan.continued && matches!(plan.at, ReadVersion::Exact(_));
    assert_eq!(plan.remaining, same_state.then_some(3));
}

#[test]
fn plan_equals_each_row_of_the_table() {
    check(None, None, 0, None, (ReadVersion::Latest, 0));
    check(None, None, 5, None, (ReadVersion::Latest, 5));
    check(
        None,
        Some(0),
        5,
        None,
        (ReadVersion::NotOlderThan(rv(0)), 0),
    ); // WC-091
    check(
        Some(NotOlderThan),
        Some(0),
        5,
        None,
        (ReadVersion::NotOlderThan(rv(0)), 0),
    );
    check(
        None,
        Some(7),
        0,
        None,
        (ReadVersion::NotOlderThan(rv(7)), 0),
    ); // WC-090
    check(None, Some(7), 5, None, (ReadVersion::Exact(rv(7)), 5)); // WC-089
    check(
        Some(NotOlderThan),
        Some(7),
        5,
        None,
        (ReadVersion::NotOlderThan(rv(7)), 5),
    );
    check(
        Some(Exact),
        Some(7),
        0,
        None,
        (ReadVersion::Exact(rv(7)), 0),
    );
    check(None, None, 5, Some(Some(7)), (ReadVersion::Exact(rv(7)), 5));
    check(
        None,
        Some(0),
        5,
        Some(Some(7)),
        (ReadVersion::Exact(rv(7)), 0),
    ); // WC-097
    check(None, None, 5, Some(None), (ReadVersion::Latest, 5));
}

#[test]
fn invalid_combinations_are_rejected() {
    let token = ContinueToken {
        resource_version: Some(rv(7)),
        start: "ns/a\0".into(),
        remaining: None,
    }
    .encode();
    let with_version = ListOptions {
        resource_version: Some(rv(7)),
        continue_token: Some(token),
        ..ListOptions::default()
    };
    assert!(matches!(
        plan(&with_version, false),
        Err(ReadError::VersionWithContinue)
    ));
    let garbage = ListOptions {
        continue_token: Some("%".into()),
        ..ListOptions::default()
    };
    assert!(matches!(
        plan(&garbage, false),
        Err(ReadError::InvalidContinue(_))
    ));
    // A list of one key ignores the token.
    assert_eq!(
        plan(&garbage, true).unwrap(),
        ListPlan::whole(ReadVersion::Latest)
    );
    let versioned = ListOptions {
        limit: 5,
        ..with_version
    };
    let at = ReadVersion::NotOlderThan(rv(7));
    assert_eq!(plan(&versioned, true).unwrap(), ListPlan::whole(at));
}
