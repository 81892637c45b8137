//! What a schema makes of an object before anybody judges it: unknown members go, missing ones that have
//! a default get it, and nulls that no member may have go too.

use serde_json::{Map, Value};

use super::{Additional, Schema};

impl Schema {
    /// Fills in defaults and drops what the schema does not know.
    pub(in crate::registry) fn fill(&self, object: &mut Value) {
        self.default_in(object);
        self.drop_nulls(object);
        self.prune(object);
    }

    /// Drops unknown members.
    pub(in crate::registry::custom) fn prune(&self, value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.retain(|name, value| self.keeps(name, value));
            }
            Value::Array(items) => match &self.items {
                Some(schema) => items.iter_mut().for_each(|item| schema.prune(item)),
                None if self.preserve => {}
                None => items.iter_mut().for_each(empty),
            },
            _ => {}
        }
    }

    /// Whether a member stays; what is below it is pruned.
    fn keeps(&self, name: &str, value: &mut Value) -> bool {
        if self.is_common(name) {
            return true;
        }
        match (self.properties.get(name), &self.additional) {
            (Some(schema), _) => schema.prune(value),
            (None, Some(Additional::Of(schema))) => schema.prune(value),
            (None, Some(Additional::Any)) => empty(value),
            (None, None) => return self.preserve,
        }
        true
    }

    /// Fills in defaults, from the outside in: what is filled in may lack members itself.
    fn default_in(&self, value: &mut Value) {
        match value {
            Value::Object(members) => {
                self.default_members(members);
                for (name, value) in members.iter_mut() {
                    let Some(schema) = self.member(name) else {
                        continue;
                    };
                    schema.default_null(value);
                    schema.default_in(value);
                }
            }
            Value::Array(items) => {
                let Some(schema) = &self.items else { return };
                for item in items {
                    schema.default_null(item);
                    schema.default_in(item);
                }
            }
            _ => {}
        }
    }

    fn default_members(&self, members: &mut Map<String, Value>) {
        for (name, schema) in &self.properties {
            if let Some(default) = &schema.default
                && !members.contains_key(name)
            {
                members.insert(name.clone(), default.clone());
            }
        }
    }

    /// A null where there may be none counts as missing.
    fn default_null(&self, value: &mut Value) {
        if let Some(default) = self.default.as_ref().filter(|_| self.is_stray(value)) {
            *value = default.clone();
        }
    }

    fn is_stray(&self, value: &Value) -> bool {
        value.is_null() && !self.nullable
    }

    /// Drops members that are null and may not be.
    fn drop_nulls(&self, value: &mut Value) {
        match value {
            Value::Object(members) => members.retain(|name, value| match self.member(name) {
                Some(schema) if schema.is_stray(value) => false,
                Some(schema) => {
                    schema.drop_nulls(value);
                    true
                }
                None => true,
            }),
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    items.iter_mut().for_each(|item| schema.drop_nulls(item));
                }
            }
            _ => {}
        }
    }
}

/// Drops all members: of a value of which nothing is known.
fn empty(value: &mut Value) {
    match value {
        Value::Object(members) => members.clear(),
        Value::Array(items) => items.iter_mut().for_each(empty),
        _ => {}
    }
}
