//! Reads an object's metadata and column values from its JSON in one pass; it copies escaped texts
//! only.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::ColumnSet;
use super::columns::Values;

/// The result of a scan. Texts are slices of the input unless they are escaped there.
#[derive(Debug)]
pub(super) struct Scanned<'a> {
    /// `metadata`, a slice of the input.
    pub(super) metadata: &'a str,
    pub(super) uid: Cow<'a, str>,
    /// Sorted by key.
    pub(super) labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// By column index; missing values are the defaults.
    pub(super) fields: Vec<Cow<'a, str>>,
    /// True if `metadata` has a resourceVersion. Objects stored by this server have none.
    pub(super) has_version: bool,
}

/// Scans the JSON of an object.
///
/// # Errors
/// Returns an error if the input is not the JSON of a Kubernetes object. The visitor rejects an
/// array in place of the object or its metadata, which serde's derived structs accept: no version
/// can be spliced into it.
pub(super) fn scan<'a>(
    stored: &'a [u8],
    columns: &'a ColumnSet,
) -> Result<Scanned<'a>, serde_json::Error> {
    let mut values = columns.values();
    let mut json = serde_json::Deserializer::from_slice(stored);
    let metadata = Envelope(&mut values).deserialize(&mut json)?;
    json.end()?;
    if !metadata.starts_with('{') {
        return Err(serde_json::Error::custom("metadata is not an object"));
    }
    let fields: Metadata<'a> = serde_json::from_str(metadata)?;
    Ok(Scanned {
        metadata,
        uid: fields.uid.map_or(Cow::Borrowed(""), |uid| uid.0),
        labels: fields.labels.map_or_else(Vec::new, |labels| labels.0),
        fields: values.finish(),
        has_version: fields.resource_version,
    })
}

#[derive(Deserialize)]
struct Metadata<'a> {
    /// Only checked to be strings; the name and namespace come from the key.
    #[serde(default, borrow, rename = "name")]
    _name: Option<Text<'a>>,
    #[serde(default, borrow, rename = "namespace")]
    _namespace: Option<Text<'a>>,
    #[serde(default, borrow)]
    uid: Option<Text<'a>>,
    #[serde(default, borrow)]
    labels: Option<Pairs<'a>>,
    #[serde(default, rename = "resourceVersion", deserialize_with = "present")]
    resource_version: bool,
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Returns true for any value, including null, because a second member of the same name must not be
/// added.
fn present<'de, D: Deserializer<'de>>(de: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(de).map(|_| true)
}

/// Sorted by key; the last value of a duplicate key.
struct Pairs<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a> {
    fn deserialize<D: Deserializer<'de>>(de: D) -> Result<Self, D::Error> {
        de.deserialize_map(Pairs(Vec::new()))
    }
}

impl<'de: 'a, 'a> Visitor<'de> for Pairs<'a> {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of strings")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self, A::Error> {
        while let Some((Text(key), Text(value))) = map.next_entry()? {
            self.0.push((key, value));
        }
        // The sort is stable, so the last of several equal keys remains.
        self.0.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.0.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                std::mem::swap(later, kept);
            }
            same
        });
        Ok(self)
    }
}

/// Finds `metadata` and reads the columns of the other members.
struct Envelope<'a, 'v>(&'v mut Values<'a>);

impl<'a> DeserializeSeed<'a> for Envelope<'a, '_> {
    type Value = &'a str;

