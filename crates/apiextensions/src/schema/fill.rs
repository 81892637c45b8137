//! Defaulting and pruning: sets defaults, and removes unknown members and nulls that the schema does not allow.

use serde_json::{Map, Value};

use super::node::{Additional, Schema};

/// The limit of the defaults of an object in bytes, names included: more than storage accepts for an object. Without it a
/// small map of empty items with many defaults could exhaust the memory.
const DEFAULTS_BYTES_MAX: usize = 4 << 20;

/// The error of an object whose defaults exceed the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the defaults of its schema make it larger than {DEFAULTS_BYTES_MAX} bytes")]
pub(crate) struct TooManyDefaults;

impl Schema {
    /// Sets defaults up to the limit, and prunes. Returns true if anything changed.
    pub(crate) fn fill(&self, object: &mut Value) -> bool {
        let mut left = DEFAULTS_BYTES_MAX;
        let defaulted = self.default_in(object, &mut left);
        let conformed = self.conform(object);
        defaulted || conformed
    }

    /// [`Self::fill`], for an object that is about to be written and must have all defaults.
    ///
    /// # Errors
    /// The defaults exceed the limit.
    pub(crate) fn fill_all(&self, object: &mut Value) -> Result<(), TooManyDefaults> {
        let mut left = DEFAULTS_BYTES_MAX;
        self.default_in(object, &mut left);
        if left == 0 {
            return Err(TooManyDefaults);
        }
        self.conform(object);
        Ok(())
    }

    /// Removes unknown members, and nulls that are not allowed. Returns true if there were any.
    pub(crate) fn conform(&self, object: &mut Value) -> bool {
        if self.preserves_all {
            return false;
        }
        let dropped = self.drop_nulls(object);
        let pruned = self.prune(object);
        dropped || pruned
    }

    /// Removes unknown members. Returns true if there were any.
    pub(crate) fn prune(&self, value: &mut Value) -> bool {
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

    /// Prunes a member. Returns whether it is retained, and whether anything below it changed.
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

    /// Sets defaults from the outside to the inside, because a default may itself lack members that have defaults.
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
        for (name, schema) in self.properties.iter() {
            if let Some(default) = &schema.default
                && !members.contains_key(name)
                && take(left, name.len() + size(default))
            {
                members.insert(name.to_owned(), (**default).clone());
                filled = true;
            }
        }
        filled
    }

    /// Replaces a null that is not allowed by the default.
    fn default_null(&self, value: &mut Value, left: &mut usize) -> bool {
        let default = self
            .default
            .as_ref()
            .filter(|_| self.is_disallowed_null(value));
        let default = default.filter(|default| take(left, size(default)));
        if let Some(default) = default {
            *value = (**default).clone();
        }
        default.is_some()
    }

    fn is_disallowed_null(&self, value: &Value) -> bool {
        value.is_null() && !self.nullable
    }

    /// Removes members with nulls that are not allowed. Returns true if there were any.
    fn drop_nulls(&self, value: &mut Value) -> bool {
        match value {
            Value::Object(members) => {
                let mut dropped = false;
                members.retain(|name, value| match self.member(name) {
                    Some(schema) if schema.is_disallowed_null(value) => {
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

/// Subtracts `bytes` from the remaining ones, down to zero. Returns true if some remain.
fn take(left: &mut usize, bytes: usize) -> bool {
    let rest = left.checked_sub(bytes);
    *left = rest.unwrap_or(0);
    *left > 0
}

/// Returns the approximate size of a value in bytes.
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

/// Changes every item. Returns true if one of them was changed.
fn any(items: &mut [Value], mut change: impl FnMut(&mut Value) -> bool) -> bool {
    let mut changed = false;
    for item in items {
        changed |= change(item);
    }
    changed
}

/// Removes all members of a value without a schema. Returns true if there were any.
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
