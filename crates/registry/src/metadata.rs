//! The rules for `metadata` of every object: its shape, its agreement with the URL, the fields that the server sets, the
//! fields that a write cannot change, and validation.

use std::collections::HashSet;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::causes::Causes;
use super::error::ApiError;
use super::resource::Resource;
use super::{names, other_kind};
use watchet_api::{ResourceVersion, StatusCause, Warnings};

/// The fields that clients cannot set.
const SYSTEM_FIELDS: &[&str] = &[
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
    "resourceVersion",
];

/// The fields that an update takes from the stored object.
const IMMUTABLE_FIELDS: &[&str] = &[
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "generateName",
    "name",
    "namespace",
];

/// The nesting limit of lists and maps. `serde_json` can read such an object back; a deeper one could be stored, but not
/// read, changed or deleted.
const DEPTH_MAX: usize = 127;

/// The number of uids of duplicate owners in a warning.
const WARNING_UIDS_MAX: usize = 8;

/// Returns the present time in whole seconds, as Kubernetes writes times.
pub fn now() -> Timestamp {
    Timestamp::from_second(Timestamp::now().as_second()).expect("the present is in range")
}

/// Returns `metadata` of an object whose shape was checked.
pub fn of(object: &Value) -> &Value {
    &object["metadata"]
}

/// Returns a string in `metadata`; empty if it is absent.
pub fn text<'a>(object: &'a Value, member: &str) -> &'a str {
    object["metadata"][member].as_str().unwrap_or_default()
}

/// Returns `metadata.finalizers`.
pub fn finalizers(object: &Value) -> Vec<&str> {
    let list = object["metadata"]["finalizers"].as_array();
    list.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// Returns true if the object is marked as being deleted.
pub fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Checks that `body` is an object of `resource` with valid types in its metadata, and sets `apiVersion` and `kind` if they
/// are absent. Removes nulls in metadata: clients in Go send `creationTimestamp: null`.
///
/// # Errors
/// 400, which names the member.
pub fn check_shape(resource: &Resource, body: &mut Value) -> Result<(), ApiError> {
    let kind_of_body = json_type(body);
    let Some(object) = body.as_object_mut() else {
        return Err(ApiError::BadRequest(format!(
            "the body must be a {} as a JSON object, not {kind_of_body}",
            resource.kind
        )));
    };
    check_type(resource, object)?;
    for member in object.values() {
        check_depth(member, 1)?;
    }
    check_metadata(object)
}

/// Checks the types of the members of `metadata`, and sets `metadata` to an empty object if it is absent or null. Removes null
/// members; a null value of a label or annotation becomes an empty string.
///
/// # Errors
/// 400, which names the member.
pub(crate) fn check_metadata(object: &mut Map<String, Value>) -> Result<(), ApiError> {
    let metadata = object.entry("metadata").or_insert(Value::Null);
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    let Some(metadata) = metadata.as_object_mut() else {
        return Err(wrong_type("metadata", "an object", metadata));
    };
    metadata.retain(|_, value| !value.is_null());
    for (member, value) in metadata.iter_mut() {
        check_member(member, value)?;
    }
    Ok(())
}

/// Checks the nesting of `value`, which is `depth` levels below the top of an object.
///
/// # Errors
/// 400 if it is too deep.
pub(crate) fn check_depth(value: &Value, depth: usize) -> Result<(), ApiError> {
    let is_within = match value {
        Value::Array(_) | Value::Object(_) if depth >= DEPTH_MAX => false,
        Value::Array(items) => items.iter().all(|v| check_depth(v, depth + 1).is_ok()),
        Value::Object(members) => members.values().all(|v| check_depth(v, depth + 1).is_ok()),
        _ => true,
    };
    match is_within {
        true => Ok(()),
        false => Err(ApiError::BadRequest(format!(
            "the object nests lists and maps more than {DEPTH_MAX} levels deep"
        ))),
    }
}

fn check_type(resource: &Resource, object: &mut Map<String, Value>) -> Result<(), ApiError> {
    let (api_version, kind) = (resource.api_version(), &resource.kind);
    let mut get_or_set = |member: &str, expected: &str| match object.get(member) {
        None | Some(Value::Null) => {
            object.insert(member.to_owned(), expected.into());
            Ok(expected.to_owned())
        }
        Some(Value::String(text)) if text.is_empty() => {
            object.insert(member.to_owned(), expected.into());
            Ok(expected.to_owned())
        }
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(wrong_type(member, "a string", other)),
    };
    let given_version = get_or_set("apiVersion", &api_version)?;
    let given_kind = get_or_set("kind", kind)?;
    match given_version == api_version && given_kind == *kind {
        true => Ok(()),
        false => Err(other_kind::refusal(resource, &given_version, &given_kind)),
    }
}

fn check_member(member: &str, value: &mut Value) -> Result<(), ApiError> {
    let path = format!("metadata.{member}");
    let list_of =
        |value: &Value, is_valid: fn(&Value) -> bool, expected: &str| match value.as_array() {
            None => Err(wrong_type(&path, expected, value)),
            Some(list) => match list.iter().find(|item| !is_valid(item)) {
                Some(bad) => Err(wrong_type(&path, expected, bad)),
                None => Ok(()),
            },
        };
    match member {
        "name" | "namespace" | "generateName" | "uid" | "resourceVersion" | "selfLink" => {
            match value.is_string() {
                true => Ok(()),
                false => Err(wrong_type(&path, "a string", value)),
            }
        }
        "labels" | "annotations" => {
            let Some(map) = value.as_object_mut() else {
                return Err(wrong_type(&path, "a map of strings", value));
            };
            for (key, value) in map {
                if value.is_null() {
                    *value = "".into();
                } else if !value.is_string() {
                    return Err(wrong_type(&format!("{path}[{key}]"), "a string", value));
                }
            }
            Ok(())
        }
        "finalizers" => list_of(value, Value::is_string, "a list of strings"),
        "ownerReferences" | "managedFields" => {
            list_of(value, Value::is_object, "a list of objects")
        }
        _ => Ok(()),
    }
}

fn wrong_type(path: &str, expected: &str, value: &Value) -> ApiError {
    let found = json_type(value);
    ApiError::BadRequest(format!("{path} must be {expected}, not {found}"))
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Sets the namespace of an object to that of the request (WC-009) if it has none, and removes the namespace of a
/// cluster-scoped object.
///
/// # Errors
/// 400 if the object has another namespace.
pub fn check_namespace(namespace: Option<&str>, object: &mut Value) -> Result<(), ApiError> {
    let given = text(object, "namespace");
    match namespace {
        Some(namespace) if given.is_empty() => object["metadata"]["namespace"] = namespace.into(),
        Some(namespace) if given == namespace => {}
        None => {
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("namespace");
            }
        }
        Some(_) => {
            return Err(ApiError::BadRequest(
                "the namespace of the provided object does not match the namespace sent on the \
                 request"
                    .to_owned(),
            ));
        }
    }
    Ok(())
}

/// Checks that the object of a PUT or PATCH has the name in the URL (WC-010).
///
/// # Errors
/// 400
pub fn check_name(name: &str, object: &Value) -> Result<(), ApiError> {
    match text(object, "name") {
        "" => Err(ApiError::BadRequest(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        given if given != name => Err(ApiError::BadRequest(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        ))),
        _ => Ok(()),
    }
}

/// Removes the resourceVersion of an object and returns it; zero if it is absent or not a number.
pub(crate) fn take_version(object: &mut Value) -> ResourceVersion {
    let metadata = object["metadata"].as_object_mut();
    let version = metadata.and_then(|metadata| metadata.remove("resourceVersion"));
    let version = version.as_ref().and_then(Value::as_str);
    version
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}

/// Removes the fields that clients cannot set (WC-008).
pub(crate) fn wipe_system_fields(object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|member, _| !SYSTEM_FIELDS.contains(&member.as_str()));
    }
}

