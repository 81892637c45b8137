//! The merge rules of members, from the types of objects.

use watchet_schema::{Fields, Shape, TypeRef};

/// The merge rule of a member.
#[derive(Debug, Clone, Copy)]
pub(super) enum Rule<'a> {
    /// An object; with its members, if their types are known.
    Map(Option<Fields<'a>>),
    /// An object that a patch replaces.
    ReplaceMap,
    /// A list of objects with this merge key.
    List(&'a str, Option<Fields<'a>>),
    /// A list of primitives, merged as a set.
    Set,
}

/// Returns the members of an object type; `None` for a map.
pub(super) fn fields_of(of: TypeRef<'_>) -> Option<Fields<'_>> {
    match of.shape() {
        Shape::Object { fields, .. } => Some(fields),
        _ => None,
    }
}

/// Returns the rule of one member. Without a rule a list is replaced and an object is merged.
pub(super) fn rule<'a>(fields: Option<Fields<'a>>, member: &str) -> Option<Rule<'a>> {
    let member = fields?.get(member)?;
    let rule = member.merge_rule();
    match (member.shape(), rule.key) {
        (Shape::List { item, .. }, Some(key)) => Some(Rule::List(key, fields_of(item))),
        (Shape::List { .. }, None) => rule.merge.then_some(Rule::Set),
        _ if rule.replace => Some(Rule::ReplaceMap),
        _ => Some(Rule::Map(fields_of(member))),
    }
}
