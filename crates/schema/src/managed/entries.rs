//! Decodes and encodes `metadata.managedFields`.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fmt;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::field_set::FieldSet;
use super::path_element::Malformed;

/// Maximum number of Update entries per object; the oldest are merged.
const UPDATES_MAX: usize = 10;

/// The manager of the merged oldest updates.
const ANCIENT: &str = "ancient-changes";

/// The operation of an entry. The order is that of the entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Operation {
    /// Server-side apply.
    Apply,
    /// Any other write.
    Update,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// The identity of an entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Manager {
    pub(super) name: String,
    pub(super) operation: Operation,
    /// The subresource of the write; empty for the main resource.
    pub(super) subresource: String,
    /// The version of an update; an applier has one entry for all versions.
    pub(super) version: Option<String>,
}

impl Manager {
    pub(super) fn new(
        name: &str,
        operation: Operation,
        api_version: &str,
        subresource: Option<&str>,
    ) -> Self {
        let version = (operation == Operation::Update).then(|| api_version.to_owned());
        Self {
            name: name.to_owned(),
            operation,
            subresource: subresource.unwrap_or_default().to_owned(),
            version,
        }
    }
}

/// Formats the manager as in conflicts.
impl fmt::Display for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.name)?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {:?}", self.subresource)?;
        }
        match &self.version {
            Some(version) => write!(f, " using {version}"),
            None => Ok(()),
        }
    }
}

/// An entry of managedFields.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) manager: Manager,
    /// The version of the fields.
    pub(super) api_version: String,
    pub(super) time: Option<Timestamp>,
    pub(super) fields: Fields,
}

/// A field set, decoded on demand.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Fields {
    Wire(Value),
    Read(FieldSet),
}

impl Fields {
    /// # Errors
    /// Returns an error for an invalid field set.
    pub(super) fn read(&self) -> Result<Cow<'_, FieldSet>, Malformed> {
        match self {
            Self::Wire(wire) => FieldSet::parse(wire).map(Cow::Owned),
            Self::Read(set) => Ok(Cow::Borrowed(set)),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Wire(wire) => wire.as_object().is_none_or(Map::is_empty),
            Self::Read(set) => set.is_empty(),
        }
    }

    /// Removes fields.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(super) fn subtract(&mut self, fields: &FieldSet) -> Result<(), Malformed> {
        if let Self::Wire(wire) = self
            && !fields.intersects(wire)
        {
            return Ok(());
        }
        *self = Self::Read(self.read()?.difference(fields));
        Ok(())
    }

    /// Adds fields.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(super) fn add(&mut self, fields: FieldSet) -> Result<(), Malformed> {
        *self = Self::Read(self.read()?.into_owned().union(fields));
        Ok(())
    }

    fn into_wire(self) -> Value {
        match self {
            Self::Wire(wire) => wire,
            Self::Read(set) => set.into_wire(),
        }
    }
}

impl Entry {
    /// # Errors
    /// Returns an error for an entry that upstream rejects as well.
    fn parse(mut entry: Value, at: usize) -> Result<Self, Malformed> {
        let fields = match entry.get_mut("fieldsV1").map(Value::take) {
            None | Some(Value::Null) => Value::Object(Map::new()),
            Some(fields @ Value::Object(_)) => fields,
            Some(other) => return Err(Malformed(format!("fieldsV1 is no object: {other}"))),
        };
        let text = |member: &str| match &entry[member] {
            Value::Null => Ok(""),
            Value::String(text) => Ok(text.as_str()),
            _ => Err(Malformed(format!(
                "{member} must be a string in managed fields entry {at}"
            ))),
        };
        let operation = match text("operation")? {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => {
                return Err(Malformed(
                    "operation must be `Apply` or `Update`".to_owned(),
                ));
            }
        };
        let api_version = text("apiVersion")?;
        if api_version.is_empty() {
            return Err(Malformed("apiVersion must not be empty".to_owned()));
        }
        let wrong = match text("fieldsType")? {
            "FieldsV1" => None,
            "" => Some("missing fieldsType".to_owned()),
            other => Some(format!("invalid fieldsType {other:?}")),
        };
        if let Some(wrong) = wrong {
            return Err(Malformed(format!("{wrong} in managed fields entry {at}")));
        }
        let time = match text("time")? {
            "" => None,
            time => Some(time.parse().map_err(|e| Malformed(format!("{e}")))?),
        };
        let subresource = text("subresource")?;
        Ok(Self {
            manager: Manager::new(text("manager")?, operation, api_version, Some(subresource)),
            api_version: api_version.to_owned(),
            time,
            fields: Fields::Wire(fields),
        })
    }

    fn seconds(&self) -> i64 {
        self.time.map_or(0, Timestamp::as_second)
    }

    fn into_wire(self) -> Value {
        // Not by `json!`, which would copy the field set.
        let mut entry = Map::new();
        let mut set = |name: &str, value: Value| drop(entry.insert(name.to_owned(), value));
        set("apiVersion", self.api_version.into());
        set("fieldsType", "FieldsV1".into());
        set("fieldsV1", self.fields.into_wire());
        set("operation", self.manager.operation.as_str().into());
        if !self.manager.name.is_empty() {
            set("manager", self.manager.name.into());
        }
        if !self.manager.subresource.is_empty() {
            set("subresource", self.manager.subresource.into());
        }
        if let Some(time) = self.time {
            // Kubernetes encodes whole seconds.
            let time = Timestamp::from_second(time.as_second()).unwrap_or(time);
            set("time", time.to_string().into());
        }
        Value::Object(entry)
    }
}