    fn deserialize<D: Deserializer<'a>>(self, de: D) -> Result<&'a str, D::Error> {
        de.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for Envelope<'a, '_> {
    type Value = &'a str;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Kubernetes object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<&'a str, A::Error> {
        let mut metadata = None;
        while let Some(Text(name)) = map.next_key()? {
            if name == "metadata" {
                let raw: &'a RawValue = map.next_value()?;
                if metadata.replace(raw.get()).is_some() {
                    return Err(A::Error::duplicate_field("metadata"));
                }
                if let Some(member) = self.0.member(&name) {
                    let mut again = serde_json::Deserializer::from_str(raw.get());
                    member.deserialize(&mut again).map_err(A::Error::custom)?;
                }
            } else if let Some(member) = self.0.member(&name) {
                map.next_value_seed(member)?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        metadata.ok_or_else(|| A::Error::missing_field("metadata"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::FieldColumn;

    fn columns() -> ColumnSet {
        let mut source = FieldColumn::new("source");
        source.fallback = Some("spec.nodeName".into());
        let mut phase = FieldColumn::new("status.phase");
        phase.default = "Pending".into();
        let node = FieldColumn::new("spec.nodeName");
        ColumnSet::new(vec![node, phase, FieldColumn::new("metadata.uid"), source])
    }

    /// Computes the expected result of `scan` from a parsed tree.
    fn expected(json: &str, columns: &ColumnSet) -> Option<Value> {
        let value: Value = serde_json::from_str(json).ok()?;
        let metadata = value.as_object()?.get("metadata")?.as_object()?;
        let text = |name: &str| match metadata.get(name) {
            None | Some(Value::Null) => Some(""),
            Some(value) => value.as_str(),
        };
        text("name").and(text("namespace"))?;
        let labels = match metadata.get("labels") {
            None | Some(Value::Null) => Map::new(),
            Some(labels) => labels.as_object()?.clone(),
        };
        if labels.values().any(|value| !value.is_string()) {
            return None;
        }
        let fields = columns.fields().iter().map(|field| {
            let at = field
                .path
                .iter()
                .try_fold(&value, |at, name| at.get(&**name));
            match at {
                Some(Value::String(text)) => text.clone(),
                Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
                _ => field.default.to_string(),
            }
        });
        let mut fields: Vec<_> = fields.collect();
        if fields[3].is_empty() {
            fields[3] = fields[0].clone();
        }
        let version = metadata.contains_key("resourceVersion");
        Some(json!([text("uid")?, labels, fields, version]))
    }

    fn found(json: &str, columns: &ColumnSet) -> Option<Value> {
        let scanned = scan(json.as_bytes(), columns).ok()?;
        let labels = scanned.labels.iter();
        let labels: Map<_, _> = labels.map(|(k, v)| (k.to_string(), json!(v))).collect();
        Some(json!([
            scanned.uid,
            labels,
            scanned.fields,
            scanned.has_version
        ]))
    }

    /// Generates trees with the relevant names at any depth, and with values of any type.
    fn tree() -> impl Strategy<Value = Value> {
        let text = prop::sample::select(vec!["", "n1", "a\"b", "\u{1f600}", "{", "}]\\"]);
        let leaf = prop_oneof![
            4 => text.prop_map(Value::from),
            1 => Just(Value::Null),
            1 => any::<bool>().prop_map(Value::from),
            1 => any::<i32>().prop_map(Value::from),
            1 => Just(json!(1.5)),
        ];
        let name = prop::sample::select(vec![
            "metadata",
            "labels",
            "uid",
            "name",
            "namespace",
            "resourceVersion",
            "spec",
            "nodeName",
            "status",
            "phase",
            "source",
            "a\nb",
            "x",
        ]);
        leaf.prop_recursive(4, 40, 6, move |inner| {
            let members = prop::collection::vec((name.clone(), inner.clone()), 0..6);
            let object = |members: Vec<(&str, Value)>| {
                Value::from_iter(
                    members
                        .into_iter()
                        .map(|(name, value)| (name.to_owned(), value)),
                )
            };
            prop_oneof![
                4 => members.prop_map(object),
                1 => prop::collection::vec(inner, 0..3).prop_map(Value::from),
            ]
        })
    }

    fn text() -> impl Strategy<Value = Value> {
        prop::sample::select(vec!["", "n1", "a\"b", "\u{1f600}"]).prop_map(Value::from)
    }

    /// Generates objects that are mostly well-formed.
    fn object() -> impl Strategy<Value = Value> {
        let labels = prop::collection::btree_map("[a-c\"]", text(), 0..4);
        let metadata = prop::collection::btree_map("uid|name|namespace|x", text(), 0..4);
        let spec = prop::collection::btree_map("nodeName|x", text(), 0..2);
        let rest = prop::collection::btree_map("source|status|spec|metadata|x", tree(), 0..3);
        (metadata, labels, spec, rest).prop_map(|(metadata, labels, spec, rest)| {
            let mut object = json!({"metadata": metadata, "spec": spec});
            object["metadata"]["labels"] = json!(labels);
            let members = object.as_object_mut().unwrap();
            members.extend(rest);
            object
        })
    }

    /// Renders the tree with extra spaces or escaped characters.
    fn rendered(value: &Value, seed: u64) -> String {
        let mut random = fastrand::Rng::with_seed(seed);
        let plain = match random.bool() {
            true => serde_json::to_string_pretty(value),
            false => serde_json::to_string(value),
        };
        let escape = |c| match c {
            'a'..='z' if random.u8(..) < 8 => format!("\\u{:04x}", u32::from(c)),
            c => c.to_string(),
        };
        let inside = plain.unwrap();
        // These are the only words outside of strings.
        match ["true", "false", "null"]
            .iter()
            .any(|word| inside.contains(word))
        {
            true => inside,
            false => inside
                .replace("\\n", "\\u000a")
                .chars()
                .map(escape)
                .collect(),
        }
    }

    proptest! {
        #[test]
        fn scan_equals_parsed_tree(
            value in prop_oneof![3 => object(), 1 => tree()],
            seed in any::<u64>(),
        ) {
            let (json, columns) = (rendered(&value, seed), columns());
            prop_assert_eq!(found(&json, &columns), expected(&json, &columns), "{}", json);
        }

        /// Truncated input and trailing data are errors.
        #[test]
        fn truncated_object_is_rejected(value in object(), cut in any::<prop::sample::Index>()) {
            let (json, columns) = (value.to_string(), columns());
            prop_assert!(scan(&json.as_bytes()[..cut.index(json.len())], &columns).is_err());
            let longer = json + "]";
            prop_assert!(scan(longer.as_bytes(), &columns).is_err());
        }
    }

    #[test]
    fn last_duplicate_member_wins() {
        let columns = columns();
        let scan = |json: &str| found(json, &columns);
        assert_eq!(scan(r#"{"metadata":{},"metadata":{}}"#), None);
        assert_eq!(scan(r#"{"metadata":{"uid":"a","uid":"b"}}"#), None);
        let last = scan(r#"{"metadata":{"labels":{"a":"1","a":"2"}},"source":"s","source":"t"}"#);
        let last = last.unwrap();
        assert_eq!((&last[1]["a"], &last[2][3]), (&json!("2"), &json!("t")));
    }
}
