//! What an applier gave up: the fields that it applied before and no longer, and that nobody else has,
//! leave the object.

use serde_json::Value;

use super::Types;
use super::element::Malformed;
use super::entries::{Entries, Entry};
use super::fields_of::{fields_of, with_fields_above};
use super::remove::remove;
use super::set::Set;
use super::typed::Type;
use super::update::{convert, convert_both};

/// `merged` without what the applier gave up, whose entry was `last`; `entries` are those of now. The result
/// is in the version of `last`, or in that of `merged`.
///
/// # Errors
/// A list whose items cannot be told apart, though its type says how; an object that cannot be converted.
pub(super) fn prune(
    merged: Value,
    last: &Entry,
    entries: &Entries,
    types: &Types,
) -> Result<Value, Malformed> {
    let Some(ty) = types.type_of(&last.api_version).map(Type::Known) else {
        return Ok(merged);
    };
    let last_fields = last.fields.read()?;
    if gives_up_nothing(last, &last_fields, entries)? {
        return Ok(merged);
    }
    let merged = convert(types, &merged, &last.api_version)?.into_owned();
    let last_fields = with_fields_above(&last_fields, ty);
    let mut pruned = merged.clone();
    remove(&mut pruned, &last_fields, ty)?;
    // All that somebody has comes back, and then all that nobody had: what stood below something
    // that was given up.
    for (version, fields) in by_version(&last.api_version, entries)? {
        if let Some(ty) = types.type_of(version).map(Type::Known) {
            let [all, left] = convert_both(types, [&merged, &pruned], version)?;
            let kept = above(&left, ty)?.union(with_fields_above(&fields, ty));
            pruned = without(&all, &above(&all, ty)?.difference(&kept), ty)?;
        }
    }
    let pruned = convert(types, &pruned, &last.api_version)?;
    let gone = above(&merged, ty)?.difference(&above(&pruned, ty)?);
    without(&merged, &gone.intersection(&last_fields), ty)
}

/// Whether the applier has everything still that it had.
fn gives_up_nothing(last: &Entry, fields: &Set, entries: &Entries) -> Result<bool, Malformed> {
    match entries.get(&last.manager) {
        Some(now) if now.api_version == last.api_version => {
            Ok(fields.difference(&*now.fields.read()?).is_empty())
        }
        _ => Ok(fields.is_empty()),
    }
}

fn above(value: &Value, ty: Type) -> Result<Set, Malformed> {
    Ok(with_fields_above(&fields_of(value, ty)?, ty))
}

fn without(value: &Value, fields: &Set, ty: Type) -> Result<Value, Malformed> {
    let mut value = value.clone();
    remove(&mut value, fields, ty)?;
    Ok(value)
}

/// All that somebody has, by its version, `first` first.
fn by_version<'e>(first: &'e str, entries: &'e Entries) -> Result<Vec<(&'e str, Set)>, Malformed> {
    let mut all = vec![(first, Vec::new())];
    for entry in entries.iter() {
        let fields = entry.fields.read()?.into_owned();
        match all.iter_mut().find(|(v, _)| *v == entry.api_version) {
            Some((_, same)) => same.push(fields),
            None => all.push((&entry.api_version, vec![fields])),
        }
    }
    let each = all.into_iter();
    Ok(each.map(|(v, sets)| (v, Set::of_all(sets))).collect())
}
