//! Validates certificate signing requests and their approval.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use x509_parser::pem::Pem;

use super::members::objects;
use super::text as rules;
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, list, number, object, text};
use watchet_x509 as x509;

const SPEC: Path<'static> = Path::Top("spec");
const STATUS: Path<'static> = Path::Top("status");
/// The minimum `expirationSeconds` of a request.
const SECONDS_MIN: i64 = 600;
/// The signer that `v1` does not accept in new requests.
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const DOMAIN_BYTES_MAX: usize = 253;

#[rustfmt::skip]
const USAGES: &[&str] = &[
    "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign",
    "data encipherment", "decipher only", "digital signature", "email protection", "encipher only",
    "ipsec end system", "ipsec tunnel", "ipsec user", "key agreement", "key encipherment",
    "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime", "server auth", "signing",
    "timestamping",
];
const STATES: &[&str] = &["False", "True", "Unknown"];

/// Validates a new request.
pub(super) fn request(request: &Fields, causes: &mut Causes) {
    let empty = Fields::new();
    let spec = object(request, "spec").unwrap_or(&empty);
    if let Err(why) = check_request(text(spec, "request")) {
        causes.invalid(&SPEC.member("request"), text(spec, "request"), &why);
    }
    let at = SPEC.member("usages");
    let usages = list(spec, "usages");
    if usages.is_empty() {
        causes.required(&at, "");
    }
    let mut seen = HashSet::new();
    for (index, usage) in usages.iter().enumerate() {
        let usage = usage.as_str().unwrap_or_default();
        if !USAGES.contains(&usage) {
            causes.not_supported(&at.item(index), usage, USAGES);
        }
        if !seen.insert(usage) {
            causes.duplicate(&at.item(index), usage);
        }
    }
    signer(text(spec, "signerName"), causes);
    if let Some(seconds) = number(spec, "expirationSeconds").filter(|s| *s < SECONDS_MIN) {
        let why = "may not specify a duration less than 600 seconds (10 minutes)";
        causes.invalid(&SPEC.member("expirationSeconds"), seconds, why);
    }
}

/// Checks that the sender of the request has its private key.
fn check_request(encoded: &str) -> Result<(), String> {
    let pem = STANDARD
        .decode(encoded)
        .map_err(|error| error.to_string())?;
    x509::check_request(&pem)
}

/// Validates a `signerName`: a domain, a slash and a path.
fn signer(name: &str, causes: &mut Causes) {
    let at = SPEC.member("signerName");
    if name.is_empty() {
        return causes.required(&at, "");
    }
    if name == LEGACY_SIGNER {
        let why = "the legacy signerName is not allowed via this API version";
        return causes.invalid(&at, name, why);
    }
    let (domain, path) = match name.split('/').collect::<Vec<_>>()[..] {
        [domain, path] => (domain, path),
        _ => {
            let why = "must be a fully qualified domain and path of the form \
                       'example.com/signer-name'";
            return causes.invalid(&at, name, why);
        }
    };
    if domain.len() > DOMAIN_BYTES_MAX {
        causes.too_long(&at, DOMAIN_BYTES_MAX);
    }
    let mut labels = |text: &str, rule: fn(&str) -> Vec<String>| {
        for label in text.split('.') {
            for problem in rule(label) {
                let why = format!("validating label {label:?}: {problem}");
                causes.invalid(&at, text, &why);
            }
        }
    };
    labels(domain, rules::label);
    labels(path, rules::subdomain);
    if !domain.contains('.') {
        let why = "should be a domain with at least two segments separated by dots";
        causes.invalid(&at, domain, why);
    }
}

/// Validates `new` as the update of `old`, written to the request or to one of its subresources.
pub(super) fn update(part: Option<&str>, old: &Fields, new: &Fields, causes: &mut Causes) {
    let empty = Fields::new();
    let (old, new) = (
        object(old, "status").unwrap_or(&empty),
        object(new, "status").unwrap_or(&empty),
    );
    if old == new {
        return;
    }
    conditions(new, causes);
    let at = STATUS.member("conditions");
    for (kind, decides) in [("Approved", true), ("Denied", true), ("Failed", false)] {
        let of = |status| objects(list(status, "conditions")).map(|(_, condition)| condition);
        let is = |condition: &&Fields| text(condition, "type") == kind;
        let (before, now) = (of(old).filter(is), of(new).filter(is));
        let (before, now): (Vec<_>, Vec<_>) = (before.collect(), now.collect());
        let bound = decides && part != Some("approval");
        let done = match now.len().cmp(&before.len()) {
            std::cmp::Ordering::Less => "remove",
            std::cmp::Ordering::Greater if bound => "add",
            std::cmp::Ordering::Equal if bound && before != now => "modify",
            _ => continue,
        };
        let why = format!("updates may not {done} a condition of type {kind:?}");
        causes.forbidden(&at, &why);
    }
    certificate(
        part,
        text(old, "certificate"),
        text(new, "certificate"),
        causes,
    );
}

fn conditions(status: &Fields, causes: &mut Causes) {
    let at = STATUS.member("conditions");
    let mut seen = HashSet::new();
    for (index, condition) in objects(list(status, "conditions")) {
        let at = at.item(index);
        let kind = text(condition, "type");
        if kind.is_empty() {
            causes.required(&at.member("type"), "");
        }
        let states = match kind {
            "Approved" | "Denied" | "Failed" => &["True"][..],
            _ => STATES,
        };
        match text(condition, "status") {
            "" => causes.required(&at.member("status"), ""),
            state if !states.contains(&state) => {
                causes.not_supported(&at.member("status"), state, states);
            }
            _ => {}
        }
        let other = match kind {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if !other.is_empty() && seen.contains(other) {
            let why = "Approved and Denied conditions are mutually exclusive";
            causes.invalid(&at.member("type"), kind, why);
        }
        if !seen.insert(kind) {
            causes.duplicate(&at.member("type"), kind);
        }
    }
}

/// Validates that the certificate is set once, by a write of `status`.
fn certificate(part: Option<&str>, old: &str, new: &str, causes: &mut Causes) {
    if old == new {
        return;
    }
    let at = STATUS.member("certificate");
    if part != Some("status") {
        return causes.forbidden(&at, "updates may not set certificate content");
    }
    if !old.is_empty() {
        return causes.forbidden(&at, "updates may not modify existing certificate content");
    }
    if let Err(why) = check_certificate(new) {
        causes.invalid(&at, "<certificate data>", &why);
    }
}

fn check_certificate(encoded: &str) -> Result<(), String> {
    let pem = STANDARD
        .decode(encoded)
        .map_err(|error| error.to_string())?;
    let mut blocks = 0;
    for block in Pem::iter_from_buffer(&pem) {
        let block = block.map_err(|error| error.to_string())?;
        if block.label != "CERTIFICATE" {
            let found = block.label;
            return Err(format!(
                "only CERTIFICATE PEM blocks are allowed, found {found:?}"
            ));
        }
        block.parse_x509().map_err(|error| error.to_string())?;
        blocks += 1;
    }
    match blocks {
        0 => Err("must contain one or more CERTIFICATE PEM blocks".to_owned()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
