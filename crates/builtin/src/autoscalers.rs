//! Conversion of horizontal pod autoscalers between v1 and v2; v2 is stored. v1 has a field for the target CPU
//! utilization only; everything else of v2 is in annotations, so that a round trip through v1 loses nothing.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use watchet_schema::{KindType, Types};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// The members of a metric's target: the type of the metric, the member of the v2 target, and the name of that member
/// in v1 and its annotations.
const TARGETS: &[(&str, &str, &str)] = &[
    ("resource", "averageUtilization", "targetAverageUtilization"),
    ("resource", "averageValue", "targetAverageValue"),
    (
        "containerResource",
        "averageUtilization",
        "targetAverageUtilization",
    ),
    ("containerResource", "averageValue", "targetAverageValue"),
    ("pods", "averageValue", "targetAverageValue"),
    ("object", "value", "targetValue"),
    ("object", "averageValue", "averageValue"),
    ("external", "value", "targetValue"),
    ("external", "averageValue", "targetAverageValue"),
];

/// Like [`TARGETS`], for the current value of a metric.
const CURRENT: &[(&str, &str, &str)] = &[
    (
        "resource",
        "averageUtilization",
        "currentAverageUtilization",
    ),
    ("resource", "averageValue", "currentAverageValue"),
    (
        "containerResource",
        "averageUtilization",
        "currentAverageUtilization",
    ),
    ("containerResource", "averageValue", "currentAverageValue"),
    ("pods", "averageValue", "currentAverageValue"),
    ("object", "value", "currentValue"),
    ("object", "averageValue", "averageValue"),
    ("external", "value", "currentValue"),
    ("external", "averageValue", "currentAverageValue"),
];

/// The `apiVersion` of the older version.
pub(crate) const VERSION: &str = "autoscaling/v1";

/// Converts a v1 object to the stored form. An annotation whose value does not fit the v2 type is ignored, as upstream:
/// clients could not decode the result.
pub(crate) fn to_storage(types: &Arc<Types>, object: Value) -> Value {
    let kind = KindType::builtin(types, "autoscaling/v2", "HorizontalPodAutoscaler")
        .expect("the types have autoscalers");
    convert(object, |part, member, value| {
        let mut read = kind.conform(&json!({part: {member: value}}));
        match read.type_error {
            None => read.value[part][member].take(),
            Some(_) => Value::Null,
        }
    })
}

/// Like [`to_storage`], for a stored object that was converted to v1: its annotations were checked when it was written.
pub(crate) fn as_stored(object: Value) -> Value {
    convert(object, |_, _, value| value)
}

/// Converts a v1 object to v2. `read` returns the value of a member of `spec` or `status` from the value of its
/// annotation; null and empty values count as absent.
fn convert(mut object: Value, read: impl Fn(&str, &str, Value) -> Value) -> Value {
    object["apiVersion"] = "autoscaling/v2".into();
    let taken = |object: &mut Value, key: &str| -> Option<Value> {
        let annotations = object["metadata"].get_mut("annotations")?;
        let text = annotations.as_object_mut()?.remove(key)?;
        // An annotation that is not JSON is ignored, as upstream.
        serde_json::from_str(text.as_str()?).ok()
    };
    let read = |part, member, value: Option<Value>| {
        let empty = [Value::Null, json!({}), json!([])];
        Some(read(part, member, value?)).filter(|value| !empty.contains(value))
    };
    let metrics = |part, member, mut value: Option<Value>, values, side| {
        let all = value.as_mut().and_then(Value::as_array_mut);
        for metric in all.into_iter().flatten() {
            deepen(metric, values, side);
        }
        match read(part, member, value) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        }
    };
    let annotation = taken(&mut object, METRICS);
    let mut targets = metrics("spec", "metrics", annotation, TARGETS, "target");
    let annotation = taken(&mut object, CURRENT_METRICS);
    let mut current = metrics("status", "currentMetrics", annotation, CURRENT, "current");
    let conditions = read("status", "conditions", taken(&mut object, CONDITIONS));
    let behavior = read("spec", "behavior", taken(&mut object, BEHAVIOR));
    // The object had only these annotations, so in v2 it has none.
    if object["metadata"]["annotations"] == json!({})
        && let Some(metadata) = object["metadata"].as_object_mut()
    {
        metadata.remove("annotations");
    }
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        if let Some(percentage) = given(spec.remove("targetCPUUtilizationPercentage")) {
            let target = json!({"type": "Utilization", "averageUtilization": percentage});
            let metric = json!({"name": "cpu", "target": target});
            targets.push(json!({"type": "Resource", "resource": metric}));
        }
        if !targets.is_empty() {
            spec.insert("metrics".to_owned(), targets.into());
        }
        put(spec, "behavior", behavior);
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        // v2 omits zero, v1 does not.
        if status.get("currentReplicas") == Some(&json!(0)) {
            status.remove("currentReplicas");
        }
        let percentage = given(status.remove("currentCPUUtilizationPercentage"));
        if let (Some(percentage), true) = (percentage, current.is_empty()) {
            let now = json!({"averageUtilization": percentage});
            current.push(json!({"type": "Resource", "resource": {"name": "cpu", "current": now}}));
        }
        let current = Some(current).filter(|current| !current.is_empty());
        put(status, "currentMetrics", current.map(Value::from));
        put(status, "conditions", conditions);
    }
    object
}

