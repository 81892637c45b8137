//! The quota usage of the objects of a resource: the limits that count them, the scopes that they are in, and the usage
//! of each limit by one object.

use jiff::Timestamp;
use serde_json::Value;

use super::super::resources::{ResourceList, add, raise};
use super::pods;
use super::scope::Scope;
use crate::request::Operation;
use watchet_schema::Quantity;

/// The number of devices that a request with `allocationMode: All` counts for.
const DEVICES_MAX: u64 = 32;
const PER_DEVICE_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
const PER_STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";
const CLAIM_RESOURCES: [&str; 2] = ["persistentvolumeclaims", "requests.storage"];

/// Returns true if the objects of a resource are not counted: most of these are not stored, and events expire.
fn is_ignored(group: &str, resource: &str) -> bool {
    match resource {
        "bindings" | "componentstatuses" => group.is_empty(),
        "events" => matches!(group, "" | "events.k8s.io"),
        "selfsubjectreviews" | "tokenreviews" => group == "authentication.k8s.io",
        "localsubjectaccessreviews"
        | "selfsubjectaccessreviews"
        | "selfsubjectrulesreviews"
        | "subjectaccessreviews" => group == "authorization.k8s.io",
        _ => false,
    }
}

/// The resources whose count has a second limit, named by the plural.
const COUNTED_BY_NAME: [&str; 4] = [
    "configmaps",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
];

/// The kinds of objects that have their own usage rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pods,
    Services,
    VolumeClaims,
    DeviceClaims,
    /// Only their number counts.
    Others,
}

/// Computes the quota usage of the objects of one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Evaluator<'a> {
    kind: Kind,
    group: &'a str,
    resource: &'a str,
}

impl<'a> Evaluator<'a> {
    /// Returns the evaluator of a resource; `None` if quotas do not count its objects.
    pub(crate) fn of(group: &'a str, resource: &'a str) -> Option<Self> {
        if is_ignored(group, resource) {
            return None;
        }
        let kind = match (group, resource) {
            ("", "pods") => Kind::Pods,
            ("", "services") => Kind::Services,
            ("", "persistentvolumeclaims") => Kind::VolumeClaims,
            ("resource.k8s.io", "resourceclaims") => Kind::DeviceClaims,
            _ => Kind::Others,
        };
        Some(Self {
            kind,
            group,
            resource,
        })
    }

    /// Returns the limit of the number of objects: `count/deployments.apps`.
    fn count(&self) -> String {
        let Self {
            group, resource, ..
        } = self;
        match group.is_empty() {
            true => format!("count/{resource}"),
            false => format!("count/{resource}.{group}"),
        }
    }

    /// Returns true if this is the name of that limit.
    fn is_count(&self, limit: &str) -> bool {
        let counted = limit.strip_prefix("count/");
        let group = counted.and_then(|counted| counted.strip_prefix(self.resource));
        group.is_some_and(|group| match self.group.is_empty() {
            true => group.is_empty(),
            false => group.strip_prefix('.') == Some(self.group),
        })
    }

