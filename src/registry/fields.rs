//! Reading and filling the members of JSON objects the way Kubernetes' decoders see them: what is
//! absent, what is null and what is empty are one. A member of another type than asked for is absent.

use serde_json::{Map, Value};

/// The members of an object.
pub(crate) type Fields = Map<String, Value>;

/// Whether a member says nothing: it is absent, null or the empty string.
pub(crate) fn is_unset(fields: &Fields, member: &str) -> bool {
    match fields.get(member) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(_) => false,
    }
}

/// Gives a member a value unless it has one.
pub(crate) fn set(fields: &mut Fields, member: &str, value: impl Into<Value>) {
    if is_unset(fields, member) {
        fields.insert(member.to_owned(), value.into());
    }
}

/// The same for a number of which zero says nothing.
pub(crate) fn set_number(fields: &mut Fields, member: &str, value: i64) {
    if number(fields, member).is_none_or(|given| given == 0) {
        fields.insert(member.to_owned(), value.into());
    }
}

/// The members of a member, which is made if it is not there; `None` if it is something else.
pub(crate) fn child<'a>(fields: &'a mut Fields, member: &str) -> Option<&'a mut Fields> {
    if is_unset(fields, member) {
        fields.insert(member.to_owned(), Value::Object(Map::new()));
    }
    existing(fields, member)
}

/// The members of a member.
pub(crate) fn existing<'a>(fields: &'a mut Fields, member: &str) -> Option<&'a mut Fields> {
    fields.get_mut(member)?.as_object_mut()
}

/// The members of a member, for reading.
pub(crate) fn object<'a>(fields: &'a Fields, member: &str) -> Option<&'a Fields> {
    fields.get(member)?.as_object()
}

/// The objects in a list.
pub(crate) fn items<'a>(
    fields: &'a mut Fields,
    member: &str,
) -> impl Iterator<Item = &'a mut Fields> {
    let list = fields.get_mut(member).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// What a list holds, for reading.
pub(crate) fn list<'a>(fields: &'a Fields, member: &str) -> &'a [Value] {
    let list = fields.get(member).and_then(Value::as_array);
    list.map_or(&[], Vec::as_slice)
}

/// A text; empty when there is none.
pub(crate) fn text<'a>(fields: &'a Fields, member: &str) -> &'a str {
    let text = fields.get(member).and_then(Value::as_str);
    text.unwrap_or_default()
}

/// A whole number.
pub(crate) fn number(fields: &Fields, member: &str) -> Option<i64> {
    fields.get(member)?.as_i64()
}

/// A flag; false when there is none.
pub(crate) fn flag(fields: &Fields, member: &str) -> bool {
    fields.get(member).and_then(Value::as_bool) == Some(true)
}
