//! The secrets that a pod refers to, and those that its service account allows.

use serde_json::Value;

use super::super::object::{list, name_of};

/// The fields of volumes that refer to secrets.
const VOLUME_SECRETS: [&str; 10] = [
    "/azureFile/secretName",
    "/cephfs/secretRef",
    "/cinder/secretRef",
    "/csi/nodePublishSecretRef",
    "/flexVolume/secretRef",
    "/iscsi/secretRef",
    "/rbd/secretRef",
    "/scaleIO/secretRef",
    "/secret/secretName",
    "/storageos/secretRef",
];

/// Returns true if a pod of this spec refers to a secret.
pub(super) fn references_any(spec: &Value) -> bool {
    let of_container = |container: &Value| {
        let env = list(&container["env"]).iter();
        let mut env = env.map(|env| &env["valueFrom"]["secretKeyRef"]);
        let from = list(&container["envFrom"]).iter();
        let mut from = from.map(|from| &from["secretRef"]);
        env.any(is_given) || from.any(is_given)
    };
    let of_volume = |volume: &Value| {
        let mut direct = VOLUME_SECRETS.iter().filter_map(|at| volume.pointer(at));
        let projected = list(&volume["projected"]["sources"]).iter();
        let mut projected = projected.map(|source| &source["secret"]);
        direct.any(is_given) || projected.any(is_given)
    };
    let containers = ["initContainers", "containers", "ephemeralContainers"];
    let mut containers = containers.iter().flat_map(|at| list(&spec[at]));
    containers.any(of_container)
        || list(&spec["volumes"]).iter().any(of_volume)
        || list(&spec["imagePullSecrets"]).iter().any(is_given)
}

/// Returns true if `reference` is a name that is not empty, or an object with such a name.
fn is_given(reference: &Value) -> bool {
    let name = reference.as_str().or_else(|| reference["name"].as_str());
    name.is_some_and(|name| !name.is_empty())
}

/// Returns the names in a list of references of an account.
fn names(references: &Value) -> impl Iterator<Item = &str> {
    list(references)
        .iter()
        .filter_map(|one| one["name"].as_str())
}

/// Checks that the account lists every secret that a new pod with this spec refers to.
pub(super) fn check(spec: &Value, account: &Value) -> Result<(), String> {
    let mountable = |name: &str| names(&account["secrets"]).any(|own| own == name);
    let own = name_of(account);
    for volume in list(&spec["volumes"]) {
        let secret = &volume["secret"];
        let name = secret["secretName"].as_str().unwrap_or_default();
        if !secret.is_null() && !mountable(name) {
            return Err(format!(
                "volume with secret.secretName=\"{name}\" is not allowed because service account {own} \
                 does not reference that secret"
            ));
        }
    }
    check_containers(list(&spec["initContainers"]), "init container", account)?;
    check_containers(list(&spec["containers"]), "container", account)?;
    for (index, reference) in list(&spec["imagePullSecrets"]).iter().enumerate() {
        let name = reference["name"].as_str().unwrap_or_default();
        if !names(&account["imagePullSecrets"]).any(|own| own == name) {
            return Err(format!(
                "imagePullSecrets[{index}].name=\"{name}\" is not allowed because service account {own} \
                 does not reference that imagePullSecret"
            ));
        }
    }
    Ok(())
}

/// Checks that the account lists every secret that ephemeral containers, which are added to a pod, refer to.
pub(super) fn check_ephemeral_containers(spec: &Value, account: &Value) -> Result<(), String> {
    let containers = list(&spec["ephemeralContainers"]);
    check_containers(containers, "ephemeral container", account)
}

fn check_containers(containers: &[Value], kind: &str, account: &Value) -> Result<(), String> {
    let mountable = |name: &str| names(&account["secrets"]).any(|own| own == name);
    let refused = |container: &Value, by: String, secret: &str| {
        let (name, own) = (container["name"].as_str(), name_of(account));
        format!(
            "{kind} {} with {by} referencing secret.secretName=\"{secret}\" is not allowed because \
             service account {own} does not reference that secret",
            name.unwrap_or_default()
        )
    };
    for container in containers {
        for env in list(&container["env"]) {
            let reference = &env["valueFrom"]["secretKeyRef"];
            let secret = reference["name"].as_str().unwrap_or_default();
            if !reference.is_null() && !mountable(secret) {
                let variable = env["name"].as_str().unwrap_or_default();
                return Err(refused(container, format!("envVar {variable}"), secret));
            }
        }
        for from in list(&container["envFrom"]) {
            let reference = &from["secretRef"];
            let secret = reference["name"].as_str().unwrap_or_default();
            if !reference.is_null() && !mountable(secret) {
                return Err(refused(container, "envFrom".to_owned(), secret));
            }
        }
    }
    Ok(())
}
