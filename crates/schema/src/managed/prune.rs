//! Removes fields that an applier no longer applies and that no other manager owns.

use serde_json::Value;

use super::Types;
use super::entries::{Entries, Entry};
use super::field_set::FieldSet;
use super::fields_of::{fields_of, with_parent_fields};
use super::path_element::Malformed;
use super::remove::remove;
use super::typed::Type;
use super::update::{convert, convert_both};

/// Removes the fields that the applier released from `merged`; `last` is its previous entry,
/// `entries` are the current ones. The result is in the version of `last` or of `merged`.
///
/// # Errors
/// Returns an error for a list with missing or invalid keys, or an object that cannot be converted.
pub(super) fn prune(
    merged: Value,
    last: &Entry,
    entries: &Entries,
    types: &Types,
) -> Result<Value, Malformed> {
    let Some(ty) = types.type_of(&last.api_version).map(Type::Schema) else {
        return Ok(merged);
    };
    let last_fields = last.fields.read()?;
    if releases_nothing(last, &last_fields, entries)? {
        return Ok(merged);
    }
    let merged = convert(types, &merged, &last.api_version)?.into_owned();
    let last_fields = with_parent_fields(&last_fields, ty);
    let mut pruned = merged.clone();
    remove(&mut pruned, &last_fields, ty)?;
    // Restores all owned fields, and then all fields without an owner, which were below removed
    // ones.
    for (version, fields) in by_version(&last.api_version, entries)? {
        if let Some(ty) = types.type_of(version).map(Type::Schema) {
            let [all, left] = convert_both(types, [&merged, &pruned], version)?;
            let retained = with_parents(&left, ty)?.union(with_parent_fields(&fields, ty));
            pruned = without(&all, &with_parents(&all, ty)?.difference(&retained), ty)?;
        }
    }
    let pruned = convert(types, &pruned, &last.api_version)?;
    let removed = with_parents(&merged, ty)?.difference(&with_parents(&pruned, ty)?);
    without(&merged, &removed.intersection(&last_fields), ty)
}

/// Returns true if the applier still owns all its previous fields.
fn releases_nothing(last: &Entry, fields: &FieldSet, entries: &Entries) -> Result<bool, Malformed> {
    match entries.get(&last.manager) {
        Some(now) if now.api_version == last.api_version => {
            Ok(fields.difference(&*now.fields.read()?).is_empty())
        }
        _ => Ok(fields.is_empty()),
    }
}

fn with_parents(value: &Value, ty: Type) -> Result<FieldSet, Malformed> {
    Ok(with_parent_fields(&fields_of(value, ty)?, ty))
}

fn without(value: &Value, fields: &FieldSet, ty: Type) -> Result<Value, Malformed> {
    let mut value = value.clone();
    remove(&mut value, fields, ty)?;
    Ok(value)
}

/// Returns all owned fields by version, `first` first.
fn by_version<'e>(
    first: &'e str,
    entries: &'e Entries,
) -> Result<Vec<(&'e str, FieldSet)>, Malformed> {
    let mut all = vec![(first, Vec::new())];
    for entry in entries.iter() {
        let fields = entry.fields.read()?.into_owned();
        match all.iter_mut().find(|(v, _)| *v == entry.api_version) {
            Some((_, same)) => same.push(fields),
            None => all.push((&entry.api_version, vec![fields])),
        }
    }
    let each = all.into_iter();
    Ok(each.map(|(v, sets)| (v, FieldSet::of_all(sets))).collect())
}
