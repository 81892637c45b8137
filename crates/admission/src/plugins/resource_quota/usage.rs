//! What is used of a quota, counted from the objects of its namespace: what the resource quota controller writes
//! into the quota's status.

use jiff::Timestamp;
use serde_json::Value;

use super::super::resources::{ResourceList, add, parse};
use super::evaluator::Evaluator;
use super::scope::Scope;
use super::shown;
use watchet_schema::Quantity;

/// Counts what is used of one quota.
#[derive(Debug)]
pub struct QuotaUsage {
    scopes: Vec<Scope>,
    hard: ResourceList,
    used: ResourceList,
}

impl QuotaUsage {
    /// Begins to count what is used of the limits in the spec of `quota`. Until a resource was
    /// [counted](Self::count), what its status says stands.
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

    /// Returns true if one of the limits is about objects of this resource.
    pub fn is_about(&self, group: &str, resource: &str) -> bool {
        let evaluator = Evaluator::of(group, resource);
        evaluator.is_some_and(|evaluator| self.hard.keys().any(|limit| evaluator.matches(limit)))
    }

    /// Counts nothing of those limits about a resource of which the status says nothing.
    pub fn add_missing(&mut self, group: &str, resource: &str) {
        let Some(evaluator) = Evaluator::of(group, resource) else {
            return;
        };
        for limit in self.hard.keys().filter(|limit| evaluator.matches(limit)) {
            let used = self.used.entry(limit.clone());
            used.or_insert_with(|| Quantity::of_count(0));
        }
    }

    /// Returns true if an object of this resource can come to use more or less while it exists.
    pub fn varies(group: &str, resource: &str) -> bool {
        Evaluator::of(group, resource).is_some_and(|evaluator| evaluator.varies())
    }

    /// Returns everything of an object that decides how much it uses of which quota.
    pub fn footprint(group: &str, resource: &str, object: &Value, now: Timestamp) -> String {
        let evaluator = Evaluator::of(group, resource);
        evaluator.map_or_else(String::new, |evaluator| {
            let usage = shown(&evaluator.usage(object, now));
            format!("{usage} {}", evaluator.scope_facts(object))
        })
    }

    /// Counts the objects of a resource, which are all that the quota's namespace has.
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
        serde_json::json!({"hard": shown(&self.hard), "used": shown(&self.used)})
    }

    /// Counts what may be charged and not stored yet as used: what the status of `quota` says more than was counted,
    /// as far as it was charged `since` the status said that. Returns true if there is any.
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

    /// Returns true if the status of `quota` says the same.
    pub fn is_status_of(&self, quota: &Value) -> bool {
        let status = &quota["status"];
        parse(&status["hard"]) == self.hard && parse(&status["used"]) == self.used
    }
}
