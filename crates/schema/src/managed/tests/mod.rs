//! Tests of managed fields and apply, with an example for each rule.

mod applies;
mod lists;
mod model;
mod mutations;
mod updates;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate as schema;

/// An object and its writes.
struct TestObject {
    builtins: Arc<schema::Types>,
    /// The types of a custom resource, by version.
    custom: Vec<(&'static str, schema::Types)>,
    api_version: &'static str,
    kind: &'static str,
    subresource: Option<&'static str>,
    object: Option<Value>,
    /// In seconds; each write is one second later.
    now: i64,
}

impl TestObject {
    fn of(api_version: &'static str, kind: &'static str) -> Self {
        Self {
            builtins: schema::Types::builtins(),
            custom: Vec::new(),
            api_version,
            kind,
            subresource: None,
            object: None,
            now: 0,
        }
    }

    /// Returns a custom resource with this schema of its `spec`.
    fn custom(spec: Value) -> Self {
        let mut object = Self::of("example.com/v1", "Thing");
        object.serve("example.com/v1", spec);
        object
    }

    /// Serves this schema in this version.
    fn serve(&mut self, version: &'static str, spec: Value) {
        let object = json!({"type": "object", "properties": {"spec": spec}});
        let types = schema::Types::from_schema(&object, &self.builtins);
        self.custom.retain(|(served, _)| *served != version);
        self.custom.push((version, types));
    }

    fn full(&self, mut body: Value) -> Value {
        body["apiVersion"] = self.api_version.into();
        body["kind"] = self.kind.into();
        body["metadata"]["name"] = "x".into();
        body
    }

    /// Calls `write` for the manager `name`.
    fn write<T>(
        &mut self,
        name: &str,
        write: impl FnOnce(Option<&Value>, &WriteContext, &Types) -> T,
    ) -> T {
        self.now += 1;
        let (builtins, custom, kind) = (&self.builtins, &self.custom, self.kind);
        let types = |version: &str| match custom.iter().find(|(v, _)| *v == version) {
            Some((_, types)) => Some(types.only_root()),
            None => builtins.root(version, kind),
        };
        let by = WriteContext {
            name,
            api_version: self.api_version,
            subresource: self.subresource,
            scope: match self.subresource {
                Some("status") => Scope::Status(&["annotations", "labels"]),
                _ => Scope::NoStatus,
            },
            now: Timestamp::from_second(self.now).unwrap(),
        };
        write(self.object.as_ref(), &by, &types)
    }

    /// Updates with PUT, with the entries of the stored object.
    fn update(&mut self, name: &str, body: Value) -> &mut Self {
        let mut object = self.full(body);
        if let Some(entries) = self
            .object
            .as_ref()
            .map(|o| &o["metadata"]["managedFields"])
            && !entries.is_null()
            && object["metadata"].get("managedFields").is_none()
        {
            object["metadata"]["managedFields"] = entries.clone();
        }
        self.write(name, |live, by, types| {
            update(live, &mut object, by, types);
            if let Some(live) = live {
                restore_unchanged_times(live, &mut object);
            }
        });
        self.object = Some(object);
        self
    }

    fn try_apply(&mut self, name: &str, body: Value, force: bool) -> Result<(), ApplyError> {
        let config = self.full(body);
        let applied = self.write(name, |live, by, types| {
            let mut object = apply(live, &config, force, by, types)?;
            if let Some(live) = live {
                restore_unchanged_times(live, &mut object);
            }
            Ok(object)
        })?;
        self.object = Some(applied);
        Ok(())
    }

    fn apply(&mut self, name: &str, body: Value) -> &mut Self {
        self.try_apply(name, body, false).unwrap();
        self
    }

    fn force(&mut self, name: &str, body: Value) -> &mut Self {
        self.try_apply(name, body, true).unwrap();
        self
    }

    /// Returns the object without apiVersion, kind and metadata.
    fn body(&self) -> Value {
        let mut body = self.object.clone().unwrap();
        let members = body.as_object_mut().unwrap();
        members.remove("apiVersion");
        members.remove("kind");
        let metadata = members["metadata"].as_object_mut().unwrap();
        metadata.remove("name");
        metadata.remove("managedFields");
        if metadata.is_empty() {
            members.remove("metadata");
        }
        body
    }

    fn entries(&self) -> Vec<Value> {
        let object = self.object.as_ref().unwrap();
        let entries = object["metadata"]["managedFields"].as_array();
        entries.cloned().unwrap_or_default()
    }

    /// Formats each entry as `name operation @time: paths`.
    fn managers(&self) -> Vec<String> {
        let text = |entry: &Value| {
            let fields = field_set::FieldSet::parse(&entry["fieldsV1"]).unwrap();
            let name = entry["manager"].as_str().unwrap();
            let operation = entry["operation"].as_str().unwrap();
            format!("{name} {operation}: {}", fields.paths().join(" "))
        };
        self.entries().iter().map(text).collect()
    }
}

/// Returns the data of a ConfigMap: a map of strings.
fn data(pairs: &[(&str, &str)]) -> Value {
    let data: serde_json::Map<String, Value> = pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).into()))
        .collect();
    json!({"data": data})
}

fn config_map() -> TestObject {
    TestObject::of("v1", "ConfigMap")
}

fn error_text(result: Result<(), ApplyError>) -> String {
    result.unwrap_err().to_string()
}