    /// Returns another name of that limit.
    fn alias(&self) -> Option<&'a str> {
        let has_alias = self.group.is_empty() && COUNTED_BY_NAME.contains(&self.resource);
        has_alias.then_some(self.resource)
    }

    /// Returns true if a request of this kind, for whichever object, may change the usage.
    pub(super) fn handles(&self, operation: Operation, subresource: &str) -> bool {
        use Operation::{Create, Update};
        matches!(
            (self.kind, operation, subresource),
            (_, Create, "")
                | (Kind::Pods, Update, "" | "resize")
                | (Kind::VolumeClaims, Update, "" | "status")
                | (Kind::Services | Kind::DeviceClaims, Update, "")
        )
    }

    /// Returns true if an update is one that may change the usage.
    pub(super) fn handles_update(&self, subresource: &str, old: &Value, new: &Value) -> bool {
        let is_of_pod_itself = self.kind == Kind::Pods && subresource.is_empty();
        !is_of_pod_itself || pods::is_terminating(old) != pods::is_terminating(new)
    }

    /// Returns true if the limit of this name is about such objects.
    pub(crate) fn matches(&self, limit: &str) -> bool {
        if self.is_count(limit) || Some(limit) == self.alias() {
            return true;
        }
        match self.kind {
            Kind::Pods => pods::matches(limit),
            Kind::Services => {
                ["services", "services.nodeports", "services.loadbalancers"].contains(&limit)
            }
            Kind::VolumeClaims => {
                let is_of_class = |resource: &&str| {
                    let rest = limit.strip_suffix(resource);
                    rest.is_some_and(|rest| rest.ends_with(PER_STORAGE_CLASS))
                };
                CLAIM_RESOURCES.contains(&limit) || CLAIM_RESOURCES.iter().any(is_of_class)
            }
            Kind::DeviceClaims => limit.ends_with(PER_DEVICE_CLASS),
            Kind::Others => false,
        }
    }

    /// Returns true if `object` is in a scope. What has no scopes is in none.
    pub(super) fn is_in_scope(&self, scope: &Scope, object: &Value) -> bool {
        match self.kind {
            Kind::Pods => pods::is_in_scope(scope, object),
            Kind::VolumeClaims => is_claim_in_scope(scope, object),
            Kind::Services | Kind::DeviceClaims | Kind::Others => false,
        }
    }

    /// Returns true if an object can come to use more or less while it exists.
    pub(super) fn varies(&self) -> bool {
        self.kind != Kind::Others
    }

    /// Returns what can change of an object that decides which scopes it is in.
    pub(super) fn scope_facts(&self, object: &Value) -> String {
        match self.kind {
            Kind::Pods => pods::is_terminating(object).to_string(),
            Kind::VolumeClaims => attributes_classes(object).join(" "),
            Kind::Services | Kind::DeviceClaims | Kind::Others => String::new(),
        }
    }

    /// Rejects an object that does not specify the amounts of limited resources.
    ///
    /// # Errors
    /// The message, which contains what the object must specify.
    pub(super) fn check_constraints(&self, limits: &[&str], object: &Value) -> Result<(), String> {
        match self.kind {
            Kind::Pods => pods::check_constraints(limits, object),
            _ => Ok(()),
        }
    }

    /// Returns how much `object` uses of each limit, as of `now`.
    pub(crate) fn usage(&self, object: &Value, now: Timestamp) -> ResourceList {
        let mut usage = match self.kind {
            Kind::Pods => pods::usage(object, now),
            Kind::Services => of_service(object),
            Kind::VolumeClaims => of_volume_claim(object),
            Kind::DeviceClaims => of_device_claim(object),
            Kind::Others => ResourceList::new(),
        };
        let one = Quantity::of_count(1);
        if let Some(alias) = self.alias() {
            usage.insert(alias.to_owned(), one.clone());
        }
        usage.insert(self.count(), one);
        usage
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list_of<const N: usize>(amounts: [(&str, u64); N]) -> ResourceList {
    let amounts = amounts.into_iter();
    amounts
        .map(|(name, count)| (name.to_owned(), Quantity::of_count(count)))
        .collect()
}

fn of_service(service: &Value) -> ResourceList {
    let spec = &service["spec"];
    let ports = || items(&spec["ports"]);
    let with_node_port = || ports().filter(|port| port["nodePort"].as_i64().unwrap_or(0) != 0);
    let (balancers, node_ports) = match text(&spec["type"]) {
        "NodePort" => (0, ports().count()),
        "LoadBalancer" if spec["allocateLoadBalancerNodePorts"] == false => {
            (1, with_node_port().count())
        }
        "LoadBalancer" => (1, ports().count()),
        _ => (0, 0),
    };
    list_of([
        ("services", 1),
        ("services.loadbalancers", balancers),
        ("services.nodeports", node_ports as u64),
    ])
}

fn of_volume_claim(claim: &Value) -> ResourceList {
    const ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
    let mut usage = list_of([("persistentvolumeclaims", 1)]);
    let requested = Quantity::read(&claim["spec"]["resources"]["requests"]["storage"]);
    if let Some(mut storage) = requested.map(Quantity::rounded_up) {
        // While a claim shrinks after a failed expansion, the allocated storage can exceed the requested storage.
        let allocated = Quantity::read(&claim["status"]["allocatedResources"]["storage"]);
        if let Some(allocated) = allocated.filter(|allocated| *allocated > storage) {
            storage = allocated.rounded_up();
        }
        usage.insert("requests.storage".to_owned(), storage);
    }
    let annotation = claim["metadata"]["annotations"][ANNOTATION].as_str();
    let class = annotation.unwrap_or_else(|| text(&claim["spec"]["storageClassName"]));
    if !class.is_empty() {
        let of_class = usage.iter().map(|(name, amount)| {
            let name = format!("{class}{PER_STORAGE_CLASS}{name}");
            (name, amount.clone())
        });
        let of_class: Vec<_> = of_class.collect();
        usage.extend(of_class);
    }
    usage
}

fn is_claim_in_scope(scope: &Scope, claim: &Value) -> bool {
    if scope.name != "VolumeAttributesClass" {
        return false;
    }
    let classes = attributes_classes(claim);
    match classes.is_empty() {
        true => scope.selects(None),
        false => classes.iter().any(|class| scope.selects(Some(class))),
    }
}

/// Returns the attributes classes of a claim: the specified, the current and the target one.
fn attributes_classes(claim: &Value) -> Vec<&str> {
    let status = &claim["status"];
    let classes = [
        &claim["spec"]["volumeAttributesClassName"],
        &status["currentVolumeAttributesClassName"],
        &status["modifyVolumeStatus"]["targetVolumeAttributesClassName"],
    ];
    let classes = classes.map(text).into_iter();
    classes.filter(|class| !class.is_empty()).collect()
}

fn of_device_claim(claim: &Value) -> ResourceList {
    let devices = |request: &Value| {
        let class = text(&request["deviceClassName"]);
        let count = match text(&request["allocationMode"]) {
            "All" => DEVICES_MAX,
            "ExactCount" => request["count"].as_u64().unwrap_or(0),
            _ => 0,
        };
        (format!("{class}{PER_DEVICE_CLASS}"), count)
    };
    let mut usage = ResourceList::new();
    for request in items(&claim["spec"]["devices"]["requests"]) {
        let mut used = ResourceList::new();
        let alternatives = items(&request["firstAvailable"]).chain(request.get("exactly"));
        for (name, count) in alternatives.map(devices) {
            // The claim gets the devices of only one alternative, which is unknown here, so the largest counts.
            let count = Quantity::of_count(count);
            raise(&mut used, &[(name, count)].into());
        }
        add(&mut usage, &used);
    }
    usage
}
