//! Validates the volumes of a pod.

use std::collections::HashSet;

use super::containers::field_ref;
use super::members::objects;
use super::text as rules;
use super::{core, resources};
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, list, number, object, text};

/// The fields of a pod that a downward API file may contain.
const FILE_FIELD_PATHS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

/// Validates `spec.volumes` and returns the names of the volumes.
pub(super) fn volumes<'a>(
    spec: &'a Fields,
    at: &Path<'_>,
    causes: &mut Causes,
) -> HashSet<&'a str> {
    let at = at.member("volumes");
    let mut names = HashSet::new();
    for (index, volume) in objects(list(spec, "volumes")) {
        if causes.is_full() {
            break;
        }
        let at = at.item(index);
        source(volume, &at, causes);
        let name = text(volume, "name");
        let problems = rules::label(name);
        if name.is_empty() {
            causes.required(&at.member("name"), "");
        } else if !problems.is_empty() {
            causes.invalid_each(&at.member("name"), name, problems);
        } else if !names.insert(name) {
            causes.duplicate(&at.member("name"), name);
        }
    }
    names
}

fn source(volume: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let sources = volume
        .iter()
        .filter(|(name, value)| *name != "name" && !value.is_null());
    let mut given = 0;
    for (name, value) in sources {
        given += 1;
        let at = at.member(name);
        if given > 1 {
            causes.forbidden(&at, "may not specify more than 1 volume type");
            continue;
        }
        if let Some(source) = value.as_object() {
            known_source(name, source, &at, causes);
        }
    }
    if given == 0 {
        causes.required(at, "must specify a volume type");
    }
}

/// Validates the required members of a volume source; only the type of an unknown source is checked.
fn known_source(name: &str, source: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let required: &[&str] = match name {
        "hostPath" => &["path"],
        "secret" => &["secretName"],
        "configMap" => &["name"],
        "persistentVolumeClaim" => &["claimName"],
        "nfs" => &["server", "path"],
        "csi" => &["driver"],
        "gcePersistentDisk" => &["pdName"],
        "awsElasticBlockStore" => &["volumeID"],
        "iscsi" => &["targetPortal", "iqn"],
        "glusterfs" => &["endpoints", "path"],
        _ => &[],
    };
    for member in required {
        if text(source, member).is_empty() {
            causes.required(&at.member(member), "");
        }
    }
    match name {
        "secret" | "configMap" => {
            mode(source, "defaultMode", at, causes);
            keys(source, at, causes);
        }
        "downwardAPI" => {
            mode(source, "defaultMode", at, causes);
            files(source, at, causes);
        }
        "projected" => {
            mode(source, "defaultMode", at, causes);
            projections(source, at, causes);
        }
        "hostPath" => {
            if text(source, "path").split('/').any(|part| part == "..") {
                causes.invalid(
                    &at.member("path"),
                    text(source, "path"),
                    "must not contain '..'",
                );
            }
            let types = &[
                "BlockDevice",
                "CharDevice",
                "Directory",
                "DirectoryOrCreate",
                "File",
                "FileOrCreate",
                "Socket",
            ];
            super::members::one_of(source, "type", types, at, causes);
        }
        "nfs" if !text(source, "path").starts_with('/') => {
            causes.invalid(
                &at.member("path"),
                text(source, "path"),
                "must be an absolute path",
            );
        }
        "emptyDir" if source.contains_key("sizeLimit") => {
            resources::amount(source, "sizeLimit", &at.member("sizeLimit"), causes);
        }
        "ephemeral" => match object(source, "volumeClaimTemplate") {
            None => causes.required(&at.member("volumeClaimTemplate"), ""),
            Some(template) => {
                let at = at.member("volumeClaimTemplate");
                core::claim_spec(template, &at.member("spec"), causes);
            }
        },
        _ => {}
    }
}

/// Validates the permission bits of a file.
fn mode(source: &Fields, member: &str, at: &Path<'_>, causes: &mut Causes) {
    if let Some(mode) = number(source, member).filter(|mode| !(0..=0o777).contains(mode)) {
        let why = "must be a number between 0 and 0777 (octal), both inclusive";
        causes.invalid(&at.member(member), mode, why);
    }
}

/// Validates `items`, which maps keys to files.
fn keys(source: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let at = at.member("items");
    for (index, item) in objects(list(source, "items")) {
        let at = at.item(index);
        if text(item, "key").is_empty() {
            causes.required(&at.member("key"), "");
        }
        file(item, &at, causes);
    }
}

fn file(item: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let path = text(item, "path");
    if path.is_empty() {
        causes.required(&at.member("path"), "");
    }
    if path.starts_with('/') {
        causes.invalid(&at.member("path"), path, "must be a relative path");
    }
    if path.split('/').any(|part| part == "..") {
        causes.invalid(&at.member("path"), path, "must not contain '..'");
    }
    mode(item, "mode", at, causes);
}

fn files(source: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let at = at.member("items");
    for (index, item) in objects(list(source, "items")) {
        let at = at.item(index);
        file(item, &at, causes);
        match (object(item, "fieldRef"), object(item, "resourceFieldRef")) {
            (None, None) => {
                causes.required(&at, "one of fieldRef and resourceFieldRef is required");
            }
            (Some(_), Some(_)) => {
                let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
                causes.invalid(&at, "resource", why);
            }
            (Some(field), None) => {
                field_ref(field, FILE_FIELD_PATHS, &at.member("fieldRef"), causes);
            }
            (None, Some(_)) => {}
        }
    }
}

fn projections(source: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let at = at.member("sources");
    for (index, projection) in objects(list(source, "sources")) {
        let at = at.item(index);
        let mut given = 0;
        for (name, value) in projection {
            given += 1;
            let at = at.member(name);
            if given > 1 {
                causes.forbidden(&at, "may not specify more than 1 volume type per source");
                continue;
            }
            let Some(source) = value.as_object() else {
                continue;
            };
            match &**name {
                "secret" | "configMap" => {
                    if text(source, "name").is_empty() {
                        causes.required(&at.member("name"), "");
                    }
                    keys(source, &at, causes);
                }
                "downwardAPI" => files(source, &at, causes),
                "serviceAccountToken" => {
                    if number(source, "expirationSeconds").is_some_and(|s| s < 600) {
                        let given = source["expirationSeconds"].clone();
                        let why = "may not specify a duration less than 10 minutes";
                        causes.invalid(&at.member("expirationSeconds"), given, why);
                    }
                    if text(source, "path").is_empty() {
                        causes.required(&at.member("path"), "");
                    }
                }
                _ => {}
            }
        }
    }
}
