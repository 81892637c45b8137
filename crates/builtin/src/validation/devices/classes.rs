//! Validates classes of devices.

use super::selectors::Selectors;
use super::{ITEMS_MAX, configuration, limited};
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, object};

pub(in super::super) fn class(class: &Fields, causes: &mut Causes) {
    let Some(spec) = object(class, "spec") else {
        return;
    };
    let at = Path::Top("spec");
    Selectors::default().validate(spec, &at, causes);
    let at = at.member("config");
    for (index, config) in limited(spec, "config", ITEMS_MAX, &at, causes) {
        configuration(config, &at.item(index), causes);
    }
}
