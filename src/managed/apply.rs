//! Server-side apply: a manager says all that it wants of an object, and the object becomes so, unless
//! that takes from somebody else what they have.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::fmt;

use serde_json::{Map, Value};

use super::blank::blank;
use super::element::Malformed;
use super::entries::{Entries, Entry, Fields, Manager, Operation};
use super::fields_of::fields_of;
use super::last_applied;
use super::merge::merge;
use super::prune::prune;
use super::reconcile::reconcile;
use super::set::Set;
use super::typed::Type;
use super::update::{
    Touched, changes, changes_at, convert, entries_of, manager, restrict, take_entries, type_of,
};
use super::validate::problems;
use super::{Types, Writer};

/// Who had what there was before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Why an apply was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The configuration cannot be applied to anything.
    #[error("{0}")]
    BadConfiguration(String),
    /// Others have what it wants to change.
    #[error("{}", told(.0))]
    Conflicts(Vec<Conflict>),
    /// What is stored cannot be worked with.
    #[error("{0}")]
    Internal(String),
}

/// A field that somebody else has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Who, as people read it: `"kubectl" using apps/v1`.
    pub manager: String,
    /// Which: `.spec.replicas`.
    pub path: String,
}

fn told(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        return format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            one.manager, one.path
        );
    }
    let mut lines = Vec::new();
    let mut who = "";
    for conflict in conflicts {
        if conflict.manager != who {
            who = &conflict.manager;
            lines.push(format!("conflicts with {who}:"));
        }
        lines.push(format!("- {}", conflict.path));
    }
    let count = conflicts.len();
    format!("Apply failed with {count} conflicts: {}", lines.join("\n"))
}

/// What others have of what an applier wants to change.
type Taken = Vec<(Manager, Set)>;

enum Failure {
    Taken(Taken),
    Malformed(Malformed),
}

impl From<Malformed> for Failure {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// `live`, or a new object, with what `config` wants, and with who manages its fields then. `force` takes
/// from others what they have. `live` may be in any version; the result is in that of `by`, as `config` is.
///
/// # Errors
/// A configuration that does not fit the type or that says who manages fields; conflicts.
pub fn apply(
    live: Option<&Value>,
    config: &Value,
    force: bool,
    by: &Writer,
    types: &Types,
) -> Result<Value, ApplyError> {
    if entries_of(config).is_some_and(|entries| !entries.is_null()) {
        let told = "metadata.managedFields must be nil".to_owned();
        return Err(ApplyError::BadConfiguration(told));
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
        Err(Failure::Taken(taken)) if by.name == last_applied::KUBECTL => {
            match apply.left_after_upgrade(&taken) {
                Some(left) if left.is_empty() => apply.run(&entries, true),
                left => Err(Failure::Taken(left.unwrap_or(taken))),
            }
        }
        other => other,
    };
    let (mut object, entries) = applied.map_err(|failure| match failure {
        Failure::Taken(taken) => ApplyError::Conflicts(conflicts(taken)),
        Failure::Malformed(error) => internal(error),
    })?;
    if by.name == last_applied::KUBECTL {
        last_applied::follow(&mut object, config);
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
    let what = match problems.as_slice() {
        [one] => one.clone(),
        all => format!("errors:\n  {}", all.join("\n  ")),
    };
    Err(ApplyError::BadConfiguration(format!(
        "failed to create typed patch object ({}/{}; {group}{api_version}, Kind={}): {what}",
        text(&metadata["namespace"]),
        text(&metadata["name"]),
        text(&config["kind"]),
    )))
}

/// Entries for an object that was not tracked so far.
fn before_first(object: &Value, ty: Type, by: &Writer) -> Result<Entries, Malformed> {
    let mut entries = Entries::default();
    let by = Writer {
        name: BEFORE_FIRST_APPLY,
        ..*by
    };
    entries.put(Entry {
        manager: manager(&by, Operation::Update),
        api_version: by.api_version.to_owned(),
        time: Some(by.now),
        fields: Fields::Read(changes(&blank(ty), object, ty, &by)?.changed()),
    });
    Ok(entries)
}

/// Each manager's fields, managers in order.
fn conflicts(mut taken: Taken) -> Vec<Conflict> {
    taken.sort_by(|(a, _), (b, _)| a.cmp(b));
    let of = |(manager, fields): (Manager, Set)| {
        let manager = manager.to_string();
        let conflict = move |path| Conflict {
            manager: manager.clone(),
            path,
        };
        fields.paths().into_iter().map(conflict)
    };
    taken.into_iter().flat_map(of).collect()
}

struct Apply<'t, 'a> {
    /// The object without its entries.
    base: &'t Value,
    config: &'t Value,
    by: &'t Writer<'t>,
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
        let mut wanted = fields_of(self.config, ty)?;
        restrict(&mut wanted, by.scope);
        entries.put(Entry {
            manager: manager.clone(),
            api_version: by.api_version.to_owned(),
            time: Some(by.now),
            fields: Fields::Read(wanted),
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
            let taken = self.taken(&object, &entries, &manager)?;
            if !taken.is_empty() {
                return Err(Failure::Taken(taken));
            }
        }
        let mut touched = Touched::new(by, self.types, changes);
        entries.change(|entry| {
            if entry.manager == manager {
                return Ok(true);
            }
            match touched.at(&entry.api_version, Some(self.base), &object)? {
                Some(fields) => entry.fields.subtract(fields).map(|()| true),
                None => Ok(false),
            }
        })?;
        Ok((object, entries))
    }

    /// The entries with fields as their types have them now; those of versions that are not served are
    /// gone.
    fn reconciled(&self, mut entries: Entries) -> Result<Entries, Malformed> {
        entries.change(|entry| {
            let Some(ty) = self.types.type_of(&entry.api_version).map(Type::Known) else {
                return Ok(false);
            };
            let fields = entry.fields.read()?.into_owned();
            entry.fields = Fields::Read(reconcile(fields, ty));
            Ok(true)
        })?;
        Ok(entries)
    }

    /// What others have of what changes.
    fn taken(&self, object: &Value, entries: &Entries, own: &Manager) -> Result<Taken, Malformed> {
        let mut taken = Vec::new();
        // The objects are compared once for each version, and not for each of any number of managers.
        let mut changed_in: HashMap<&str, Set> = HashMap::new();
        for entry in entries.iter().filter(|entry| entry.manager != *own) {
            let Some(ty) = self.types.type_of(&entry.api_version).map(Type::Known) else {
                continue;
            };
            let changed = match changed_in.entry(&entry.api_version) {
                Place::Occupied(known) => known.into_mut(),
                Place::Vacant(place) => {
                    let (states, version) = ((Some(self.base), object), &entry.api_version);
                    let changes = changes_at(states, version, ty, self.by, self.types)?;
                    place.insert(changes.changed())
                }
            };
            let fields = entry.fields.read()?.intersection(changed);
            if !fields.is_empty() {
                taken.push((entry.manager.clone(), fields));
            }
        }
        Ok(taken)
    }

    /// What remains of the conflicts when those are left out that are with what was applied on the
    /// client; `None` if nothing is known of that.
    fn left_after_upgrade(&self, taken: &Taken) -> Option<Taken> {
        let ours = last_applied::unchanged_since(self.base, self.ty)?;
        let left = |(manager, fields): &(Manager, Set)| {
            let fields = fields.difference(&ours);
            (!fields.is_empty()).then(|| (manager.clone(), fields))
        };
        Some(taken.iter().filter_map(left).collect())
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "conflict with {}", self.manager)
    }
}
