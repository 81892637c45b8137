//! Reads an object's metadata and column values from its JSON in one pass, unless a column is in
//! `metadata` or a name beside it is escaped. It copies escaped texts only.

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
/// Returns an error if the input is not the JSON of a Kubernetes object. The visitors reject an
/// array in place of the object or its metadata, which serde's derived structs accept: no version
/// can be spliced into it.
pub(super) fn scan<'a>(
    stored: &'a [u8],
    columns: &'a ColumnSet,
) -> Result<Scanned<'a>, serde_json::Error> {
    let mut values = columns.values();
    let mut json = serde_json::Deserializer::from_slice(stored);
    let found = Envelope(&mut values).deserialize(&mut json)?;
    json.end()?;
    let metadata = match found.text_within(stored) {
        Some(metadata) => metadata,
        None => serde_json::from_slice::<RawMetadata<'a>>(stored)?
            .metadata
            .get(),
    };
    if let Some(member) = values.member("metadata") {
        member.deserialize(&mut serde_json::Deserializer::from_str(metadata))?;
    }
    let fields = found.fields;
    Ok(Scanned {
        metadata,
        uid: fields.uid.map_or(Cow::Borrowed(""), |uid| uid.0),
        labels: fields.labels.map_or_else(Vec::new, |labels| labels.0),
        fields: values.finish(),
        has_version: fields.has_version,
    })
}

/// Finds only the text of `metadata`.
#[derive(Deserialize)]
struct RawMetadata<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

/// `metadata`, and the member names around it, which locate its text without a second pass. A name
/// that is escaped in the input does not locate anything.
struct FoundMetadata<'a> {
    fields: Metadata<'a>,
    /// The first name in `metadata`; `None` if it is empty or its first name is escaped.
    first_name: Option<&'a str>,
    /// What follows `metadata`.
    next: Next<'a>,
}

/// What follows a member.
enum Next<'a> {
    /// The end of the object.
    End,
    /// A member with this name; `None` if it is escaped.
    Member(Option<&'a str>),
}

impl<'a> FoundMetadata<'a> {
    /// Returns the text of `metadata` in `stored`, the valid JSON in which it was found; `None` if no
    /// name locates it, or if it is not UTF-8.
    fn text_within(&self, stored: &'a [u8]) -> Option<&'a str> {
        let before_name = |name: &str| {
            let offset = (name.as_ptr() as usize).checked_sub(stored.as_ptr() as usize)?;
            Some(stored.get(..offset)?.strip_suffix(b"\"")?.trim_ascii_end())
        };
        let start = before_name(self.first_name?)?.strip_suffix(b"{")?.len();
        let until = match self.next {
            Next::End => stored.trim_ascii_end().strip_suffix(b"}")?,
            Next::Member(name) => before_name(name?)?.strip_suffix(b",")?,
        };
        let text = until.trim_ascii_end().get(start..)?;
        debug_assert!(text.ends_with(b"}"), "it is an object");
        std::str::from_utf8(text).ok()
    }
}

/// Returns the name if it is a slice of the input.
fn borrowed<'a>(name: &Cow<'a, str>) -> Option<&'a str> {
    match name {
        Cow::Borrowed(name) => Some(name),
        Cow::Owned(_) => None,
    }
}

/// The members of `metadata` that the cache needs.
#[derive(Default)]
struct Metadata<'a> {
    uid: Option<Text<'a>>,
    labels: Option<Pairs<'a>>,
    has_version: bool,
}

/// Reads `metadata`, and the first name in it.
struct MetadataVisitor;

impl<'a> DeserializeSeed<'a> for MetadataVisitor {
    type Value = (Metadata<'a>, Option<&'a str>);