/// Sets the uid, the creation time and the generation of a new object.
pub(crate) fn fill_created(resource: &Resource, object: &mut Value) {
    let metadata = &mut object["metadata"];
    metadata["uid"] = uuid::Uuid::new_v4().to_string().into();
    metadata["creationTimestamp"] = now().to_string().into();
    if resource.strategy.rules().has_generation {
        metadata["generation"] = 1.into();
    }
}

/// Resets the metadata that an update cannot change, and removes what is not stored.
pub(crate) fn reset_immutable(stored: &Value, object: &mut Value) {
    let Some(metadata) = object["metadata"].as_object_mut() else {
        return;
    };
    for member in IMMUTABLE_FIELDS {
        match stored["metadata"].get(*member) {
            Some(value) => metadata.insert((*member).to_owned(), value.clone()),
            None => metadata.remove(*member),
        };
    }
    metadata.remove("resourceVersion");
    metadata.remove("selfLink");
}

/// Sets the managed fields, or removes them if `entries` is null.
pub(crate) fn put_managed_fields(entries: Value, object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        match entries.is_null() {
            true => metadata.remove("managedFields"),
            false => metadata.insert("managedFields".to_owned(), entries),
        };
    }
}

/// Increments the generation, if the object has one.
pub(crate) fn bump_generation(object: &mut Value) {
    let metadata = &mut object["metadata"];
    if let Some(generation) = metadata["generation"].as_i64().filter(|g| *g > 0) {
        metadata["generation"] = (generation + 1).into();
    }
}

