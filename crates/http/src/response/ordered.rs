//! Serializes JSON documents with their members in the order of upstream's type declarations, which
//! some clients and people who compare documents depend on.

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::Value;

/// The member orders of a kind of document.
#[derive(Debug)]
pub(crate) struct Order {
    /// Members whose values are maps: their keys are data and are sorted.
    maps: &'static [&'static str],
    /// Member orders of objects, each selected by a member that only such objects have; the last
    /// order applies to all other objects. Members that an order does not list follow, sorted.
    shapes: &'static [(&'static str, &'static [&'static str])],
    others: &'static [&'static str],
}

/// A document with an order to serialize it in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ordered<'a> {
    value: &'a Value,
    order: &'static Order,
    /// Whether the value is a map, or a list of maps, with data as keys.
    is_map: bool,
}

impl<'a> Ordered<'a> {
    pub(crate) fn new(value: &'a Value, order: &'static Order) -> Self {
        Self {
            value,
            order,
            is_map: false,
        }
    }

    fn within(self, value: &'a Value, is_map: bool) -> Self {
        Self {
            value,
            is_map,
            ..self
        }
    }
}

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let members = match self.value {
            Value::Array(items) => {
                let items = items.iter().map(|item| self.within(item, self.is_map));
                return serializer.collect_seq(items);
            }
            Value::Object(members) => members,
            scalar => return scalar.serialize(serializer),
        };
        let mut map = serializer.serialize_map(Some(members.len()))?;
        if self.is_map {
            for (name, value) in members {
                map.serialize_entry(name, &self.within(value, false))?;
            }
            return map.end();
        }
        let mut shapes = self.order.shapes.iter();
        let shape = shapes.find(|(mark, _)| members.contains_key(*mark));
        let order = shape.map_or(self.order.others, |(_, order)| order);
        let rank = |name: &str| order.iter().position(|known| *known == name);
        let mut sorted: Vec<_> = members.iter().collect();
        sorted.sort_by_key(|(name, _)| rank(name).unwrap_or(order.len()));
        for (name, value) in sorted {
            let is_map = self.order.maps.contains(&&**name);
            map.serialize_entry(name, &self.within(value, is_map))?;
        }
        map.end()
    }
}

/// The order of discovery documents (`APIResourceList` etc.) and of `/version`.
pub(crate) const DISCOVERY: Order = Order {
    maps: &[],
    shapes: &[
        ("clientCIDR", &["clientCIDR", "serverAddress"]),
        (
            "singularName",
            &[
                "name",
                "singularName",
                "namespaced",
                "group",
                "version",
                "kind",
                "verbs",
                "shortNames",
                "categories",
                "storageVersionHash",
            ],
        ),
        (
            "groupVersion",
            &["kind", "apiVersion", "groupVersion", "version", "resources"],
        ),
        (
            "responseKind",
            &[
                "resource",
                "subresource",
                "responseKind",
                "scope",
                "singularResource",
                "verbs",
                "shortNames",
                "categories",
                "subresources",
            ],
        ),
        ("freshness", &["version", "resources", "freshness"]),
        (
            "gitVersion",
            &[
                "major",
                "minor",
                "gitVersion",
                "gitCommit",
                "gitTreeState",
                "buildDate",
                "goVersion",
                "compiler",
                "platform",
            ],
        ),
        ("apiVersion", OF_LISTS),
        ("serverAddressByClientCIDRs", OF_LISTS),
        ("preferredVersion", OF_LISTS),
    ],
    others: &[
        "metadata",
        "name",
        "creationTimestamp",
        "versions",
        "group",
        "version",
        "kind",
    ],
};

const OF_LISTS: &[&str] = &[
    "kind",
    "apiVersion",
    "metadata",
    "name",
    "versions",
    "preferredVersion",
    "serverAddressByClientCIDRs",
    "groups",
    "items",
];

/// The order of OpenAPI v2.
pub(crate) const OPENAPI_V2: Order = Order {
    maps: OPENAPI_MAPS,
    shapes: &[
        (
            "operationId",
            &[
                "description",
                "consumes",
                "produces",
                "schemes",
                "tags",
                "operationId",
                "parameters",
                "responses",
            ],
        ),
        (
            "in",
            &[
                "uniqueItems",
                "type",
                "description",
                "name",
                "in",
                "required",
                "schema",
            ],
        ),
    ],
    others: OPENAPI_OTHERS,
};

/// The order of OpenAPI v3.
pub(crate) const OPENAPI_V3: Order = Order {
    maps: OPENAPI_MAPS,
    shapes: &[
        (
            "operationId",
            &[
                "tags",
                "description",
                "operationId",
                "parameters",
                "requestBody",
                "responses",
            ],
        ),
        ("in", &["name", "in", "description", "required", "schema"]),
    ],
    others: OPENAPI_OTHERS,
};

