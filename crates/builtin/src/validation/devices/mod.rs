//! Validates the objects of dynamic resource allocation: classes, claims and slices of devices. The rules are those of
//! `pkg/apis/resource/validation`, with the feature gates of a stock kube-apiserver.

mod claims;
mod classes;
mod selectors;
mod slices;

pub(super) use claims::{claim, claim_template};
pub(super) use classes::class;
pub(super) use slices::slice;

use std::collections::HashSet;

use serde_json::Value;

use super::members::objects;
use super::text as rules;
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, list, object, text};

/// The maximum number of requests, constraints, configurations and selectors.
const ITEMS_MAX: usize = 32;
/// The effects of taints of devices.
const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];
const DRIVER_NAME_BYTES_MAX: usize = 63;
/// The maximum length of the name of an attribute without its domain.
const IDENTIFIER_BYTES_MAX: usize = 32;
/// The maximum size of the parameters of a driver, as JSON.
const PARAMETERS_BYTES_MAX: usize = 10 << 10;

/// Validates the opaque parameters of a driver.
fn configuration(config: &Fields, at: &Path<'_>, causes: &mut Causes) {
    let at = at.member("opaque");
    let Some(opaque) = object(config, "opaque") else {
        return causes.required(&at, "");
    };
    driver_name(text(opaque, "driver"), &at.member("driver"), causes);
    let at = at.member("parameters");
    match opaque.get("parameters") {
        None | Some(Value::Null) => causes.required(&at, ""),
        Some(parameters) if parameters.to_string().len() > PARAMETERS_BYTES_MAX => {
            causes.too_long(&at, PARAMETERS_BYTES_MAX);
        }
        Some(Value::Object(_)) => {}
        Some(_) => causes.invalid(&at, "<value omitted>", "must be a valid JSON object"),
    }
}

fn driver_name(name: &str, at: &Path<'_>, causes: &mut Causes) {
    if name.is_empty() {
        return causes.required(at, "");
    }
    if name.len() > DRIVER_NAME_BYTES_MAX {
        causes.too_long(at, DRIVER_NAME_BYTES_MAX);
    }
    let problems = rules::subdomain(&name.to_ascii_lowercase());
    causes.invalid_each(at, name, problems);
}

/// Validates the name of an attribute or a capacity: `[domain/]identifier`.
fn qualified_name(name: &str, at: &Path<'_>, causes: &mut Causes) {
    match name.split('/').collect::<Vec<_>>()[..] {
        [name] => identifier(name, at, causes),
        [domain, name] => {
            match domain {
                "" => causes.invalid(at, "", "the domain must not be empty"),
                domain => driver_name(domain, at, causes),
            }
            match name {
                "" => causes.invalid(at, "", "the name must not be empty"),
                name => identifier(name, at, causes),
            }
        }
        _ => {}
    }
}

fn identifier(name: &str, at: &Path<'_>, causes: &mut Causes) {
    if name.len() > IDENTIFIER_BYTES_MAX {
        causes.too_long(at, IDENTIFIER_BYTES_MAX);
    }
    causes.invalid_each(at, name, rules::c_identifier(name));
}

/// Returns the objects in a list. If there are more than `max`, returns none and adds a cause.
fn limited<'a>(
    fields: &'a Fields,
    member: &str,
    max: usize,
    at: &Path<'_>,
    causes: &mut Causes,
) -> impl Iterator<Item = (usize, &'a Fields)> + use<'a> {
    objects(limited_list(fields, member, max, at, causes))
}

/// Returns the items of a list. If there are more than `max`, returns none and adds a cause.
fn limited_list<'a>(
    fields: &'a Fields,
    member: &str,
    max: usize,
    at: &Path<'_>,
    causes: &mut Causes,
) -> &'a [Value] {
    match list(fields, member) {
        items if items.len() > max => {
            causes.too_many_items(at, items.len(), max);
            &[]
        }
        items => items,
    }
}

/// Adds a cause for each item whose key, a member or the item itself, is that of an item before it.
fn unique(items: &[Value], key: Option<&str>, at: &Path<'_>, causes: &mut Causes) {
    let mut keys = HashSet::new();
    for (index, item) in items.iter().enumerate() {
        let key = match key {
            Some(member) => item.as_object().map_or("", |fields| text(fields, member)),
            None => item.as_str().unwrap_or_default(),
        };
        if !keys.insert(key) {
            causes.duplicate(&at.item(index), key);
        }
    }
}
