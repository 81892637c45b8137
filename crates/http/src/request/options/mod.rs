//! Decodes and validates request options from the query or the body. The options' semantics are in
//! `cacher` and `registry`, as are defaults that depend on a cache.

use std::time::Duration;

use serde_json::Value;

use watchet_api::{
    DeleteOptions, FieldOperator, FieldSelector, FieldTerm, FieldValidation, GetOptions,
    InvalidShardSelector, LabelSelector, ListOptions, Preconditions, PropagationPolicy,
    ResourceVersion, ResourceVersionMatch, StatusCause, WriteOptions,
};

use crate::error::HttpError;
use crate::request::query::Query;

/// The maximum length of a field manager in bytes, as upstream.
pub(crate) const FIELD_MANAGER_BYTES_MAX: usize = 128;
/// The longest `timeoutSeconds` that is applied as given, one year: a client may send up to 2^63
/// seconds, which overflow the clock.
const TIMEOUT_SECONDS_MAX: u64 = 365 * 24 * 60 * 60;

fn bad_request(error: impl std::fmt::Display) -> HttpError {
    HttpError::BadRequest(error.to_string())
}

fn reject_if_any(kind: &'static str, causes: Vec<StatusCause>) -> Result<(), HttpError> {
    if causes.is_empty() {
        Ok(())
    } else {
        Err(HttpError::InvalidOptions { kind, causes })
    }
}

/// Returns the `resourceVersion`; `None` for `""`.
fn resource_version(query: &Query) -> Result<Option<ResourceVersion>, HttpError> {
    query
        .text("resourceVersion")
        .map(|text| text.parse().map_err(bad_request))
        .transpose()
}

/// Decodes the options of a get.
pub(crate) fn get_options(query: &Query) -> Result<GetOptions, HttpError> {
    Ok(GetOptions {
        resource_version: resource_version(query)?,
    })
}

/// The request that a set of [`ListOptions`] belongs to; validation differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListFor {
    /// A list, or the selection of a deletecollection.
    List,
    /// A watch.
    Watch,
}

/// Decodes and validates the options of a list or a watch. `name` is that of a legacy single-object
/// watch.
pub(crate) fn list_options(
    query: &Query,
    purpose: ListFor,
    name: Option<&str>,
) -> Result<ListOptions, HttpError> {
    // In upstream's order: decoding errors, then validation, then the version.
    let labels: LabelSelector = query
        .get("labelSelector")
        .unwrap_or_default()
        .parse()
        .map_err(bad_request)?;
    let mut fields: FieldSelector = query
        .get("fieldSelector")
        .unwrap_or_default()
        .parse()
        .map_err(bad_request)?;
    let shard = query.text("shardSelector").map(str::parse).transpose();
    let shard = shard.map_err(|error: InvalidShardSelector| bad_request(error))?;
    let seconds = query.integer("timeoutSeconds")?.unwrap_or(0);
    let limit = query.integer("limit")?.unwrap_or(0);
    let continue_token = query.text("continue");
    let send_initial_events = query
        .get("sendInitialEvents")
        .map(|_| query.flag("sendInitialEvents"));
    reject_if_any(
        "ListOptions",
        list_causes(query, purpose, send_initial_events.is_some()),
    )?;
    if let Some(name) = name {
        pin_name(&mut fields, name)?;
    }
    let resource_version = resource_version(query)?;
    Ok(ListOptions {
        resource_version,
        resource_version_match: match query.text("resourceVersionMatch") {
            Some("Exact") => Some(ResourceVersionMatch::Exact),
            Some(_) => Some(ResourceVersionMatch::NotOlderThan),
            None => None,
        },
        // A negative limit means no limit, as upstream.
        limit: usize::try_from(limit).unwrap_or(0),
        continue_token: continue_token.map(str::to_owned),
        labels,
        fields,
        shard,
        send_initial_events,
        allow_watch_bookmarks: query.flag("allowWatchBookmarks"),
        timeout: u64::try_from(seconds)
            .ok()
            .filter(|&s| s > 0)
            .map(|s| Duration::from_secs(s.min(TIMEOUT_SECONDS_MAX))),
    })
}

