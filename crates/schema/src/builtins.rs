//! The types of the built-in kinds, parsed from the tables of this module. A test validates the
//! tables.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use super::types::{Field, ListRule, Node, NodeId, ObjectId, ObjectType, Rule, Scalar, Types};

pub(super) const TYPES: &str = include_str!("types.txt");
pub(super) const FACTS: &str = include_str!("facts.txt");

/// Maps the first segment of a message's name to its API group; the core group is empty.
const GROUPS: &[(&str, &str)] = &[
    ("admissionregistration", "admissionregistration.k8s.io"),
    ("apiextensions", "apiextensions.k8s.io"),
    ("apiregistration", "apiregistration.k8s.io"),
    ("apps", "apps"),
    ("authentication", "authentication.k8s.io"),
    ("authorization", "authorization.k8s.io"),
    ("autoscaling", "autoscaling"),
    ("batch", "batch"),
    ("certificates", "certificates.k8s.io"),
    ("coordination", "coordination.k8s.io"),
    ("core", ""),
    ("discovery", "discovery.k8s.io"),
    ("events", "events.k8s.io"),
    ("flowcontrol", "flowcontrol.apiserver.k8s.io"),
    ("meta", "meta.k8s.io"),
    ("networking", "networking.k8s.io"),
    ("node", "node.k8s.io"),
    ("policy", "policy"),
    ("rbac", "rbac.authorization.k8s.io"),
    ("resource", "resource.k8s.io"),
    ("scheduling", "scheduling.k8s.io"),
    ("storage", "storage.k8s.io"),
];

/// The types of objects that kube-apiserver stores and does not serve, in the notation of `types.txt`.
const STORED_TYPES: &str =
    "core.v1.RangeAllocation 1=metadata:meta.v1.ObjectMeta 2=range:s 3=data:B";

impl Types {
    /// Parses the types of every built-in kind: takes some milliseconds and some hundred kilobytes,
    /// so call it once per server.
    pub fn builtins() -> Arc<Self> {
        let mut builder = Builder::default();
        let names = all_types().map(|line| split(line).0).enumerate();
        builder.types.by_name = names
            .map(|(at, name)| (Cow::Borrowed(name), ObjectId(at as u32)))
            .collect();
        // The first nodes are the messages themselves, in order: a kind's root is found by its
        // position.
        for object in 0..builder.types.by_name.len() as u32 {
            let object = ObjectId(object);
            builder.node(Node::Object {
                object,
                atomic: false,
            });
        }
        let mut facts = lines(FACTS).map(split).collect::<HashMap<_, _>>();
        for (name, fields) in all_types().map(split) {
            let facts = Facts::read(facts.remove(name).unwrap_or_default());
            builder.add(name, fields, &facts);
        }
        let mut types = builder.types;
        types.nodes.shrink_to_fit();
        Arc::new(types)
    }

    /// Returns every kind with its apiVersion, except those that are part of every group.
    pub fn kinds(&self) -> impl Iterator<Item = (String, &str, ObjectId)> {
        let kinds = self.by_name.iter().filter(|(_, object)| {
            let mut fields = self.object_fields(**object).iter();
            fields.any(|field| field.name == "apiVersion" && field.number == 0)
        });
        let kinds = kinds.filter(|(name, _)| !name.starts_with("meta."));
        kinds.filter_map(|(name, object)| {
            let (word, rest) = name.split_once('.')?;
            let (version, kind) = rest.split_once('.')?;
            let (_, group) = GROUPS.iter().find(|(prefix, _)| *prefix == word)?;
            let api_version = match group.is_empty() {
                true => version.to_owned(),
                false => format!("{group}/{version}"),
            };
            Some((api_version, kind, *object))
        })
    }