/// Removes duplicate owners, with a warning.
pub fn dedupe_owners(object: &mut Value, warnings: &Warnings) {
    if let Some(owners) = object["metadata"]
        .get_mut("ownerReferences")
        .and_then(Value::as_array_mut)
    {
        let before = owners.len();
        // A body can have hundreds of thousands of them: comparing each pair would take minutes.
        let mut seen = HashSet::with_capacity(owners.len());
        let mut duplicates = Vec::new();
        owners.retain(|owner| {
            let first = seen.insert(owner.clone());
            if !first && duplicates.len() < WARNING_UIDS_MAX {
                duplicates.push(owner["uid"].clone());
            }
            first
        });
        if owners.len() < before {
            duplicates.dedup();
            warnings.add(format!(
                "metadata.ownerReferences contains duplicate entries, which are dropped; please \
                 fix your requests; duplicate UID(s) observed: {}",
                Value::Array(duplicates)
            ));
        }
    }
}

/// Adds the problems of the metadata of a new object.
pub fn problems_of_new(resource: &Resource, object: &Value, causes: &mut Causes) {
    let rule = resource.strategy.rules().name_rule;
    let base = text(object, "generateName");
    for problem in names_problems(base, |b| rule.problems(b, true)) {
        causes.push(StatusCause::invalid(
            "metadata.generateName",
            base,
            &problem,
        ));
    }
    match text(object, "name") {
        "" if base.is_empty() => causes.push(StatusCause::required(
            "metadata.name",
            "name or generateName is required",
        )),
        "" => {}
        name => {
            for problem in rule.problems(name, false) {
                causes.push(StatusCause::invalid("metadata.name", name, &problem));
            }
        }
    }
    common_problems(resource, object, causes);
}

fn names_problems(name: &str, problems: impl Fn(&str) -> Vec<String>) -> Vec<String> {
    if name.is_empty() {
        Vec::new()
    } else {
        problems(name)
    }
}

/// Adds the problems of the metadata of `object`, which replaces `stored`.
pub fn problems_of_update(
    resource: &Resource,
    stored: &Value,
    object: &Value,
    causes: &mut Causes,
) {
    if is_terminating(stored) {
        let old: HashSet<&str> = finalizers(stored).into_iter().collect();
        let new: Vec<&str> = finalizers(object)
            .into_iter()
            .filter(|f| !old.contains(f))
            .collect();
        if !new.is_empty() {
            causes.push(StatusCause::forbidden(
                "metadata.finalizers",
                &format!(
                    "no new finalizers can be added if the object is being deleted, found new \
                     finalizers {new:?}"
                ),
            ));
        }
    }
    common_problems(resource, object, causes);
}

/// The finalizers without a domain that every object can have.
const STANDARD_FINALIZERS: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];

fn common_problems(resource: &Resource, object: &Value, causes: &mut Causes) {
    if let Some(labels) = of(object)["labels"].as_object() {
        names::label_problems(labels, causes);
    }
    if let Some(annotations) = of(object)["annotations"].as_object() {
        names::annotation_problems(annotations, causes);
    }
    owner_problems(object, causes);
    let finalizers = finalizers(object);
    for finalizer in &finalizers {
        for problem in names::qualified_name_problems(finalizer) {
            let cause = StatusCause::invalid("metadata.finalizers", finalizer, &problem);
            causes.push(cause);
        }
    }
    for (index, finalizer) in finalizers.iter().enumerate() {
        if causes.is_full() {
            return;
        }
        let bare = !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(finalizer);
        let is_allowed = resource.strategy.rules().allows_unqualified_finalizers;
        if bare && !is_allowed {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            let field = format!("metadata.finalizers[{index}]");
            causes.push(StatusCause::invalid(&field, finalizer, why));
        }
    }
}

/// Adds the problems of the owner references. As upstream, the fields have no index.
fn owner_problems(object: &Value, causes: &mut Causes) {
    let field = "metadata.ownerReferences";
    let owners = of(object)["ownerReferences"].as_array();
    let mut controller = "";
    for owner in owners.into_iter().flatten() {
        if causes.is_full() {
            return;
        }
        for (member, why) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if owner[member].as_str().is_none_or(str::is_empty) {
                let field = format!("{field}.{member}");
                causes.push(StatusCause::invalid(&field, "", why));
            }
        }
        if owner["apiVersion"] == "v1" && owner["kind"] == "Event" {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            causes.push(StatusCause::invalid(field, "Event", why));
        }
        if owner["controller"] == true {
            let name = owner["name"].as_str().unwrap_or_default();
            if !controller.is_empty() {
                let why = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in \
                     references for {controller} and {name}"
                );
                causes.push(StatusCause::invalid(field, name, &why));
            }
            controller = name;
        }
    }
}
