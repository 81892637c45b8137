//! Tests of the documents: references, agreement with the tables, and the parts that clients use.

use std::collections::BTreeSet;

use serde::Deserialize as _;

use super::definition_names::definition_of;
use super::kinds::KINDS;
use super::*;
use crate::types::{Fields, Scalar, Shape, TypeRef};

fn schema_text(schema: &Value) -> SchemaText {
    SchemaText::deserialize(schema).unwrap()
}

fn served(api_version: &str, kind: &str) -> ResourceDescription {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let verbs = [
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
    ];
    ResourceDescription {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        plural: format!("{}s", kind.to_lowercase()),
        namespaced: true,
        verbs: verbs.map(str::to_owned).to_vec(),
        parts: vec![SubresourceDescription {
            name: "status".to_owned(),
            verbs: ["get", "patch", "update"].map(str::to_owned).to_vec(),
            body: None,
        }],
        schema: None,
        selectable: Vec::new(),
    }
}

fn info() -> Info {
    Info {
        title: "t".to_owned(),
        version: "v".to_owned(),
    }
}

fn all() -> Vec<ResourceDescription> {
    KINDS
        .iter()
        .map(|(version, kind, _)| served(version, kind))
        .collect()
}

/// Collects every reference in a document.
fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(members) => {
            found.extend(members.get("$ref").and_then(Value::as_str));
            members.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn references_resolve() {
    let types = Types::builtins();
    for document in [v3(&info(), &types, &all()), v2(&info(), &types, &all())] {
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        assert!(found.len() > 400, "{}", found.len());
        for reference in found {
            let place = reference.strip_prefix('#').expect("a path in the document");
            assert!(document.pointer(place).is_some(), "{reference}");
        }
    }
}

/// The tables have the kinds of this module, each with the members and types of its k8s-openapi
/// schema.
#[test]
fn tables_agree_with_the_schemas() {
    let types = Types::builtins();
    let tables: BTreeSet<(String, &str)> = types
        .kinds()
        .map(|(version, kind, _)| (version, kind))
        .collect();
    let described = KINDS
        .iter()
        .map(|(version, kind, _)| ((*version).to_owned(), *kind));
    assert_eq!(described.collect::<BTreeSet<_>>(), tables);

    let document = v3(&info(), &types, &all());
    let schemas = &document["components"]["schemas"];
    let mut compared = 0;
    for name in types.by_name.keys() {
        let of = types.message(name).expect("the message exists");
        let schema = &schemas[definition_of(name)];
        // Embedded messages, and those without a JSON object.
        let Some(properties) = schema["properties"].as_object() else {
            continue;
        };
        let Shape::Object { fields, .. } = of.shape() else {
            panic!("{name}");
        };
        let ours: BTreeSet<&str> = fields.iter().map(|(name, _)| name).collect();
        let theirs: BTreeSet<&str> = properties.keys().map(String::as_str).collect();
        assert_eq!(ours, theirs, "{name}");
        for (member, schema) in properties {
            let of = fields.get(member).expect("the field exists");
            check_type(&format!("{name}.{member}"), of, schema);
            compared += 1;
        }
    }
    assert!(compared > 1800, "{compared}");
}

fn check_type(place: &str, of: TypeRef<'_>, schema: &Value) {
    let refers = schema["$ref"]
        .as_str()
        .or(schema["allOf"][0]["$ref"].as_str());
    let refers = refers.map(|r| r.rsplit('/').next().unwrap_or_default());
    let form = (
        schema["type"].as_str().unwrap_or_default(),
        schema["format"].as_str().unwrap_or_default(),
    );
    let agrees = match of.shape() {
        Shape::Any => refers.is_some_and(|name| {
            [
                "RawExtension",
                "JSON",
                "FieldsV1",
                "OrArray",
                "OrBool",
                "OrStringArray",
            ]
            .iter()
            .any(|end| name.ends_with(end))
        }),
        Shape::Scalar(scalar) => {
            let last = refers.and_then(|name| name.rsplit('.').next());
            match scalar {
                Scalar::String => form == ("string", ""),
                Scalar::Bool => form == ("boolean", ""),
                Scalar::Int32 => form == ("integer", "int32"),
                Scalar::Int64 => form == ("integer", "int64"),
                Scalar::Number => form == ("number", "double"),
                Scalar::Bytes => form == ("string", "byte"),
                Scalar::Time => last == Some("Time"),
                Scalar::MicroTime => last == Some("MicroTime"),
                Scalar::Quantity => last == Some("Quantity"),
                Scalar::IntOrString => last == Some("IntOrString"),
            }
        }
        Shape::List { item, .. } => {
            check_type(&format!("{place}[]"), item, &schema["items"]);
            form.0 == "array"
        }
        Shape::Map { value, .. } => {
            check_type(
                &format!("{place}{{}}"),
                value,
                &schema["additionalProperties"],
            );
            form.0 == "object"
        }
        Shape::Object { fields, .. } => refers_to(fields, refers),
    };
    assert!(
        agrees,
        "{place} is {:?}, in the schema it is {schema}",
        of.shape()
    );
}

fn refers_to(fields: Fields<'_>, refers: Option<&str>) -> bool {
    refers == Some(&definition_of(fields.type_name()))
}

#[test]
fn extensions_for_clients() {
    let types = Types::builtins();
    let resources = [served("apps/v1", "Deployment")];
    let document = v3(&info(), &types, &resources);
    let schema = |name: &str| &document["components"]["schemas"][definition_of(name)];
    let deployment = schema("apps.v1.Deployment");
    assert_eq!(
        deployment["x-kubernetes-group-version-kind"],
        json!([{"group": "apps", "kind": "Deployment", "version": "v1"}])
    );
    let containers = &schema("core.v1.PodSpec")["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-list-type"], "map");
    assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
    assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    let volumes = &schema("core.v1.PodSpec")["properties"]["volumes"];
    assert_eq!(volumes["x-kubernetes-patch-strategy"], "merge,retainKeys");
    assert_eq!(
        schema("core.v1.ContainerPort")["properties"]["protocol"]["default"],
        "TCP"
    );
    assert_eq!(
        schema("meta.v1.LabelSelector")["x-kubernetes-map-type"],
        "atomic"
    );
    // The document of a group has only the schemas that it needs.
    assert!(schema("core.v1.Node").is_null());

    let paths = document["paths"].as_object().expect("paths");
    assert_eq!(
        paths.keys().collect::<Vec<_>>(),
        [
            "/apis/apps/v1/deployments",
            "/apis/apps/v1/namespaces/{namespace}/deployments",
            "/apis/apps/v1/namespaces/{namespace}/deployments/{name}",
            "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/status",
        ]
    );
    let one = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"];
    let patch = &one["patch"];
    assert_eq!(patch["operationId"], "patchAppsV1NamespacedDeployment");
    assert_eq!(patch["x-kubernetes-action"], "patch");
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({"group": "apps", "kind": "Deployment", "version": "v1"})
    );
    let parameters = patch["parameters"].as_array().expect("parameters");
    assert!(
        parameters
            .iter()
            .any(|p| p["name"] == "fieldValidation" && p["in"] == "query")
    );
    let all = &document["paths"]["/apis/apps/v1/deployments"];
    assert_eq!(
        all["get"]["operationId"],
        "listAppsV1DeploymentForAllNamespaces"
    );
    assert!(all["post"].is_null(), "writes require a namespace");
    // Upstream's document has shardSelector although the feature is alpha; it was missing here.
    let selects = all["get"]["parameters"].as_array().expect("parameters");
    assert!(selects.iter().any(|p| p["name"] == "shardSelector"));
}

