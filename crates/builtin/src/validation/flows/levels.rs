//! Validates PriorityLevelConfigurations.

use serde_json::Value;
use watchet_flowcontrol::PriorityLevelConfiguration;
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, number, object, text};

const METADATA: Path<'static> = Path::Top("metadata");
const SPEC: Path<'static> = Path::Top("spec");
/// The most queues of a level.
const QUEUES_MAX: i64 = 10_000_000;
/// The bits of a hash that choose a hand of queues.
const HASH_BITS_MAX: i64 = 60;
/// Only conversions between former versions may set it.
const ZERO_SHARES: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";

/// A PriorityLevelConfiguration.
pub(in super::super) fn level(level: &Fields, causes: &mut Causes) {
    let empty = Fields::new();
    let metadata = object(level, "metadata").unwrap_or(&empty);
    let name = text(metadata, "name");
    if object(metadata, "annotations").is_some_and(|all| all.contains_key(ZERO_SHARES)) {
        let why = format!("annotation '{ZERO_SHARES}' is forbidden");
        causes.forbidden(&METADATA.member("annotations"), &why);
    }
    let spec = object(level, "spec").unwrap_or(&empty);
    let at = SPEC.member("type");
    let kind = text(spec, "type");
    if (name == "exempt") != (kind == "Exempt") {
        let why = "must be 'Exempt' if and only if `name` is 'exempt'";
        causes.invalid(&at, kind, why);
    }
    let (at_limited, at_exempt) = (SPEC.member("limited"), SPEC.member("exempt"));
    let (of_limited, of_exempt) = (object(spec, "limited"), object(spec, "exempt"));
    match kind {
        "Exempt" => {
            if of_limited.is_some() {
                causes.forbidden(&at_limited, "must be nil if the type is not Limited");
            }
            if let Some(exempt) = of_exempt {
                shares(exempt, &at_exempt, causes);
                lendable_percent(exempt, &at_exempt, causes);
            }
        }
        "Limited" => {
            if of_exempt.is_some() {
                causes.forbidden(&at_exempt, "must be nil if the type is Limited");
            }
            match of_limited {
                None => causes.required(&at_limited, "must not be empty when type is Limited"),
                Some(of) => limited(of, &at_limited, causes),
            }
        }
        _ => causes.not_supported(&at, kind, &["Exempt", "Limited"]),
    }
    let parsed =
        PriorityLevelConfiguration::parse(Value::Object(level.clone()).to_string().as_bytes());
    if !PriorityLevelConfiguration::allows_spec(name, parsed.ok().as_ref()) {
        let but = match name {
            "exempt" => " except the 'spec.exempt' field",
            _ => "",
        };
        let why = format!("spec of '{name}'{but} must equal the fixed value");
        causes.invalid(&SPEC, spec.clone(), &why);
    }
}

fn limited(limited: &Fields, at: &Path<'_>, causes: &mut Causes) {
    shares(limited, at, causes);
    let empty = Fields::new();
    let response = object(limited, "limitResponse").unwrap_or(&empty);
    limit_response(response, &at.member("limitResponse"), causes);
    lendable_percent(limited, at, causes);
    let borrowing = number(limited, "borrowingLimitPercent").unwrap_or(0);
    if borrowing < 0 {
        let why = "if specified, must be a non-negative integer";
        causes.invalid(&at.member("borrowingLimitPercent"), borrowing, why);
    }
}

fn shares(settings: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let shares = number(settings, "nominalConcurrencyShares").unwrap_or(0);
    if shares < 0 {
        let why = "must be a non-negative integer";
        causes.invalid(&at.member("nominalConcurrencyShares"), shares, why);
    }
}

fn lendable_percent(settings: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let lendable = number(settings, "lendablePercent").unwrap_or(0);
    if !(0..=100).contains(&lendable) {
        let why = "must be between 0 and 100, inclusive";
        causes.invalid(&at.member("lendablePercent"), lendable, why);
    }
}

fn limit_response(response: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let at_queuing = at.member("queuing");
    match (text(response, "type"), object(response, "queuing")) {
        ("Reject", None) => {}
        ("Reject", Some(_)) => {
            let why = "must be nil if limited.limitResponse.type is not Limited";
            causes.forbidden(&at_queuing, why);
        }
        ("Queue", None) => {
            let why = "must not be empty if limited.limitResponse.type is Limited";
            causes.required(&at_queuing, why);
        }
        ("Queue", Some(queuing)) => queues(queuing, &at_queuing, causes),
        (kind, _) => causes.not_supported(&at.member("type"), kind, &["Queue", "Reject"]),
    }
}

fn queues(queuing: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let value = |member| number(queuing, member).unwrap_or(0);
    let [queues, hand_size, length] = ["queues", "handSize", "queueLengthLimit"].map(value);
    if length <= 0 {
        causes.invalid(&at.member("queueLengthLimit"), length, "must be positive");
    }
    let at_queues = at.member("queues");
    if queues <= 0 {
        causes.invalid(&at_queues, queues, "must be positive");
    } else if queues > QUEUES_MAX {
        let why = format!("must not be greater than {QUEUES_MAX}");
        causes.invalid(&at_queues, queues, &why);
    }
    let at = at.member("handSize");
    if hand_size <= 0 {
        causes.invalid(&at, hand_size, "must be positive");
    } else if hand_size > queues {
        let why = format!("should not be greater than queues ({queues})");
        causes.invalid(&at, hand_size, &why);
    } else if entropy_bits(queues, hand_size) > HASH_BITS_MAX as f64 {
        let why = format!(
            "required entropy bits of deckSize {queues} and handSize {hand_size} should not be greater than {HASH_BITS_MAX}"
        );
        causes.invalid(&at, hand_size, &why);
    }
}

/// Returns the bits of a hash that dealing a hand needs.
fn entropy_bits(queues: i64, hand_size: i64) -> f64 {
    // More than the maximum of bits already needs fewer cards than this.
    let dealt = (0..hand_size.min(HASH_BITS_MAX + 1)).map(|dealt| ((queues - dealt) as f64).log2());
    dealt.sum::<f64>().ceil()
}
