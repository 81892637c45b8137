//! Evictions: deletions of pods that a PodDisruptionBudget can refuse. A controller computes the allowed disruptions in
//! the status of the budget; an eviction only decrements them.

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use serde_json::{Value, json};

use super::{binding, conditions};
use watchet_api::{
    DeleteOptions, GetOptions, LabelSelector, ListOptions, Object, Preconditions, Status,
    StatusCause, WriteOptions,
};
use watchet_registry::{ApiError, Registry, Target, metadata};
use watchet_registry::{Change, Current, Decide, ObjectLocation};

/// The maximum number of evicted pods in the status of a budget that the controller has not yet processed.
const DISRUPTED_PODS_MAX: usize = 2000;
/// The `Retry-After` while the status of a budget is older than its specification.
const PROCESSING_RETRY_SECONDS: u16 = 10;
/// How often an eviction is repeated after a conflict with other writes.
const TRIES_MAX: usize = 20;

/// Evicts the pod that `target` names.
///
/// # Errors
/// 429 if the budget allows no disruption; the errors of the delete.
pub(super) async fn evict(
    registry: &Registry,
    target: &Target,
    eviction: &Value,
    options: &WriteOptions,
) -> Result<Status, ApiError> {
    if metadata::text(eviction, "name") != target.name {
        return Err(ApiError::BadRequest(
            "name in URL does not match name in Eviction object".to_owned(),
        ));
    }
    let mut delete = delete_options(eviction, options.dry_run)?;
    delete.user = options.user.clone();
    delete.warnings = options.warnings.clone();
    delete.audit_annotations = options.audit_annotations.clone();
    let pod = Target {
        subresource: None,
        ..target.clone()
    };
    let eviction = EvictionRequest {
        registry,
        pod: &pod,
        pinned: delete.preconditions.as_ref().is_some_and(is_pinned),
        delete,
    };
    for _ in 1..TRIES_MAX {
        match eviction.attempt().await {
            // The client set no precondition, so the version is that of a pending pod, which may have started since:
            // retry.
            Err(ApiError::Conflict { .. }) if eviction.delete.preconditions.is_none() => {}
            Err(error) => return Err(error),
            Ok(()) => return Ok(binding::done()),
        }
    }
    eviction.attempt().await.map(|()| binding::done())
}

/// Returns the options of the delete that the eviction performs.
fn delete_options(eviction: &Value, dry_run: bool) -> Result<DeleteOptions, ApiError> {
    let mut given = eviction["deleteOptions"].clone();
    let mut options = match given.as_object_mut() {
        None => DeleteOptions::default(),
        Some(members) => {
            members.retain(|_, value| !value.is_null());
            serde_json::from_value(given)
                .map_err(|error| ApiError::BadRequest(format!("invalid deleteOptions: {error}")))?
        }
    };
    match (dry_run, options.dry_run.is_empty()) {
        (true, true) => options.dry_run = vec!["All".to_owned()],
        (true, false) if options.dry_run != ["All"] => {
            return Err(ApiError::BadRequest(format!(
                "Non-matching dry-run options in request and content: [All] and {:?}",
                options.dry_run
            )));
        }
        _ => {}
    }
    Ok(options)
}

fn is_pinned(preconditions: &Preconditions) -> bool {
    let version = preconditions.resource_version.as_deref();
    version.is_some_and(|version| !version.is_empty())
}

/// What an eviction costs the PodDisruptionBudget that selects the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
enum BudgetCost {
    /// No budget selects the pod.
    NoBudget,
    /// The pod is not ready and the budget allows its eviction without counting it, on the condition that it is still not
    /// ready when it is deleted.
    FreeWhileUnready,
    /// The eviction uses one of the disruptions that the budget allows; without one left it is refused.
    OneDisruption,
}

/// An eviction of one pod, as the client requested it.
struct EvictionRequest<'a> {
    registry: &'a Registry,
    pod: &'a Target,
    delete: DeleteOptions,
    /// Whether the preconditions of the client include a resourceVersion.
    pinned: bool,
}

