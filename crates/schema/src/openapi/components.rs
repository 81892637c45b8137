//! The schemas of an OpenAPI document: those of its kinds and of all referenced types, with the
//! extensions that clients use.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::constants::{API_VERSION, KIND, gvk};
use super::definition_names::{definition_of, message_of};
use super::dialect::Dialect;
use super::kinds::{self, Describe};
use super::paths::Names;
use super::{ResourceDescription, custom};
use crate::types::{ListKind, Shape, TypeRef};

/// The members of OpenAPI v2 schemas besides extensions. Upstream omits defaults in that document.
const V2_MEMBERS: &[&str] = &[
    "$ref",
    "additionalProperties",
    "allOf",
    "description",
    "enum",
    "example",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "externalDocs",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "properties",
    "readOnly",
    "required",
    "title",
    "type",
    "uniqueItems",
];

/// The schemas being built.
pub(super) struct Components<'a> {
    names: &'a Names<'a>,
    generator: SchemaGenerator,
    schemas: Map<String, Value>,
}

impl<'a> Components<'a> {
    /// Returns the schemas that `resources` need.
    pub(super) fn of(
        names: &'a Names<'a>,
        resources: &[ResourceDescription],
    ) -> Map<String, Value> {
        let settings = SchemaSettings::default().with(|settings| {
            settings.definitions_path = names.dialect.schema_location().into();
            settings.meta_schema = None;
            settings.transforms.clear();
        });
        let mut components = Self {
            names,
            generator: settings.into_generator(),
            schemas: Map::new(),
        };
        kinds::COMMON
            .iter()
            .for_each(|common| components.describe(*common));
        for resource in resources {
            components.add(resource);
        }
        components.finish(resources)
    }

    fn describe(&mut self, describe: Describe) {
        describe(&mut self.generator);
    }

    /// Adds the request and response types of a resource.
    fn add(&mut self, resource: &ResourceDescription) {
        let api_version = resource.api_version();
        let name = self.names.definition(&api_version, &resource.kind);
        match &resource.schema {
            Some(schema) => {
                let metadata = self.names.meta("ObjectMeta");
                let schema =
                    custom::schema(resource, &schema.parse(), self.names.dialect, &metadata);
                self.schemas.insert(name.clone(), schema);
            }
            None => {
                if let Some(describe) = kinds::describe(&api_version, &resource.kind) {
                    self.describe(describe);
                }
            }
        }
        if resource.verbs.iter().any(|verb| verb == "list") {
            let list = self.list(resource, &name);
            self.schemas.insert(format!("{name}List"), list);
        }
        for (group, version, kind) in resource.parts.iter().filter_map(|p| p.body.as_ref()) {
            let api_version = match group.is_empty() {
                true => version.clone(),
                false => format!("{group}/{version}"),
            };
            if let Some(describe) = kinds::describe(&api_version, kind) {
                self.describe(describe);
            }
        }
    }

    fn list(&self, resource: &ResourceDescription, of: &str) -> Value {
        let kind = format!("{}List", resource.kind);
        let mut list = json!({
            "description": format!("{kind} is a list of {}.", resource.kind),
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"description": API_VERSION, "type": "string"},
                "items": {
                    "description": format!("The {} of the list.", resource.plural),
                    "type": "array",
                    "items": {"$ref": self.names.reference(of)},
                },
                "kind": {"description": KIND, "type": "string"},
                "metadata": {"description": LIST_META, "$ref": self.names.meta("ListMeta")},
            },
            "x-kubernetes-group-version-kind": [gvk(&resource.group, &resource.version, &kind)],
        });
        if !resource.selectable.is_empty() {
            list["x-kubernetes-selectable-fields"] = custom::selectable(resource);
        }
        list
    }

    /// Returns all schemas in this dialect.
    fn finish(mut self, resources: &[ResourceDescription]) -> Map<String, Value> {
        for (name, mut schema) in self.generator.take_definitions(false) {
            if let Some(message) = message_of(&name) {
                self.annotate(&message, &mut schema);
            }
            self.schemas.insert(name, schema);
        }
        for (version, kind, object) in self.names.types.kinds() {
            let name = definition_of(self.names.types.object_name(object));
            if let Some(Value::Object(schema)) = self.schemas.get_mut(&name) {
                let (group, version) = version.split_once('/').unwrap_or(("", &version));
                let kinds = json!([gvk(group, version, kind)]);
                schema.insert("x-kubernetes-group-version-kind".to_owned(), kinds);
            }
        }
        let event = self.watch_event();
        self.schemas
            .insert(definition_of("meta.v1.WatchEvent"), event);
        self.options_and_status(resources);
        self.schemas.insert(
            definition_of("meta.v1.Patch"),
            json!({
                "description": "Patch is a change to an object in the format of its media type.",
                "type": "object",
            }),
        );
        for (name, schema) in &mut self.schemas {
            special_form(name, schema, self.names.dialect);
            adapt(schema, self.names.dialect);
        }
        self.schemas
    }

    fn watch_event(&self) -> Value {
        let object = self.names.reference(RAW_EXTENSION);
        json!({
            "description": "Event represents a single event to a watched resource.",
            "type": "object",
            "required": ["type", "object"],
            "properties": {
                "object": {
                    "description": "The object after the change; of DELETED its last state, of BOOKMARK only \
                                    its resourceVersion, of ERROR a Status.",
                    "$ref": object,
                },
                "type": {"type": "string"},
            },
        })
    }

    /// Adds types that are part of every group, or of the core group only.
    fn options_and_status(&mut self, resources: &[ResourceDescription]) {
        let mut versions = vec![("", "v1")];
        for resource in resources {
            let version = (&*resource.group, &*resource.version);
            if !versions.contains(&version) {
                versions.push(version);
            }
        }
        for kind in ["DeleteOptions", "Status", "WatchEvent"] {
            let name = definition_of(&format!("meta.v1.{kind}"));
            let all = if kind == "Status" {
                &versions[..1]
            } else {
                &versions
            };
            let kinds: Vec<Value> = all.iter().map(|(g, v)| gvk(g, v, kind)).collect();
            if let Some(Value::Object(schema)) = self.schemas.get_mut(&name) {
                schema.insert("x-kubernetes-group-version-kind".to_owned(), kinds.into());
            }
        }
    }

    /// Adds the properties from the tables to a message and its members.
    fn annotate(&self, message: &str, schema: &mut Value) {
        let Some(of) = self.names.types.message(message) else {
            return;
        };
        let Shape::Object { fields, atomic, .. } = of.shape() else {
            return;
        };
        let Some(schema) = schema.as_object_mut() else {
            return;
        };
        // k8s-openapi requires metadata where upstream does not.
        if let Some(Value::Array(required)) = schema.get_mut("required") {
            required.retain(|member| member != "metadata");
            if required.is_empty() {
                schema.remove("required");
            }
        }
        if atomic {
            schema.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
        }
        let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
        for (name, property) in properties.into_iter().flatten() {
            if let (Some(of), Some(property)) = (fields.get(name), property.as_object_mut()) {
                annotate_member(of, property);
            }
        }
    }
}

