//! LimitRanger: gives containers the default resources of a namespace's LimitRanges, and refuses pods and claims
//! that are out of their bounds.

use async_trait::async_trait;
use serde_json::Value;

use super::super::cluster::{Cluster, Freshness, GroupResource};
use super::super::error::AdmissionError;
use super::super::request::{AdmissionRequest, Operation, Request};
use super::plugin::AdmissionPlugin;
use super::resources::{RequestsOrLimits, ResourceList, aggregate, parse, sum_of_containers};
use watchet_schema::Quantity;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// The largest value that upstream compares in thousandths. Upstream compares larger values in whole units.
const MILLI_VALUE_MAX: i64 = i64::MAX / 1000;

/// The maximum size in bytes of the defaults that are added to a pod, and therefore of the annotation that lists them.
const DEFAULTS_BYTES_MAX: usize = 256 << 10;

/// The maximum number of reported problems with one LimitRange; further ones may be omitted.
const PROBLEMS_MAX: usize = 100;

/// The LimitRanger admission plugin; see the module. It yields to other tasks after each LimitRange, because a pod can
/// have thousands of containers and a namespace thousands of LimitRanges.
#[derive(Debug)]
pub(super) struct LimitRanger;

fn is_of_pods(request: Request<'_>) -> bool {
    request.creates("", "pods")
        || request.operation == Operation::Update && request.is_of_subresource("", "pods", "resize")
}

