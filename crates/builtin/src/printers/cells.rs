//! The cells of Tables: values of an object as upstream prints them.

use jiff::Timestamp;
use serde_json::Value;

use watchet_registry::age;

/// The value at a dotted path; `Null` when it is absent.
pub(super) fn at<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(object, |value, name| &value[name])
}

/// The text at a dotted path; empty when it is absent.
pub(super) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).as_str().unwrap_or_default()
}

/// The text at a dotted path, or `otherwise` when it is absent or empty.
pub(super) fn text_or<'a>(object: &'a Value, path: &str, otherwise: &'a str) -> &'a str {
    Some(text(object, path))
        .filter(|t| !t.is_empty())
        .unwrap_or(otherwise)
}

/// The whole number at a dotted path; zero when it is absent.
pub(super) fn number(object: &Value, path: &str) -> i64 {
    at(object, path).as_i64().unwrap_or_default()
}

/// The list at a dotted path; empty when it is absent.
pub(super) fn items<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    at(object, path).as_array().map_or(&[], Vec::as_slice)
}

/// How many members the map at a dotted path has.
pub(super) fn members(object: &Value, path: &str) -> usize {
    at(object, path).as_object().map_or(0, serde_json::Map::len)
}

/// Returns the length of the list at a dotted path as a cell.
pub(super) fn count(object: &Value, path: &str) -> Value {
    items(object, path).len().into()
}

/// The boolean at a dotted path, as upstream prints pointers to one.
pub(super) fn flag(object: &Value, path: &str, otherwise: &str) -> Value {
    match at(object, path) {
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        _ => otherwise.into(),
    }
}

/// Returns the number or string at a dotted path as text, or `otherwise`.
pub(super) fn quantity(object: &Value, path: &str, otherwise: &str) -> Value {
    match at(object, path) {
        Value::String(text) => text.as_str().into(),
        Value::Number(number) => number.to_string().into(),
        _ => otherwise.into(),
    }
}

/// The maximum length of the addresses of a load balancer in a cell.
pub(super) const LOAD_BALANCER_WIDTH_MAX: usize = 16;

/// Returns the addresses of a load balancer, truncated if they are too long.
pub(super) fn balancer_addresses(object: &Value) -> String {
    let ingress = items(object, "status.loadBalancer.ingress").iter();
    let mut addresses: Vec<&str> = ingress
        .map(|i| text_or(i, "ip", text(i, "hostname")))
        .filter(|address| !address.is_empty())
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    let mut shown = addresses.join(",");
    if shown.len() > LOAD_BALANCER_WIDTH_MAX && shown.is_ascii() {
        shown.truncate(LOAD_BALANCER_WIDTH_MAX - 3);
        shown.push_str("...");
    }
    shown
}

pub(super) fn name(object: &Value) -> Value {
    text(object, "metadata.name").into()
}

pub(super) fn created(object: &Value, now: Timestamp) -> Value {
    age::age(age::time(at(object, "metadata.creationTimestamp")), now).into()
}

/// The condition of this type, if the object reports it.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    items(object, "status.conditions")
        .iter()
        .find(|c| c["type"] == kind)
}

/// The texts joined by commas; `<none>` when there are none.
pub(super) fn joined<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let joined = texts.into_iter().collect::<Vec<_>>().join(",");
    if joined.is_empty() {
        "<none>".to_owned()
    } else {
        joined
    }
}

/// `k=v,…` of a map of strings; `<none>` when it is empty.
pub(super) fn label_map(map: &Value) -> String {
    let pairs: Vec<String> = map
        .as_object()
        .into_iter()
        .flatten()
        .map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default()))
        .collect();
    joined(pairs.iter().map(String::as_str))
}

/// A `metav1.LabelSelector` as a label selector's text; `<none>` when it is empty or absent.
pub(super) fn selector(selector: &Value) -> String {
    let mut terms: Vec<String> = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        terms.push(format!("{key}={}", value.as_str().unwrap_or_default()));
    }
    for expression in items(selector, "matchExpressions") {
        let key = text(expression, "key");
        let mut values: Vec<&str> = items(expression, "values")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        values.sort_unstable();
        let values = values.join(",");
        terms.push(match text(expression, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    terms.sort_unstable();
    joined(terms.iter().map(String::as_str))
}
