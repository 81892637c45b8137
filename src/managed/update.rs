//! Updates: every write but an apply. Who changes a field has it from then on, and nobody else.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;

use serde_json::{Map, Value};

use super::blank::blank;
use super::compare::{Comparison, compare};
use super::element::Malformed;
use super::entries::{Entries, Entry, Fields, Manager, Operation};
use super::set::{Node, Set};
use super::typed::Type;
use super::{Scope, Types, Writer};

/// What nobody manages in any object.
const NOT_MANAGED: &[&str] = &["apiVersion", "kind"];

/// And in its metadata.
const META_NOT_MANAGED: &[&str] = &[
    "clusterName",
    "creationTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Writes into `object`, which is about to take the place of `live`, who manages its fields then. The
/// entries that a client put there count if they can be read, an empty list or one empty entry forget all,
/// and anything else leaves those of `live`; a write to a subresource cannot change entries but by what it
/// writes. An object that nobody tracks is not tracked from now on either: only an apply begins that.
///
/// Both objects may be in any version; the changes are those in the version of `by`. A list whose items the
/// types cannot tell apart leaves the entries as they were.
pub fn update(live: Option<&Value>, object: &mut Value, by: &Writer, types: &Types) {
    let given = take_entries(object);
    let before = live.and_then(entries_of);
    let entries = match given {
        Some(given) if Some(&given) == before => Entries::parse(given),
        Some(given) if by.subresource.is_none() && is_reset(&given) => Ok(Entries::default()),
        Some(given) if by.subresource.is_none() => match Entries::parse_all(given) {
            Ok(entries) if !entries.is_empty() => Ok(entries),
            _ => parse(before),
        },
        _ => parse(before),
    };
    // Unreadable ones that are stored count as none, as upstream.
    let entries = entries.unwrap_or_default();
    if entries.is_empty() && live.is_some() {
        return;
    }
    match after(live, object, entries, by, types) {
        Ok(entries) => entries.write_to(object),
        Err(error) => {
            tracing::debug!(%error, "managed fields are left as they were");
            if let (Some(before), Some(metadata)) = (before, object["metadata"].as_object_mut()) {
                metadata.insert("managedFields".to_owned(), before.clone());
            }
        }
    }
}

fn parse(entries: Option<&Value>) -> Result<Entries, Malformed> {
    entries.map_or_else(|| Ok(Entries::default()), |e| Entries::parse(e.clone()))
}

/// Why the entries of an object cannot be read, if they cannot.
pub fn problem(object: &Value) -> Option<String> {
    let entries = entries_of(object)?.clone();
    Entries::parse_all(entries)
        .err()
        .map(|error| error.to_string())
}

/// `metadata.managedFields`, if it is there.
pub(super) fn entries_of(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

/// Removes it.
pub(super) fn take_entries(object: &mut Value) -> Option<Value> {
    object
        .get_mut("metadata")?
        .as_object_mut()?
        .remove("managedFields")
}

/// Whether a client asks with this that all be forgotten.
fn is_reset(entries: &Value) -> bool {
    let is_blank = |value: &Value| value.is_null() || value.as_str() == Some("");
    match entries.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(one)]) => one.values().all(is_blank),
        _ => false,
    }
}

/// The entries after `live` has become `object`.
fn after(
    live: Option<&Value>,
    object: &Value,
    mut entries: Entries,
    by: &Writer,
    types: &Types,
) -> Result<Entries, Malformed> {
    let ty = type_of(types, by.api_version)?;
    let changes = changes_at((live, object), by.api_version, ty, by, types)?;
    let own = changes.changed();
    let mut touched = Touched::new(by, types, changes);
    entries.change(
        |entry| match touched.at(&entry.api_version, live, object)? {
            Some(fields) => entry.fields.subtract(fields).map(|()| true),
            None => Ok(false),
        },
    )?;
    if !own.is_empty() {
        let manager = manager(by, Operation::Update);
        match entries.get_mut(&manager) {
            Some(entry) => {
                entry.fields.add(own)?;
                entry.time = Some(by.now);
            }
            None => entries.put(Entry {
                manager,
                api_version: by.api_version.to_owned(),
                time: Some(by.now),
                fields: Fields::Read(own),
            }),
        }
    }
    entries.cap_updates()?;
    Ok(entries)
}

/// Who writes, as the entry names it.
pub(super) fn manager(by: &Writer, operation: Operation) -> Manager {
    let name = if by.name.is_empty() {
        "unknown"
    } else {
        by.name
    };
    Manager::new(name, operation, by.api_version, by.subresource)
}

/// # Errors
/// There is no type of that version.
pub(super) fn type_of<'a>(types: &Types<'a>, api_version: &str) -> Result<Type<'a>, Malformed> {
    let known = types.type_of(api_version).map(Type::Known);
    known.ok_or_else(|| Malformed(format!("no type found for version {api_version:?}")))
}

/// The fields in which the states differ, but for what nobody manages and what this write cannot change.
pub(super) fn changes(
    live: &Value,
    object: &Value,
    ty: Type,
    by: &Writer,
) -> Result<Comparison, Malformed> {
    let mut changes = compare(live, object, ty)?;
    changes.each(|set| restrict(set, by.scope));
    Ok(changes)
}

