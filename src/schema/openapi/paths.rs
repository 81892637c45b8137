//! The paths of a document: where a resource is, and what can be done there, written down in either
//! dialect of OpenAPI. What the verbs are is told by `operations`.

use serde_json::{Map, Value, json};

use super::components::{definition_of, gvk};
use super::operations::{Answer, Body, OPERATIONS, Operation, PRETTY, Parameter, WATCH_OPERATIONS};
use super::{Part, Served};
use crate::schema::Types;

const OBJECT_TYPES: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];
const CUSTOM_OBJECT_TYPES: &[&str] = &["application/json", "application/yaml"];
/// Of what can be watched.
const STREAM_TYPES: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];
const PATCH_TYPES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// Nothing says how the lists of a custom resource are merged, and kubectl patches by what it reads here.
const CUSTOM_PATCH_TYPES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
];

/// Which OpenAPI it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    V2,
    V3,
}

impl Dialect {
    /// Where the schemas of a document are in it.
    pub(super) fn place(self) -> &'static str {
        match self {
            Self::V2 => "/definitions",
            Self::V3 => "/components/schemas",
        }
    }
}

/// How things are called in a document.
pub(super) struct Names<'a> {
    pub(super) types: &'a Types,
    pub(super) dialect: Dialect,
}

impl<'a> Names<'a> {
    pub(super) fn new(types: &'a Types, dialect: Dialect) -> Self {
        Self { types, dialect }
    }

    /// The name of a kind's schema; a custom one is named by its group, backwards.
    pub(super) fn definition(&self, api_version: &str, kind: &str) -> String {
        if let Some(object) = self.types.object_of(api_version, kind) {
            return definition_of(self.types.object_name(object));
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let mut words: Vec<&str> = group.split('.').collect();
        words.reverse();
        format!("{}.{version}.{kind}", words.join("."))
    }

    /// A reference to the schema of this name.
    pub(super) fn reference(&self, name: &str) -> String {
        format!("#{}/{name}", self.dialect.place())
    }

    /// A reference to one of the types that all groups share.
    pub(super) fn meta(&self, kind: &str) -> String {
        self.reference(&definition_of(&format!("meta.v1.{kind}")))
    }
}

/// One place of a resource.
struct Place<'a> {
    names: &'a Names<'a>,
    resource: &'a Served,
    part: Option<&'a Part>,
    /// Its objects' namespace is in the path.
    namespaced: bool,
    named: bool,
    /// It is one of the deprecated paths below `/watch/`.
    watches: bool,
}

/// Adds the paths of a resource.
pub(super) fn add(names: &Names<'_>, resource: &Served, paths: &mut Map<String, Value>) {
    let place = |part, namespaced, named| Place {
        names,
        resource,
        part,
        namespaced,
        named,
        watches: false,
    };
    let mut all = vec![
        place(None, resource.namespaced, false),
        place(None, resource.namespaced, true),
    ];
    if resource.namespaced {
        // All namespaces can only be listed.
        all.push(place(None, false, false));
    }
    // Those of custom resources are not published.
    if resource.schema.is_none() && resource.verbs.iter().any(|verb| verb == "watch") {
        let watched: Vec<_> = all.iter().map(Place::watched).collect();
        all.extend(watched);
    }
    for part in &resource.parts {
        all.push(place(Some(part), resource.namespaced, true));
    }
    for place in all {
        if let Some(item) = place.item() {
            paths.insert(place.path(), item);
        }
    }
}

