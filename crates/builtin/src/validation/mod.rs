//! Validation of built-in types: one cause per field, with upstream's messages and in its order (`Validate*`). The work and
//! the number of causes are bounded: after a hundred causes no more are added.

mod batch;
mod certificates;
mod containers;
mod core;
mod cron;
mod devices;
mod events;
mod failure_policies;
mod flows;
mod limit_ranges;
mod members;
mod network;
mod nodes;
mod pod_annotations;
mod pods;
mod policies;
mod quotas;
mod resources;
mod restart_rules;
mod scaling;
mod scheduling;
mod security;
mod selectors;
mod services;
mod slices;
mod storage;
mod text;
mod updates;
mod volumes;
mod workloads;

#[cfg(test)]
mod tests;

use members::not_negative_top;
use path::Path;
use watchet_registry::Causes;
use watchet_registry::Resource;
use watchet_registry::field_path as path;
use watchet_registry::fields::Fields;

/// Validates an object to be created.
pub(super) fn new(resource: &Resource, object: &Fields, causes: &mut Causes) {
    any(resource, None, object, causes);
}

/// Validates `new` as the update of `old`, written to the object or to its subresource.
pub(super) fn update(
    resource: &Resource,
    subresource: Option<&str>,
    (old, new): (&Fields, &Fields),
    causes: &mut Causes,
) {
    if resource.is("certificates.k8s.io", "certificatesigningrequests") {
        return certificates::update(subresource, old, new, causes);
    }
    match subresource {
        None | Some("scale") => {
            updates::update(resource, old, new, causes);
            any(resource, Some(old), new, causes);
        }
        Some("status") => match (&*resource.group, &*resource.plural) {
            ("", "pods") => pods::status_update(old, new, causes),
            ("", "nodes") => nodes::status(new, causes),
            ("" | "apps", _) => workloads::status(new, causes),
            ("flowcontrol.apiserver.k8s.io", _) => flows::status(new, causes),
            _ => {}
        },
        Some("ephemeralcontainers" | "resize") => pods::pod(new, causes),
        Some(_) => {}
    }
}

/// Validates the rules that hold for every object, new or updated.
fn any(resource: &Resource, old: Option<&Fields>, object: &Fields, causes: &mut Causes) {
    match (&*resource.group, &*resource.plural) {
        ("", plural) => core_group(plural, old, object, causes),
        ("apps", "deployments") => workloads::deployment(object, causes),
        ("apps", "replicasets") => workloads::replica_set(object, causes),
        ("apps", "daemonsets") => workloads::daemon_set(object, causes),
        ("apps", "statefulsets") => workloads::stateful_set(object, causes),
        ("apps", "controllerrevisions") => not_negative_top(object, "revision", causes),
        ("batch", "jobs") => {
            batch::job(object, old.is_none(), causes);
            batch::job_name(object, causes);
        }
        ("batch", "cronjobs") => batch::cron_job(object, causes),
        ("autoscaling", "horizontalpodautoscalers") => scaling::autoscaler(object, causes),
        ("policy", "poddisruptionbudgets") => policies::disruption_budget(object, causes),
        ("scheduling.k8s.io", "priorityclasses") => policies::priority_class(object, causes),
        ("rbac.authorization.k8s.io", plural) => policies::rbac(plural, object, causes),
        // The spec of a request is immutable.
        ("certificates.k8s.io", _) if old.is_none() => certificates::request(object, causes),
        ("coordination.k8s.io", "leases") => policies::lease(object, causes),
        ("node.k8s.io", "runtimeclasses") => policies::runtime_class(object, causes),
        ("networking.k8s.io" | "discovery.k8s.io", plural) => {
            network::any(plural, object, causes);
        }
        ("storage.k8s.io", plural) => storage::any(plural, object, causes),
        ("resource.k8s.io", "deviceclasses") => devices::class(object, causes),
        ("events.k8s.io", _) => events(old, &resource.group, object, causes),
        ("resource.k8s.io", "resourceclaims") if old.is_none() => devices::claim(object, causes),
        ("resource.k8s.io", "resourceclaimtemplates") if old.is_none() => {
            devices::claim_template(object, causes);
        }
        ("resource.k8s.io", "resourceslices") => devices::slice(object, causes),
        ("flowcontrol.apiserver.k8s.io", "flowschemas") => flows::schema(object, causes),
        ("flowcontrol.apiserver.k8s.io", _) => flows::level(object, causes),
        _ => {}
    }
}

fn core_group(plural: &str, old: Option<&Fields>, object: &Fields, causes: &mut Causes) {
    match plural {
        "pods" => pods::pod(object, causes),
        "podtemplates" => {
            if let Some(template) = watchet_registry::fields::object(object, "template") {
                pods::template(template, &Path::Top("template"), causes);
            }
        }
        "replicationcontrollers" => workloads::replication_controller(object, causes),
        "services" => services::service(object, causes),
        "persistentvolumeclaims" => core::claim(object, causes),
        "persistentvolumes" => storage::volume(object, causes),
        "configmaps" => core::config_map(object, causes),
        "secrets" => core::secret(object, causes),
        "nodes" => nodes::node(object, causes),
        "endpoints" => network::endpoints(object, causes),
        "resourcequotas" => quotas::quota(object, causes),
        "limitranges" => limit_ranges::limit_range(object, causes),
        "events" => events(old, "", object, causes),
        _ => {}
    }
}

fn events(old: Option<&Fields>, group: &str, event: &Fields, causes: &mut Causes) {
    match old {
        None => events::new(group, event, causes),
        Some(old) => events::update(group, old, event, causes),
    }
}
