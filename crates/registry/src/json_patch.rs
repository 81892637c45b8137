//! JSON patch (RFC 6902) with limits: a few hundred bytes of `copy` operations can double an object in size or depth many
//! times. The crate `json_patch` applies each operation after this module has checked its cost.

use ::json_patch::{PatchErrorKind, PatchOperation, patch_unsafe};
use serde_json::Value;

use super::error::ApiError;
use super::metadata;
use watchet_schema::{PATCH_BYTES_MAX, memory_of};

/// The maximum number of bytes of JSON that the `copy` operations of one patch copy together: upstream's limit of a
/// body, so that a patch costs no more than the object itself.
const COPIED_BYTES_MAX: usize = 3 << 20;

/// The estimated memory in bytes of what the `copy` operations of one patch copy together.
const COPIED_MEMORY_MAX: usize = PATCH_BYTES_MAX;

/// The limit of list items that the operations of one patch shift together: an insertion or removal at the front of a long
/// list moves all of it. Shifting this many takes some tenths of a second.
const SHIFTED_ITEMS_MAX: usize = 50_000_000;

/// The error of a JSON patch.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An operation cannot be applied.
    Operation(::json_patch::PatchError),
    /// The patch exceeds a limit.
    Limit(ApiError),
}

impl Failure {
    /// Returns true if an operation `test` has failed.
    pub(crate) fn is_of_test(&self) -> bool {
        matches!(self, Self::Operation(error) if matches!(error.kind, PatchErrorKind::TestFailed))
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Operation(error) => error.fmt(f),
            Self::Limit(error) => error.fmt(f),
        }
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self::Limit(error)
    }
}

/// Applies `operations` to `object`, which must not be used after an error.
///
/// # Errors
/// 422 if an operation cannot be applied, 413 if the patch copies or shifts too much, 400 if the object would nest too
/// deeply.
pub(crate) fn apply(object: &mut Value, operations: &[PatchOperation]) -> Result<(), ApiError> {
    try_apply(object, operations).map_err(|failure| match failure {
        Failure::Operation(error) => ApiError::Unprocessable(format!(
            "the server rejected our request due to an error in our request: {error}"
        )),
        Failure::Limit(error) => error,
    })
}

/// [`apply`], for callers that distinguish failures.
///
/// # Errors
/// See [`Failure`].
pub(crate) fn try_apply(object: &mut Value, operations: &[PatchOperation]) -> Result<(), Failure> {
    let mut budget = CopyBudget {
        bytes: COPIED_BYTES_MAX,
        memory: COPIED_MEMORY_MAX,
    };
    let mut shifts = SHIFTED_ITEMS_MAX;
    for (index, operation) in operations.iter().enumerate() {
        if expects_absence(object, operation) {
            continue;
        }
        check_cost(object, operation, &mut budget)?;
        shifts = shifts
            .checked_sub(shifted_items(object, operation))
            .ok_or_else(|| {
                ApiError::TooLarge(format!(
                    "unable to complete the JSON patch: its operations may shift at most \
                     {SHIFTED_ITEMS_MAX} items of lists together"
                ))
            })?;
        patch_unsafe(object, std::slice::from_ref(operation)).map_err(|mut error| {
            error.operation = index;
            Failure::Operation(error)
        })?;
    }
    Ok(())
}

/// Returns true if `operation` tests for null a member that its object does not have. The crate fails then, as the RFC
/// requires; upstream's library does not, and clients rely on that: kube-rs adds the first finalizer of an object this way.
fn expects_absence(object: &Value, operation: &PatchOperation) -> bool {
    let PatchOperation::Test(test) = operation else {
        return false;
    };
    let parent = test.path.parent();
    let parent = parent.and_then(|parent| object.pointer(parent.as_str()));
    test.value.is_null()
        && parent.is_some_and(Value::is_object)
        && object.pointer(test.path.as_str()).is_none()
}

