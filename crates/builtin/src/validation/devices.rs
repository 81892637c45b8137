//! Validates device classes. Schedulers evaluate the CEL expressions that select devices; here only their form is
//! checked.

use super::members::objects;
use watchet_registry::Causes;
use watchet_registry::field_path::Path;
use watchet_registry::fields::{Fields, list, object, text};

const SELECTORS_MAX: usize = 32;
/// The maximum length of an expression.
const EXPRESSION_BYTES_MAX: usize = 10 << 10;

pub(super) fn class(class: &Fields, causes: &mut Causes) {
    let Some(spec) = object(class, "spec") else {
        return;
    };
    let at = Path::Top("spec");
    let at = at.member("selectors");
    let selectors = list(spec, "selectors");
    if selectors.len() > SELECTORS_MAX {
        causes.too_many_items(&at, selectors.len(), SELECTORS_MAX);
    }
    for (index, selector) in objects(selectors).take(SELECTORS_MAX) {
        let at = at.item(index);
        let at = at.member("cel");
        match object(selector, "cel").map(|cel| text(cel, "expression")) {
            None => causes.required(&at, ""),
            Some("") => causes.required(&at.member("expression"), ""),
            Some(long) if long.len() > EXPRESSION_BYTES_MAX => {
                causes.too_long(&at.member("expression"), EXPRESSION_BYTES_MAX);
            }
            Some(_) => {}
        }
    }
}
