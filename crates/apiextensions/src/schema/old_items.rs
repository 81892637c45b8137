//! The items of a list before a write, by their identity.

use std::collections::HashMap;

use serde_json::Value;

use super::node::{ListType, Schema};

/// The items of a list before a write, by their identity.
pub(super) struct OldItems<'a> {
    schema: &'a Schema,
    by_key: HashMap<Value, &'a Value>,
}

impl<'a> OldItems<'a> {
    pub(super) fn new(schema: &'a Schema, old: Option<&'a Vec<Value>>) -> Self {
        let by_key = match schema.constraints().list {
            ListType::Map(_) => old
                .into_iter()
                .flatten()
                .filter_map(|item| Some((schema.key(item)?, item)))
                .collect(),
            ListType::Atomic | ListType::Set => Default::default(),
        };
        Self { schema, by_key }
    }

    pub(super) fn find(&self, item: &Value) -> Option<&'a Value> {
        if self.by_key.is_empty() {
            return None;
        }
        self.by_key.get(&self.schema.key(item)?).copied()
    }
}
