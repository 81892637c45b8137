//! Converts the structural schema of a custom resource version into types. Validation of the schema
//! and of values is in `registry`.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::builtins::{Builder, place};
use super::types::{Field, ListRule, Node, NodeId, ObjectId, ObjectType, Scalar, Types};

impl Types {
    /// Returns the types of the `openAPIV3Schema` of a custom resource version. Without a schema
    /// (null) all members of any type are preserved. The metadata members of every object are added
    /// to the root object and to embedded ones, with the types of `builtins`.
    ///
    /// Parts that are not structural are converted as far as possible.
    pub fn from_schema(schema: &Value, builtins: &Types) -> Self {
        let mut reader = Reader {
            builder: Builder::default(),
            builtins,
            metadata: None,
        };
        let empty = Map::new();
        let untyped = schema.is_null();
        let schema = schema.as_object().unwrap_or(&empty);
        let root = reader.object(schema, true, untyped || preserves(schema));
        let mut types = reader.builder.types;
        types.root = Some(root);
        types
    }
}

struct Reader<'a> {
    builder: Builder,
    builtins: &'a Types,
    metadata: Option<NodeId>,
}

fn flag(schema: &Map<String, Value>, name: &str) -> bool {
    schema.get(name) == Some(&Value::Bool(true))
}

fn text<'a>(schema: &'a Map<String, Value>, name: &str) -> &'a str {
    schema.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn preserves(schema: &Map<String, Value>) -> bool {
    flag(schema, "x-kubernetes-preserve-unknown-fields")
}

fn is_atomic(schema: &Map<String, Value>) -> bool {
    text(schema, "x-kubernetes-map-type") == "atomic"
}

impl Reader<'_> {
    fn read(&mut self, schema: &Value) -> NodeId {
        let Some(schema) = schema.as_object() else {
            return self.builder.node(Node::Any);
        };
        if flag(schema, "x-kubernetes-int-or-string") {
            return self.builder.node(Node::Scalar(Scalar::IntOrString));
        }
        let embedded = flag(schema, "x-kubernetes-embedded-resource");
        let scalar = match (text(schema, "type"), text(schema, "format")) {
            ("array", _) => return self.list(schema),
            ("object", _) => match schema.get("additionalProperties") {
                Some(values @ (Value::Object(_) | Value::Bool(true))) => {
                    let value = self.read(values);
                    let atomic = is_atomic(schema);
                    return self.builder.node(Node::Map { value, atomic });
                }
                _ => return self.object(schema, embedded, preserves(schema)),
            },
            ("string", _) => Scalar::String,
            ("boolean", _) => Scalar::Bool,
            ("integer", "int32") => Scalar::Int32,
            ("integer", _) => Scalar::Int64,
            ("number", _) => Scalar::Number,
            _ if embedded => return self.object(schema, true, true),
            _ => return self.builder.node(Node::Any),
        };
        self.builder.node(Node::Scalar(scalar))
    }

    fn list(&mut self, schema: &Map<String, Value>) -> NodeId {
        let item = self.read(schema.get("items").unwrap_or(&Value::Null));
        let keys = schema.get("x-kubernetes-list-map-keys");
        let keys = keys.and_then(Value::as_array).into_iter().flatten();
        let kind = match text(schema, "x-kubernetes-list-type") {
            "set" => ListRule::Set,
            "map" => {
                let keys = keys.filter_map(Value::as_str).map(Box::from).collect();
                ListRule::Map(self.builder.keys(keys))
            }
            _ => ListRule::Atomic,
        };
        let wrapped = false;
        self.builder.node(Node::List {
            item,
            kind,
            wrapped,
        })
    }

    /// Returns an object type with its `properties`; with apiVersion, kind and metadata if it is
    /// `whole`.
    fn object(&mut self, schema: &Map<String, Value>, whole: bool, open: bool) -> NodeId {
        let mut fields = Vec::new();
        let properties = schema.get("properties").and_then(Value::as_object);
        let common = ["apiVersion", "kind", "metadata"];
        for (name, schema) in properties.into_iter().flatten() {
            if whole && common.contains(&name.as_str()) {
                continue;
            }
            let node = self.read(schema);
            let mut field = Field::plain(Cow::Owned(name.clone()), node);
            if let Some(default) = schema.get("default") {
                let defaults = &mut self.builder.types.defaults;
                field.default = Some(place(defaults, default.clone()));
            }
            fields.push(field);
        }
        if whole {
            let string = self.builder.node(Node::Scalar(Scalar::String));
            let metadata = self.metadata();
            let types = [string, string, metadata];
            let common = common.into_iter().zip(types);
            fields.extend(common.map(|(name, node)| Field::plain(name.into(), node)));
        }
        self.add(ObjectType {
            name: Cow::Borrowed(""),
            fields: fields.into(),
            open,
            atomic: is_atomic(schema),
        })
    }

    fn add(&mut self, object: ObjectType) -> NodeId {
        let objects = &mut self.builder.types.objects;
        let id = ObjectId(objects.len() as u32);
        objects.push(object);
        self.builder.node(Node::Object {
            object: id,
            atomic: false,
        })
    }

    /// Returns the type of `ObjectMeta`, copied once from `builtins`.
    fn metadata(&mut self) -> NodeId {
        if let Some(node) = self.metadata {
            return node;
        }
        let metadata = self.builtins.by_name.get("meta.v1.ObjectMeta");
        let node = match metadata {
            Some(&object) => self.copy(Node::Object {
                object,
                atomic: false,
            }),
            None => self.builder.node(Node::Any),
        };
        self.metadata = Some(node);
        node
    }

    /// Copies a type into this arena. Metadata has no recursive types.
    fn copy(&mut self, node: Node) -> NodeId {
        let builtins = self.builtins;
        let node = match node {
            Node::List {
                item,
                kind,
                wrapped,
            } => Node::List {
                item: self.copy(builtins.node(item)),
                kind: match kind {
                    ListRule::Map(keys) => {
                        let keys = builtins.keys[keys as usize].clone();
                        ListRule::Map(self.builder.keys(keys))
                    }
                    kind => kind,
                },
                wrapped,
            },
            Node::Map { value, atomic } => Node::Map {
                value: self.copy(builtins.node(value)),
                atomic,
            },
            Node::Object { object, .. } => {
                let object = &builtins.objects[object.0 as usize];
                let fields = object.fields.iter();
                let fields = fields.map(|field| {
                    let node = self.copy(builtins.node(field.node));
                    Field::plain(field.name.clone(), node)
                });
                let copied = ObjectType {
                    name: object.name.clone(),
                    fields: fields.collect(),
                    open: object.open,
                    atomic: object.atomic,
                };
                return self.add(copied);
            }
            leaf => leaf,
        };
        self.builder.node(node)
    }
}