const OPENAPI_MAPS: &[&str] = &[
    "content",
    "default",
    "definitions",
    "paths",
    "patternProperties",
    "properties",
    "responses",
    "schemas",
    "x-kubernetes-group-version-kind",
    "x-kubernetes-validations",
];

const OPENAPI_OTHERS: &[&str] = &[
    "swagger",
    "openapi",
    "info",
    "paths",
    "definitions",
    "components",
    "get",
    "put",
    "post",
    "delete",
    "options",
    "head",
    "patch",
    "parameters",
    "description",
    "type",
    "nullable",
    "format",
    "title",
    "version",
    "default",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "enum",
    "maxProperties",
    "minProperties",
    "content",
    "schema",
    "required",
    "items",
    "allOf",
    "oneOf",
    "anyOf",
    "not",
    "properties",
    "additionalProperties",
    "patternProperties",
    "readOnly",
    "$ref",
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(value: &Value, order: &'static Order) -> String {
        serde_json::to_string(&Ordered::new(value, order)).unwrap()
    }

    #[test]
    fn discovery_is_in_the_order_of_its_types() {
        let pods = json!({
            "name": "pods", "singularName": "pod", "namespaced": true, "kind": "Pod",
            "verbs": ["get"], "shortNames": ["po"], "categories": ["all"],
            "storageVersionHash": "h", "group": "g", "version": "v1",
        });
        let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1",
            "resources": [pods]});
        assert_eq!(
            written(&list, &DISCOVERY),
            r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[{"name":"pods","singularName":"pod","namespaced":true,"group":"g","version":"v1","kind":"Pod","verbs":["get"],"shortNames":["po"],"categories":["all"],"storageVersionHash":"h"}]}"#
        );
        let version = json!({"groupVersion": "apps/v1", "version": "v1"});
        let group = json!({"kind": "APIGroup", "apiVersion": "v1", "name": "apps",
            "versions": [version], "preferredVersion": version});
        assert_eq!(
            written(&group, &DISCOVERY),
            r#"{"kind":"APIGroup","apiVersion":"v1","name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}"#
        );
        let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
        let aggregated = json!({"kind": "L", "apiVersion": "v2", "metadata": {}, "items": [{
            "metadata": {"name": "apps", "creationTimestamp": null},
            "versions": [{"version": "v1", "freshness": "Current", "resources": [{
                "resource": "pods", "responseKind": kind, "scope": "Namespaced",
                "singularResource": "pod", "verbs": [], "subresources": [
                    {"subresource": "status", "responseKind": kind, "verbs": []}]}]}],
        }]});
        assert_eq!(
            written(&aggregated, &DISCOVERY),
            r#"{"kind":"L","apiVersion":"v2","metadata":{},"items":[{"metadata":{"name":"apps","creationTimestamp":null},"versions":[{"version":"v1","resources":[{"resource":"pods","responseKind":{"group":"","version":"v1","kind":"Pod"},"scope":"Namespaced","singularResource":"pod","verbs":[],"subresources":[{"subresource":"status","responseKind":{"group":"","version":"v1","kind":"Pod"},"verbs":[]}]}],"freshness":"Current"}]}]}"#
        );
    }

    #[test]
    fn openapi_is_in_the_order_of_its_types() {
        let schema = json!({"x-kubernetes-group-version-kind": [{"kind": "k", "version": "v", "group": "g"}],
            "properties": {"type": {"type": "string", "description": "d"},
                "properties": {"$ref": "r", "description": "e"}},
            "required": ["type"], "description": "f", "type": "object"});
        assert_eq!(
            written(&schema, &OPENAPI_V3),
            r#"{"description":"f","type":"object","required":["type"],"properties":{"properties":{"description":"e","$ref":"r"},"type":{"description":"d","type":"string"}},"x-kubernetes-group-version-kind":[{"group":"g","kind":"k","version":"v"}]}"#
        );
        let parameter = json!({"in": "query", "name": "a", "description": "d", "uniqueItems": true, "type": "string"});
        let operation = json!({"operationId": "i", "tags": ["t"], "description": "d",
            "parameters": [parameter], "responses": {"200": {"description": "OK"}}});
        assert_eq!(
            written(&operation, &OPENAPI_V2),
            r#"{"description":"d","tags":["t"],"operationId":"i","parameters":[{"uniqueItems":true,"type":"string","description":"d","name":"a","in":"query"}],"responses":{"200":{"description":"OK"}}}"#
        );
        let document = json!({"paths": {"/api": {"parameters": [], "get": operation}},
            "info": {"version": "v", "title": "t"}, "openapi": "3.0.0", "components": {"schemas": {}}});
        let actual = written(&document, &OPENAPI_V3);
        let start = r#"{"openapi":"3.0.0","info":{"title":"t","version":"v"},"paths":{"/api":{"get":{"tags":"#;
        assert!(actual.starts_with(start), "{actual}");
        assert!(
            actual.ends_with(r#""parameters":[]}},"components":{"schemas":{}}}"#),
            "{actual}"
        );
    }
}
