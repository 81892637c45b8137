//! The published schemas of custom resources. OpenAPI v2 omits what older clients, in particular
//! kubectl, misinterpret so that they reject valid objects. The rules are those of
//! apiextensions-apiserver's [OpenAPI
//! builder](https://github.com/kubernetes/kubernetes/blob/v1.35.0/staging/src/k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder/builder.go).

use serde_json::{Map, Value, json};

use super::ResourceDescription;
use super::constants::{API_VERSION, KIND, METADATA, gvk};
use super::dialect::Dialect;

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

/// Members of a definition's schema that structural schemas do not have.
const UNPUBLISHED: [&str; 4] = ["$schema", "example", "externalDocs", "id"];

/// Returns the schema of a custom resource; `metadata` is the reference to ObjectMeta.
pub(super) fn schema(
    resource: &ResourceDescription,
    schema: &Value,
    dialect: Dialect,
    metadata: &str,
) -> Value {
    let hides = |schema: &&Map<String, Value>| dialect == Dialect::V2 && is(schema, PRESERVE);
    let mut published = match schema.as_object().filter(|schema| !hides(schema)) {
        Some(schema) => {
            let mut schema = schema.clone();
            publish(&mut schema, dialect, metadata);
            schema.insert("type".to_owned(), "object".into());
            add_common(&mut schema, metadata);
            schema
        }
        // Without the members of every object, too: clients would consider all other members
        // unknown.
        None => Map::from_iter([("type".to_owned(), "object".into())]),
    };
    let ResourceDescription {
        group,
        version,
        kind,
        ..
    } = resource;
    let kinds = json!([gvk(group, version, kind)]);
    published.insert("x-kubernetes-group-version-kind".to_owned(), kinds);
    if !resource.selectable.is_empty() {
        let name = "x-kubernetes-selectable-fields".to_owned();
        published.insert(name, selectable(resource));
    }
    Value::Object(published)
}

/// Returns the extension with the selectable fields.
pub(super) fn selectable(resource: &ResourceDescription) -> Value {
    let fields = resource.selectable.iter();
    fields.map(|path| json!({"fieldPath": path})).collect()
}

fn is(schema: &Map<String, Value>, flag: &str) -> bool {
    schema.get(flag) == Some(&Value::Bool(true))
}

/// Adds the members of every object.
fn add_common(schema: &mut Map<String, Value>, metadata: &str) {
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    let common = [
        (
            "apiVersion",
            json!({"description": API_VERSION, "type": "string"}),
        ),
        ("kind", json!({"description": KIND, "type": "string"})),
        (
            "metadata",
            json!({"description": METADATA, "$ref": metadata}),
        ),
    ];
    if let Some(properties) = properties.as_object_mut() {
        properties.extend(common.map(|(name, schema)| (name.to_owned(), schema)));
    }
}

/// Rewrites a schema node and all nodes below.
fn publish(schema: &mut Map<String, Value>, dialect: Dialect, metadata: &str) {
    UNPUBLISHED
        .iter()
        .for_each(|name| drop(schema.remove(*name)));
    match dialect {
        Dialect::V2 => reduce(schema),
        Dialect::V3 => unfold(schema),
    }
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    let properties = properties.into_iter().flat_map(Map::values_mut);
    properties.for_each(|below| publish_below(below, dialect, metadata));
    for name in ["items", "additionalProperties"] {
        if let Some(below) = schema.get_mut(name) {
            publish_below(below, dialect, metadata);
        }
    }
    let hides = dialect == Dialect::V2 && is(schema, PRESERVE);
    if is(schema, EMBEDDED) && !hides {
        add_common(schema, metadata);
        let required = schema.entry("required").or_insert_with(|| json!([]));
        for name in ["kind", "apiVersion"] {
            if let Some(required) = required.as_array_mut()
                && !required.iter().any(|other| other == name)
            {
                required.push(name.into());
            }
        }
    }
}

fn publish_below(below: &mut Value, dialect: Dialect, metadata: &str) {
    if let Some(schema) = below.as_object_mut() {
        publish(schema, dialect, metadata);
    }
}

/// Adds the OpenAPI v3 definition of an int-or-string if it is missing.
fn unfold(schema: &mut Map<String, Value>) {
    if !is(schema, INT_OR_STRING) {
        return;
    }
    let forms = json!([{"type": "integer"}, {"type": "string"}]);
    let first_of_all = schema.get("allOf").map(|all| &all[0]["anyOf"]);
    match schema.get("anyOf") {
        Some(said) if *said == forms => {}
        _ if first_of_all == Some(&forms) => {}
        None => drop(schema.insert("anyOf".to_owned(), forms)),
        Some(_) => {
            let all = schema.entry("allOf").or_insert_with(|| json!([]));
            if let Some(all) = all.as_array_mut() {
                all.insert(0, json!({"anyOf": forms}));
            }
        }
    }
}

/// Removes from a node what OpenAPI v2 does not support or its clients misinterpret.
fn reduce(schema: &mut Map<String, Value>) {
    for junctor in ["allOf", "anyOf", "oneOf", "not"] {
        schema.remove(junctor);
    }
    let preserves = is(schema, PRESERVE);
    let is_nullable = schema.remove("nullable") == Some(Value::Bool(true));
    if is_nullable {
        schema.remove("type");
    }
    if is_nullable || preserves {
        schema.remove("items");
        schema.remove("properties");
    }
    let kind = schema.get("type").and_then(Value::as_str);
    let is_open = match kind {
        // An array of any items.
        Some("array") => !schema.contains_key("items"),
        Some("object") => preserves,
        _ => false,
    };
    if is_open {
        schema.remove("type");
    }
    let can_be_null = |schema: &Value| schema["nullable"] == true;
    if schema.get("additionalProperties").is_some_and(can_be_null) {
        schema.remove("required");
    }
    let Some(mut required) = schema.remove("required") else {
        return;
    };
    if let Some(names) = required.as_array_mut() {
        let property = |name: &Value| schema.get("properties")?.get(name.as_str()?);
        names.retain(|name| !property(name).is_some_and(can_be_null));
        if !names.is_empty() {
            schema.insert("required".to_owned(), required);
        }
    }
}

#[cfg(test)]
mod tests;