#[async_trait]
impl AdmissionPlugin for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    fn mutates(&self, request: Request<'_>) -> bool {
        is_of_pods(request)
    }

    fn validates(&self, request: Request<'_>) -> bool {
        let claims = "persistentvolumeclaims";
        is_of_pods(request) || request.creates("", claims) || request.updates("", claims)
    }

    async fn mutate(
        &self,
        cluster: &dyn Cluster,
        attributes: &mut AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        let mut bytes_left = DEFAULTS_BYTES_MAX;
        for range in limit_ranges(cluster, attributes).await? {
            let pod = attributes.object.to_mut();
            if set_defaults(&range, pod, &mut bytes_left).is_none() {
                return Err(attributes.forbidden(format!(
                    "the defaults of its limit ranges take more than {DEFAULTS_BYTES_MAX} bytes"
                )));
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    async fn validate(
        &self,
        cluster: &dyn Cluster,
        attributes: &AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        let ranges = limit_ranges(cluster, attributes).await?;
        // Most namespaces have none, and the sum of a pod's resources is expensive.
        if ranges.is_empty() {
            return Ok(());
        }
        let object = &*attributes.object;
        let is_pod = attributes.resource.resource == "pods";
        let amounts = is_pod.then(|| PodAmounts::of(&object["spec"]));
        for range in ranges {
            let problems = match &amounts {
                Some(amounts) => pod_problems(&range, amounts),
                None => claim_problems(&range, object),
            };
            if !problems.is_empty() {
                return Err(attributes.forbidden(aggregate(problems)));
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

/// Returns the LimitRanges of the namespace, or none if the object is being deleted.
async fn limit_ranges(
    cluster: &dyn Cluster,
    attributes: &AdmissionRequest<'_>,
) -> Result<Vec<Value>, AdmissionError> {
    if attributes.old_object["metadata"]["deletionTimestamp"].is_string() {
        return Ok(Vec::new());
    }
    let resource = GroupResource::new("", "limitranges");
    let ranges = cluster.objects(resource, attributes.namespace, Freshness::Cached);
    ranges.await.map_err(|error| {
        tracing::warn!(
            %error,
            namespace = attributes.namespace,
            "cannot list limit ranges"
        );
        error.or_failed(|_| {
            attributes.forbidden(format!(
                "unable to {} {} at this time because there was an error enforcing limit ranges",
                attributes.operation.as_str(),
                attributes.resource.qualified()
            ))
        })
    })
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn limits<'a>(range: &'a Value, kind: &str) -> impl Iterator<Item = &'a Value> {
    items(&range["spec"]["limits"]).filter(move |limit| limit["type"] == kind)
}

/// Sets the defaults of a LimitRange in the containers of a pod, and lists them in an annotation. Returns `None` if
/// they take more than `bytes_left`.
fn set_defaults(range: &Value, pod: &mut Value, bytes_left: &mut usize) -> Option<()> {
    let mut changes = Vec::new();
    for (member, noun) in [
        ("containers", "container"),
        ("initContainers", "init container"),
    ] {
        let containers = pod["spec"].get_mut(member).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let name = container["name"].as_str().unwrap_or_default().to_owned();
            for (bound, default, word) in [
                ("requests", "defaultRequest", "request"),
                ("limits", "default", "limit"),
            ] {
                let names = fill(range, default, container, bound, bytes_left)?;
                if !names.is_empty() {
                    let names = names.join(", ");
                    changes.push(format!("{names} {word} for {noun} {name}"));
                }
            }
        }
    }
    if !changes.is_empty() {
        let text = format!("LimitRanger plugin set: {}", changes.join("; "));
        pod["metadata"]["annotations"][ANNOTATION] = text.into();
    }
    Some(())
}

/// Sets the defaults that `container` lacks in one of its lists of resources, and returns their names; `None` if they
/// take more than `bytes_left`.
fn fill(
    range: &Value,
    default: &str,
    container: &mut Value,
    bound: &str,
    bytes_left: &mut usize,
) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let defaults = limits(range, "Container").filter_map(|limit| limit[default].as_object());
    for (name, amount) in defaults.flatten() {
        let lacks = container["resources"][bound][name].is_null();
        if lacks {
            let bytes = name.len() + amount.as_str().map_or(0, str::len);
            *bytes_left = bytes_left.checked_sub(bytes)?;
            container["resources"][bound][name] = amount.clone();
            names.push(name.clone());
        }
    }
    names.sort();
    Some(names)
}

/// The requests and the limits.
type Amounts = [ResourceList; 2];

/// The amounts of a pod and its containers that a LimitRange limits.
struct PodAmounts {
    containers: Vec<Amounts>,
    total: Amounts,
}

impl PodAmounts {
    fn of(spec: &Value) -> Self {
        let bounds = [RequestsOrLimits::Requests, RequestsOrLimits::Limits];
        let containers = items(&spec["containers"]).chain(items(&spec["initContainers"]));
        Self {
            containers: containers
                .map(|container| bounds.map(|bound| bound.of(container)))
                .collect(),
            total: bounds.map(|bound| of_pod(spec, bound)),
        }
    }
}

/// Returns the violations of one LimitRange by a pod.
fn pod_problems(range: &Value, amounts: &PodAmounts) -> Vec<String> {
    let mut problems = Vec::new();
    for limit in limits(range, "Container") {
        let bounds = Bounds::of(limit);
        for amounts in &amounts.containers {
            bounds.check("Container", amounts, &mut problems);
        }
    }
    for limit in limits(range, "Pod") {
        Bounds::of(limit).check("Pod", &amounts.total, &mut problems);
    }
    problems
}

/// Returns the total of a pod's requests or limits.
fn of_pod(spec: &Value, bound: RequestsOrLimits) -> ResourceList {
    let mut sum = sum_of_containers(spec, |container| bound.of(container));
    let mut of_pod = bound.of(spec);
    of_pod.retain(|name, _| ["cpu", "memory"].contains(&name.as_str()));
    sum.extend(of_pod);
    sum
}

/// Returns the violations of one LimitRange by a PersistentVolumeClaim.
fn claim_problems(range: &Value, claim: &Value) -> Vec<String> {
    const KIND: &str = "PersistentVolumeClaim";
    let requests = RequestsOrLimits::Requests.of(&claim["spec"]);
    let mut problems = Vec::new();
    for limit in limits(range, KIND) {
        for (name, bound) in parse(&limit["min"]) {
            let checked = Checked::new(KIND, &name, &bound, requests.get(&name), None);
            problems.extend(checked.below_minimum());
        }
        for (name, bound) in parse(&limit["max"]) {
            let checked = Checked::new(KIND, &name, &bound, requests.get(&name), None);
            problems.extend(checked.request_above_maximum());
        }
    }
    problems
}

/// The bounds of a LimitRange for one type of objects.
struct Bounds {
    min: ResourceList,
    max: ResourceList,
    ratio: ResourceList,
}

impl Bounds {
    fn of(limit: &Value) -> Self {
        Self {
            min: parse(&limit["min"]),
            max: parse(&limit["max"]),
            ratio: parse(&limit["maxLimitRequestRatio"]),
        }
    }

    fn check(&self, kind: &str, [requests, limits]: &Amounts, problems: &mut Vec<String>) {
        type Check = fn(&Checked<'_>) -> Option<String>;
        let checks: [(&ResourceList, Check); 3] = [
            (&self.min, |checked| checked.below_minimum()),
            (&self.max, |checked| checked.above_maximum()),
            (&self.ratio, |checked| checked.above_ratio()),
        ];
        for (bounds, check) in checks {
            for (name, bound) in bounds {
                if problems.len() >= PROBLEMS_MAX {
                    return;
                }
                let (request, limit) = (requests.get(name), limits.get(name));
                let problem = check(&Checked::new(kind, name, bound, request, limit));
                problems.extend(problem.filter(|problem| !problems.contains(problem)));
            }
        }
    }
}

/// The check of one resource against one bound. The messages are upstream's.
struct Checked<'a> {
    kind: &'a str,
    name: &'a str,
    bound: &'a Quantity,
    request: Option<&'a Quantity>,
    limit: Option<&'a Quantity>,
    /// The bound, the request and the limit as numbers of the same unit.
    values: [i64; 3],
}

impl<'a> Checked<'a> {
    fn new(
        kind: &'a str,
        name: &'a str,
        bound: &'a Quantity,
        request: Option<&'a Quantity>,
        limit: Option<&'a Quantity>,
    ) -> Self {
        let all = [Some(bound), request, limit];
        let mut values = all.map(|quantity| quantity.map_or(0, Quantity::value));
        if values.iter().all(|value| *value <= MILLI_VALUE_MAX) {
            values = all.map(|quantity| quantity.map_or(0, Quantity::milli_value));
        }
        Self {
            kind,
            name,
            bound,
            request,
            limit,
            values,
        }
    }

    fn usage(&self, which: &str, found: &str) -> Option<String> {
        let Self {
            kind, name, bound, ..
        } = self;
        Some(format!("{which} {name} usage per {kind} is {bound}{found}"))
    }

    fn below_minimum(&self) -> Option<String> {
        let [bound, request, limit] = self.values;
        match (self.request, self.limit) {
            (None, _) => self.usage("minimum", ".  No request is specified"),
            (Some(found), _) if request < bound => {
                self.usage("minimum", &format!(", but request is {found}"))
            }
            (_, Some(found)) if limit < bound => {
                self.usage("minimum", &format!(", but limit is {found}"))
            }
            _ => None,
        }
    }

    fn above_maximum(&self) -> Option<String> {
        let [bound, request, limit] = self.values;
        match (self.limit, self.request) {
            (None, _) => self.usage("maximum", ".  No limit is specified"),
            (Some(found), _) if limit > bound => {
                self.usage("maximum", &format!(", but limit is {found}"))
            }
            (_, Some(found)) if request > bound => {
                self.usage("maximum", &format!(", but request is {found}"))
            }
            _ => None,
        }
    }

    fn request_above_maximum(&self) -> Option<String> {
        let [bound, request, _] = self.values;
        match self.request {
            None => self.usage("maximum", ".  No request is specified"),
            Some(found) if request > bound => {
                self.usage("maximum", &format!(", but request is {found}"))
            }
            Some(_) => None,
        }
    }

    fn above_ratio(&self) -> Option<String> {
        let Self {
            kind, name, bound, ..
        } = self;
        let [_, request, limit] = self.values;
        let why = if request == 0 {
            "no request is specified or request is 0".to_owned()
        } else if limit == 0 {
            "no limit is specified or limit is 0".to_owned()
        } else {
            // Upstream divides floating-point numbers, too.
            let ratio = limit as f64 / request as f64;
            let is_allowed = match bound.value() <= MILLI_VALUE_MAX {
                true => ratio * 1000.0 <= bound.milli_value() as f64,
                false => ratio <= bound.value() as f64,
            };
            if is_allowed {
                return None;
            }
            format!("provided ratio is {ratio:.6}")
        };
        Some(format!(
            "{name} max limit to request ratio per {kind} is {bound}, but {why}"
        ))
    }
}

#[cfg(test)]
mod tests;