impl EvictionRequest<'_> {
    /// # Errors
    /// 409 after a concurrent write of the pod or its budget.
    async fn attempt(&self) -> Result<(), ApiError> {
        let found = self.registry.get(self.pod, GetOptions::default()).await?;
        let pod = parsed(&found)?;
        if needs_no_budget(&pod) {
            let phase = pod["status"]["phase"].as_str().unwrap_or_default();
            let ends = matches!(phase, "Succeeded" | "Failed") || metadata::is_terminating(&pod);
            // A pending pod may have started since; if it has, its budget must be checked.
            return self.delete(&found, !ends).await;
        }
        let budget = self.budget(&found).await?;
        let (budget, cost) = match &budget {
            None => (None, BudgetCost::NoBudget),
            Some((location, budget)) => (Some(location), budget_cost(budget, &pod)),
        };
        if let (Some(location), BudgetCost::OneDisruption) = (budget, &cost) {
            self.count_down(location).await?;
        }
        let unready = cost == BudgetCost::FreeWhileUnready;
        let deleted = self.delete(&found, unready).await;
        match (deleted, budget) {
            (Err(ApiError::Conflict { .. }), Some(budget)) if unready && !self.pinned => {
                Err(being_processed(&budget.name))
            }
            (deleted, _) => deleted,
        }
    }

    /// Returns the budget that selects the pod, if there is one.
    ///
    /// # Errors
    /// 500 if there are several, with upstream's message.
    async fn budget(
        &self,
        pod: &Object,
    ) -> Result<Option<(ObjectLocation, PodDisruptionBudget)>, ApiError> {
        let budgets = self
            .registry
            .resource("policy", "v1", "poddisruptionbudgets")
            .expect("the table has disruption budgets");
        let namespace = self.pod.namespace.as_deref();
        let options = ListOptions::default();
        let list = self.registry.list(&budgets, namespace, &options).await?;
        let mut found = None;
        for object in list.items.iter() {
            let budget: PodDisruptionBudget = typed(object)?;
            if !selects(&budget, pod) {
                continue;
            }
            if found.is_some() {
                return Err(ApiError::Unsupported(
                    "This pod has more than one PodDisruptionBudget, which the eviction \
                     subresource does not support."
                        .to_owned(),
                ));
            }
            let location = ObjectLocation::new(&budgets, namespace, object.key().name())?;
            found = Some((location, budget));
        }
        Ok(found)
    }

    /// Decrements the allowed disruptions of the budget and adds the pod to its `disruptedPods`.
    async fn count_down(&self, budget: &ObjectLocation) -> Result<(), ApiError> {
        let mut write = CountDown {
            pod: &self.pod.name,
            budget,
        };
        let dry_run = !self.delete.dry_run.is_empty();
        let written = self.registry.guaranteed_write(budget, dry_run, &mut write);
        written.await.map(drop)
    }

    /// Marks the pod as evicted and deletes it; if `same` is true, only at the version that was read.
    async fn delete(&self, pod: &Object, same: bool) -> Result<(), ApiError> {
        let mut options = self.delete.clone();
        let mut preconditions = options.preconditions.take().unwrap_or_default();
        if same && !self.pinned {
            preconditions.resource_version = Some(pod.resource_version().to_string());
        }
        if options.dry_run.is_empty() {
            let location = ObjectLocation::of(self.pod)?;
            let mut write = Mark {
                location: &location,
                preconditions: &preconditions,
            };
            let written = self.registry.guaranteed_write(&location, false, &mut write);
            let marked = written.await?.into_object();
            if is_pinned(&preconditions) {
                preconditions.resource_version = Some(marked.resource_version().to_string());
            }
        }
        if preconditions != Preconditions::default() {
            options.preconditions = Some(preconditions);
        }
        let deleted = self.registry.delete_evicted(self.pod, &options);
        deleted.await.map(drop)
    }
}

/// Returns true if the pod is not running, so that no budget applies to it.
fn needs_no_budget(pod: &Value) -> bool {
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    matches!(phase, "Succeeded" | "Failed" | "Pending") || metadata::is_terminating(pod)
}

fn selects(budget: &PodDisruptionBudget, pod: &Object) -> bool {
    let written = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    // A selector that cannot be parsed selects nothing, as upstream.
    let selector = written.and_then(|written| LabelSelector::from_meta(written).ok());
    selector.is_some_and(|selector| selector.matches(|key| pod.label(key)))
}

/// Returns what the eviction of a running pod costs the budget.
fn budget_cost(budget: &PodDisruptionBudget, pod: &Value) -> BudgetCost {
    let conditions = pod["status"]["conditions"].as_array();
    let ready = |c: &Value| c["type"] == "Ready" && c["status"] == "True";
    if conditions.is_some_and(|conditions| conditions.iter().any(ready)) {
        return BudgetCost::OneDisruption;
    }
    let spec = budget.spec.as_ref();
    let policy = spec.and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref());
    let status = budget.status.clone().unwrap_or_default();
    let desired = status.desired_healthy.unwrap_or_default();
    let healthy = status.current_healthy.unwrap_or_default() >= desired && desired > 0;
    match policy == Some("AlwaysAllow") || healthy {
        true => BudgetCost::FreeWhileUnready,
        false => BudgetCost::OneDisruption,
    }
}

