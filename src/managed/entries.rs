//! `metadata.managedFields`: who manages which fields, read from the wire and written to it. Who gets
//! and who loses fields is told by `update` and `apply`.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fmt;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::element::Malformed;
use super::set::Set;

/// How many entries of updates an object has at most; the oldest become one.
const UPDATES_MAX: usize = 10;

/// Who the oldest updates belong to then.
const ANCIENT: &str = "ancient-changes";

/// How a manager got its fields. The order is that of the entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Operation {
    /// By saying what it wants of them; it can give them up.
    Apply,
    /// By any other write.
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

/// Who has an entry: there is one of each.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Manager {
    pub(super) name: String,
    pub(super) operation: Operation,
    /// The one place that it wrote to, if that was a subresource; else empty.
    pub(super) subresource: String,
    /// Of an update; who applies has one entry for all versions.
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

/// As conflicts name it.
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

/// What one manager has.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) manager: Manager,
    /// The version whose fields these are.
    pub(super) api_version: String,
    pub(super) time: Option<Timestamp>,
    pub(super) fields: Fields,
}

/// A set of fields, read only when it has to be.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Fields {
    Wire(Value),
    Read(Set),
}

impl Fields {
    /// # Errors
    /// What is no set of fields.
    pub(super) fn read(&self) -> Result<Cow<'_, Set>, Malformed> {
        match self {
            Self::Wire(wire) => Set::parse(wire).map(Cow::Owned),
            Self::Read(set) => Ok(Cow::Borrowed(set)),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Wire(wire) => wire.as_object().is_none_or(serde_json::Map::is_empty),
            Self::Read(set) => set.is_empty(),
        }
    }

    /// Takes these away.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(super) fn subtract(&mut self, fields: &Set) -> Result<(), Malformed> {
        if let Self::Wire(wire) = self
            && !fields.meets(wire)
        {
            return Ok(());
        }
        *self = Self::Read(self.read()?.difference(fields));
        Ok(())
    }

    /// Adds these.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(super) fn add(&mut self, fields: Set) -> Result<(), Malformed> {
        *self = Self::Read(self.read()?.into_owned().union(fields));
        Ok(())
    }

    fn into_wire(self) -> Value {
        match self {
            Self::Wire(wire) => wire,
            Self::Read(set) => set.to_wire(),
        }
    }
}

impl Entry {
    /// # Errors
    /// An entry that upstream does not read either.
    fn parse(mut entry: Value, at: usize) -> Result<Self, Malformed> {
        let fields = match entry.get_mut("fieldsV1").map(Value::take) {
            None | Some(Value::Null) => Value::Object(serde_json::Map::new()),
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
        let mut entry = json!({
            "apiVersion": self.api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.fields.into_wire(),
            "operation": self.manager.operation.as_str(),
        });
        if !self.manager.name.is_empty() {
            entry["manager"] = self.manager.name.into();
        }
        if !self.manager.subresource.is_empty() {
            entry["subresource"] = self.manager.subresource.into();
        }
        if let Some(time) = self.time {
            // Kubernetes writes whole seconds.
            let time = Timestamp::from_second(time.as_second()).unwrap_or(time);
            entry["time"] = time.to_string().into();
        }
        entry
    }
}

/// All entries of an object; of equal managers the last one counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Entries(Vec<Entry>);

impl Entries {
    /// Reads the entries of an object. The fields in them are read when they are needed.
    ///
    /// # Errors
    /// Entries that upstream does not read either.
    pub(super) fn parse(entries: Value) -> Result<Self, Malformed> {
        let Value::Array(entries) = entries else {
            return Err(Malformed("managed fields are a list".to_owned()));
        };
        let entries = entries.into_iter().enumerate();
        let mut all = entries
            .map(|(at, entry)| Entry::parse(entry, at))
            .collect::<Result<Vec<_>, _>>()?;
        // There can be tens of thousands: each is looked at once.
        let mut managers = HashSet::with_capacity(all.len());
        let from_the_last = all.iter().rev();
        let counts: Vec<bool> = from_the_last
            .map(|entry| managers.insert(&entry.manager))
            .collect();
        let mut counts = counts.into_iter().rev();
        all.retain(|_| counts.next() == Some(true));
        Ok(Self(all))
    }

    /// The same for what a client wrote: all is read, and is in its canonical form then.
    ///
    /// # Errors
    /// Entries that upstream does not read either.
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

    /// Adds an entry in the place of its manager's.
    pub(super) fn put(&mut self, entry: Entry) {
        match self.get_mut(&entry.manager) {
            Some(same) => *same = entry,
            None => self.0.push(entry),
        }
    }

    /// Changes each entry, and drops those that `change` does not want and those without fields.
    ///
    /// # Errors
    /// The first of `change`.
    pub(super) fn change(
        &mut self,
        mut change: impl FnMut(&mut Entry) -> Result<bool, Malformed>,
    ) -> Result<(), Malformed> {
        let mut kept = Vec::with_capacity(self.0.len());
        for mut entry in self.0.drain(..) {
            if change(&mut entry)? && !entry.fields.is_empty() {
                kept.push(entry);
            }
        }
        self.0 = kept;
        Ok(())
    }

    /// Makes the oldest updates of each version one entry, until there are few enough.
    ///
    /// # Errors
    /// An entry whose fields cannot be read.
    pub(super) fn cap_updates(&mut self) -> Result<(), Malformed> {
        let is_update = |entry: &Entry| entry.manager.operation == Operation::Update;
        let mut count = self.0.iter().filter(|entry| is_update(entry)).count();
        if count <= UPDATES_MAX {
            return Ok(());
        }
        let (mut updates, mut entries): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.0).into_iter().partition(is_update);
        updates.sort_by(|a, b| (a.seconds(), &a.manager).cmp(&(b.seconds(), &b.manager)));
        // The first of its version, and the fields of those that become one with it.
        let mut oldest: BTreeMap<String, (Entry, Vec<Set>)> = BTreeMap::new();
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
                entry.fields.add(Set::of_all(fields))?;
            }
            self.put(entry);
        }
        Ok(())
    }

    /// Writes them into `object`, in their order; none if there are none.
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
