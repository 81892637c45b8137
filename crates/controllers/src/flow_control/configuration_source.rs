//! Passes the stored FlowSchemas and PriorityLevelConfigurations to the flow control, and writes the condition `Dangling`
//! of the schemas.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::dangling_condition::conditions;
use super::{LEVELS, SCHEMAS, resource};
use crate::stored_objects::{StoredObjects, StoredObjectsSource};
use watchet_api::{Object, WriteOptions};
use watchet_flowcontrol::{ADJUSTMENT_PERIOD, FlowControl, FlowSchema, PriorityLevelConfiguration};
use watchet_registry::{ApiError, Registry, Target};

/// The most writes of the status of a schema in [`STATUS_PERIOD`], as upstream: two servers of different versions may disagree
/// about it.
const STATUS_WRITES_MAX: usize = 6;
const STATUS_PERIOD: Duration = Duration::from_secs(60);

/// The name under which kube-apiserver writes the conditions.
const FIELD_MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";

/// The objects by name.
type Objects = BTreeMap<String, Arc<Object>>;

/// Passes all objects to the flow control, and then again after each change; adjusts the limits of the levels. Never
/// returns. `complete` is called once, when the flow control has the stored objects.
pub async fn feed_flow_control(
    registry: &Arc<Registry>,
    control: &FlowControl,
    complete: impl FnOnce() + Send,
) {
    let mut complete = Some(complete);
    let source =
        |plural| StoredObjectsSource::new(Arc::clone(registry), resource(registry, plural));
    let (mut schema_source, mut level_source) = (source(SCHEMAS), source(LEVELS));
    let (mut schemas, mut levels): (Option<Objects>, Option<Objects>) = (None, None);
    let mut statuses = StatusWriter::default();
    let mut adjustment = tokio::time::interval(ADJUSTMENT_PERIOD);
    loop {
        // Each branch is cancel safe: a source passes what it has in one step.
        tokio::select! {
            events = schema_source.next() => apply(&mut schemas, events),
            events = level_source.next() => apply(&mut levels, events),
            _ = adjustment.tick() => {
                control.adjust_limits();
                if !statuses.has_pending() {
                    continue;
                }
            }
        }
        let (Some(schemas), Some(levels)) = (&schemas, &levels) else {
            continue;
        };
        let dangling = configure(control, schemas, levels);
        if let Some(complete) = complete.take() {
            complete();
        }
        statuses.write(registry, schemas, &dangling).await;
    }
}

fn apply(objects: &mut Option<Objects>, events: Vec<StoredObjects>) {
    for event in events {
        match event {
            StoredObjects::All(all) => {
                let named = all
                    .into_iter()
                    .map(|object| (object.key().name().to_owned(), object));
                *objects = Some(named.collect());
            }
            StoredObjects::Changed(changed) => {
                let objects = objects.get_or_insert_default();
                for (object, exists) in changed {
                    let name = object.key().name().to_owned();
                    match exists {
                        true => drop(objects.insert(name, object)),
                        false => drop(objects.remove(&name)),
                    }
                }
            }
        }
    }
}

/// Configures the flow control and returns the names of the dangling schemas.
fn configure(control: &FlowControl, schemas: &Objects, levels: &Objects) -> BTreeSet<String> {
    let schemas: Vec<_> = schemas
        .values()
        .filter_map(|object| parsed(object, FlowSchema::parse))
        .collect();
    let levels: Vec<_> = levels
        .values()
        .filter_map(|object| parsed(object, PriorityLevelConfiguration::parse))
        .collect();
    let configured = control.configure(&schemas, &levels);
    for error in configured.invalid {
        tracing::warn!(%error, "the flow control ignores a stored object");
    }
    configured.dangling
}

fn parsed<T>(object: &Object, parse: fn(&[u8]) -> Result<T, serde_json::Error>) -> Option<T> {
    let name = object.key().name();
    let result = parse(object.body_slice());
    result
        .inspect_err(
            |error| tracing::error!(name, %error, "the flow control ignores a stored object"),
        )
        .ok()
}

/// Writes the conditions of FlowSchemas, of each at most [`STATUS_WRITES_MAX`] times in [`STATUS_PERIOD`].
#[derive(Debug, Default)]
struct StatusWriter {
    /// The times of the writes in the last period, by schema.
    written: BTreeMap<String, Vec<Instant>>,
    has_pending: bool,
}

impl StatusWriter {
    /// Returns true if a condition has to be written later.
    fn has_pending(&self) -> bool {
        self.has_pending
    }

    /// Counts a write of the status of a schema, unless there were too many in the last period. False if there were.
    fn count_write(&mut self, name: &str) -> bool {
        let written = self.written.entry(name.to_owned()).or_default();
        written.retain(|at| at.elapsed() < STATUS_PERIOD);
        let is_allowed = written.len() < STATUS_WRITES_MAX;
        if is_allowed {
            written.push(Instant::now());
        }
        is_allowed
    }

    async fn write(&mut self, registry: &Registry, schemas: &Objects, dangling: &BTreeSet<String>) {
        self.written.retain(|name, _| schemas.contains_key(name));
        self.has_pending = false;
        for (name, object) in schemas {
            let schema: Value = serde_json::from_slice(object.body_slice()).unwrap_or_default();
            let level = &schema["spec"]["priorityLevelConfiguration"]["name"];
            let level = level.as_str().unwrap_or_default();
            let Some(conditions) = conditions(&schema, level, dangling.contains(name)) else {
                continue;
            };
            if !self.count_write(name) {
                self.has_pending = true;
                continue;
            }
            match write_status(registry, schema, conditions).await {
                Ok(()) => {}
                // The change or deletion comes as an event.
                Err(ApiError::Conflict { .. }) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => {
                    // An outage of storage itself is logged once.
                    match error.is_outage() {
                        true => {
                            tracing::debug!(name, %error, "cannot write the status of a FlowSchema, retrying")
                        }
                        false => {
                            tracing::warn!(name, %error, "cannot write the status of a FlowSchema, retrying")
                        }
                    }
                    self.has_pending = true;
                }
            }
        }
    }
}

async fn write_status(
    registry: &Registry,
    mut schema: Value,
    conditions: Value,
) -> Result<(), ApiError> {
    let target = Target {
        resource: resource(registry, SCHEMAS),
        namespace: None,
        name: schema["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        subresource: Some("status".to_owned()),
    };
    if !schema["status"].is_object() {
        schema["status"] = json!({});
    }
    schema["status"]["conditions"] = conditions;
    let options = WriteOptions {
        field_manager: FIELD_MANAGER.to_owned(),
        ..WriteOptions::of_server()
    };
    registry.update(&target, schema, &options).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn writes_of_a_status_are_limited() {
        let mut writer = StatusWriter::default();
        for _ in 0..STATUS_WRITES_MAX {
            assert!(writer.count_write("a"));
        }
        assert!(!writer.count_write("a"));
        assert!(writer.count_write("b"));
        tokio::time::advance(STATUS_PERIOD).await;
        assert!(writer.count_write("a"));
    }
}