fn annotate_member(of: TypeRef<'_>, property: &mut Map<String, Value>) {
    let mut say = |what: &str, value: Value| {
        property.insert(what.to_owned(), value);
    };
    match of.shape() {
        Shape::List { kind, .. } => {
            let (kind, keys) = match kind {
                ListKind::Atomic => ("atomic", &[][..]),
                ListKind::Set => ("set", &[][..]),
                ListKind::Map(keys) => ("map", keys),
            };
            say("x-kubernetes-list-type", kind.into());
            if !keys.is_empty() {
                let keys: Vec<&str> = keys.iter().map(|key| &**key).collect();
                say("x-kubernetes-list-map-keys", keys.into());
            }
        }
        Shape::Map { atomic: true, .. } => say("x-kubernetes-map-type", "atomic".into()),
        _ => {}
    }
    let rule = of.merge_rule();
    let strategies = [
        (rule.merge, "merge"),
        (rule.retain_keys, "retainKeys"),
        (rule.replace, "replace"),
    ];
    let strategies: Vec<&str> = strategies.iter().filter(|s| s.0).map(|s| s.1).collect();
    if !strategies.is_empty() {
        say("x-kubernetes-patch-strategy", strategies.join(",").into());
    }
    if let Some(key) = rule.key {
        say("x-kubernetes-patch-merge-key", key.into());
    }
    if let Some(default) = of.default() {
        say("default", default.clone());
    }
}

const LIST_META: &str = "Standard list metadata.";

/// Replaces the schema of types with a special JSON form.
fn special_form(name: &str, schema: &mut Value, dialect: Dialect) {
    let forms = match name.rsplit_once('.').map_or(name, |(_, last)| last) {
        "IntOrString" => ["integer", "string"],
        "Quantity" => ["string", "number"],
        _ => return,
    };
    let Some(schema) = schema.as_object_mut() else {
        return;
    };
    schema.remove("x-kubernetes-int-or-string");
    if forms[0] == "integer" {
        schema.insert("format".to_owned(), "int-or-string".into());
    }
    match dialect {
        Dialect::V3 => {
            let forms = forms.map(|form| json!({"type": form})).to_vec();
            schema.insert("oneOf".to_owned(), forms.into());
        }
        Dialect::V2 => {
            schema.insert("type".to_owned(), "string".into());
        }
    }
}

/// Adapts a schema to the dialect. In v3 siblings of a reference are ignored, so the reference
/// moves into an `allOf`; v2 supports fewer keywords.
fn adapt(schema: &mut Value, dialect: Dialect) {
    let Some(members) = schema.as_object_mut() else {
        return;
    };
    match dialect {
        Dialect::V3 if members.len() > 1 => {
            if let Some(reference) = members.remove("$ref") {
                members.insert("allOf".to_owned(), json!([{"$ref": reference}]));
            }
        }
        Dialect::V3 => {}
        Dialect::V2 => {
            // Nullable and multi-type values are untyped in v2.
            let loose = ["nullable", "oneOf", "anyOf", "x-kubernetes-int-or-string"];
            if loose.iter().any(|name| members.contains_key(*name)) {
                members.remove("type");
            }
            members.retain(|name, _| V2_MEMBERS.contains(&&**name) || name.starts_with("x-"));
        }
    }
    for inside in ["properties", "patternProperties"] {
        let all = members.get_mut(inside).and_then(Value::as_object_mut);
        all.into_iter()
            .flatten()
            .for_each(|(_, schema)| adapt(schema, dialect));
    }
    for inside in ["items", "additionalProperties", "not"] {
        if let Some(schema) = members.get_mut(inside) {
            adapt(schema, dialect);
        }
    }
    for inside in ["oneOf", "anyOf", "allOf"] {
        let all = members.get_mut(inside).and_then(Value::as_array_mut);
        all.into_iter()
            .flatten()
            .for_each(|schema| adapt(schema, dialect));
    }
}

const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";
