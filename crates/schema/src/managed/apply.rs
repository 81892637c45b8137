//! Server-side apply: merges an applied configuration into an object, removes fields that the
//! manager no longer applies, and reports conflicts with other managers.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::fmt;

use serde_json::{Map, Value};

use super::entries::{Entries, Entry, Fields, Manager, Operation};
use super::field_set::FieldSet;
use super::fields_of::fields_of;
use super::last_applied;
use super::merge::merge;
use super::path_element::Malformed;
use super::prune::prune;
use super::reconcile::reconcile;
use super::typed::Type;
use super::update::{
    ChangesByVersion, changes, changes_at, convert, entries_of, manager, restrict, take_entries,
    type_of,
};
use super::validate::{joined, problems};
use super::zero_object::zero_object;
use super::{Types, WriteContext};

/// The manager of the fields that existed before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The error of an apply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The configuration is invalid.
    #[error("{0}")]
    BadConfiguration(String),
    /// Other managers own fields that the configuration changes.
    #[error("{}", conflict_message(.0))]
    Conflicts(Vec<Conflict>),
    /// The stored object or its managed fields are invalid.
    #[error("{0}")]
    Internal(String),
}

/// A field that another manager owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The manager as it is displayed: `"kubectl" using apps/v1`.
    pub manager: String,
    /// The field: `.spec.replicas`.
    pub path: String,
}

fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        return format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            one.manager, one.path
        );
    }
    let mut lines = Vec::new();
    let mut manager = "";
    for conflict in conflicts {
        if conflict.manager != manager {
            manager = &conflict.manager;
            lines.push(format!("conflicts with {manager}:"));
        }
        lines.push(format!("- {}", conflict.path));
    }
    let count = conflicts.len();
    format!("Apply failed with {count} conflicts: {}", lines.join("\n"))
}

/// The changed fields that other managers own.
type OwnedByOthers = Vec<(Manager, FieldSet)>;

enum Failure {
    OwnedByOthers(OwnedByOthers),
    Malformed(Malformed),
}

