//! Updates: all writes except apply. An update becomes the only manager of each field that it
//! changes.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;

use serde_json::{Map, Value};

use super::compare::{Comparison, compare};
use super::entries::{Entries, Entry, Fields, Manager, Operation};
use super::field_set::{FieldSet, Node};
use super::path_element::Malformed;
use super::typed::Type;
use super::zero_object::zero_object;
use super::{Scope, Types, WriteContext};

/// Top-level fields that are never managed.
const NOT_MANAGED: &[&str] = &["apiVersion", "kind"];

/// Metadata fields that are never managed.
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

/// Updates the managed fields of `object`, which replaces `live`. Decodable entries from the client
/// are used; an empty list or one empty entry resets managed fields; anything else keeps those of
/// `live`. Writes to a subresource ignore entries in the body. An object without managed fields
/// stays so, because only an apply starts tracking.
///
/// Both objects may be in any version; they are compared in the version of `by`. If a list is
/// incomparable the entries stay unchanged.
pub fn update(live: Option<&Value>, object: &mut Value, by: &WriteContext, types: &Types) {
    let sent = take_entries(object);
    let before = live.and_then(entries_of);
    let entries = match sent {
        Some(sent) if Some(&sent) == before => Entries::parse(sent),
        Some(sent) if by.subresource.is_none() && is_reset(&sent) => Ok(Entries::default()),
        Some(sent) if by.subresource.is_none() => match Entries::parse_all(sent) {
            Ok(entries) if !entries.is_empty() => Ok(entries),
            _ => parse(before),
        },
        _ => parse(before),
    };
    // Undecodable stored entries count as none, as upstream.
    let entries = entries.unwrap_or_default();
    if entries.is_empty() && live.is_some() {
        return;
    }
    match after(live, object, entries, by, types) {
        Ok(entries) => entries.write_to(object),
        Err(error) => {
            tracing::debug!(%error, "leaving managed fields unchanged");
            if let (Some(before), Some(metadata)) = (before, object["metadata"].as_object_mut()) {
                metadata.insert("managedFields".to_owned(), before.clone());
            }
        }
    }
}

fn parse(entries: Option<&Value>) -> Result<Entries, Malformed> {
    entries.map_or_else(|| Ok(Entries::default()), |e| Entries::parse(e.clone()))
}

/// Returns the reason why the entries of an object cannot be decoded, if they cannot.
pub fn decode_error(object: &Value) -> Option<String> {
    let entries = entries_of(object)?.clone();
    Entries::parse_all(entries)
        .err()
        .map(|error| error.to_string())
}

/// Returns `metadata.managedFields`.
pub(super) fn entries_of(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

/// Removes and returns `metadata.managedFields`.
pub(super) fn take_entries(object: &mut Value) -> Option<Value> {
    object
        .get_mut("metadata")?
        .as_object_mut()?
        .remove("managedFields")
}

/// Returns true if the client resets managed fields with these entries.
fn is_reset(entries: &Value) -> bool {
    let is_blank = |value: &Value| value.is_null() || value.as_str() == Some("");
    match entries.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(one)]) => one.values().all(is_blank),
        _ => false,
    }
}

/// Returns the entries after `live` has become `object`.
fn after(
    live: Option<&Value>,
    object: &Value,
    mut entries: Entries,
    by: &WriteContext,
    types: &Types,
) -> Result<Entries, Malformed> {
    let ty = type_of(types, by.api_version)?;
    let Comparison {
        added,
        modified,
        removed,
    } = changes_at((live, object), by.api_version, ty, by, types)?;
    let own = added.union(modified);
    // Without entries, as on a create, no other manager loses fields.
    if !entries.is_empty() {
        let all = own.clone().union(removed);
        let mut changes_by_version = ChangesByVersion::new(by, types, all);
        entries.change(|entry| {
            match changes_by_version.at(&entry.api_version, live, object)? {
                Some(fields) => entry.fields.subtract(fields).map(|()| true),
                None => Ok(false),
            }
        })?;
    }
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

/// Returns the manager of the write.
pub(super) fn manager(by: &WriteContext, operation: Operation) -> Manager {
    let name = if by.name.is_empty() {
        "unknown"
    } else {
        by.name
    };
    Manager::new(name, operation, by.api_version, by.subresource)
}

/// # Errors
/// Returns an error if the version has no type.
pub(super) fn type_of<'a>(types: &Types<'a>, api_version: &str) -> Result<Type<'a>, Malformed> {
    let type_ref = types.type_of(api_version).map(Type::Schema);
    type_ref.ok_or_else(|| Malformed(format!("no type found for version {api_version:?}")))
}

