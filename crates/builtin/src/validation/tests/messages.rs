//! Messages that several tests of validation expect, and a check of an object that has a name.

use super::*;

pub(super) const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start \
    and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
pub(super) const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', \
    '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
    used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
pub(super) const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
    and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

/// Checks the causes of an object that has a name and these members.
#[track_caller]
pub(super) fn check_members(plural: &str, mut members: Value, expected: &[&str]) {
    members["metadata"] = json!({"name": "a", "namespace": "default"});
    check(plural, members, expected);
}

/// Checks the causes of an object; `expected` has them without `at`, with which their fields begin.
#[track_caller]
pub(super) fn check_below(plural: &str, members: Value, at: &str, expected: &[&str]) {
    let expected: Vec<String> = expected
        .iter()
        .map(|cause| format!("{at}{cause}"))
        .collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    check_members(plural, members, &expected);
}