/// Converts a stored object to v1.
pub(crate) fn from_storage(mut object: Value) -> Value {
    object["apiVersion"] = VERSION.into();
    let mut kept: Vec<(&str, Value)> = Vec::new();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        let (cpu, mut others) = split(spec.remove("metrics"), "target");
        put(spec, "targetCPUUtilizationPercentage", cpu);
        others
            .iter_mut()
            .for_each(|metric| flatten(metric, TARGETS, "target"));
        if !others.is_empty() {
            kept.push((METRICS, others.into()));
        }
        kept.extend(given(spec.remove("behavior")).map(|behavior| (BEHAVIOR, behavior)));
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        let current = status.remove("currentMetrics");
        let (cpu, _) = split(current.clone(), "current");
        put(status, "currentCPUUtilizationPercentage", cpu);
        if let Some(Value::Array(mut all)) = current.filter(|all| *all != json!([])) {
            all.iter_mut()
                .for_each(|metric| flatten(metric, CURRENT, "current"));
            kept.push((CURRENT_METRICS, all.into()));
        }
        let conditions = given(status.remove("conditions")).filter(|all| *all != json!([]));
        kept.extend(conditions.map(|conditions| (CONDITIONS, conditions)));
        // v2 omits zero, v1 does not.
        status.entry("currentReplicas").or_insert(0.into());
    }
    for (key, value) in kept {
        object["metadata"]["annotations"][key] = value.to_string().into();
    }
    object
}

fn given(value: Option<Value>) -> Option<Value> {
    value.filter(|value| !value.is_null())
}

fn put(members: &mut Map<String, Value>, name: &str, value: Option<Value>) {
    if let Some(value) = given(value) {
        members.insert(name.to_owned(), value);
    }
}

/// Splits metrics into the target or current use of CPU and the other metrics.
fn split(metrics: Option<Value>, side: &str) -> (Option<Value>, Vec<Value>) {
    let Some(Value::Array(all)) = metrics else {
        return (None, Vec::new());
    };
    let mut cpu = None;
    let mut others = Vec::new();
    for metric in all {
        let resource = &metric["resource"];
        let use_of_cpu = &resource[side]["averageUtilization"];
        let is_cpu = metric["type"] == "Resource" && resource["name"] == "cpu";
        match is_cpu && use_of_cpu.is_number() && cpu.is_none() {
            true => cpu = Some(use_of_cpu.clone()),
            false => others.push(metric),
        }
    }
    (cpu, others)
}

/// The names of the members of a metric's source: in v2 (below the first of these, if it is not empty) and in v1.
const MEMBERS: &[(&str, &str, &str, &str)] = &[
    ("pods", "metric", "name", "metricName"),
    ("pods", "metric", "selector", "selector"),
    ("object", "metric", "name", "metricName"),
    ("object", "metric", "selector", "selector"),
    ("object", "", "describedObject", "target"),
    ("external", "metric", "name", "metricName"),
    ("external", "metric", "selector", "metricSelector"),
];

/// Converts a metric from v2 to v1.
fn flatten(metric: &mut Value, values: &[(&str, &str, &str)], side: &str) {
    let Some(sources) = metric.as_object_mut() else {
        return;
    };
    for (kind, source) in sources.iter_mut() {
        let Some(old) = source.as_object_mut() else {
            continue;
        };
        let below = |old: &Map<String, Value>, at: &str, name: &str| match at {
            "" => old.get(name).cloned(),
            at => old.get(at)?.get(name).cloned(),
        };
        let mut new = Map::new();
        for (_, at, name, flat) in MEMBERS.iter().filter(|row| row.0 == kind) {
            put(&mut new, flat, below(old, at, name));
        }
        for (_, name, flat) in values.iter().filter(|row| row.0 == kind) {
            put(&mut new, flat, below(old, side, name));
        }
        for name in ["name", "container"] {
            put(&mut new, name, old.get(name).cloned());
        }
        *old = new;
    }
}

/// Converts a metric from v1 to v2.
fn deepen(metric: &mut Value, values: &[(&str, &str, &str)], side: &str) {
    let Some(sources) = metric.as_object_mut() else {
        return;
    };
    for (kind, source) in sources.iter_mut() {
        let Some(old) = source.as_object().cloned() else {
            continue;
        };
        let mut new = json!({});
        for (_, at, name, flat) in MEMBERS.iter().filter(|row| row.0 == kind) {
            if let Some(value) = given(old.get(*flat).cloned()) {
                match *at {
                    "" => new[*name] = value,
                    at => new[at][*name] = value,
                }
            }
        }
        for (_, name, flat) in values.iter().filter(|row| row.0 == kind) {
            if let Some(value) = given(old.get(*flat).cloned()) {
                if side == "target" {
                    new[side]["type"] = target_type(name).into();
                }
                new[side][*name] = value;
            }
        }
        for name in ["name", "container"] {
            if let Some(value) = given(old.get(name).cloned()) {
                new[name] = value;
            }
        }
        *source = new;
    }
}