struct CountDown<'a> {
    pod: &'a str,
    budget: &'a ObjectLocation,
}

impl Decide for CountDown<'_> {
    async fn decide(&mut self, current: Option<&Current>) -> Result<Change, ApiError> {
        let current = current.ok_or_else(|| self.budget.not_found())?;
        let budget: PodDisruptionBudget = serde_json::from_value(current.value.clone())
            .map_err(|error| ApiError::Read(undecodable(&self.budget.name, &error)))?;
        check(&self.budget.name, &budget)?;
        let allowed = budget.status.and_then(|status| status.disruptions_allowed);
        let left = allowed.unwrap_or_default() - 1;
        let now = metadata::now();
        let mut value = current.value.clone();
        value["status"]["disruptionsAllowed"] = left.into();
        value["status"]["disruptedPods"][self.pod] = now.to_string().into();
        if left == 0 {
            let generation = value["status"]["observedGeneration"].clone();
            let none_left = json!({
                "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods",
                "message": "", "observedGeneration": generation,
            });
            conditions::set(&mut value, none_left, now);
        }
        Ok(Change::Put(value))
    }
}

/// Returns whether the budget allows another disruption.
fn check(name: &str, budget: &PodDisruptionBudget) -> Result<(), ApiError> {
    let status: PodDisruptionBudgetStatus = budget.status.clone().unwrap_or_default();
    let refused = |detail: &str| {
        Err(ApiError::Forbidden {
            resource: "poddisruptionbudget.policy".to_owned(),
            name: name.to_owned(),
            detail: detail.to_owned(),
            causes: Vec::new(),
        })
    };
    if status.observed_generation < budget.metadata.generation {
        return Err(being_processed(name));
    }
    let allowed = status.disruptions_allowed.unwrap_or_default();
    if allowed < 0 {
        return refused("pdb disruptions allowed is negative");
    }
    let waited_for = status.disrupted_pods.map_or(0, |pods| pods.len());
    if waited_for > DISRUPTED_PODS_MAX {
        return refused(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        );
    }
    if allowed == 0 {
        let desired = status.desired_healthy.unwrap_or_default();
        let current = status.current_healthy.unwrap_or_default();
        let why = format!(
            "The disruption budget {name} needs {desired} healthy pods and has {current} currently"
        );
        return Err(not_now(why, 0));
    }
    Ok(())
}

fn being_processed(budget: &str) -> ApiError {
    let why = format!("The disruption budget {budget} is still being processed by the server.");
    not_now(why, PROCESSING_RETRY_SECONDS)
}

fn not_now(why: String, retry_after_seconds: u16) -> ApiError {
    ApiError::TooManyRequests {
        detail: "Cannot evict pod as it would violate the pod's disruption budget.".to_owned(),
        causes: vec![StatusCause {
            reason: "DisruptionBudget".to_owned(),
            message: why,
            field: String::new(),
        }],
        retry_after_seconds,
    }
}

/// Sets the condition in the pod's status that reports the eviction.
struct Mark<'a> {
    location: &'a ObjectLocation,
    preconditions: &'a Preconditions,
}

impl Decide for Mark<'_> {
    async fn decide(&mut self, current: Option<&Current>) -> Result<Change, ApiError> {
        let current = current.ok_or_else(|| self.location.not_found())?;
        let version = current.at.to_string();
        let uid = metadata::text(&current.value, "uid");
        for (what, given, own) in [
            ("UID", &self.preconditions.uid, uid),
            (
                "ResourceVersion",
                &self.preconditions.resource_version,
                &version,
            ),
        ] {
            let given = given.as_deref().unwrap_or_default();
            if !given.is_empty() && given != own {
                let detail = format!(
                    "Precondition failed: {what} in precondition: {given}, {what} in object meta: \
                     {own}"
                );
                let ObjectLocation { resource, name, .. } = self.location;
                return Err(ApiError::conflict(resource, name, detail));
            }
        }
        let mut pod = current.value.clone();
        let evicted = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        });
        conditions::set(&mut pod, evicted, metadata::now());
        Ok(Change::Put(pod))
    }
}

fn parsed(object: &Object) -> Result<Value, ApiError> {
    typed(object)
}

fn typed<T: serde::de::DeserializeOwned>(object: &Object) -> Result<T, ApiError> {
    let name = object.key().name();
    serde_json::from_slice(object.body_slice())
        .map_err(|error| ApiError::Read(undecodable(name, &error)))
}

fn undecodable(name: &str, error: &serde_json::Error) -> watchet_cacher::ReadError {
    watchet_cacher::ReadError::Undecodable(format!("{name}: {error}"))
}

#[cfg(test)]
mod tests;
