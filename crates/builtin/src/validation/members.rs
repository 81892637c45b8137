//! Validation rules that several types share: enumerations, and ranges of numbers.

use super::text::{self, NOT_NEGATIVE};
use serde_json::Value;

use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, number, text as text_of};

/// Validates a required string with few allowed values.
pub(super) fn required_one_of(
    fields: &Fields,
    member: &str,
    supported: &[&str],
    at: &Path<'_>,
    causes: &mut Causes,
) {
    match text_of(fields, member) {
        "" => causes.required(&at.member(member), ""),
        _ => one_of(fields, member, supported, at, causes),
    }
}

/// Validates an optional string with few allowed values.
pub(super) fn one_of(
    fields: &Fields,
    member: &str,
    supported: &[&str],
    at: &Path<'_>,
    causes: &mut Causes,
) {
    let given = text_of(fields, member);
    if !given.is_empty() && !supported.contains(&given) {
        causes.not_supported(&at.member(member), given, supported);
    }
}

/// Validates numbers that must not be negative.
pub(super) fn not_negative(fields: &Fields, members: &[&str], at: &Path<'_>, causes: &mut Causes) {
    for member in members {
        if let Some(number) = number(fields, member).filter(|number| *number < 0) {
            causes.invalid(&at.member(member), number, NOT_NEGATIVE);
        }
    }
}

pub(super) fn not_negative_top(fields: &Fields, member: &'static str, causes: &mut Causes) {
    if let Some(number) = number(fields, member).filter(|number| *number < 0) {
        causes.invalid(&Path::Top(member), number, NOT_NEGATIVE);
    }
}

/// Validates an optional number that must be in a range.
pub(super) fn nullable_range(
    fields: &Fields,
    member: &str,
    min: i64,
    max: i64,
    at: &Path<'_>,
    causes: &mut Causes,
) {
    if let Some(number) = number(fields, member) {
        let problems = text::range(number, min, max);
        numbered(&at.member(member), number, problems, causes);
    }
}

/// Adds a cause for each of the problems of a number.
pub(super) fn numbered(at: &Path<'_>, number: i64, problems: Vec<String>, causes: &mut Causes) {
    for problem in problems {
        causes.invalid(at, number, &problem);
    }
}

/// Returns the objects in a list, with their paths.
pub(super) fn objects(list: &[Value]) -> impl Iterator<Item = (usize, &Fields)> {
    let list = list.iter().enumerate();
    list.filter_map(|(index, item)| Some((index, item.as_object()?)))
}