/// [`changes`] from `live`, or from nothing, to `object` as one version has them, whose type is `ty`.
///
/// # Errors
/// An object that cannot be converted; those of [`compare`].
pub(super) fn changes_at(
    (live, object): (Option<&Value>, &Value),
    api_version: &str,
    ty: Type,
    by: &Writer,
    types: &Types,
) -> Result<Comparison, Malformed> {
    let Some(live) = live else {
        let object = convert(types, object, api_version)?;
        return changes(&blank(ty), &object, ty, by);
    };
    let [live, object] = convert_both(types, [live, object], api_version)?;
    changes(&live, &object, ty, by)
}

/// One state of the object in another version.
///
/// # Errors
/// It cannot be converted.
pub(super) fn convert<'o>(
    types: &Types,
    object: &'o Value,
    api_version: &str,
) -> Result<Cow<'o, Value>, Malformed> {
    let mut converted = types.convert(&[object], api_version).map_err(Malformed)?;
    Ok(converted.pop().unwrap_or(Cow::Borrowed(object)))
}

/// Two states of the object in another version.
///
/// # Errors
/// One of them cannot be converted.
pub(super) fn convert_both<'o>(
    types: &Types,
    objects: [&'o Value; 2],
    api_version: &str,
) -> Result<[Cow<'o, Value>; 2], Malformed> {
    let converted = types.convert(&objects, api_version).map_err(Malformed)?;
    Ok(converted
        .try_into()
        .unwrap_or_else(|_| objects.map(Cow::Borrowed)))
}

/// What others lose, for each version in which there are entries.
pub(super) struct Touched<'t, 'a> {
    by: &'t Writer<'t>,
    types: &'t Types<'a>,
    known: HashMap<String, Option<Set>>,
}

impl<'t, 'a> Touched<'t, 'a> {
    /// `changes` are those in the version that is written.
    pub(super) fn new(by: &'t Writer, types: &'t Types<'a>, changes: Comparison) -> Self {
        let own = (by.api_version.to_owned(), Some(changes.touched()));
        let known = HashMap::from([own]);
        Self { by, types, known }
    }

    /// The fields in which the states differ, as that version has them; `None` if it is not served.
    ///
    /// # Errors
    /// Those of [`compare`].
    pub(super) fn at(
        &mut self,
        api_version: &str,
        live: Option<&Value>,
        object: &Value,
    ) -> Result<Option<&Set>, Malformed> {
        let place = match self.known.entry(api_version.to_owned()) {
            Place::Occupied(known) => return Ok(known.into_mut().as_ref()),
            Place::Vacant(place) => place,
        };
        let touched = match self.types.type_of(api_version) {
            None => None,
            Some(known) => {
                let (states, ty) = ((live, object), Type::Known(known));
                Some(changes_at(states, api_version, ty, self.by, self.types)?.touched())
            }
        };
        Ok(place.insert(touched).as_ref())
    }
}

/// Leaves of a set what somebody manages and a write of this scope can change.
pub(super) fn restrict(set: &mut Set, scope: Scope) {
    set.retain(|node| {
        let name = node.element.field_name().unwrap_or_default();
        match (name, scope) {
            (name, _) if NOT_MANAGED.contains(&name) => clear(node),
            ("metadata", scope) => {
                node.member = false;
                node.below.retain(|node| {
                    let name = node.element.field_name().unwrap_or_default();
                    let managed = match scope {
                        Scope::All | Scope::NoStatus => !META_NOT_MANAGED.contains(&name),
                        Scope::Status(members) => members.contains(&name),
                    };
                    if !managed {
                        clear(node);
                    }
                });
            }
            ("status", Scope::NoStatus) => clear(node),
            ("status", Scope::Status(_)) => {}
            (_, Scope::Status(_)) => clear(node),
            (_, Scope::All | Scope::NoStatus) => {}
        }
    });
}

fn clear(node: &mut Node) {
    node.member = false;
    node.below = Set::default();
}

/// Puts the times of `live`'s entries into `object` when they are all in which the objects differ: a
/// write that changes nothing else is none. For the end of a write, when nobody changes it any more.
pub fn keep_times(live: &Value, object: &mut Value) {
    let (Some(before), Some(after)) = (entries_of(live), entries_of(object)) else {
        return;
    };
    if before == after || !equal_but_for(before, after, "time") {
        return;
    }
    let rest = |object: &Value| -> Option<Map<String, Value>> {
        let metadata = object.get("metadata")?.as_object()?;
        let mut rest = metadata.clone();
        rest.remove("managedFields");
        Some(rest)
    };
    let others = |object: &Value| object.as_object().map(Map::len);
    let same = others(live) == others(object)
        && object
            .as_object()
            .into_iter()
            .flatten()
            .all(|(name, value)| name == "metadata" || live.get(name) == Some(value))
        && rest(live) == rest(object);
    if same && let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.insert("managedFields".to_owned(), before.clone());
    }
}

/// Whether two lists of objects are the same in all members but one.
fn equal_but_for(left: &Value, right: &Value, member: &str) -> bool {
    let (Some(left), Some(right)) = (left.as_array(), right.as_array()) else {
        return false;
    };
    let same = |(left, right): (&Value, &Value)| match (left.as_object(), right.as_object()) {
        (Some(left), Some(right)) => {
            let others = |map| Map::iter(map).filter(|(name, _)| *name != member);
            others(left).eq(others(right))
        }
        _ => false,
    };
    left.len() == right.len() && left.iter().zip(right).all(same)
}