impl From<Malformed> for Failure {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// Returns `live`, or a new object, merged with `config`, and with updated managed fields. `force`
/// removes conflicting fields from their other managers. `live` may be in any version; the result
/// is in the version of `by`, as `config` is.
///
/// # Errors
/// Returns an error if the configuration does not match the type or contains managedFields, and for
/// conflicts.
pub fn apply(
    live: Option<&Value>,
    config: &Value,
    force: bool,
    by: &WriteContext,
    types: &Types,
) -> Result<Value, ApplyError> {
    if entries_of(config).is_some_and(|entries| !entries.is_null()) {
        let conflict_message = "metadata.managedFields must be nil".to_owned();
        return Err(ApplyError::BadConfiguration(conflict_message));
    }
    let internal = |error: Malformed| ApplyError::Internal(error.to_string());
    let ty = type_of(types, by.api_version).map_err(internal)?;
    check(config, ty)?;
    let mut base = match live {
        Some(live) => convert(types, live, by.api_version)
            .map_err(internal)?
            .into_owned(),
        None => Value::Object(Map::new()),
    };
    let entries = match take_entries(&mut base) {
        Some(entries) => Entries::parse(entries)
            .map_err(|e| ApplyError::Internal(format!("failed to decode managed fields: {e}")))?,
        None => Entries::default(),
    };
    let entries = match live {
        Some(_) if entries.is_empty() => before_first(&base, ty, by).map_err(internal)?,
        _ => entries,
    };
    let apply = Apply {
        base: &base,
        config,
        by,
        types,
        ty,
    };
    let applied = match apply.run(&entries, force) {
        Err(Failure::OwnedByOthers(owned)) if by.name == last_applied::KUBECTL => {
            match apply.left_after_upgrade(&owned) {
                Some(left) if left.is_empty() => apply.run(&entries, true),
                left => Err(Failure::OwnedByOthers(left.unwrap_or(owned))),
            }
        }
        other => other,
    };
    let (mut object, entries) = applied.map_err(|failure| match failure {
        Failure::OwnedByOthers(owned) => ApplyError::Conflicts(conflicts(owned)),
        Failure::Malformed(error) => internal(error),
    })?;
    if by.name == last_applied::KUBECTL {
        last_applied::update_annotation(&mut object, config);
    }
    entries.write_to(&mut object);
    Ok(object)
}

fn check(config: &Value, ty: Type) -> Result<(), ApplyError> {
    let problems = problems(config, ty);
    if problems.is_empty() {
        return Ok(());
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &config["metadata"];
    let api_version = text(&config["apiVersion"]);
    let group = if api_version.contains('/') { "" } else { "/" };
    let what = joined(&problems);
    Err(ApplyError::BadConfiguration(format!(
        "failed to create typed patch object ({}/{}; {group}{api_version}, Kind={}): {what}",
        text(&metadata["namespace"]),
        text(&metadata["name"]),
        text(&config["kind"]),
    )))
}

/// Returns the entries of an object without managed fields before its first apply.
fn before_first(object: &Value, ty: Type, by: &WriteContext) -> Result<Entries, Malformed> {
    let mut entries = Entries::default();
    let by = WriteContext {
        name: BEFORE_FIRST_APPLY,
        ..*by
    };
    entries.put(Entry {
        manager: manager(&by, Operation::Update),
        api_version: by.api_version.to_owned(),
        time: Some(by.now),
        fields: Fields::Read(changes(&zero_object(ty), object, ty, &by)?.into_added_or_modified()),
    });
    Ok(entries)
}

/// Returns the conflicts, ordered by manager.
fn conflicts(mut owned: OwnedByOthers) -> Vec<Conflict> {
    owned.sort_by(|(a, _), (b, _)| a.cmp(b));
    let of = |(manager, fields): (Manager, FieldSet)| {
        let manager = manager.to_string();
        let conflict = move |path| Conflict {
            manager: manager.clone(),
            path,
        };
        fields.paths().into_iter().map(conflict)
    };
    owned.into_iter().flat_map(of).collect()
}

struct Apply<'t, 'a> {
    /// The object without managed fields.
    base: &'t Value,
    config: &'t Value,
    by: &'t WriteContext<'t>,
    types: &'t Types<'a>,
    ty: Type<'a>,
}

impl Apply<'_, '_> {
    fn run(&self, entries: &Entries, force: bool) -> Result<(Value, Entries), Failure> {
        let (by, ty) = (self.by, self.ty);
        let mut entries = self.reconciled(entries.clone())?;
        let merged = merge(self.base, self.config, ty)?;
        let manager = manager(by, Operation::Apply);
        let last = entries.get(&manager).cloned();
        let mut applied = fields_of(self.config, ty)?;
        restrict(&mut applied, by.scope);
        entries.put(Entry {
            manager: manager.clone(),
            api_version: by.api_version.to_owned(),
            time: Some(by.now),
            fields: Fields::Read(applied),
        });
        let object = match last {
            Some(last) => {
                let pruned = prune(merged, &last, &entries, self.types)?;
                convert(self.types, &pruned, by.api_version)?.into_owned()
            }
            None => merged,
        };
        let changes = changes(self.base, &object, ty, by)?;
        if !force {
            let owned = self.owned(&object, &entries, &manager)?;
            if !owned.is_empty() {
                return Err(Failure::OwnedByOthers(owned));
            }
        }
        let mut changes_by_version = ChangesByVersion::new(by, self.types, changes.into_all());
        entries.change(|entry| {
            if entry.manager == manager {
                return Ok(true);
            }
            match changes_by_version.at(&entry.api_version, Some(self.base), &object)? {
                Some(fields) => entry.fields.subtract(fields).map(|()| true),
                None => Ok(false),
            }
        })?;
        Ok((object, entries))
    }

    /// Returns the entries with their fields adapted to the current types. Entries of versions that
    /// are no longer served are dropped.
    fn reconciled(&self, mut entries: Entries) -> Result<Entries, Malformed> {
        entries.change(|entry| {
            let Some(ty) = self.types.type_of(&entry.api_version).map(Type::Schema) else {
                return Ok(false);
            };
            let fields = entry.fields.read()?.into_owned();
            entry.fields = Fields::Read(reconcile(fields, ty));
            Ok(true)
        })?;
        Ok(entries)
    }

    /// Returns the changed fields that other managers own.
    fn owned(
        &self,
        object: &Value,
        entries: &Entries,
        own: &Manager,
    ) -> Result<OwnedByOthers, Malformed> {
        let mut owned = Vec::new();
        // The objects are compared once per version, not once per manager.
        let mut changed_in: HashMap<&str, FieldSet> = HashMap::new();
        for entry in entries.iter().filter(|entry| entry.manager != *own) {
            let Some(ty) = self.types.type_of(&entry.api_version).map(Type::Schema) else {
                continue;
            };
            let changed = match changed_in.entry(&entry.api_version) {
                Place::Occupied(known) => known.into_mut(),
                Place::Vacant(place) => {
                    let (states, version) = ((Some(self.base), object), &entry.api_version);
                    let changes = changes_at(states, version, ty, self.by, self.types)?;
                    place.insert(changes.into_added_or_modified())
                }
            };
            let fields = entry.fields.read()?.intersection(changed);
            if !fields.is_empty() {
                owned.push((entry.manager.clone(), fields));
            }
        }
        Ok(owned)
    }

    /// Returns the conflicts without those with client-side apply of the same configuration; `None`
    /// without a last-applied annotation.
    fn left_after_upgrade(&self, owned: &OwnedByOthers) -> Option<OwnedByOthers> {
        let ours = last_applied::unchanged_since(self.base, self.ty)?;
        let left = |(manager, fields): &(Manager, FieldSet)| {
            let fields = fields.difference(&ours);
            (!fields.is_empty()).then(|| (manager.clone(), fields))
        };
        Some(owned.iter().filter_map(left).collect())
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "conflict with {}", self.manager)
    }
}
