//! Computes the usage of a quota from the objects of its namespace. The resource quota controller writes it into the
//! status of the quota.

use jiff::Timestamp;
use serde_json::Value;

use super::super::resources::{ResourceList, add, parse};
use super::evaluator::Evaluator;
use super::quantities_json;
use super::scope::Scope;
use watchet_schema::Quantity;

/// The computed usage of one quota.
#[derive(Debug)]
pub struct QuotaUsage {
    scopes: Vec<Scope>,
    hard: ResourceList,
    used: ResourceList,
}

impl QuotaUsage {
    /// Creates the usage of the limits in the spec of `quota`. The usage in its status applies to each resource until
    /// the resource is [counted](Self::count).
    pub fn new(quota: &Value) -> Self {
        let hard = parse(&quota["spec"]["hard"]);
        let mut used = parse(&quota["status"]["used"]);
        used.retain(|limit, _| hard.contains_key(limit));
        Self {
            scopes: Scope::all(&quota["spec"]),
            hard,
            used,
        }
    }

    /// Returns true if one of the limits counts objects of this resource.
    pub fn is_about(&self, group: &str, resource: &str) -> bool {
        let evaluator = Evaluator::of(group, resource);
        evaluator.is_some_and(|evaluator| self.hard.keys().any(|limit| evaluator.matches(limit)))
    }

    /// Sets the usage of limits on this resource to zero if the status contains none.
    pub fn add_missing(&mut self, group: &str, resource: &str) {
        let Some(evaluator) = Evaluator::of(group, resource) else {
            return;
        };
        for limit in self.hard.keys().filter(|limit| evaluator.matches(limit)) {
            let used = self.used.entry(limit.clone());
            used.or_insert_with(|| Quantity::of_count(0));
        }
    }

    /// Returns true if the usage by an object of this resource can change while the object exists.
    pub fn varies(group: &str, resource: &str) -> bool {
        Evaluator::of(group, resource).is_some_and(|evaluator| evaluator.varies())
    }

    /// Returns all properties of an object that determine its usage of quotas.
    pub fn footprint(group: &str, resource: &str, object: &Value, now: Timestamp) -> String {
        let evaluator = Evaluator::of(group, resource);
        evaluator.map_or_else(String::new, |evaluator| {
            let usage = quantities_json(&evaluator.usage(object, now));
            format!("{usage} {}", evaluator.scope_facts(object))
        })
    }

    /// Counts the objects of a resource. `objects` are all that the quota's namespace has.
    pub fn count(&mut self, group: &str, resource: &str, objects: &[Value], now: Timestamp) {
        let Some(evaluator) = Evaluator::of(group, resource) else {
            return;
        };
        let mut counted = ResourceList::new();
        for limit in self.hard.keys().filter(|limit| evaluator.matches(limit)) {
            counted.insert(limit.clone(), Quantity::of_count(0));
        }
        for object in objects {
            let mut scopes = self.scopes.iter();
            if scopes.all(|scope| evaluator.is_in_scope(scope, object)) {
                let mut usage = evaluator.usage(object, now);
                usage.retain(|limit, _| counted.contains_key(limit));
                add(&mut counted, &usage);
            }
        }
        self.used.extend(counted);
    }

    /// Returns the status of the quota.
    pub fn status(&self) -> Value {
        serde_json::json!({"hard": quantities_json(&self.hard), "used": quantities_json(&self.used)})
    }

    /// Adds usage that was charged for objects that may not be stored yet. If the status of `quota` has more usage than
    /// was counted, the increase since the usage `since` is added, but not more than the difference; without `since`,
    /// the whole difference. Returns true if anything was added.
    pub fn keep_charged(&mut self, quota: &Value, since: Option<&ResourceList>) -> bool {
        let said = parse(&quota["status"]["used"]);
        let mut is_any = false;
        for (limit, used) in &mut self.used {
            let Some(said) = said.get(limit).filter(|said| *used < **said) else {
                continue;
            };
            let before = since.and_then(|since| since.get(limit));
            let most = match before {
                Some(before) if before == said => used.clone(),
                Some(before) => used.clone() + (said.clone() - before.clone()),
                None => said.clone(),
            };
            let most = if most < *said { most } else { said.clone() };
            is_any |= *used < most;
            *used = most;
        }
        is_any
    }

    /// Returns true if the status of `quota` has this usage.
    pub fn is_status_of(&self, quota: &Value) -> bool {
        let status = &quota["status"];
        parse(&status["hard"]) == self.hard && parse(&status["used"]) == self.used
    }
}