    fn deserialize<D: Deserializer<'a>>(self, de: D) -> Result<Self::Value, D::Error> {
        de.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for MetadataVisitor {
    type Value = (Metadata<'a>, Option<&'a str>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("metadata, an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Metadata::default();
        let mut first_name = None;
        let mut is_first = true;
        // A second member of the same name is an error, because clients would read either.
        let mut seen = [false; MEMBERS.len()];
        while let Some(Text(name)) = map.next_key()? {
            if std::mem::take(&mut is_first) {
                first_name = borrowed(&name);
            }
            if let Some(index) = MEMBERS.iter().position(|member| *member == name)
                && std::mem::replace(&mut seen[index], true)
            {
                return Err(A::Error::duplicate_field(MEMBERS[index]));
            }
            match &*name {
                // Only checked to be strings: the name and namespace come from the key.
                "name" | "namespace" => drop(map.next_value::<Option<Text<'a>>>()?),
                "uid" => fields.uid = map.next_value()?,
                "labels" => fields.labels = map.next_value()?,
                name => {
                    // Also if it is null, because a second member of the same name must not be
                    // added.
                    fields.has_version |= name == "resourceVersion";
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok((fields, first_name))
    }
}

/// The members of `metadata` that are read.
const MEMBERS: [&str; 5] = ["name", "namespace", "uid", "labels", "resourceVersion"];

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

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
    type Value = FoundMetadata<'a>;

    fn deserialize<D: Deserializer<'a>>(self, de: D) -> Result<Self::Value, D::Error> {
        de.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for Envelope<'a, '_> {
    type Value = FoundMetadata<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Kubernetes object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut metadata = None;
        let mut next = Next::End;
        while let Some(Text(name)) = map.next_key()? {
            if metadata.is_some() && matches!(next, Next::End) {
                next = Next::Member(borrowed(&name));
            }
            if name == "metadata" {
                if metadata.is_some() {
                    return Err(A::Error::duplicate_field("metadata"));
                }
                metadata = Some(map.next_value_seed(MetadataVisitor)?);
            } else if let Some(member) = self.0.member(&name) {
                map.next_value_seed(member)?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        let (fields, first_name) = metadata.ok_or_else(|| A::Error::missing_field("metadata"))?;
        Ok(FoundMetadata {
            fields,
            first_name,
            next,
        })
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

    /// Returns true if the text of `metadata` is found without a second pass.
    fn is_located(json: &str, columns: &ColumnSet) -> bool {
        let mut values = columns.values();
        let found = Envelope(&mut values)
            .deserialize(&mut serde_json::Deserializer::from_str(json))
            .unwrap();
        found.text_within(json.as_bytes()).is_some()
    }

    /// Returns the result of `scan` as [`expected`] does, after a check of the text of `metadata`.
    fn found(json: &str, columns: &ColumnSet) -> Option<Value> {
        let scanned = scan(json.as_bytes(), columns).ok()?;
        let raw: RawMetadata<'_> = serde_json::from_str(json).unwrap();
        assert_eq!(scanned.metadata, raw.metadata.get(), "{json}");
        let has_names = scanned.metadata.contains('"');
        if has_names && !json.contains('\\') {
            assert!(is_located(json, columns), "{json}");
        }
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

    /// The text of `metadata` is found wherever it is, with and without names that locate it.
    #[test]
    fn metadata_is_found() {
        let columns = columns();
        for metadata in [
            r#"{"a":1}"#,
            r#"{ "a" : {"b":[{}]} , "c":"}," }"#,
            "{\n\t\"uid\": \"}\"\r\n }",
            r#"{"":{}}"#,
            r#"{"\u0061":1,"b":2}"#,
            "{}",
            "{ }",
        ] {
            for object in [
                format!(r#"{{"metadata":{metadata}}}"#),
                format!("{{\"metadata\" : {metadata} \n}}"),
                format!(r#"{{"a":{{}},"metadata":{metadata},"spec":{{}},"x":1}}"#),
                format!("{{ \"metadata\": {metadata} ,\n \"\" : {{}}, \"x\" : 1 }}"),
                format!(r#"{{"metadata":{metadata},"\u0061":{{}},"x":1}}"#),
            ] {
                let scanned = scan(object.as_bytes(), &columns).unwrap();
                assert_eq!(scanned.metadata, metadata, "{object}");
            }
        }
    }

    /// Only a name that is escaped, or missing, needs a second pass.
    #[test]
    fn names_locate_metadata() {
        for (object, expected) in [
            (r#"{"metadata":{"uid":"a"},"spec":{}}"#, true),
            (r#"{"metadata":{"uid":"a"}}"#, true),
            (
                r#"{"\u0061":1,"metadata":{"uid":"a","\u0062":1},"spec":{}}"#,
                true,
            ),
            (r#"{"metadata":{"\u0075id":"a"},"spec":{}}"#, false),
            (r#"{"metadata":{"uid":"a"},"\u0073pec":{}}"#, false),
            (r#"{"metadata":{},"spec":{}}"#, false),
        ] {
            assert_eq!(is_located(object, &columns()), expected, "{object}");
        }
    }
}