/// Returns the fields in which the states differ, without unmanaged ones and those that the write
/// cannot change.
pub(super) fn changes(
    live: &Value,
    object: &Value,
    ty: Type,
    by: &WriteContext,
) -> Result<Comparison, Malformed> {
    let mut changes = compare(live, object, ty)?;
    changes.each(|set| restrict(set, by.scope));
    Ok(changes)
}

/// Converts `live` and `object` to a version of type `ty` and returns their [`changes`]; without `live`
/// the changes from a zero object.
///
/// # Errors
/// Returns an error for an object that cannot be converted, and those of [`compare`].
pub(super) fn changes_at(
    (live, object): (Option<&Value>, &Value),
    api_version: &str,
    ty: Type,
    by: &WriteContext,
    types: &Types,
) -> Result<Comparison, Malformed> {
    let Some(live) = live else {
        let object = convert(types, object, api_version)?;
        return changes(&zero_object(ty), &object, ty, by);
    };
    let [live, object] = convert_both(types, [live, object], api_version)?;
    changes(&live, &object, ty, by)
}

/// Converts one state of the object to another version.
///
/// # Errors
/// Returns an error if it cannot be converted.
pub(super) fn convert<'o>(
    types: &Types,
    object: &'o Value,
    api_version: &str,
) -> Result<Cow<'o, Value>, Malformed> {
    let mut converted = types.convert(&[object], api_version).map_err(Malformed)?;
    Ok(converted.pop().unwrap_or(Cow::Borrowed(object)))
}

/// Converts two states of the object to another version.
///
/// # Errors
/// Returns an error if one of them cannot be converted.
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

/// The changed fields in each version that has entries.
pub(super) struct ChangesByVersion<'t, 'a> {
    by: &'t WriteContext<'t>,
    types: &'t Types<'a>,
    by_version: HashMap<String, Option<FieldSet>>,
}

impl<'t, 'a> ChangesByVersion<'t, 'a> {
    /// `changed_fields` are the changes in the API version of the write.
    pub(super) fn new(
        by: &'t WriteContext,
        types: &'t Types<'a>,
        changed_fields: FieldSet,
    ) -> Self {
        let own = (by.api_version.to_owned(), Some(changed_fields));
        let by_version = HashMap::from([own]);
        Self {
            by,
            types,
            by_version,
        }
    }

    /// Returns the changed fields in a version; `None` if it is not served.
    ///
    /// # Errors
    /// Returns the errors of [`changes_at`].
    pub(super) fn at(
        &mut self,
        api_version: &str,
        live: Option<&Value>,
        object: &Value,
    ) -> Result<Option<&FieldSet>, Malformed> {
        let vacant = match self.by_version.entry(api_version.to_owned()) {
            MapEntry::Occupied(known) => return Ok(known.into_mut().as_ref()),
            MapEntry::Vacant(vacant) => vacant,
        };
        let changed_fields = match self.types.type_of(api_version) {
            None => None,
            Some(known) => {
                let (states, ty) = ((live, object), Type::Schema(known));
                Some(changes_at(states, api_version, ty, self.by, self.types)?.into_all())
            }
        };
        Ok(vacant.insert(changed_fields).as_ref())
    }
}

/// Retains the fields that are managed and that a write of this scope can change.
pub(super) fn restrict(set: &mut FieldSet, scope: Scope) {
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
    node.below = FieldSet::default();
}

/// Restores the times of `live`'s entries in `object` if the objects differ in nothing else, so
/// that a write without changes is a no-op. Call it last.
pub fn restore_unchanged_times(live: &Value, object: &mut Value) {
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

/// Returns true if two lists of objects are equal except for one member.
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