/// Validates the combination of options like upstream's `ValidateListOptions`.
fn list_causes(query: &Query, purpose: ListFor, initial_events_given: bool) -> Vec<StatusCause> {
    const MATCH: &str = "resourceVersionMatch";
    let version = query.text("resourceVersion");
    let continued = query.text("continue").is_some();
    let rule = query.text(MATCH);
    let mut causes = Vec::new();
    if purpose == ListFor::List {
        if let Some(rule) = rule {
            if version.is_none() {
                causes.push(StatusCause::forbidden(
                    MATCH,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            if continued {
                causes.push(StatusCause::forbidden(
                    MATCH,
                    "resourceVersionMatch is forbidden when continue is provided",
                ));
            }
            if !matches!(rule, "Exact" | "NotOlderThan") {
                causes.push(StatusCause::not_supported(
                    MATCH,
                    rule,
                    &["Exact", "NotOlderThan", ""],
                ));
            }
            if rule == "Exact" && version == Some("0") {
                causes.push(StatusCause::forbidden(
                    MATCH,
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                ));
            }
        }
        if initial_events_given {
            causes.push(StatusCause::forbidden(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for list",
            ));
        }
        return causes;
    }
    if initial_events_given && rule != Some("NotOlderThan") {
        causes.push(StatusCause::forbidden(
            MATCH,
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ));
    }
    if let Some(rule) = rule {
        if !initial_events_given {
            causes.push(StatusCause::forbidden(
                MATCH,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        if rule != "NotOlderThan" {
            causes.push(StatusCause::not_supported(MATCH, rule, &["NotOlderThan"]));
        }
        if continued {
            causes.push(StatusCause::forbidden(
                MATCH,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
    }
    causes
}

/// Narrows `fields` to the object `name` of the path; a given field selector must match that name.
fn pin_name(fields: &mut FieldSelector, name: &str) -> Result<(), HttpError> {
    match fields.exact("metadata.name") {
        Some(selected) if selected == name => Ok(()),
        None if fields.is_empty() => {
            fields.terms.push(FieldTerm {
                field: "metadata.name".into(),
                operator: FieldOperator::Equals,
                value: name.into(),
            });
            Ok(())
        }
        _ => Err(HttpError::BadRequest(
            "fieldSelector metadata.name doesn't match requested name".to_owned(),
        )),
    }
}

/// The request that a set of [`WriteOptions`] belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteFor {
    /// POST
    Create,
    /// PUT
    Update,
    /// PATCH, other than apply
    Patch,
    /// PATCH, server-side apply
    Apply,
}

impl WriteFor {
    const fn kind(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Patch | Self::Apply => "PatchOptions",
        }
    }
}

/// Decodes and validates the options of a create, an update or a patch. The caller adds the user,
/// and a field manager if the query has none.
pub(crate) fn write_options(query: &Query, purpose: WriteFor) -> Result<WriteOptions, HttpError> {
    let mut causes = Vec::new();
    let dry_run: Vec<String> = query
        .all("dryRun")
        .filter(|value| !value.is_empty())
        .map(str::to_owned)
        .collect();
    check_dry_run(&dry_run, &mut causes);
    if let Some(manager) = query.text("fieldManager") {
        if manager.len() > FIELD_MANAGER_BYTES_MAX {
            causes.push(StatusCause::too_long(
                "fieldManager",
                FIELD_MANAGER_BYTES_MAX,
            ));
        }
        if manager.chars().any(char::is_control) {
            causes.push(StatusCause::invalid(
                "fieldManager",
                manager,
                "should only contain printable characters",
            ));
        }
    }
    let field_validation = match query.text("fieldValidation") {
        None | Some("Warn") => FieldValidation::Warn,
        Some("Ignore") => FieldValidation::Ignore,
        Some("Strict") => FieldValidation::Strict,
        Some(other) => {
            let supported = &["", "Ignore", "Strict", "Warn"];
            let cause = StatusCause::not_supported("fieldValidation", other, supported);
            causes.push(cause);
            FieldValidation::Warn
        }
    };
    if purpose == WriteFor::Apply && query.text("fieldManager").is_none() {
        let why = "is required for apply patch";
        causes.insert(0, StatusCause::required("fieldManager", why));
    }
    if purpose == WriteFor::Patch && query.get("force").is_some() {
        causes.push(StatusCause::forbidden(
            "force",
            "may not be specified for non-apply patch",
        ));
    }
    reject_if_any(purpose.kind(), causes)?;
    Ok(WriteOptions {
        dry_run: !dry_run.is_empty(),
        field_manager: query.text("fieldManager").unwrap_or_default().to_owned(),
        force: purpose == WriteFor::Apply && query.flag("force"),
        field_validation,
        ..WriteOptions::default()
    })
}

fn check_dry_run(values: &[String], causes: &mut Vec<StatusCause>) {
    if values.iter().any(|value| value != "All") {
        causes.push(StatusCause::none_supported("dryRun", values, &["All"]));
    }
}

/// Decodes the options of a delete from the body, or from the query if there is no body.
pub(crate) fn delete_options(
    query: &Query,
    body: Option<Value>,
) -> Result<DeleteOptions, HttpError> {
    let value = match body {
        Some(body) => checked_delete_body(body)?,
        None => delete_query(query)?,
    };
    let mut causes = Vec::new();
    let policy = value.get("propagationPolicy").and_then(Value::as_str);
    if let Some(policy) = policy
        && serde_json::from_value::<PropagationPolicy>(policy.into()).is_err()
    {
        causes.push(StatusCause::not_supported(
            "propagationPolicy",
            policy,
            &["Foreground", "Background", "Orphan", "nil"],
        ));
    }
    reject_if_any("DeleteOptions", causes)?;
    serde_json::from_value(value)
        .map_err(|error| HttpError::BadRequest(format!("invalid DeleteOptions: {error}")))
}

/// Returns the members of a body of kind `DeleteOptions`, or without a kind, except those that are
/// null. Any apiVersion is accepted, as upstream: Go's clients send that of the resource's group.
fn checked_delete_body(body: Value) -> Result<Value, HttpError> {
    let Value::Object(mut members) = body else {
        return Err(HttpError::BadRequest(
            "the body of a delete must be an object of kind DeleteOptions".to_owned(),
        ));
    };
    match members.get("kind") {
        None | Some(Value::Null) => {}
        Some(Value::String(kind)) if kind.is_empty() || kind == "DeleteOptions" => {}
        Some(other) => {
            return Err(HttpError::BadRequest(format!(
                "the body of a delete is of kind {other}: it must be of kind \"DeleteOptions\""
            )));
        }
    }
    members.retain(|_, value| !value.is_null());
    Ok(Value::Object(members))
}

fn delete_query(query: &Query) -> Result<Value, HttpError> {
    let mut options = DeleteOptions {
        grace_period_seconds: query.integer("gracePeriodSeconds")?,
        dry_run: query.all("dryRun").map(str::to_owned).collect(),
        orphan_dependents: query
            .get("orphanDependents")
            .map(|_| query.flag("orphanDependents")),
        ignore_store_read_error_with_cluster_breaking_potential: query
            .flag("ignoreStoreReadErrorWithClusterBreakingPotential"),
        ..DeleteOptions::default()
    };
    options.dry_run.retain(|value| !value.is_empty());
    let precondition = |name| query.text(name).map(str::to_owned);
    let preconditions = Preconditions {
        uid: precondition("preconditions.uid"),
        resource_version: precondition("preconditions.resourceVersion"),
    };
    if preconditions != Preconditions::default() {
        options.preconditions = Some(preconditions);
    }
    let mut value = serde_json::to_value(options)
        .map_err(|error| HttpError::Internal(format!("delete options: {error}")))?;
    if let Some(policy) = query.text("propagationPolicy") {
        value["propagationPolicy"] = policy.into();
    } else if let Some(members) = value.as_object_mut() {
        members.remove("propagationPolicy");
    }
    Ok(value)
}

#[cfg(test)]
mod tests;
