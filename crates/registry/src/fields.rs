//! Reading and setting the members of JSON objects as Kubernetes' decoders do: absent, null and empty are the same. A member
//! of another type than requested is absent.

use serde_json::{Map, Value};

/// The members of an object.
pub type Fields = Map<String, Value>;

/// Returns true if a member is absent, null or the empty string.
pub fn is_unset(fields: &Fields, member: &str) -> bool {
    match fields.get(member) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(_) => false,
    }
}

/// Sets a member that is unset.
pub fn set(fields: &mut Fields, member: &str, value: impl Into<Value>) {
    if is_unset(fields, member) {
        fields.insert(member.to_owned(), value.into());
    }
}

/// Sets a number that is absent or zero.
pub fn set_number(fields: &mut Fields, member: &str, value: i64) {
    if number(fields, member).is_none_or(|given| given == 0) {
        fields.insert(member.to_owned(), value.into());
    }
}

/// Returns the object at a member, which is created if it is unset; `None` if the member is of another type.
pub fn child<'a>(fields: &'a mut Fields, member: &str) -> Option<&'a mut Fields> {
    if is_unset(fields, member) {
        fields.insert(member.to_owned(), Value::Object(Map::new()));
    }
    existing(fields, member)
}

/// Returns the object at a member.
pub fn existing<'a>(fields: &'a mut Fields, member: &str) -> Option<&'a mut Fields> {
    fields.get_mut(member)?.as_object_mut()
}

/// Returns the object at a member, for reading.
pub fn object<'a>(fields: &'a Fields, member: &str) -> Option<&'a Fields> {
    fields.get(member)?.as_object()
}

/// Returns the objects in a list.
pub fn items<'a>(fields: &'a mut Fields, member: &str) -> impl Iterator<Item = &'a mut Fields> {
    let list = fields.get_mut(member).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Returns the items of a list, for reading; none if it is absent.
pub fn list<'a>(fields: &'a Fields, member: &str) -> &'a [Value] {
    let list = fields.get(member).and_then(Value::as_array);
    list.map_or(&[], Vec::as_slice)
}

/// Returns a string; empty if it is absent.
pub fn text<'a>(fields: &'a Fields, member: &str) -> &'a str {
    let text = fields.get(member).and_then(Value::as_str);
    text.unwrap_or_default()
}

/// Returns an integer.
pub fn number(fields: &Fields, member: &str) -> Option<i64> {
    fields.get(member)?.as_i64()
}

/// Returns a boolean; false if it is absent.
pub fn flag(fields: &Fields, member: &str) -> bool {
    fields.get(member).and_then(Value::as_bool) == Some(true)
}

/// Sets a member of `object`, or removes it if `value` is absent or null. Does nothing if `object` is not an object.
pub fn put(object: &mut Value, member: &str, value: Option<Value>) {
    match (value, object.as_object_mut()) {
        (Some(value), Some(members)) if !value.is_null() => {
            members.insert(member.to_owned(), value);
        }
        (_, Some(members)) => {
            members.remove(member);
        }
        (_, None) => {}
    }
}
