//! The volume with a token of the service account, the certificate authority and the namespace, which clients in a pod
//! read at a fixed path.

use serde_json::{Value, json};

use super::super::object::list;
use watchet_api::names;

const NAME_PREFIX: &str = "kube-api-access-";

/// The path at which clients read the volume.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// One hour and seven seconds. The server recognizes the tokens of this volume by this lifetime.
const EXPIRATION_SECONDS: i64 = 60 * 60 + 7;

/// Mounts the volume into every container of a pod with this spec, except containers that mount another volume at the
/// path.
pub(super) fn mount(spec: &mut Value) {
    let volumes = list(&spec["volumes"]).iter();
    let mut volumes = volumes.filter_map(|volume| volume["name"].as_str());
    let existing = volumes.find(|name| name.starts_with(NAME_PREFIX));
    let existing = existing.map(str::to_owned);
    let has_volume = existing.is_some();
    let name = existing.unwrap_or_else(|| names::generate(NAME_PREFIX));
    let mut is_mounted = false;
    for containers in ["initContainers", "containers"] {
        let containers = spec.get_mut(containers).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            is_mounted |= mount_into(container, &name);
        }
    }
    if is_mounted && !has_volume {
        push(
            &mut spec["volumes"],
            json!({"name": name, "projected": source()}),
        );
    }
}

/// Returns false if something is mounted there already.
fn mount_into(container: &mut Value, volume: &str) -> bool {
    let mounts = list(&container["volumeMounts"]);
    if !container.is_object() || mounts.iter().any(|mount| mount["mountPath"] == MOUNT_PATH) {
        return false;
    }
    let mount = json!({"mountPath": MOUNT_PATH, "name": volume, "readOnly": true});
    push(&mut container["volumeMounts"], mount);
    true
}

fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(list) => list.push(item),
        None => *list = json!([item]),
    }
}

fn source() -> Value {
    json!({
        "defaultMode": 0o644,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": EXPIRATION_SECONDS, "path": "token"}},
            {"configMap": {
                "items": [{"key": "ca.crt", "path": "ca.crt"}],
                "name": "kube-root-ca.crt",
            }},
            {"downwardAPI": {"items": [{
                "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                "path": "namespace",
            }]}},
        ],
    })
}
