//! Optional selection, `a.?b.c` and `a[?b]`: the crate's own fails for a field that is not there, which is
//! what it is for.

use std::sync::Arc;

use kube_cel::cel::objects::{Key, OptionalValue};
use kube_cel::cel::{Context, ExecutionError, Value as CelValue};

/// The function that stands for all of them: a container, or an optional one, and a key.
pub(super) const OPTIONAL: &str = "__optional__";

pub(super) fn register(context: &mut Context<'_>) {
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
            Ok(CelValue::Opaque(Arc::new(match found {
                Some(value) => OptionalValue::of(value),
                None => OptionalValue::none(),
            })))
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