fn target_type(member: &str) -> &'static str {
    match member {
        "averageUtilization" => "Utilization",
        "averageValue" => "AverageValue",
        _ => "Value",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_storage(object: Value) -> Value {
        crate::autoscalers::to_storage(&Types::builtins(), object)
    }

    /// The stored metrics of such objects failed to decode in every Go client that listed autoscalers.
    #[test]
    fn annotation_that_does_not_fit_v2_is_ignored() {
        let nested = "[".repeat(120) + &"]".repeat(120);
        let stored = |key: &str, text: &str| {
            let stored = to_storage(json!({
                "apiVersion": "autoscaling/v1",
                "metadata": {"name": "h", "annotations": {key: text}},
                "spec": {"maxReplicas": 3}, "status": {"currentReplicas": 1},
            }));
            assert_eq!(stored["metadata"], json!({"name": "h"}), "{key}: {text}");
            stored
        };
        let nothing = stored(BEHAVIOR, "null");
        for (key, text) in [
            (BEHAVIOR, r#""x""#),
            (BEHAVIOR, &nested),
            (BEHAVIOR, r#"{"scaleUp": {"policies": 5}}"#),
            (BEHAVIOR, "{}"),
            (METRICS, r#"{"type": "Pods"}"#),
            (METRICS, "[5]"),
            (METRICS, &nested),
            (METRICS, r#"[{"type": "Resource", "resource": "x"}]"#),
            (
                METRICS,
                r#"[{"type": "Pods", "pods": {"targetAverageValue": "lots"}}]"#,
            ),
            (
                METRICS,
                r#"[{"type": "Pods", "pods": {"metricName": {"a": 1}}}]"#,
            ),
            (CURRENT_METRICS, r#"[{"type": 5}]"#),
            (CONDITIONS, r#""x""#),
            (
                CONDITIONS,
                r#"[{"type": "A", "lastTransitionTime": "soon"}]"#,
            ),
        ] {
            assert_eq!(stored(key, text), nothing, "{key}: {text}");
        }
        let some = stored(BEHAVIOR, r#"{"scaleUp": {"no": 1, "selectPolicy": "Max"}}"#);
        let policy = json!({"scaleUp": {"selectPolicy": "Max"}});
        assert_eq!(some["spec"]["behavior"], policy);
    }

    #[test]
    fn target_cpu_utilization_is_a_metric_in_v2() {
        let v1 = json!({
            "apiVersion": "autoscaling/v1", "metadata": {"name": "h"},
            "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 80},
            "status": {"currentReplicas": 1},
        });
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
        let v2 = json!({
            "apiVersion": "autoscaling/v2", "metadata": {"name": "h"},
            "spec": {"maxReplicas": 3, "metrics": [metric]}, "status": {"currentReplicas": 1},
        });
        assert_eq!(to_storage(v1.clone()), v2);
        assert_eq!(from_storage(v2), v1);
    }

    #[test]
    fn fields_unknown_to_v1_survive_a_round_trip_through_v1() {
        let metric =
            |kind: &str, member: &str, source: Value| json!({"type": kind, member: source});
        let selector = json!({"matchLabels": {"a": "b"}});
        let named = json!({"name": "hits", "selector": selector});
        let average = json!({"type": "AverageValue", "averageValue": "5"});
        let value = json!({"type": "Value", "value": "9"});
        let of = json!({"kind": "Service", "name": "s"});
        let v2 = json!({
            "apiVersion": "autoscaling/v2", "metadata": {"name": "h", "annotations": {"own": "1"}},
            "spec": {
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 5}},
                "metrics": [
                    metric("Pods", "pods", json!({"metric": named, "target": average})),
                    metric("Object", "object", json!({
                        "metric": {"name": "hits"}, "target": value, "describedObject": of,
                    })),
                    metric("External", "external", json!({"metric": named, "target": value})),
                    metric("Resource", "resource", json!({"name": "memory", "target": average})),
                    metric("ContainerResource", "containerResource", json!({
                        "name": "cpu", "container": "c",
                        "target": {"type": "Utilization", "averageUtilization": 7},
                    })),
                ],
            },
            "status": {
                "conditions": [{"type": "AbleToScale", "status": "True"}],
                "currentMetrics": [metric("Resource", "resource", json!({
                    "name": "cpu", "current": {"averageUtilization": 4, "averageValue": "1"},
                }))],
            },
        });
        let v1 = from_storage(v2.clone());
        assert_eq!(
            v1["status"],
            json!({"currentCPUUtilizationPercentage": 4, "currentReplicas": 0})
        );
        assert_eq!(v1["spec"], json!({}));
        let text = v1["metadata"]["annotations"][METRICS].as_str().unwrap();
        let metrics: Value = serde_json::from_str(text).unwrap();
        assert_eq!(
            metrics[0]["pods"],
            json!({"metricName": "hits", "selector": selector, "targetAverageValue": "5"})
        );
        assert_eq!(metrics[1]["object"]["target"], of);
        assert_eq!(to_storage(v1), v2);
    }
}
