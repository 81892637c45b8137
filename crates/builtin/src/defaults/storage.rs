//! Defaults of persistent volumes and claims.

use super::volumes;
use watchet_registry::fields::{Fields, child, existing, set, text};

pub(super) fn claim(claim: &mut Fields) {
    if let Some(spec) = child(claim, "spec") {
        child(spec, "resources");
        set(spec, "volumeMode", "Filesystem");
        mirror_source(spec);
    }
}

/// Sets the two fields with the source of the data to the same value; the older one accepts only claims and snapshots.
fn mirror_source(spec: &mut Fields) {
    let namespaced = existing(spec, "dataSourceRef").is_some_and(|r| r.contains_key("namespace"));
    if namespaced {
        return;
    }
    for (from, to) in [
        ("dataSource", "dataSourceRef"),
        ("dataSourceRef", "dataSource"),
    ] {
        if let Some(source) = existing(spec, from).cloned() {
            let known = match text(&source, "kind") {
                "PersistentVolumeClaim" | "VolumeSnapshot" => true,
                _ => to == "dataSourceRef",
            };
            if known {
                spec.entry(to).or_insert(source.into());
            }
        }
    }
}

pub(super) fn volume(volume: &mut Fields) {
    if let Some(spec) = child(volume, "spec") {
        set(spec, "persistentVolumeReclaimPolicy", "Retain");
        set(spec, "volumeMode", "Filesystem");
        volumes::fill_persistent(spec);
    }
}
