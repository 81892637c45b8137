//! Validates the objects of API Priority and Fairness, as `pkg/apis/flowcontrol/validation` of kube-apiserver.

mod levels;
mod schemas;

pub(super) use levels::level;
pub(super) use schemas::schema;

use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, list, object, text};

use super::members::objects;

/// Validates the status of a FlowSchema or a PriorityLevelConfiguration: each type of condition occurs once.
pub(super) fn status(of: &Fields, causes: &mut Causes) {
    let status = Path::Top("status");
    let at = status.member("conditions");
    let conditions = object(of, "status").map_or(&[][..], |status| list(status, "conditions"));
    let mut seen = std::collections::BTreeSet::new();
    for (index, condition) in objects(conditions) {
        let item = at.item(index);
        let kind = text(condition, "type");
        if !seen.insert(kind) {
            causes.duplicate(&item.member("type"), kind);
        }
        if kind.is_empty() {
            causes.required(&item.member("type"), "");
        }
    }
}
