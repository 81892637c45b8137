//! Validates the smaller types of the core group: config maps, secrets and claims.

use serde_json::Value;

use super::members::one_of;
use super::text as rules;
use super::{resources, selectors};
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, list, object, text};

/// The maximum size of the values of a config map or a secret, in bytes, without the keys.
const DATA_BYTES_MAX: usize = 1 << 20;

const ACCESS_MODES: &[&str] = &[
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];

pub(super) fn config_map(map: &Fields, causes: &mut Causes) {
    let mut bytes = 0;
    let texts = object(map, "data");
    if let Some(texts) = texts {
        keys(texts, "data", causes);
        bytes += texts
            .values()
            .filter_map(Value::as_str)
            .map(str::len)
            .sum::<usize>();
    }
    if let Some(binary) = object(map, "binaryData") {
        let at = Path::Top("binaryData");
        for key in binary.keys() {
            if texts.is_some_and(|texts| texts.contains_key(key)) {
                causes.invalid(&at.key(key), &**key, "duplicate of key present in data");
            }
        }
        keys(binary, "binaryData", causes);
        bytes += decoded_bytes(binary);
    }
    if bytes > DATA_BYTES_MAX {
        // Upstream writes the path of the object itself like this.
        causes.too_long(&Path::Top("[]"), DATA_BYTES_MAX);
    }
}

fn keys(data: &Fields, member: &'static str, causes: &mut Causes) {
    let at = Path::Top(member);
    for key in data.keys() {
        if causes.is_full() {
            return;
        }
        causes.invalid_each(&at.key(key), key, rules::config_key(key));
    }
}

/// Returns the number of bytes that base64 values decode to.
fn decoded_bytes(data: &Fields) -> usize {
    let values = data.values().filter_map(Value::as_str);
    let bytes = |text: &str| text.trim_end_matches('=').len() * 3 / 4;
    values.map(bytes).sum()
}

pub(super) fn secret(secret: &Fields, causes: &mut Causes) {
    let at = Path::Top("data");
    let data = object(secret, "data");
    if let Some(data) = data {
        keys(data, "data", causes);
        if decoded_bytes(data) > DATA_BYTES_MAX {
            causes.too_long(&at, DATA_BYTES_MAX);
        }
    }
    let has = |key: &str| data.is_some_and(|data| data.contains_key(key));
    let needed: &[&str] = match text(secret, "type") {
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        // One of the two keys is sufficient.
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            &["username", "password"]
        }
        "kubernetes.io/service-account-token" => {
            let annotations = object(secret, "metadata").and_then(|m| object(m, "annotations"));
            let account = "kubernetes.io/service-account.name";
            if annotations.is_none_or(|annotations| text(annotations, account).is_empty()) {
                let at = Path::Top("metadata");
                causes.required(&at.member("annotations").key(account), "");
            }
            &[]
        }
        _ => &[],
    };
    for key in needed {
        if !has(key) {
            causes.required(&at.key(key), "");
        }
    }
}

/// Validates a persistent volume claim.
pub(super) fn claim(claim: &Fields, causes: &mut Causes) {
    claim_spec(claim, &Path::Top("spec"), causes);
}

/// Validates the spec of a claim, which is the member `spec` of `owner`, at the path `at`.
pub(super) fn claim_spec(owner: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let empty = Fields::new();
    let spec = object(owner, "spec").unwrap_or(&empty);
    access_modes(spec, "at least 1 access mode is required", at, causes);
    if let Some(selector) = object(spec, "selector") {
        selectors::selector(selector, &at.member("selector"), causes);
    }
    let at_resources = at.member("resources");
    // Upstream's path, without `requests`.
    let at_storage = at_resources.key("storage");
    let requests = object(spec, "resources").and_then(|resources| object(resources, "requests"));
    match requests.filter(|requests| requests.contains_key("storage")) {
        None => causes.required(&at_storage, ""),
        Some(requests) => resources::positive_amount(requests, "storage", &at_storage, causes),
    }
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        causes.invalid_each(
            &at.member("storageClassName"),
            class,
            rules::subdomain(class),
        );
    }
    one_of(spec, "volumeMode", &["Block", "Filesystem"], at, causes);
}

/// Validates `accessModes` of a volume or of a claim; `missing` is the message if there are none.
pub(super) fn access_modes(spec: &Fields, missing: &str, at: &Path<'_>, causes: &mut Causes) {
    let at = at.member("accessModes");
    let modes = list(spec, "accessModes");
    if modes.is_empty() {
        causes.required(&at, missing);
    }
    for mode in modes {
        let mode = mode.as_str().unwrap_or_default();
        if !ACCESS_MODES.contains(&mode) {
            causes.not_supported(&at, mode, ACCESS_MODES);
        }
    }
    let is_alone = |mode: &Value| mode == "ReadWriteOncePod";
    let is_shared = |mode: &Value| {
        let mode = mode.as_str().unwrap_or_default();
        mode != "ReadWriteOncePod" && ACCESS_MODES.contains(&mode)
    };
    if modes.iter().any(is_alone) && modes.iter().any(is_shared) {
        let why = "may not use ReadWriteOncePod with other access modes";
        causes.forbidden(&at, why);
    }
}
