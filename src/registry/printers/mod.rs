//! Printers: what a Table shows of each resource. A resource without a printer of its own shows its
//! name and age. How a Table is encoded, and who asked for one, is the business of `http`.

pub(super) mod age;
mod core;
mod workloads;

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::Value;

use super::Resource;

/// One column of a Table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableColumn {
    /// The heading.
    pub name: Cow<'static, str>,
    /// An OpenAPI type: `string`, `integer`.
    pub r#type: Cow<'static, str>,
    /// An OpenAPI format; `name` marks the column that names the object.
    pub format: Cow<'static, str>,
    /// For people.
    pub description: Cow<'static, str>,
    /// 0 is always shown; above, only by `-o wide`.
    pub priority: i32,
}

impl TableColumn {
    const fn text(name: &'static str, description: &'static str) -> Self {
        Self::column(name, "", description, 0)
    }

    const fn wide(name: &'static str, description: &'static str) -> Self {
        Self::column(name, "", description, 1)
    }

    const fn column(
        name: &'static str,
        format: &'static str,
        description: &'static str,
        priority: i32,
    ) -> Self {
        Self {
            name: Cow::Borrowed(name),
            r#type: Cow::Borrowed("string"),
            format: Cow::Borrowed(format),
            description: Cow::Borrowed(description),
            priority,
        }
    }
}

const NAME_TOLD: &str = "What the object is called, unique in its namespace.";
pub(super) const NAME: TableColumn = TableColumn::column("Name", "name", NAME_TOLD, 0);
const AGE: TableColumn = TableColumn::text("Age", "How long ago the object was created.");

/// How one resource is shown: its columns, and the cells of one object in the same order.
struct Printer {
    columns: &'static [TableColumn],
    cells: fn(&Value, Timestamp) -> Vec<Value>,
}

const GENERIC: Printer = Printer {
    columns: &[NAME, AGE],
    cells: |object, now| vec![name(object), created(object, now)],
};

fn printer(resource: &Resource) -> &'static Printer {
    match (&*resource.group, &*resource.plural) {
        ("", "pods") => &workloads::PODS,
        ("apps", "deployments") => &workloads::DEPLOYMENTS,
        ("batch", "jobs") => &workloads::JOBS,
        ("", "nodes") => &core::NODES,
        ("", "services") => &core::SERVICES,
        ("", "configmaps") => &core::CONFIG_MAPS,
        ("", "secrets") => &core::SECRETS,
        ("", "namespaces") => &core::NAMESPACES,
        ("" | "events.k8s.io", "events") => &core::EVENTS,
        _ => &GENERIC,
    }
}

/// The columns of `resource`.
pub fn columns(resource: &Resource) -> &[TableColumn] {
    match &resource.custom {
        Some(custom) => custom.printer.columns(),
        None => printer(resource).columns,
    }
}

/// The cells of `object` in the order of [`columns`], as they read at `now`. Missing or oddly typed
/// fields show as upstream shows missing ones; an object is never refused.
pub fn cells(resource: &Resource, object: &Value, now: Timestamp) -> Vec<Value> {
    match &resource.custom {
        Some(custom) => custom.printer.cells(object, now),
        None => (printer(resource).cells)(object, now),
    }
}

/// The value at a dotted path; `Null` when it is absent.
fn at<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(object, |value, name| &value[name])
}

/// The text at a dotted path; empty when it is absent.
fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).as_str().unwrap_or_default()
}

/// The text at a dotted path, or `otherwise` when it is absent or empty.
fn text_or<'a>(object: &'a Value, path: &str, otherwise: &'a str) -> &'a str {
    Some(text(object, path))
        .filter(|t| !t.is_empty())
        .unwrap_or(otherwise)
}

/// The whole number at a dotted path; zero when it is absent.
fn number(object: &Value, path: &str) -> i64 {
    at(object, path).as_i64().unwrap_or_default()
}

/// The list at a dotted path; empty when it is absent.
fn items<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    at(object, path).as_array().map_or(&[], Vec::as_slice)
}

/// How many members the map at a dotted path has.
fn members(object: &Value, path: &str) -> usize {
    at(object, path).as_object().map_or(0, serde_json::Map::len)
}

fn name(object: &Value) -> Value {
    text(object, "metadata.name").into()
}

fn created(object: &Value, now: Timestamp) -> Value {
    age::age(age::time(at(object, "metadata.creationTimestamp")), now).into()
}

/// The condition of this type, if the object reports it.
fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    items(object, "status.conditions")
        .iter()
        .find(|c| c["type"] == kind)
}

/// The texts joined by commas; `<none>` when there are none.
fn joined<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let joined = texts.into_iter().collect::<Vec<_>>().join(",");
    if joined.is_empty() {
        "<none>".to_owned()
    } else {
        joined
    }
}

/// `k=v,…` of a map of strings; `<none>` when it is empty.
fn label_map(map: &Value) -> String {
    let pairs: Vec<String> = map
        .as_object()
        .into_iter()
        .flatten()
        .map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default()))
        .collect();
    joined(pairs.iter().map(String::as_str))
}

/// A `metav1.LabelSelector` as a label selector's text; `<none>` when it is empty or absent.
fn selector(selector: &Value) -> String {
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

#[cfg(test)]
mod tests;
