//! Defaults of the volumes of a pod.

use serde_json::Value;

use watchet_registry::fields::{Fields, child, existing, items, set, set_number};

/// 0644
const FILE_MODE: i64 = 0o644;
const TOKEN_SECONDS: i64 = 3600;

/// Sets the defaults of a volume source.
type Filler = fn(&mut Fields);

const SOURCES: &[(&str, Filler)] = &[
    ("configMap", fill_mode),
    ("secret", fill_mode),
    ("downwardAPI", |source| {
        fill_mode(source);
        fill_items(source);
    }),
    ("projected", |source| {
        fill_mode(source);
        items(source, "sources").for_each(fill_projection);
    }),
    ("hostPath", |source| {
        source.entry("type").or_insert_with(|| "".into());
    }),
    ("iscsi", |source| set(source, "iscsiInterface", "default")),
    ("rbd", |source| {
        set(source, "pool", "rbd");
        set(source, "user", "admin");
        set(source, "keyring", "/etc/ceph/keyring");
    }),
    ("azureDisk", |source| {
        set(source, "cachingMode", "ReadWrite");
        set(source, "kind", "Shared");
        set(source, "fsType", "ext4");
        set(source, "readOnly", false);
    }),
    ("scaleIO", |source| {
        set(source, "storageMode", "ThinProvisioned");
        set(source, "fsType", "xfs");
    }),
    ("ephemeral", |source| {
        let template = existing(source, "volumeClaimTemplate");
        if let Some(spec) = template.and_then(|template| child(template, "spec")) {
            set(spec, "volumeMode", "Filesystem");
        }
    }),
];

/// Sets the defaults of a volume; one without a source is an `emptyDir`.
pub(super) fn fill(volume: &mut Fields) {
    let sourceless = !volume.iter().any(|(k, v)| k != "name" && !v.is_null());
    if sourceless {
        child(volume, "emptyDir");
    }
    for (name, fill) in SOURCES {
        existing(volume, name).into_iter().for_each(fill);
    }
}

/// Sets the defaults of a persistent volume's source, which is a member of its spec.
pub(super) fn fill_persistent(spec: &mut Fields) {
    for (name, fill) in SOURCES {
        existing(spec, name).into_iter().for_each(fill);
    }
}

fn fill_mode(source: &mut Fields) {
    if source.get("defaultMode").is_none_or(Value::is_null) {
        set_number(source, "defaultMode", FILE_MODE);
    }
}

fn fill_items(source: &mut Fields) {
    for item in items(source, "items") {
        if let Some(field) = existing(item, "fieldRef") {
            set(field, "apiVersion", "v1");
        }
    }
}

fn fill_projection(source: &mut Fields) {
    if let Some(token) = existing(source, "serviceAccountToken") {
        set(token, "expirationSeconds", TOKEN_SECONDS);
    }
    existing(source, "downwardAPI")
        .into_iter()
        .for_each(fill_items);
}
