//! Computes what a request is charged for: the quotas of the namespace that limit its object, and their usage with the
//! object. The rules and messages are upstream's.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use super::super::resources::{ResourceList, add, parse};
use super::evaluator::Evaluator;
use super::limited::LimitedResources;
use super::scope::Scope;

/// A quota, as its status shows it.
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

    fn has_in_scope(&self, evaluator: &Evaluator<'_>, object: &Value) -> bool {
        let mut scopes = self.scopes.iter();
        scopes.all(|scope| evaluator.is_in_scope(scope, object))
    }

    /// Returns the names of the quota's limits that count objects of this evaluator.
    fn limits_of(&self, evaluator: &Evaluator<'_>) -> Vec<&str> {
        let names = self.hard.keys().map(String::as_str);
        names.filter(|name| evaluator.matches(name)).collect()
    }
}

/// A write of an object, as the quotas of its namespace see it.
#[derive(Debug, Clone, Copy)]
pub(super) struct QuotaRequest<'a> {
    pub(super) evaluator: &'a Evaluator<'a>,
    /// The group and the plural name of the object's resource.
    pub(super) resource: (&'a str, &'a str),
    pub(super) subresource: &'a str,
    pub(super) object: &'a Value,
    /// Null for a create.
    pub(super) old_object: &'a Value,
    pub(super) now: Timestamp,
}

/// The reason for the rejection of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// 403
    Forbidden(String),
    /// 500 without a reason, as upstream.
    UncoveredScopes(String),
}

impl QuotaRequest<'_> {
    /// Returns the usage of `quotas` with the object: one entry, with the index of the quota, for each quota whose
    /// usage increases. With `limited`, the resources that can be used only with a quota, `quotas` must contain all of
    /// the namespace.
    ///
    /// # Errors
    /// The object is rejected.
    pub(super) fn charge(
        &self,
        quotas: &[Quota],
        limited: Option<&LimitedResources>,
    ) -> Result<Vec<(usize, ResourceList)>, Refusal> {
        let Self {
            evaluator,
            object,
            old_object,
            now,
            ..
        } = *self;
        let mut pertinent = Vec::new();
        let mut covered: BTreeSet<&str> = BTreeSet::new();
        for (index, quota) in quotas.iter().enumerate() {
            let limits = self.limits(quota).map_err(Refusal::Forbidden)?;
            if !limits.is_empty() {
                pertinent.push(index);
                covered.extend(limits);
            }
        }
        let usage = evaluator.usage(object, now);
        let negative = usage.iter().filter(|(_, amount)| amount.is_negative());
        let negative: Vec<&str> = negative.map(|(name, _)| name.as_str()).collect();
        if !negative.is_empty() {
            let negative = negative.join(",");
            return Err(Refusal::Forbidden(format!(
                "quota usage is negative for resource(s): {negative}"
            )));
        }
        let added_to = |quota: Option<&Quota>| {
            let mut added = usage.clone();
            let was_in_scope = quota.is_none_or(|quota| quota.has_in_scope(evaluator, old_object));
            if !old_object.is_null() && was_in_scope {
                added = increase(added, &evaluator.usage(old_object, now));
            }
            added.retain(|_, amount| !amount.is_zero());
            added
        };
        let added = pertinent.iter().map(|index| (*index, &quotas[*index]));
        let mut added: Vec<_> = added
            .map(|(index, quota)| (index, quota, added_to(Some(quota))))
            .collect();
        added.retain(|(_, _, added)| !added.is_empty());
        let uses_more = match pertinent.is_empty() {
            true => !added_to(None).is_empty(),
            false => !added.is_empty(),
        };
        if let Some(limited) = limited.filter(|_| uses_more) {
            self.check_covered(limited, quotas, &usage, &covered)?;
        }
        let mut changes = Vec::new();
        for (index, quota, mut added) in added {
            added.retain(|limit, _| quota.hard.contains_key(limit));
            if added.is_empty() {
                continue;
            }
            let mut used = quota.used.clone();
            add(&mut used, &added);
            // A status reports what has already happened, so quotas do not reject it.
            if self.subresource != "status" {
                check(quota, &added, &used).map_err(Refusal::Forbidden)?;
            }
            changes.push((index, used));
        }
        Ok(changes)
    }

    /// Returns the names of the limits of `quota` that count the object; none if the object is not in its scopes.
    fn limits<'q>(&self, quota: &'q Quota) -> Result<Vec<&'q str>, String> {
        let Self {
            evaluator, object, ..
        } = *self;
        let name = &quota.name;
        let limits = quota.limits_of(evaluator);
        if limits.is_empty() || !quota.has_in_scope(evaluator, object) {
            return Ok(Vec::new());
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
        Ok(limits)
    }

    /// Rejects an object that uses limited resources which no quota covers.
    fn check_covered(
        &self,
        limited: &LimitedResources,
        quotas: &[Quota],
        usage: &ResourceList,
        covered: &BTreeSet<&str>,
    ) -> Result<(), Refusal> {
        let mut names = limited.names(self.resource, usage);
        names.retain(|name| !covered.contains(name));
        if !names.is_empty() {
            let names = names.into_iter().collect::<Vec<_>>().join(",");
            return Err(Refusal::Forbidden(format!(
                "insufficient quota to consume: {names}"
            )));
        }
        let is_matched = |scope: &&Scope| self.evaluator.is_in_scope(scope, self.object);
        // A quota covers each of its scopes that the object is in, whatever its other scopes are.
        let covering = quotas.iter().flat_map(|quota| &quota.scopes);
        let covering: BTreeSet<&str> = covering
            .filter(is_matched)
            .map(|scope| scope.name.as_str())
            .collect();
        let scopes = limited.scopes().filter(is_matched);
        let uncovered: Vec<String> = scopes
            .filter(|scope| !covering.contains(scope.name.as_str()))
            .map(Scope::to_string)
            .collect();
        if !uncovered.is_empty() {
            let uncovered = uncovered.join(" ");
            return Err(Refusal::UncoveredScopes(format!(
                "insufficient quota to match these scopes: [{uncovered}]"
            )));
        }
        Ok(())
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

/// Returns the increases from `old` to `new`.
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