#[test]
fn watch_paths_of_built_in_resources() {
    let types = Types::builtins();
    let watched = |schema: Option<SchemaText>, version: &str, kind: &str| {
        let mut resource = served(version, kind);
        resource.verbs.push("watch".to_owned());
        resource.schema = schema;
        resource
    };
    let resources = [
        watched(None, "v1", "Pod"),
        watched(
            Some(SchemaText::default()),
            "stable.example.com/v1",
            "CronTab",
        ),
    ];
    for document in [
        v3(&info(), &types, &resources),
        v2(&info(), &types, &resources),
    ] {
        let paths = document["paths"].as_object().expect("paths");
        let paths: Vec<_> = paths
            .iter()
            .filter(|(path, _)| path.contains("/watch/"))
            .collect();
        let paths_of: Vec<(&str, &str, &str)> = paths
            .iter()
            .map(|(path, item)| {
                let text = |name: &str| item["get"][name].as_str().expect("a text");
                (&***path, text("operationId"), text("x-kubernetes-action"))
            })
            .collect();
        assert_eq!(
            paths_of,
            [
                (
                    "/api/v1/watch/namespaces/{namespace}/pods",
                    "watchCoreV1NamespacedPodList",
                    "watchlist"
                ),
                (
                    "/api/v1/watch/namespaces/{namespace}/pods/{name}",
                    "watchCoreV1NamespacedPod",
                    "watch"
                ),
                (
                    "/api/v1/watch/pods",
                    "watchCoreV1PodListForAllNamespaces",
                    "watchlist"
                ),
            ]
        );
    }
    let document = v2(&info(), &types, &resources);
    let get = &document["paths"]["/api/v1/watch/pods"]["get"];
    let event = "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent";
    assert_eq!(
        get["responses"]["200"]["schema"]["$ref"],
        format!("#/definitions/{event}")
    );
    let object = &document["definitions"][event]["properties"]["object"]["$ref"];
    let object = object.as_str().and_then(|place| place.strip_prefix('#'));
    assert!(document.pointer(object.expect("a reference")).is_some());
}

