//! The subresource `scale`: the number of replicas of an object as an `autoscaling/v1` Scale. It is read from and
//! written to the fields that [`crate::ScalePaths`] contains. A write to it is a write of the object with another
//! number of replicas.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as MetaLabelSelector;
use serde_json::{Map, Value, json};

use super::error::ApiError;
use super::resource::Resource;
use super::scale_paths::SelectorForm;
use super::target::Target;
use super::{metadata, response};
use watchet_api::{LabelSelector, Object, ResourceVersion, StatusCause};
use watchet_cacher::ReadError;

/// The name of the subresource.
pub const NAME: &str = "scale";

/// Returns true if `target` is the scale of an object.
pub(crate) fn is_of(target: &Target) -> bool {
    target.subresource.as_deref() == Some(NAME)
}

/// Returns the scale of `object`, which is stored at version `at`.
///
/// # Errors
/// 500 if a field has another type, or if the object has no number of replicas and needs one.
pub fn of(resource: &Resource, object: &Value, at: ResourceVersion) -> Result<Value, ApiError> {
    let paths = resource.strategy.scale_paths();
    if paths.requires_spec_replicas
        && at_path(object, &paths.spec_replicas).is_none_or(Value::is_null)
    {
        let path = paths.spec_replicas.join(".");
        return Err(undecodable(format!(
            "the spec replicas field \".{path}\" does not exist"
        )));
    }
    let members = ["name", "namespace", "uid", "creationTimestamp"];
    let mut metadata: Map<String, Value> = members
        .iter()
        .filter_map(|member| {
            Some((
                (*member).to_owned(),
                metadata::of(object).get(member)?.clone(),
            ))
        })
        .collect();
    if !at.is_zero() {
        metadata.insert("resourceVersion".to_owned(), at.to_string().into());
    }
    let mut spec = json!({});
    // Zero replicas are absent, as in Go's type.
    match number(object, &paths.spec_replicas)? {
        0 => {}
        replicas => spec["replicas"] = replicas.into(),
    }
    let mut status = json!({"replicas": number(object, &paths.status_replicas)?});
    match selector(object, &paths.selector)? {
        text if text.is_empty() => {}
        text => status["selector"] = text.into(),
    }
    Ok(json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": metadata, "spec": spec, "status": status,
    }))
}

/// Returns the object itself, or its Scale if `target` is the scale subresource.
///
/// # Errors
/// As [`of`].
pub(crate) fn object_or_scale(
    target: &Target,
    object: Arc<Object>,
) -> Result<Arc<Object>, ApiError> {
    if !is_of(target) {
        return Ok(object);
    }
    let undecodable = |error: serde_json::Error| {
        let key = object.key();
        ApiError::Read(ReadError::Undecodable(format!("{key}: {error}")))
    };
    let value: Value = serde_json::from_slice(object.body_slice()).map_err(undecodable)?;
    let mut scale = of(&target.resource, &value, ResourceVersion::ZERO)?;
    let at = object.resource_version();
    if let Some(metadata) = scale["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    response::at_version(target, &scale, at)
}

/// Returns `stored` with the number of replicas of the Scale `body`.
///
/// # Errors
/// 422 if that is not a valid number of replicas.
pub fn applied(target: &Target, stored: &Value, body: &Value) -> Result<Value, ApiError> {
    let replicas = match &body["spec"]["replicas"] {
        Value::Null => 0,
        given => given
            .as_i64()
            .filter(|n| i32::try_from(*n).is_ok())
            .ok_or_else(|| {
                ApiError::BadRequest(format!(
                    "Scale in version \"v1\" cannot be handled as a Scale: spec.replicas must be a \
                 number of 32 bits, not {given}"
                ))
            })?,
    };
    if replicas < 0 {
        let why = "must be greater than or equal to 0";
        let cause = StatusCause {
            message: format!("Invalid value: {replicas}: {why}"),
            ..StatusCause::invalid("spec.replicas", "", "")
        };
        return Err(ApiError::invalid(
            &target.of_bodies(),
            &target.name,
            vec![cause],
        ));
    }
    let mut object = stored.clone();
    let paths = target.resource.strategy.scale_paths();
    let mut field = &mut object;
    for member in &paths.spec_replicas {
        if !field.is_object() {
            *field = json!({});
        }
        field = &mut field[member.as_str()];
    }
    *field = replicas.into();
    Ok(object)
}

/// Returns the applied configuration of the object that corresponds to `config`, an applied configuration of its scale.
///
/// # Errors
/// As [`applied`], if `config` has a number of replicas.
pub(crate) fn configuration(
    target: &Target,
    stored: &Value,
    config: &Value,
) -> Result<Value, ApiError> {
    let resource = &target.resource;
    let mut object = json!({
        "apiVersion": resource.api_version(), "kind": resource.kind, "metadata": config["metadata"],
    });
    let replicas = &config["spec"]["replicas"];
    if !replicas.is_null() {
        applied(target, stored, config)?;
        let mut field = &mut object;
        for member in &resource.strategy.scale_paths().spec_replicas {
            field = &mut field[member.as_str()];
        }
        *field = replicas.clone();
    }
    Ok(object)
}

/// Returns the number at `path`; zero if there is none.
fn number(object: &Value, path: &[String]) -> Result<i64, ApiError> {
    match at_path(object, path) {
        None | Some(Value::Null) => Ok(0),
        Some(value) => value.as_i64().ok_or_else(|| {
            let path = path.join(".");
            undecodable(format!("the number of replicas at {path:?} is {value}"))
        }),
    }
}

fn at_path<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter()
        .try_fold(object, |value, member| value.get(member))
}

fn selector(object: &Value, form: &SelectorForm) -> Result<String, ApiError> {
    let selector = match (form, &object["spec"]["selector"]) {
        (SelectorForm::Absent, _) => return Ok(String::new()),
        (SelectorForm::Text(path), _) => {
            let text = at_path(object, path).and_then(Value::as_str);
            return Ok(text.unwrap_or_default().to_owned());
        }
        (_, Value::Null) => return Ok(String::new()),
        (SelectorForm::Labels, labels) => json!({"matchLabels": labels}),
        (SelectorForm::LabelSelector, selector) => selector.clone(),
    };
    let invalid = |why: String| undecodable(format!("the selector is invalid: {why}"));
    let selector: MetaLabelSelector =
        serde_json::from_value(selector).map_err(|e| invalid(e.to_string()))?;
    let selector = LabelSelector::from_meta(&selector).map_err(invalid)?;
    Ok(selector.to_string())
}

fn undecodable(detail: String) -> ApiError {
    ApiError::Read(ReadError::Undecodable(detail))
}
