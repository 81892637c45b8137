//! What a request is charged for: which of a namespace's quotas are about its object, and what is used of them
//! once the object is stored. The rules and texts are upstream's.

use jiff::Timestamp;
use serde_json::Value;

use super::super::resources::{ResourceList, add, parse};
use super::evaluator::Evaluator;
use super::scope::Scope;

/// A quota, as its status says.
#[derive(Debug, Clone)]
pub(super) struct Quota {
    pub(super) name: String,
    scopes: Vec<Scope>,
    hard: ResourceList,
    pub(super) used: ResourceList,
}

impl Quota {
    pub(super) fn parse(quota: &Value) -> Self {
        Self {
            name: quota["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            scopes: Scope::all(&quota["spec"]),
            hard: parse(&quota["status"]["hard"]),
            used: parse(&quota["status"]["used"]),
        }
    }

    fn has_in_scope(&self, evaluator: &Evaluator, object: &Value) -> bool {
        let mut scopes = self.scopes.iter();
        scopes.all(|scope| evaluator.is_in_scope(scope, object))
    }

    /// The names of its limits that are about such objects.
    fn limits_of(&self, evaluator: &Evaluator) -> Vec<&str> {
        let names = self.hard.keys().map(String::as_str);
        names.filter(|name| evaluator.matches(name)).collect()
    }
}

/// A write of an object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Charged<'a> {
    pub(super) evaluator: &'a Evaluator,
    pub(super) subresource: &'a str,
    pub(super) object: &'a Value,
    /// Null for a create.
    pub(super) old_object: &'a Value,
    pub(super) now: Timestamp,
}

impl Charged<'_> {
    /// Returns what is used of `quota` once the object is stored, if it uses any more of it.
    ///
    /// # Errors
    /// Why the object must not be stored.
    pub(super) fn charge(&self, quota: &Quota) -> Result<Option<ResourceList>, String> {
        let Self {
            evaluator,
            subresource,
            object,
            old_object,
            now,
        } = *self;
        let name = &quota.name;
        let limits = quota.limits_of(evaluator);
        if limits.is_empty() || !quota.has_in_scope(evaluator, object) {
            return Ok(None);
        }
        evaluator
            .check_constraints(&limits, object)
            .map_err(|why| format!("failed quota: {name}: {why}"))?;
        if limits.iter().any(|limit| !quota.used.contains_key(*limit)) {
            let limits = limits.join(",");
            return Err(format!(
                "status unknown for quota: {name}, resources: {limits}"
            ));
        }
        let usage = evaluator.usage(object, now);
        let negative = usage.iter().filter(|(_, amount)| amount.is_negative());
        let negative: Vec<&str> = negative.map(|(name, _)| name.as_str()).collect();
        if !negative.is_empty() {
            let negative = negative.join(",");
            return Err(format!(
                "quota usage is negative for resource(s): {negative}"
            ));
        }
        let mut added = usage;
        if !old_object.is_null() && quota.has_in_scope(evaluator, old_object) {
            added = increase(added, &evaluator.usage(old_object, now));
        }
        added.retain(|limit, amount| !amount.is_zero() && quota.hard.contains_key(limit));
        if added.is_empty() {
            return Ok(None);
        }
        let mut used = quota.used.clone();
        add(&mut used, &added);
        // What a status says has happened already.
        if subresource != "status" {
            check(quota, &added, &used)?;
        }
        Ok(Some(used))
    }
}

fn check(quota: &Quota, added: &ResourceList, used: &ResourceList) -> Result<(), String> {
    let is_exceeded = |limit: &&String| {
        let (used, hard) = (used.get(*limit), quota.hard.get(*limit));
        used.zip(hard).is_some_and(|(used, hard)| used > hard)
    };
    let exceeded: Vec<&String> = added.keys().filter(is_exceeded).collect();
    if exceeded.is_empty() {
        return Ok(());
    }
    let print = |amounts: &ResourceList| {
        let amounts = exceeded.iter().filter_map(|limit| {
            let amount = amounts.get(*limit)?;
            Some(format!("{limit}={amount}"))
        });
        amounts.collect::<Vec<_>>().join(",")
    };
    Err(format!(
        "exceeded quota: {}, requested: {}, used: {}, limited: {}",
        quota.name,
        print(added),
        print(&quota.used),
        print(&quota.hard)
    ))
}

/// What `new` has more than `old`.
fn increase(new: ResourceList, old: &ResourceList) -> ResourceList {
    let increase = new.into_iter().filter_map(|(name, amount)| {
        let more = match old.get(&name) {
            Some(old) => amount - old.clone(),
            None => amount,
        };
        (!more.is_negative()).then_some((name, more))
    });
    increase.collect()
}