/// The entries of an object; the last of several equal managers counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Entries(Vec<Entry>);

impl Entries {
    /// Decodes the entries of an object. Field sets are decoded on demand.
    ///
    /// # Errors
    /// Returns an error for entries that upstream rejects as well.
    pub(super) fn parse(entries: Value) -> Result<Self, Malformed> {
        let Value::Array(entries) = entries else {
            return Err(Malformed("managed fields are a list".to_owned()));
        };
        let entries = entries.into_iter().enumerate();
        let mut all = entries
            .map(|(at, entry)| Entry::parse(entry, at))
            .collect::<Result<Vec<_>, _>>()?;
        // A single pass, because there may be tens of thousands.
        let mut managers = HashSet::with_capacity(all.len());
        let from_the_last = all.iter().rev();
        let counts: Vec<bool> = from_the_last
            .map(|entry| managers.insert(&entry.manager))
            .collect();
        let mut counts = counts.into_iter().rev();
        all.retain(|_| counts.next() == Some(true));
        Ok(Self(all))
    }

    /// Like [`Self::parse`], for entries from a client: decodes and canonicalizes all field sets.
    ///
    /// # Errors
    /// Returns an error for entries that upstream rejects as well.
    pub(super) fn parse_all(entries: Value) -> Result<Self, Malformed> {
        let mut all = Self::parse(entries)?;
        for entry in &mut all.0 {
            entry.fields = Fields::Read(entry.fields.read()?.into_owned());
        }
        Ok(all)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter()
    }

    pub(super) fn get(&self, manager: &Manager) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.manager == *manager)
    }

    pub(super) fn get_mut(&mut self, manager: &Manager) -> Option<&mut Entry> {
        self.0.iter_mut().find(|entry| entry.manager == *manager)
    }

    /// Inserts or replaces the entry of a manager.
    pub(super) fn put(&mut self, entry: Entry) {
        match self.get_mut(&entry.manager) {
            Some(same) => *same = entry,
            None => self.0.push(entry),
        }
    }

    /// Updates each entry; drops those for which `change` returns false and those without fields.
    ///
    /// # Errors
    /// Returns the first error of `change`.
    pub(super) fn change(
        &mut self,
        mut change: impl FnMut(&mut Entry) -> Result<bool, Malformed>,
    ) -> Result<(), Malformed> {
        let mut retained = Vec::with_capacity(self.0.len());
        for mut entry in self.0.drain(..) {
            if change(&mut entry)? && !entry.fields.is_empty() {
                retained.push(entry);
            }
        }
        self.0 = retained;
        Ok(())
    }

    /// Merges the oldest updates of each version until the number is within the limit.
    ///
    /// # Errors
    /// Returns an error for an entry whose fields cannot be decoded.
    pub(super) fn cap_updates(&mut self) -> Result<(), Malformed> {
        let is_update = |entry: &Entry| entry.manager.operation == Operation::Update;
        let mut count = self.0.iter().filter(|entry| is_update(entry)).count();
        if count <= UPDATES_MAX {
            return Ok(());
        }
        let (mut updates, mut entries): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.0).into_iter().partition(is_update);
        updates.sort_by(|a, b| (a.seconds(), &a.manager).cmp(&(b.seconds(), &b.manager)));
        // The first entry of each version, and the fields of the entries merged into it.
        let mut oldest: BTreeMap<String, (Entry, Vec<FieldSet>)> = BTreeMap::new();
        for entry in updates {
            match oldest.get_mut(&entry.api_version) {
                _ if count <= UPDATES_MAX => entries.push(entry),
                None => drop(oldest.insert(entry.api_version.clone(), (entry, Vec::new()))),
                Some((first, others)) => {
                    others.push(entry.fields.read()?.into_owned());
                    first.time = entry.time;
                    count -= 1;
                }
            }
        }
        self.0 = entries;
        for (version, (mut entry, mut fields)) in oldest {
            if !fields.is_empty() {
                entry.manager = Manager::new(ANCIENT, Operation::Update, &version, None);
                if let Some(same) = self.get(&entry.manager) {
                    fields.push(same.fields.read()?.into_owned());
                }
                entry.fields.add(FieldSet::of_all(fields))?;
            }
            self.put(entry);
        }
        Ok(())
    }

    /// Stores the entries in `object` in their order; removes the member if there are none.
    pub(super) fn write_to(mut self, object: &mut Value) {
        let Some(metadata) = object["metadata"].as_object_mut() else {
            return;
        };
        self.0.retain(|entry| !entry.fields.is_empty());
        if self.0.is_empty() {
            metadata.remove("managedFields");
            return;
        }
        self.0.sort_by(|a, b| {
            let (ours, theirs) = (&a.manager, &b.manager);
            (ours.operation.cmp(&theirs.operation))
                .then_with(|| a.seconds().cmp(&b.seconds()))
                .then_with(|| ours.name.cmp(&theirs.name))
                .then_with(|| a.api_version.cmp(&b.api_version))
                .then_with(|| ours.subresource.cmp(&theirs.subresource))
        });
        let entries = self.0.into_iter().map(Entry::into_wire).collect();
        metadata.insert("managedFields".to_owned(), Value::Array(entries));
    }
}