/// Upstream's document has no defaults: kubectl took them for values set by users.
#[test]
fn v2_has_no_defaults() {
    let types = Types::builtins();
    let schema = json!({"type": "object", "properties": {"spec": {
        "type": "object", "default": {}, "properties": {"default": {"type": "string", "default": "a"}}}}});
    let mut resources = all();
    resources.push(ResourceDescription {
        schema: Some(schema_text(&schema)),
        ..served("stable.example.com/v1", "CronTab")
    });
    fn defaults(schema: &Value) -> usize {
        match schema {
            Value::Object(members) => {
                // Some members are named "default".
                let is_member =
                    |paths_of: &Value| paths_of["type"].is_string() || paths_of["$ref"].is_string();
                let own = members
                    .get("default")
                    .is_some_and(|paths_of| !is_member(paths_of));
                usize::from(own) + members.values().map(defaults).sum::<usize>()
            }
            Value::Array(items) => items.iter().map(defaults).sum(),
            _ => 0,
        }
    }
    assert_eq!(defaults(&v2(&info(), &types, &resources)["definitions"]), 0);
    let document = v3(&info(), &types, &resources);
    assert!(defaults(&document["components"]["schemas"]) > 10);
}

#[test]
fn custom_resources_use_their_schema() {
    let types = Types::builtins();
    let schema = json!({"type": "object", "properties": {"spec": {
        "type": "object",
        "properties": {
            "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "size": {"type": "integer", "nullable": true, "description": "How large."},
        },
    }}});
    let resources = [ResourceDescription {
        schema: Some(schema_text(&schema)),
        ..served("stable.example.com/v1", "CronTab")
    }];
    let document = v3(&info(), &types, &resources);
    let schemas = &document["components"]["schemas"];
    let tab = &schemas["com.example.stable.v1.CronTab"];
    assert_eq!(
        tab["x-kubernetes-group-version-kind"],
        json!([{"group": "stable.example.com", "kind": "CronTab", "version": "v1"}])
    );
    assert_eq!(
        tab["properties"]["spec"]["properties"]["size"]["description"],
        "How large."
    );
    assert_eq!(
        tab["properties"]["metadata"]["allOf"][0]["$ref"],
        "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    );
    let list = &schemas["com.example.stable.v1.CronTabList"];
    assert_eq!(
        list["properties"]["items"]["items"]["$ref"],
        "#/components/schemas/com.example.stable.v1.CronTab"
    );
    let document = v2(&info(), &types, &resources);
    let spec = &document["definitions"]["com.example.stable.v1.CronTab"]["properties"]["spec"];
    assert_eq!(
        spec["properties"]["size"],
        json!({"description": "How large."}),
        "nullable members have no type"
    );
    assert_eq!(
        spec["properties"]["port"],
        json!({"x-kubernetes-int-or-string": true})
    );
}