/// Returns the number of list items that `operation` shifts.
fn shifted_items(object: &Value, operation: &PatchOperation) -> usize {
    let behind = |path: &str| {
        let (list, index) = path.rsplit_once('/').unwrap_or_default();
        let items = object.pointer(list).and_then(Value::as_array);
        let index = index.parse().unwrap_or(usize::MAX);
        items.map_or(0, |items| items.len().saturating_sub(index))
    };
    match operation {
        PatchOperation::Add(add) => behind(add.path.as_str()),
        PatchOperation::Remove(remove) => behind(remove.path.as_str()),
        PatchOperation::Copy(copy) => behind(copy.path.as_str()),
        PatchOperation::Move(moved) => behind(moved.from.as_str()) + behind(moved.path.as_str()),
        PatchOperation::Replace(_) | PatchOperation::Test(_) => 0,
    }
}

/// Checks the cost of an operation. An operation that will fail costs nothing.
///
/// # Errors
/// 413 or 400; see [`apply`].
fn check_cost(
    object: &Value,
    operation: &PatchOperation,
    budget: &mut CopyBudget,
) -> Result<(), ApiError> {
    let (value, path) = match operation {
        PatchOperation::Add(add) => (Some(&add.value), &add.path),
        PatchOperation::Replace(replace) => (Some(&replace.value), &replace.path),
        PatchOperation::Copy(copy) => {
            let value = object.pointer(copy.from.as_str());
            charge(value, budget)?;
            (value, &copy.path)
        }
        // A value that moves deeper is measured, which costs as much as copying it.
        PatchOperation::Move(moved) if moved.path.count() > moved.from.count() => {
            let value = object.pointer(moved.from.as_str());
            charge(value, budget)?;
            (value, &moved.path)
        }
        PatchOperation::Move(_) | PatchOperation::Remove(_) | PatchOperation::Test(_) => {
            return Ok(());
        }
    };
    match value {
        Some(value) => metadata::check_depth(value, path.count()),
        None => Ok(()),
    }
}

/// What the operations of a patch may still copy.
struct CopyBudget {
    bytes: usize,
    memory: usize,
}

fn charge(value: Option<&Value>, budget: &mut CopyBudget) -> Result<(), ApiError> {
    let Some(value) = value else {
        return Ok(());
    };
    let bytes = spend(value, budget.bytes);
    let memory = bytes.and_then(|_| budget.memory.checked_sub(memory_of(value)));
    let (Some(bytes), Some(memory)) = (bytes, memory) else {
        return Err(ApiError::TooLarge(format!(
            "unable to complete the JSON patch: its copy operations may copy at most {COPIED_BYTES_MAX} bytes together, \
             which take at most {COPIED_MEMORY_MAX} bytes of memory"
        )));
    };
    *budget = CopyBudget { bytes, memory };
    Ok(())
}