impl Place<'_> {
    /// The path below `/watch/` of the same objects.
    fn watched(&self) -> Self {
        Self {
            watches: true,
            ..*self
        }
    }

    fn path(&self) -> String {
        let Served { group, version, .. } = self.resource;
        let mut path = match group.is_empty() {
            true => format!("/api/{version}"),
            false => format!("/apis/{group}/{version}"),
        };
        if self.watches {
            path.push_str("/watch");
        }
        if self.namespaced {
            path.push_str("/namespaces/{namespace}");
        }
        path.push('/');
        path.push_str(&self.resource.plural);
        if self.named {
            path.push_str("/{name}");
        }
        if let Some(part) = self.part {
            path.push('/');
            path.push_str(&part.name);
        }
        path
    }

    /// The path's operations and what they have in common; `None` without any.
    fn item(&self) -> Option<Value> {
        let all_namespaces = self.resource.namespaced && !self.namespaced;
        let verbs = self.part.map_or(&self.resource.verbs, |part| &part.verbs);
        let mut item = Map::new();
        let operations = match self.watches {
            true => WATCH_OPERATIONS,
            false => OPERATIONS,
        };
        for operation in operations {
            let served = verbs.iter().any(|verb| verb == operation.verb);
            // What is sent to a part of an object is sent to that object.
            let fits = match self.part {
                Some(_) => operation.verb == "create" || operation.named,
                None => operation.named == self.named,
            };
            let lists = matches!(operation.verb, "list" | "watch");
            if served && fits && (!all_namespaces || lists) {
                let told = self.operation(operation, all_namespaces);
                item.insert(operation.method.to_owned(), told);
            }
        }
        if item.is_empty() {
            return None;
        }
        let mut shared = Vec::new();
        if self.named {
            let what = format!("name of the {}", self.resource.kind);
            shared.push(self.path_parameter("name", &what));
        }
        if self.namespaced {
            let what = "object name and auth scope, such as for teams and projects";
            shared.push(self.path_parameter("namespace", what));
        }
        shared.push(self.query_parameter(&PRETTY));
        item.insert("parameters".to_owned(), shared.into());
        Some(Value::Object(item))
    }

    fn path_parameter(&self, name: &str, description: &str) -> Value {
        let mut told = json!({
            "name": name, "in": "path", "required": true, "description": description,
        });
        self.typed(&mut told, "string");
        told
    }

    fn query_parameter(&self, parameter: &Parameter) -> Value {
        let Parameter {
            name,
            form,
            description,
        } = parameter;
        let mut told = json!({"name": name, "in": "query", "description": description});
        self.typed(&mut told, form);
        told
    }

    fn typed(&self, parameter: &mut Value, form: &str) {
        match self.names.dialect {
            Dialect::V2 => {
                parameter["type"] = form.into();
                parameter["uniqueItems"] = true.into();
            }
            Dialect::V3 => parameter["schema"] = json!({"type": form, "uniqueItems": true}),
        }
    }

    fn operation(&self, operation: &Operation, all_namespaces: bool) -> Value {
        let resource = self.resource;
        let own = || {
            let Served {
                group,
                version,
                kind,
                ..
            } = resource;
            (group.clone(), version.clone(), kind.clone())
        };
        let body = self.part.and_then(|part| part.body.clone());
        let (group, version, kind) = body.unwrap_or_else(own);
        let query = operation.parameters.iter().copied().flatten();
        let mut parameters: Vec<Value> = query.map(|p| self.query_parameter(p)).collect();
        let mut told = Map::from_iter([
            ("tags".to_owned(), json!([tag(resource)])),
            (
                "description".to_owned(),
                self.description(operation, &kind).into(),
            ),
            (
                "operationId".to_owned(),
                self.id(operation, all_namespaces).into(),
            ),
            ("x-kubernetes-action".to_owned(), operation.action.into()),
            (
                "x-kubernetes-group-version-kind".to_owned(),
                gvk(&group, &version, &kind),
            ),
        ]);
        let api_version = match group.is_empty() {
            true => version,
            false => format!("{group}/{version}"),
        };
        let object = self.names.definition(&api_version, &kind);
        let answer = match operation.answer {
            Answer::Object => self.names.reference(&object),
            Answer::List => self.names.reference(&format!("{object}List")),
            Answer::Status => self.names.meta("Status"),
            Answer::Event => self.names.meta("WatchEvent"),
        };
        let (sent, media): (_, &[&str]) = match operation.body {
            Body::None => (None, &["*/*"]),
            Body::Object => (Some(self.names.reference(&object)), &["*/*"]),
            Body::Patch => {
                let custom = self.resource.schema.is_some();
                let types = if custom {
                    CUSTOM_PATCH_TYPES
                } else {
                    PATCH_TYPES
                };
                (Some(self.names.meta("Patch")), types)
            }
            Body::Options => (Some(self.names.meta("DeleteOptions")), &["*/*"]),
        };
        let required = operation.body != Body::Options;
        match self.names.dialect {
            Dialect::V3 => {
                if let Some(sent) = sent {
                    let content = content(media, &sent);
                    let body = json!({"content": content, "required": required});
                    told.insert("requestBody".to_owned(), body);
                }
            }
            Dialect::V2 => {
                if let Some(sent) = sent {
                    let schema = json!({"$ref": sent});
                    parameters.push(json!({
                        "name": "body", "in": "body", "required": required, "schema": schema,
                    }));
                }
                told.insert("consumes".to_owned(), json!(media));
                told.insert("produces".to_owned(), json!(self.answer_types(operation)));
                told.insert("schemes".to_owned(), json!(["https"]));
            }
        }
        told.insert("parameters".to_owned(), parameters.into());
        told.insert("responses".to_owned(), self.responses(operation, &answer));
        Value::Object(told)
    }

    fn answer_types(&self, operation: &Operation) -> &'static [&'static str] {
        match operation.verb {
            _ if self.resource.schema.is_some() => CUSTOM_OBJECT_TYPES,
            "list" | "watch" => STREAM_TYPES,
            _ => OBJECT_TYPES,
        }
    }

    fn responses(&self, operation: &Operation, answer: &str) -> Value {
        let codes = operation.codes.iter().map(|(code, description)| {
            let told = match self.names.dialect {
                Dialect::V3 => {
                    let content = content(self.answer_types(operation), answer);
                    json!({"description": description, "content": content})
                }
                Dialect::V2 => json!({"description": description, "schema": {"$ref": answer}}),
            };
            ((*code).to_owned(), told)
        });
        let mut all: Map<String, Value> = codes.collect();
        all.insert("401".to_owned(), json!({"description": "Unauthorized"}));
        Value::Object(all)
    }

    fn description(&self, operation: &Operation, kind: &str) -> String {
        let part = self.part.map(|part| &*part.name);
        match (operation.verb, part) {
            ("list", _) => format!("list or watch objects of kind {kind}"),
            ("watch", _) if operation.named => format!(
                "watch changes to an object of kind {kind}. deprecated: use the 'watch' parameter with a list \
                 operation instead, filtered to a single item with the 'fieldSelector' parameter."
            ),
            ("watch", _) => format!(
                "watch individual changes to a list of {kind}. deprecated: use the 'watch' parameter with a \
                 list operation instead."
            ),
            ("create", None) => format!("create a {kind}"),
            ("create", Some(part)) => format!("create {part} of a {}", self.resource.kind),
            ("deletecollection", _) => format!("delete collection of {kind}"),
            ("get", None) => format!("read the specified {kind}"),
            ("get", Some(part)) => format!("read {part} of the specified {}", self.resource.kind),
            ("update", None) => format!("replace the specified {kind}"),
            ("update", Some(part)) => {
                format!("replace {part} of the specified {}", self.resource.kind)
            }
            ("patch", Some(part)) => {
                format!(
                    "partially update {part} of the specified {}",
                    self.resource.kind
                )
            }
            ("patch", None) => format!("partially update the specified {kind}"),
            (verb, _) => format!("{verb} a {kind}"),
        }
    }

    /// `readCoreV1NamespacedPodStatus`
    fn id(&self, operation: &Operation, all_namespaces: bool) -> String {
        let mut id = operation.word.to_owned();
        for word in group_words(&self.resource.group) {
            id.push_str(&capital(word));
        }
        id.push_str(&capital(&self.resource.version));
        if operation.verb == "deletecollection" {
            id.push_str("Collection");
        }
        if self.namespaced {
            id.push_str("Namespaced");
        }
        id.push_str(&self.resource.kind);
        if let Some(part) = self.part {
            id.push_str(&capital(&part.name));
        }
        if self.watches && !self.named {
            id.push_str("List");
        }
        if all_namespaces {
            id.push_str("ForAllNamespaces");
        }
        id
    }
}

fn content(media: &[&str], reference: &str) -> Value {
    let all = media.iter().map(|media| {
        let schema = json!({"schema": {"$ref": reference}});
        ((*media).to_owned(), schema)
    });
    Value::Object(all.collect())
}

/// The words of a group's name, without the ending that the built-in ones share.
fn group_words(group: &str) -> Vec<&str> {
    let group = if group.is_empty() { "core" } else { group };
    group.trim_end_matches(".k8s.io").split('.').collect()
}

/// `rbacAuthorization_v1`
fn tag(resource: &Served) -> String {
    let words = group_words(&resource.group);
    let rest: String = words[1..].iter().map(|word| capital(word)).collect();
    format!("{}{rest}_{}", words[0], resource.version)
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}
