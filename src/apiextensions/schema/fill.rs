//! What a schema makes of an object before anybody judges it: unknown members go, missing ones that have
//! a default get it, and nulls that no member may have go too.

use serde_json::{Map, Value};

use super::{Additional, Schema};

/// How many bytes of defaults an object may be given, names counted: more than any store takes of one. A small
/// map of empty items, each of which lacks much, would take all memory otherwise.
const DEFAULTS_BYTES_MAX: usize = 4 << 20;

/// A schema has more defaults for an object than one may be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the defaults of its schema make it larger than {DEFAULTS_BYTES_MAX} bytes")]
pub(crate) struct TooManyDefaults;

impl Schema {
    /// Fills in defaults, as far as an object may have them, and drops what the schema does not know; whether
    /// anything changed on the way.
    pub(crate) fn fill(&self, object: &mut Value) -> bool {
        let mut left = DEFAULTS_BYTES_MAX;
        let defaulted = self.default_in(object, &mut left);
        let conformed = self.conform(object);
        defaulted || conformed
    }

    /// The same of an object that is about to be written, and so must have all of them.
    ///
    /// # Errors
    /// They are too many.
    pub(in crate::apiextensions) fn fill_all(
        &self,
        object: &mut Value,
    ) -> Result<(), TooManyDefaults> {
        let mut left = DEFAULTS_BYTES_MAX;
        self.default_in(object, &mut left);
        if left == 0 {
            return Err(TooManyDefaults);
        }
        self.conform(object);
        Ok(())
    }

    /// Drops what the schema does not know, and nulls; whether there was any.
    pub(in crate::apiextensions) fn conform(&self, object: &mut Value) -> bool {
        if self.keeps_all {
            return false;
        }
        let dropped = self.drop_nulls(object);
        let pruned = self.prune(object);
        dropped || pruned
    }

    /// Drops unknown members; whether there was one.
    pub(in crate::apiextensions) fn prune(&self, value: &mut Value) -> bool {
        match value {
            Value::Object(members) => {
                let mut pruned = false;
                members.retain(|name, value| {
                    let (keeps, below) = self.keeps(name, value);
                    pruned |= below || !keeps;
                    keeps
                });
                pruned
            }
            Value::Array(items) => match &self.items {
                Some(schema) => any(items, |item| schema.prune(item)),
                None if self.preserve => false,
                None => any(items, empty),
            },
            _ => false,
        }
    }

    /// Whether a member stays; what is below it is pruned, and whether that changed anything.
    fn keeps(&self, name: &str, value: &mut Value) -> (bool, bool) {
        if self.is_common(name) {
            return (true, false);
        }
        match (self.properties.get(name), &self.additional) {
            (Some(schema), _) => (true, schema.prune(value)),
            (None, Some(Additional::Of(schema))) => (true, schema.prune(value)),
            (None, Some(Additional::Any)) => (true, empty(value)),
            (None, None) => (self.preserve, false),
        }
    }

    /// Fills in defaults, from the outside in: what is filled in may lack members itself.
    fn default_in(&self, value: &mut Value, left: &mut usize) -> bool {
        match value {
            Value::Object(members) => {
                let mut filled = self.default_members(members, left);
                for (name, value) in members.iter_mut() {
                    if let Some(schema) = self.member(name) {
                        filled |= schema.default_null(value, left);
                        filled |= schema.default_in(value, left);
                    }
                }
                filled
            }
            Value::Array(items) => match &self.items {
                Some(schema) => any(items, |item| {
                    let null = schema.default_null(item, left);
                    schema.default_in(item, left) || null
                }),
                None => false,
            },
            _ => false,
        }
    }

    fn default_members(&self, members: &mut Map<String, Value>, left: &mut usize) -> bool {
        let mut filled = false;
        for (name, schema) in &self.properties {
            if let Some(default) = &schema.default
                && !members.contains_key(name)
                && take(left, name.len() + size(default))
            {
                members.insert(name.clone(), default.clone());
                filled = true;
            }
        }
        filled
    }

    /// A null where there may be none counts as missing.
    fn default_null(&self, value: &mut Value, left: &mut usize) -> bool {
        let default = self.default.as_ref().filter(|_| self.is_stray(value));
        let default = default.filter(|default| take(left, size(default)));
        if let Some(default) = default {
            *value = default.clone();
        }
        default.is_some()
    }

    fn is_stray(&self, value: &Value) -> bool {
        value.is_null() && !self.nullable
    }

    /// Drops members that are null and may not be; whether there was one.
    fn drop_nulls(&self, value: &mut Value) -> bool {
        match value {
            Value::Object(members) => {
                let mut dropped = false;
                members.retain(|name, value| match self.member(name) {
                    Some(schema) if schema.is_stray(value) => {
                        dropped = true;
                        false
                    }
                    Some(schema) => {
                        dropped |= schema.drop_nulls(value);
                        true
                    }
                    None => true,
                });
                dropped
            }
            Value::Array(items) => match &self.items {
                Some(schema) => any(items, |item| schema.drop_nulls(item)),
                None => false,
            },
            _ => false,
        }
    }
}

/// Takes so many bytes of what is left; once there are not so many, there are none.
fn take(left: &mut usize, bytes: usize) -> bool {
    let rest = left.checked_sub(bytes);
    *left = rest.unwrap_or(0);
    *left > 0
}

/// Of about so many bytes it is.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => 3 + text.len(),
        Value::Array(items) => 2 + items.iter().map(|item| 1 + size(item)).sum::<usize>(),
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| 4 + name.len() + size(value);
            2 + members.iter().map(member).sum::<usize>()
        }
        _ => 5,
    }
}

/// Changes every item; whether one of them was.
fn any(items: &mut [Value], mut change: impl FnMut(&mut Value) -> bool) -> bool {
    let mut changed = false;
    for item in items {
        changed |= change(item);
    }
    changed
}

/// Drops all members: of a value of which nothing is known; whether it had one.
fn empty(value: &mut Value) -> bool {
    match value {
        Value::Object(members) => {
            let had = !members.is_empty();
            members.clear();
            had
        }
        Value::Array(items) => any(items, empty),
        _ => false,
    }
}
