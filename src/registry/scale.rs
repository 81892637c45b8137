//! The subresource `scale`: how many replicas of something there are to be and are, as an
//! `autoscaling/v1` Scale, whatever the object itself calls that. A write to it is a write of the object
//! in which one number differs.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as Written;
use serde_json::{Map, Value, json};

use super::{ApiError, Resource, Target, metadata};
use crate::api::{LabelSelector, Object, ResourceVersion, StatusCause};

/// The subresource's name.
pub(crate) const NAME: &str = "scale";

/// Where an object keeps its scale: paths of member names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScalePaths {
    wanted: Vec<String>,
    present: Vec<String>,
    selector: Selector,
    /// An object that does not say how many there are to be has no scale.
    required: bool,
}

/// How an object says which pods it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Selector {
    /// Not at all.
    Unsaid,
    /// As a text.
    Text(Vec<String>),
    /// As a map of labels, at `spec.selector`.
    Labels,
    /// As a `LabelSelector`, at `spec.selector`.
    Written,
}

/// The members that `.spec.replicas` names.
fn path(text: &str) -> Vec<String> {
    let members = text.trim_start_matches('.').split('.');
    members.map(str::to_owned).collect()
}

impl ScalePaths {
    /// The paths in objects of a resource that is defined at run time. An object without a number of replicas has no
    /// scale.
    pub(crate) fn custom(wanted: &str, present: &str, selector: &str) -> Self {
        Self {
            wanted: path(wanted),
            present: path(present),
            selector: match selector {
                "" => Selector::Unsaid,
                text => Selector::Text(path(text)),
            },
            required: true,
        }
    }

    /// The paths in objects whose `spec.selector` is a map of labels.
    pub(crate) fn with_label_map() -> Self {
        Self {
            selector: Selector::Labels,
            ..Self::default()
        }
    }
}

impl Default for ScalePaths {
    /// The paths in most built-in objects, whose `spec.selector` is a LabelSelector.
    fn default() -> Self {
        Self {
            wanted: path("spec.replicas"),
            present: path("status.replicas"),
            selector: Selector::Written,
            required: false,
        }
    }
}

/// Whether it is the scale that is asked for.
pub(crate) fn is_of(target: &Target) -> bool {
    target.subresource.as_deref() == Some(NAME)
}

/// The scale of `object`, as it is at `at`.
///
/// # Errors
/// 500 when the object does not say it in the right place.
pub(crate) fn of(
    resource: &Resource,
    object: &Value,
    at: ResourceVersion,
) -> Result<Value, ApiError> {
    let places = resource.strategy.scale_paths();
    if places.required && at_path(object, &places.wanted).is_none_or(Value::is_null) {
        let path = places.wanted.join(".");
        return Err(damaged(format!(
            "the spec replicas field \".{path}\" does not exist"
        )));
    }
    let told = ["name", "namespace", "uid", "creationTimestamp"];
    let mut metadata: Map<String, Value> = told
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
    // As Go's type has it, where none is what is not said.
    match number(object, &places.wanted)? {
        0 => {}
        wanted => spec["replicas"] = wanted.into(),
    }
    let mut status = json!({"replicas": number(object, &places.present)?});
    match selector(object, &places.selector)? {
        text if text.is_empty() => {}
        text => status["selector"] = text.into(),
    }
    Ok(json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": metadata, "spec": spec, "status": status,
    }))
}

/// The same as an answer.
pub(crate) fn shown(target: &Target, object: &Object) -> Result<Arc<Object>, ApiError> {
    let undecodable = |error: serde_json::Error| {
        let key = object.key();
        ApiError::Read(crate::cacher::ReadError::Undecodable(format!(
            "{key}: {error}"
        )))
    };
    let value: Value = serde_json::from_slice(object.body_slice()).map_err(undecodable)?;
    let mut scale = of(&target.resource, &value, ResourceVersion::ZERO)?;
    let at = object.resource_version();
    if let Some(metadata) = scale["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    super::subresource::answer_at(target, &scale, at)
}

/// The object that `stored` is once it has the scale that `body` asks for.
///
/// # Errors
/// 422 when that is no number of replicas.
pub(crate) fn applied(target: &Target, stored: &Value, body: &Value) -> Result<Value, ApiError> {
    let wanted = match &body["spec"]["replicas"] {
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
    if wanted < 0 {
        let why = "must be greater than or equal to 0";
        let cause = StatusCause {
            message: format!("Invalid value: {wanted}: {why}"),
            ..StatusCause::invalid("spec.replicas", "", "")
        };
        return Err(ApiError::invalid(
            &target.of_bodies(),
            &target.name,
            vec![cause],
        ));
    }
    let mut object = stored.clone();
    let places = target.resource.strategy.scale_paths();
    let mut place = &mut object;
    for member in &places.wanted {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[member.as_str()];
    }
    *place = wanted.into();
    Ok(object)
}

/// What somebody wants of the object who wants `config` of its scale.
///
/// # Errors
/// As [`applied`], where it says how many replicas there are to be.
pub(crate) fn configuration(
    target: &Target,
    stored: &Value,
    config: &Value,
) -> Result<Value, ApiError> {
    let resource = &target.resource;
    let mut object = json!({
        "apiVersion": resource.api_version(), "kind": resource.kind, "metadata": config["metadata"],
    });
    let wanted = &config["spec"]["replicas"];
    if !wanted.is_null() {
        applied(target, stored, config)?;
        let mut place = &mut object;
        for member in &resource.strategy.scale_paths().wanted {
            place = &mut place[member.as_str()];
        }
        *place = wanted.clone();
    }
    Ok(object)
}

/// The number at `path`; zero when there is none.
fn number(object: &Value, path: &[String]) -> Result<i64, ApiError> {
    match at_path(object, path) {
        None | Some(Value::Null) => Ok(0),
        Some(value) => value.as_i64().ok_or_else(|| {
            let path = path.join(".");
            damaged(format!("the number of replicas at {path:?} is {value}"))
        }),
    }
}

fn at_path<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter()
        .try_fold(object, |value, member| value.get(member))
}

fn selector(object: &Value, kind: &Selector) -> Result<String, ApiError> {
    let written = match (kind, &object["spec"]["selector"]) {
        (Selector::Unsaid, _) => return Ok(String::new()),
        (Selector::Text(path), _) => {
            let text = at_path(object, path).and_then(Value::as_str);
            return Ok(text.unwrap_or_default().to_owned());
        }
        (_, Value::Null) => return Ok(String::new()),
        (Selector::Labels, labels) => json!({"matchLabels": labels}),
        (Selector::Written, written) => written.clone(),
    };
    let wrong = |why: String| damaged(format!("the selector is invalid: {why}"));
    let written: Written = serde_json::from_value(written).map_err(|e| wrong(e.to_string()))?;
    let selector = LabelSelector::from_meta(&written).map_err(wrong)?;
    Ok(selector.to_string())
}

fn damaged(detail: String) -> ApiError {
    ApiError::Read(crate::cacher::ReadError::Undecodable(detail))
}