/// Returns what is left of `budget` after copying `value`; `None` as soon as it is exceeded.
fn spend(value: &Value, budget: usize) -> Option<usize> {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => budget.checked_sub(4),
        Value::String(text) => budget.checked_sub(text.len() + 2),
        Value::Array(items) => items.iter().try_fold(budget.checked_sub(2)?, |left, item| {
            spend(item, left.checked_sub(1)?)
        }),
        Value::Object(members) => {
            let left = budget.checked_sub(2)?;
            members.iter().try_fold(left, |left, (name, member)| {
                spend(member, left.checked_sub(name.len() + 4)?)
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(mut object: Value, operations: Value) -> Result<Value, ApiError> {
        let patch: ::json_patch::Patch = serde_json::from_value(operations).unwrap();
        apply(&mut object, &patch.0).map(|()| object)
    }

    #[test]
    fn operations_are_applied_in_order_and_error_names_failing_one() {
        let operations = json!([
            {"op": "copy", "from": "/a", "path": "/b"},
            {"op": "move", "from": "/b", "path": "/c/d"},
            {"op": "add", "path": "/c/e", "value": [1]},
        ]);
        let object = patched(json!({"a": 1, "c": {}}), operations);
        assert_eq!(object.unwrap(), json!({"a": 1, "c": {"d": 1, "e": [1]}}));
        let operations = json!([
            {"op": "test", "path": "/a", "value": 1},
            {"op": "copy", "from": "/none", "path": "/b"},
        ]);
        let error = patched(json!({"a": 1}), operations).unwrap_err();
        assert!(matches!(error, ApiError::Unprocessable(_)), "{error}");
        assert!(error.to_string().contains("'/1'"), "{error}");
    }

    #[test]
    fn test_for_null_passes_for_absent_member() {
        let test = |path: &str, value: Value| {
            let operation = json!([{"op": "test", "path": path, "value": value}]);
            patched(json!({"a": {"b": null, "c": 1}, "l": []}), operation).is_ok()
        };
        assert!(test("/x", json!(null)) && test("/a/x", json!(null)) && test("/a/b", json!(null)));
        // The member exists, or the value is not null, or the parent is not an object.
        for path in ["/a/c", "/x/y", "/l/0", "/l/-", "/a/c/x"] {
            assert!(!test(path, json!(null)), "{path}");
        }
        assert!(!test("/x", json!([])) && !test("/x", json!(1)));
    }

    /// Thirty doublings of a kilobyte would be a terabyte.
    #[test]
    fn copies_that_double_the_object_are_rejected() {
        let double =
            |n: usize| json!({"op": "copy", "from": "/data", "path": format!("/data/{n}")});
        let object = json!({"data": {"a": "x".repeat(1000)}});
        let bomb: Value = (0..30).map(double).collect();
        let error = patched(object.clone(), bomb).unwrap_err();
        assert!(matches!(error, ApiError::TooLarge(_)), "{error}");
        let few: Value = (0..8).map(double).collect();
        let text = patched(object, few).unwrap().to_string();
        assert!(text.len() > 256 * 1000, "{}", text.len());
    }

    /// Three megabytes of small objects took 240 MB.
    #[test]
    fn copies_are_limited_by_their_memory() {
        let object = json!({"a": vec![json!({"b": 0}); 10_000]});
        let copy = |n: usize| json!({"op": "copy", "from": "/a", "path": format!("/a{n}")});
        let error = patched(object.clone(), (0..5).map(copy).collect()).unwrap_err();
        assert!(matches!(error, ApiError::TooLarge(_)), "{error}");
        assert!(patched(object, (0..2).map(copy).collect()).is_ok());
    }

    /// Ten thousand insertions in front of a long list would block a thread for half a minute.
    #[test]
    fn patch_that_shifts_too_many_items_is_rejected() {
        let object = json!({"x": vec![0; 100_000]});
        let front = json!({"op": "add", "path": "/x/0", "value": 1});
        let back = json!({"op": "add", "path": "/x/-", "value": 1});
        let removed = json!({"op": "remove", "path": "/x/0"});
        let moved = json!({"op": "move", "from": "/x/0", "path": "/x/9"});
        for operation in [front.clone(), removed, moved] {
            let error = patched(object.clone(), vec![operation; 1000].into()).unwrap_err();
            assert!(matches!(error, ApiError::TooLarge(_)), "{error}");
        }
        assert!(patched(object.clone(), vec![back; 10_000].into()).is_ok());
        assert!(patched(object, vec![front; 100].into()).is_ok());
    }

    /// An object that nests too deeply could be stored but not be read or deleted, and far deeper, recursion over it would
    /// overflow the stack.
    #[test]
    fn patch_that_nests_too_deeply_is_rejected() {
        let list = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!([inner]));
        let at = |depth: usize| format!("/x{}", "/0".repeat(depth));
        let object = json!({"x": list(60), "y": list(60), "z": 1});
        for operation in [
            json!({"op": "add", "path": at(30), "value": list(120)}),
            json!({"op": "replace", "path": at(30), "value": list(120)}),
        ] {
            let error = patched(object.clone(), json!([operation])).unwrap_err();
            assert!(matches!(error, ApiError::BadRequest(_)), "{error}");
        }
        // Each operation doubles the depth, by a copy or by a move of the previous copy.
        let copies: Value = (0..20)
            .map(|n| json!({"op": "copy", "from": "/x", "path": at(59 * (n + 1))}))
            .collect();
        let moves: Value = (0..20)
            .flat_map(|n| {
                let copied = json!({"op": "copy", "from": "/x", "path": "/y"});
                [
                    copied,
                    json!({"op": "move", "from": "/y", "path": at(59 * (n + 1))}),
                ]
            })
            .collect();
        for operations in [copies, moves] {
            let error = patched(object.clone(), operations).unwrap_err();
            assert!(matches!(error, ApiError::BadRequest(_)), "{error}");
        }
        let shallow = json!([{"op": "move", "from": "/y", "path": at(60)}]);
        assert!(patched(object, shallow).is_ok());
    }
}
