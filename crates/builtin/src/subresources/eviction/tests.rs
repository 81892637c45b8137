//! Tests of how a disruption budget decides on an eviction.

use super::*;

fn budget(value: Value) -> PodDisruptionBudget {
    serde_json::from_value(value).unwrap()
}

/// Returns a budget with this status, whose `observedGeneration` is current.
fn with_status(mut status: Value) -> PodDisruptionBudget {
    for (member, default) in [
        ("currentHealthy", 1),
        ("desiredHealthy", 2),
        ("expectedPods", 3),
    ] {
        if status[member].is_null() {
            status[member] = default.into();
        }
    }
    status["observedGeneration"] = 1.into();
    budget(json!({"metadata": {"generation": 1}, "status": status}))
}

fn rejection(budget: &PodDisruptionBudget) -> (Vec<String>, u16) {
    match check("b", budget).unwrap_err() {
        ApiError::TooManyRequests {
            detail,
            causes,
            retry_after_seconds,
        } => {
            assert_eq!(
                detail,
                "Cannot evict pod as it would violate the pod's disruption budget."
            );
            assert!(
                causes
                    .iter()
                    .all(|cause| cause.reason == "DisruptionBudget")
            );
            let messages = causes.into_iter().map(|cause| cause.message);
            (messages.collect(), retry_after_seconds)
        }
        other => (vec![other.to_string()], 0),
    }
}

#[test]
fn eviction_is_rejected_without_allowed_disruptions() {
    check("b", &with_status(json!({"disruptionsAllowed": 1}))).unwrap();
    let (messages, retry_after) = rejection(&with_status(json!({"disruptionsAllowed": 0})));
    let why = "The disruption budget b needs 2 healthy pods and has 1 currently";
    assert_eq!((messages, retry_after), (vec![why.to_owned()], 0));
    let mut new = with_status(json!({"disruptionsAllowed": 1}));
    new.metadata.generation = Some(2);
    let (messages, retry_after) = rejection(&new);
    let why = "The disruption budget b is still being processed by the server.";
    assert_eq!((messages, retry_after), (vec![why.to_owned()], 10));
    let unseen = budget(json!({"metadata": {"generation": 1}}));
    assert_eq!(rejection(&unseen).1, 10);
    let (messages, _) = rejection(&with_status(json!({"disruptionsAllowed": -1})));
    assert!(
        messages[0].ends_with("is forbidden: pdb disruptions allowed is negative"),
        "{messages:?}"
    );
    let many: serde_json::Map<String, Value> = (0..=DISRUPTED_PODS_MAX)
        .map(|n| (format!("p{n}"), "2026-01-01T00:00:00Z".into()))
        .collect();
    let full = with_status(json!({"disruptionsAllowed": 1, "disruptedPods": many}));
    assert!(rejection(&full).0[0].contains("DisruptedPods map too big"));
}

#[test]
fn eviction_of_an_unready_pod_costs_nothing_if_the_budget_is_healthy_or_always_allows_it() {
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let healthy = with_status(json!({"disruptionsAllowed": 0, "currentHealthy": 2}));
    let sick = with_status(json!({"disruptionsAllowed": 0}));
    let mut lenient = sick.clone();
    lenient.spec = Some(Default::default());
    if let Some(spec) = &mut lenient.spec {
        spec.unhealthy_pod_eviction_policy = Some("AlwaysAllow".to_owned());
    }
    for (budget, pod, expect) in [
        (&healthy, &ready, BudgetCost::OneDisruption),
        (&healthy, &unready, BudgetCost::FreeWhileUnready),
        (&sick, &unready, BudgetCost::OneDisruption),
        (&lenient, &unready, BudgetCost::FreeWhileUnready),
        (&lenient, &ready, BudgetCost::OneDisruption),
    ] {
        assert_eq!(budget_cost(budget, pod), expect, "{budget:?} {pod}");
    }
    for (phase, free) in [("Pending", true), ("Failed", true), ("Running", false)] {
        let pod = json!({"status": {"phase": phase}});
        assert_eq!(needs_no_budget(&pod), free, "{phase}");
    }
}

#[test]
fn eviction_has_the_delete_options() {
    let options_of = |eviction: Value, dry_run| delete_options(&eviction, dry_run);
    let options = options_of(
        json!({"deleteOptions": {"gracePeriodSeconds": 5, "dryRun": null}}),
        true,
    );
    let options = options.unwrap();
    assert_eq!(options.grace_period_seconds, Some(5));
    assert_eq!(options.dry_run, ["All"]);
    assert!(options_of(json!({}), false).unwrap().dry_run.is_empty());
    let own = json!({"deleteOptions": {"dryRun": ["All"]}});
    assert_eq!(options_of(own, false).unwrap().dry_run, ["All"]);
    let other = json!({"deleteOptions": {"dryRun": ["Some"]}});
    let error = options_of(other, true).unwrap_err().to_string();
    assert!(error.starts_with("Non-matching dry-run options"), "{error}");
    let wrong = options_of(json!({"deleteOptions": {"gracePeriodSeconds": "x"}}), false);
    assert!(matches!(wrong, Err(ApiError::BadRequest(_))), "{wrong:?}");
}