    /// Returns the message of a kind, except for kinds that are part of every group.
    pub fn object_of(&self, api_version: &str, kind: &str) -> Option<ObjectId> {
        if let "DeleteOptions" | "Status" = kind {
            return self.by_name.get(&*format!("meta.v1.{kind}")).copied();
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let (word, _) = GROUPS.iter().find(|(_, name)| *name == group)?;
        self.by_name
            .get(&*format!("{word}.{version}.{kind}"))
            .copied()
    }
}

/// Returns the lines of the types that are served or stored.
pub(super) fn all_types() -> impl Iterator<Item = &'static str> {
    lines(TYPES).chain(lines(STORED_TYPES))
}

/// Returns the lines of a table without its comment.
pub(super) fn lines(table: &'static str) -> impl Iterator<Item = &'static str> {
    table.lines().filter(|line| !line.starts_with('#'))
}

fn split(line: &'static str) -> (&'static str, &'static str) {
    line.split_once(' ').unwrap_or((line, ""))
}

/// A line of `facts.txt`.
#[derive(Default)]
struct Facts {
    kind: bool,
    atomic: bool,
    fields: HashMap<&'static str, FieldFacts>,
}

/// The facts of one field.
#[derive(Default)]
struct FieldFacts {
    list: Option<ListFact>,
    atomic: bool,
    rule: Rule,
    default: Option<&'static str>,
}

enum ListFact {
    Set,
    Map(Box<[Box<str>]>),
}

impl Facts {
    fn read(line: &'static str) -> Self {
        let mut facts = Self::default();
        for word in line.split_whitespace() {
            match (word, word.split_once(':')) {
                ("!kind", _) => facts.kind = true,
                ("!atomic", _) => facts.atomic = true,
                (_, Some((field, fact))) => {
                    facts.fields.insert(field, FieldFacts::read(fact));
                }
                _ => {}
            }
        }
        facts
    }
}

impl FieldFacts {
    fn read(fact: &'static str) -> Self {
        let mut facts = Self::default();
        for fact in fact.split(';') {
            match fact.split_once('=').unwrap_or((fact, "")) {
                ("set", _) => facts.list = Some(ListFact::Set),
                ("map", keys) => {
                    facts.list = Some(ListFact::Map(keys.split(',').map(Box::from).collect()));
                }
                ("atomic", _) => facts.atomic = true,
                ("merge", key) => {
                    facts.rule.merge = true;
                    facts.rule.key = (!key.is_empty()).then(|| key.into());
                }
                ("retainKeys", _) => facts.rule.retain_keys = true,
                ("replace", _) => facts.rule.replace = true,
                ("default", value) => facts.default = Some(value),
                _ => {}
            }
        }
        facts
    }
}

/// Builds a `Types`; equal types share a node.
#[derive(Default)]
pub(super) struct Builder {
    pub(super) types: Types,
    ids: HashMap<Node, NodeId>,
}

impl Builder {
    pub(super) fn node(&mut self, node: Node) -> NodeId {
        let nodes = &mut self.types.nodes;
        *self.ids.entry(node).or_insert_with(|| {
            nodes.push(node);
            NodeId(nodes.len() as u32 - 1)
        })
    }

    pub(super) fn keys(&mut self, keys: Box<[Box<str>]>) -> u32 {
        place(&mut self.types.keys, keys)
    }

    /// Adds the message of a line.
    fn add(&mut self, name: &'static str, fields: &'static str, facts: &Facts) {
        let none = FieldFacts::default();
        let facts_of = |text: &str| {
            let name = text.split(['=', ':']).nth(1).unwrap_or_default();
            facts.fields.get(name).unwrap_or(&none)
        };
        let mut fields: Vec<Field> = fields
            .split_whitespace()
            .filter_map(|text| self.field(text, facts_of(text)))
            .collect();
        if facts.kind {
            let string = self.node(Node::Scalar(Scalar::String));
            fields.extend(["apiVersion", "kind"].map(|name| Field::plain(name.into(), string)));
        }
        self.types.objects.push(ObjectType {
            name: name.into(),
            fields: fields.into(),
            open: false,
            atomic: facts.atomic,
        });
    }

    /// Parses `number=name:type`; returns `None` for an invalid field.
    fn field(&mut self, text: &'static str, facts: &FieldFacts) -> Option<Field> {
        let (number, rest) = text.split_once('=')?;
        let (name, kind) = rest.split_once(':')?;
        let (kind, pointer) = match kind.strip_prefix('&') {
            Some(kind) => (kind, true),
            None => (kind, false),
        };
        let (kind, drop_empty) = match (kind.strip_suffix('?'), kind.strip_suffix('!')) {
            (Some(kind), _) => (kind, true),
            (None, Some(kind)) => (kind, false),
            (None, None) => (kind, kind.starts_with(['*', '%'])),
        };
        let rule = (facts.rule != Rule::default())
            .then(|| place(&mut self.types.rules, facts.rule.clone()));
        let default = facts
            .default
            .and_then(|text| serde_json::from_str(text).ok());
        Some(Field {
            number: number.parse().ok()?,
            name: name.trim_start_matches('^').into(),
            inline: name.starts_with('^'),
            node: self.kind(kind, facts)?,
            pointer,
            drop_empty,
            rule,
            default: default.map(|value| place(&mut self.types.defaults, value)),
        })
    }

    fn kind(&mut self, kind: &str, facts: &FieldFacts) -> Option<NodeId> {
        let plain = FieldFacts::default();
        let node = if let Some(item) = kind.strip_prefix('*') {
            let kind = match &facts.list {
                None => ListRule::Atomic,
                Some(ListFact::Set) => ListRule::Set,
                Some(ListFact::Map(keys)) => ListRule::Map(self.keys(keys.clone())),
            };
            let item = self.kind(item, &plain)?;
            let wrapped = false;
            Node::List {
                item,
                kind,
                wrapped,
            }
        } else if let Some(value) = kind.strip_prefix('%') {
            let value = self.kind(value, &plain)?;
            let atomic = facts.atomic;
            Node::Map { value, atomic }
        } else {
            self.leaf(kind, facts.atomic)?
        };
        Some(self.node(node))
    }

    /// Returns a type that is neither a list nor a map in the table.
    fn leaf(&mut self, kind: &str, atomic: bool) -> Option<Node> {
        let scalar = match kind {
            "s" => Scalar::String,
            "b" => Scalar::Bool,
            "i" => Scalar::Int32,
            "l" => Scalar::Int64,
            "d" => Scalar::Number,
            "B" => Scalar::Bytes,
            "!time" => Scalar::Time,
            "!micro" => Scalar::MicroTime,
            "!quantity" => Scalar::Quantity,
            "!intstr" => Scalar::IntOrString,
            "!raw" => return Some(Node::Raw),
            "!items" => {
                let item = self.node(Node::Scalar(Scalar::String));
                let (kind, wrapped) = (ListRule::Atomic, true);
                return Some(Node::List {
                    item,
                    kind,
                    wrapped,
                });
            }
            _ => {
                let object = |name| self.types.by_name.get(name).copied();
                return match kind.strip_prefix('|') {
                    Some(union) => object(union).map(Node::Union),
                    None => object(kind).map(|object| Node::Object { object, atomic }),
                };
            }
        };
        Some(Node::Scalar(scalar))
    }
}

impl Field {
    /// Returns a field without further properties.
    pub(super) fn plain(name: Cow<'static, str>, node: NodeId) -> Self {
        Self {
            name,
            node,
            number: 0,
            inline: false,
            pointer: false,
            drop_empty: false,
            rule: None,
            default: None,
        }
    }
}

/// Returns the index of `value` in `all`, after adding it if needed.
pub(super) fn place<T: PartialEq>(all: &mut Vec<T>, value: T) -> u32 {
    let at = all.iter().position(|other| *other == value);
    at.unwrap_or_else(|| {
        all.push(value);
        all.len() - 1
    }) as u32
}
