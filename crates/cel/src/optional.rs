//! Optional selection, `a.?b.c` and `a[?b]`. Replaces the evaluator's implementation, which fails for an absent field.

use kube_cel::cel::objects::{Key, OptionalValue};
use kube_cel::cel::{Context, ExecutionError, Value as CelValue};

use crate::values::optional;

/// The function that replaces optional selection. Its arguments are a container, which may be optional, and a key.
pub(crate) const OPTIONAL: &str = "__optional__";

pub(crate) fn register(context: &mut Context<'_>) {
    context.add_function(
        OPTIONAL,
        |container: CelValue, key: CelValue| -> Result<CelValue, ExecutionError> {
            let found = match &container {
                CelValue::Opaque(_) => {
                    let optional: &OptionalValue = (&container).try_into()?;
                    optional.value().and_then(|container| find(container, &key))
                }
                _ => find(&container, &key),
            };
            Ok(optional(found))
        },
    );
}

fn find(container: &CelValue, key: &CelValue) -> Option<CelValue> {
    match (container, key) {
        (CelValue::Map(map), CelValue::String(name)) => {
            map.map.get(&Key::String(name.clone())).cloned()
        }
        (CelValue::Map(map), CelValue::Int(number)) => map.map.get(&Key::Int(*number)).cloned(),
        (CelValue::Map(map), CelValue::Bool(flag)) => map.map.get(&Key::Bool(*flag)).cloned(),
        (CelValue::List(items), CelValue::Int(index)) => usize::try_from(*index)
            .ok()
            .and_then(|index| items.get(index).cloned()),
        _ => None,
    }
}
