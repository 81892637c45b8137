//! Validates an applied configuration against its type. Other validation is the same as for all
//! writes.

use serde_json::Value;

use crate::{Scalar, Shape};

use super::typed::{Atom, Items, Members, Type};

/// Maximum number of reported problems.
const PROBLEMS_MAX: usize = 100;

/// Returns the problems of `config` with upstream's messages: a path and the problem each.
pub(super) fn problems(config: &Value, ty: Type) -> Vec<String> {
    let mut found = Problems::default();
    found.check(config, ty);
    found.all
}

/// The text of one problem or several, as upstream writes it.
pub(super) fn joined(problems: &[String]) -> String {
    match problems {
        [one] => one.clone(),
        all => format!("errors:\n  {}", all.join("\n  ")),
    }
}

#[derive(Default)]
struct Problems {
    all: Vec<String>,
    /// The current path.
    path: String,
}

impl Problems {
    fn add(&mut self, what: &str) {
        if self.all.len() < PROBLEMS_MAX {
            let colon = if self.path.is_empty() { "" } else { ": " };
            self.all.push(format!("{}{colon}{what}", self.path));
        }
    }

    fn below(&mut self, step: &str, check: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        self.path.push_str(step);
        check(self);
        self.path.truncate(length);
    }

    fn check(&mut self, value: &Value, ty: Type) {
        let Type::Schema(type_ref) = ty else {
            return;
        };
        if value.is_null() {
            return;
        }
        match (type_ref.shape(), value) {
            (Shape::Any, _) => {}
            (Shape::Scalar(scalar), _) => {
                if let Some(expected) = wrong(scalar, value) {
                    self.add(&format!("expected {expected}, got {value}"));
                }
            }
            (Shape::List { item, .. }, Value::Array(items)) => match ty.atom(Some(value), None) {
                Atom::List(list) => self.check_items(items, list),
                _ => {
                    for (at, value) in items.iter().enumerate() {
                        self.below(&format!("[{at}]"), |below| {
                            below.check(value, Type::Schema(item));
                        });
                    }
                }
            },
            (Shape::List { .. }, _) => self.add(&format!("expected list, got {value}")),
            (Shape::Map { value: ty, .. }, Value::Object(_)) => {
                self.check_members(value, Members::Map(ty));
            }
            (Shape::Object { fields, open, .. }, Value::Object(_)) => {
                self.check_members(value, Members::Object { fields, open });
            }
            (Shape::Map { .. } | Shape::Object { .. }, _) => {
                self.add(&format!("expected map, got {value}"));
            }
        }
    }

    fn check_members(&mut self, value: &Value, map: Members) {
        for (name, value) in value.as_object().into_iter().flatten() {
            self.below(&format!(".{name}"), |below| match map.allows(name) {
                true => below.check(value, map.get(name).0),
                false => below.add("field not declared in schema"),
            });
        }
    }

    fn check_items(&mut self, items: &[Value], list: Items) {
        let mut seen = std::collections::HashSet::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            match list.element(item) {
                // Problems below an item without a path element cannot be reported.
                Err(error) => return self.add(&format!("element {at}: {error}")),
                Ok(element) => {
                    let shown = element.to_string();
                    if !seen.insert(element) {
                        self.add(&format!("duplicate entries for key {shown}"));
                    }
                    self.below(&shown, |below| below.check(item, list.item));
                }
            }
        }
    }
}

/// Returns the expected type of a scalar if `value` has another one.
fn wrong(scalar: Scalar, value: &Value) -> Option<&'static str> {
    let (right, expected) = match scalar {
        Scalar::String | Scalar::Bytes | Scalar::Time | Scalar::MicroTime => {
            (value.is_string(), "string")
        }
        Scalar::Bool => (value.is_boolean(), "boolean"),
        Scalar::Int32 | Scalar::Int64 | Scalar::Number => {
            (value.is_number(), "numeric (int or float)")
        }
        Scalar::Quantity | Scalar::IntOrString => {
            (!value.is_array() && !value.is_object(), "any scalar")
        }
    };
    (!right).then_some(expected)
}
