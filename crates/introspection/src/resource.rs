//! The resources of the group: their strategy and their schemas.

use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::storage::{LiveObjects, LiveStorage};
use watchet_api::{ColumnSet, FieldColumn, StorageKey};
use watchet_registry::{Resource, Rules, Strategy, TableColumn};
use watchet_schema::openapi::SchemaText;
use watchet_schema::{KindType, Types};
use watchet_storage::Storage;

/// The group of the resources.
pub const GROUP: &str = "watchet.dev";
/// The version of the resources.
pub const VERSION: &str = "v1alpha1";

/// The facts about a resource of the group.
pub(crate) struct Definition {
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) short_name: &'static str,
    /// Verbs that clients can use.
    pub(crate) verbs: &'static [&'static str],
    /// Fields that selectors can use.
    pub(crate) selectable: &'static [&'static str],
    /// The `openAPIV3Schema`.
    pub(crate) schema: Value,
    pub(crate) columns: &'static [TableColumn],
    /// Returns the cells of an object at a time.
    pub(crate) cells: fn(&Value, Timestamp) -> Vec<Value>,
}

/// Returns the resource of `definition` and the storage of its objects, which shows `objects`.
///
/// # Panics
/// The definition is invalid, so that every server panics at its start.
pub(crate) fn resource(
    definition: Definition,
    objects: impl LiveObjects + 'static,
) -> (Arc<Resource>, Arc<LiveStorage>) {
    let storage_prefix = format!("{GROUP}/{}", definition.plural);
    let prefix = StorageKey::new(&format!("/{storage_prefix}/")).expect("names are path segments");
    let storage = LiveStorage::new(prefix, objects);
    let schema = serde_json::from_value(definition.schema);
    let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let selectable = definition.selectable.iter();
    let resource = Resource {
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        kind: definition.kind.to_owned(),
        plural: definition.plural.to_owned(),
        singular: definition.singular.to_owned(),
        short_names: vec![definition.short_name.to_owned()],
        categories: Vec::new(),
        namespaced: false,
        subresources: Vec::new(),
        verbs: own(definition.verbs),
        storage_prefix,
        columns: Arc::new(ColumnSet::new(
            selectable.map(|label| FieldColumn::new(label)).collect(),
        )),
        triggers: Vec::new(),
        strategy: Arc::new(Live {
            rules: Rules {
                is_garbage_collected: false,
                ..Rules::DEFAULT
            },
            kind: OnceLock::new(),
            schema: schema.expect("a schema of few levels"),
            columns: definition.columns,
            cells: definition.cells,
            storage: Arc::clone(&storage),
        }),
    };
    (Arc::new(resource), storage)
}

/// The strategy of a resource that shows the state of the server.
#[derive(Debug)]
struct Live {
    rules: Rules,
    /// Created on first use: parsing the types of the built-in kinds takes some milliseconds, which each start would pay.
    kind: OnceLock<KindType>,
    schema: SchemaText,
    columns: &'static [TableColumn],
    cells: fn(&Value, Timestamp) -> Vec<Value>,
    storage: Arc<LiveStorage>,
}

impl Strategy for Live {
    fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns false: the schema is not among those of Kubernetes.
    fn is_builtin(&self) -> bool {
        false
    }

    /// Returns false for `delete`: garbage collectors watch every resource that has it in discovery, so that a server with a
    /// kube-controller-manager would refresh the objects all the time.
    fn is_advertised(&self, verb: &str) -> bool {
        verb != "delete"
    }

    fn kind_type(&self) -> Option<&KindType> {
        let types = || Types::from_schema(&self.schema.parse(), &Types::builtins());
        Some(
            self.kind
                .get_or_init(|| KindType::custom(Arc::new(types()))),
        )
    }

    fn open_api_schema(&self) -> Option<&SchemaText> {
        Some(&self.schema)
    }

    fn table_columns(&self) -> &[TableColumn] {
        self.columns
    }

    fn table_cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        (self.cells)(object, now)
    }

    fn keeps_form(&self) -> bool {
        true
    }

    fn own_storage(&self) -> Option<Arc<dyn Storage>> {
        Some(self.storage.clone())
    }
}

/// Returns the schema of a kind with these descriptions and the schemas of its members.
pub(crate) fn schema(description: &str, spec: &[Member], status: &[Member]) -> Value {
    json!({
        "type": "object",
        "description": description,
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": object("The fields that never change.", spec),
            "status": object("The state when the object was last refreshed.", status),
        },
    })
}

/// A member of an object: its name, its schema without the description, and its description.
pub(crate) type Member = (&'static str, Value, &'static str);

/// Returns the schema of an object with these members.
pub(crate) fn object(description: &str, members: &[Member]) -> Value {
    let properties = members.iter().map(|(name, schema, description)| {
        let mut schema = schema.clone();
        schema["description"] = (*description).into();
        ((*name).to_owned(), schema)
    });
    let properties: serde_json::Map<_, _> = properties.collect();
    json!({"type": "object", "description": description, "properties": properties})
}

/// Returns the schema of a text.
pub(crate) fn text() -> Value {
    json!({"type": "string"})
}

/// Returns the schema of a count.
pub(crate) fn count() -> Value {
    json!({"type": "integer", "format": "int64"})
}

/// Returns the schema of a time.
pub(crate) fn time() -> Value {
    json!({"type": "string", "format": "date-time"})
}

/// Returns the text at `pointer`; empty if there is none.
pub(crate) fn cell(object: &Value, pointer: &str) -> Value {
    object
        .pointer(pointer)
        .cloned()
        .unwrap_or_else(|| "".into())
}

/// Returns the number of bytes at `pointer` in the largest unit in which it is at least 1: `0`, `512`, `4.0Ki`, `17Mi`.
pub(crate) fn size(object: &Value, pointer: &str) -> Value {
    let bytes = object.pointer(pointer).and_then(Value::as_u64);
    human_size(bytes.unwrap_or_default()).into()
}

fn human_size(bytes: u64) -> String {
    let mut size = bytes as f64;
    let mut units = ["", "Ki", "Mi", "Gi", "Ti"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    for larger in units {
        if size < 1024.0 {
            break;
        }
        (size, unit) = (size / 1024.0, larger);
    }
    match unit.is_empty() || size >= 9.95 {
        true => format!("{size:.0}{unit}"),
        false => format!("{size:.1}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_two_digits() {
        let sizes = [0, 512, 1023, 1024, 4200, 10_188, 17 << 20, 3 << 30].map(human_size);
        assert_eq!(
            sizes,
            [
                "0", "512", "1023", "1.0Ki", "4.1Ki", "9.9Ki", "17Mi", "3.0Gi"
            ]
        );
    }
}
