//! Decodes request bodies from JSON, YAML or protobuf by Content-Type, up to a limit of memory.
//! Validation of the object is in `registry`.

use serde_json::Value;

use watchet_registry::Patch;
use watchet_schema::{
    Decoded, KindType, MemoryBudget, OBJECT_BYTES_MAX, PATCH_BYTES_MAX, decode_untyped,
};

use crate::error::HttpError;
use watchet_protobuf::Schema;

const OBJECT_TYPES: &str =
    "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const PATCH_TYPES: &str = "application/json-patch+json, application/merge-patch+json, \
                           application/strategic-merge-patch+json, application/apply-patch+yaml";

/// The accepted patch types of custom resources.
const PATCH_TYPES_CUSTOM: &str = "application/json-patch+json, application/merge-patch+json, \
                                  application/apply-patch+yaml";

/// The maximum number of values in a YAML body, with those that aliases repeat. The memory limit admits fewer, in YAML as in
/// JSON.
const YAML_NODES_MAX: usize = 1_000_000;

/// Decodes the object in a body, with its type if known.
pub(crate) fn object(
    kind: Option<&KindType>,
    protobuf: &Schema,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<Decoded, HttpError> {
    match media_type(content_type).as_str() {
        "" | "application/json" => json(kind, body, OBJECT_BYTES_MAX),
        "application/vnd.kubernetes.protobuf" => {
            let memory = MemoryBudget::new(OBJECT_BYTES_MAX);
            let reader = protobuf.deserializer(body);
            // The values are also checked against the kind: in protobuf a quantity can be any text.
            let decoded = reader.and_then(|reader| decode(kind, reader, &memory));
            decoded.map_err(|error| invalid("protobuf", &memory, error))
        }
        "application/yaml" | "application/x-yaml" | "text/yaml" => {
            yaml(kind, body, OBJECT_BYTES_MAX)
        }
        other => Err(unsupported(other, OBJECT_TYPES)),
    }
}

/// Decodes the options in a body, which may be empty.
pub(crate) fn options(
    protobuf: &Schema,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<Option<Value>, HttpError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let decoded = object(None, protobuf, content_type, body)?;
    Ok(Some(decoded.value))
}

/// Returns true if a PATCH is a server-side apply.
pub(crate) fn is_apply(content_type: Option<&str>) -> bool {
    media_type(content_type) == "application/apply-patch+yaml"
}

/// Decodes the applied configuration in a body; also returns duplicate fields.
pub(crate) fn configuration(body: &[u8]) -> Result<(Value, Vec<String>), HttpError> {
    yaml(None, body, PATCH_BYTES_MAX).map(|decoded| (decoded.value, decoded.mistakes))
}

/// Decodes the patch in a body; also returns duplicate fields.
pub(crate) fn patch(
    content_type: Option<&str>,
    body: &[u8],
) -> Result<(Patch, Vec<String>), HttpError> {
    let whole = || {
        let decoded = json(None, body, PATCH_BYTES_MAX);
        decoded.map(|decoded| (decoded.value, decoded.mistakes))
    };
    match media_type(content_type).as_str() {
        "application/json-patch+json" => {
            let (operations, mistakes) = whole()?;
            let mistakes = mistakes.into_iter();
            let mistakes = mistakes.map(|mistake| format!("json patch {mistake}"));
            Ok((json_patch(operations).map(Patch::Json)?, mistakes.collect()))
        }
        "application/merge-patch+json" => {
            whole().map(|(patch, mistakes)| (Patch::Merge(patch), mistakes))
        }
        "application/strategic-merge-patch+json" => {
            whole().map(|(patch, mistakes)| (Patch::Strategic(patch), mistakes))
        }
        other => Err(unsupported(other, PATCH_TYPES)),
    }
}

/// Returns the error for a patch type that custom resources do not support.
pub(crate) fn unsupported_for_custom() -> HttpError {
    HttpError::UnsupportedMediaType(PATCH_TYPES_CUSTOM.to_owned())
}

/// Returns the media type without parameters, in lower case.
fn media_type(content_type: Option<&str>) -> String {
    let text = content_type.unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

fn unsupported(given: &str, accepted: &str) -> HttpError {
    HttpError::UnsupportedMediaType(format!("{accepted} (the request has {given:?})"))
}

fn json(kind: Option<&KindType>, body: &[u8], bytes_max: usize) -> Result<Decoded, HttpError> {
    let memory = MemoryBudget::new(bytes_max);
    // One UTF-8 validation of the document is faster than one per string.
    let decoded = match std::str::from_utf8(body) {
        Ok(text) => decode_all(kind, serde_json::Deserializer::from_str(text), &memory),
        // Not UTF-8: `from_slice` reports the line and column, or succeeds if the invalid bytes are only in skipped members.
        Err(_) => decode_all(kind, serde_json::Deserializer::from_slice(body), &memory),
    };
    decoded.map_err(|error| invalid("JSON", &memory, error))
}

/// Decodes one value; trailing data is an error.
fn decode_all<'de, R: serde_json::de::Read<'de>>(
    kind: Option<&KindType>,
    mut reader: serde_json::Deserializer<R>,
    memory: &MemoryBudget,
) -> serde_json::Result<Decoded> {
    let decoded = decode(kind, &mut reader, memory)?;
    reader.end()?;
    Ok(decoded)
}

/// Decodes YAML 1.1 as upstream does: `yes` is true and `017` is fifteen. Infinities and several
/// documents, which JSON cannot express, are errors, as are alias bombs and more than 64 levels of lists and maps, for
/// each of which the decoder takes some 20 KiB of the stack.
///
/// Most bodies of this media type are JSON, from kubectl and from clients in Go. These are decoded as such, with the limits
/// of JSON.
fn yaml(kind: Option<&KindType>, body: &[u8], bytes_max: usize) -> Result<Decoded, HttpError> {
    if body.trim_ascii_start().starts_with(b"{") {
        match json(kind, body, bytes_max) {
            Err(HttpError::BadRequest(_)) => {}
            result => return result,
        }
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: YAML_NODES_MAX,
            max_events: YAML_NODES_MAX * 2,
        },
        legacy_octal_numbers: true,
        with_snippet: false,
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::PassThrough,
    };
    let memory = MemoryBudget::new(bytes_max);
    let read = |reader: serde_saphyr::Deserializer<'_, '_>| decode(kind, reader, &memory);
    serde_saphyr::with_deserializer_from_slice_with_options(body, options, read)
        .map_err(|error| invalid("YAML", &memory, error))
}

fn decode<'de, D: serde::Deserializer<'de>>(
    kind: Option<&KindType>,
    body: D,
    memory: &MemoryBudget,
) -> Result<Decoded, D::Error> {
    match kind {
        Some(kind) => kind.decode(body, memory),
        None => decode_untyped(body, memory),
    }
}

/// Returns the error for a body that cannot be decoded: 413 if it exceeds `memory`, otherwise 400.
fn invalid(format: &str, memory: &MemoryBudget, error: impl std::fmt::Display) -> HttpError {
    match memory.check() {
        Err(exceeded) => HttpError::TooLarge(exceeded.to_string()),
        Ok(()) => HttpError::BadRequest(format!("the body is not valid {format}: {error}")),
    }
}

/// The encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// JSON, and JSON patches and merge patches.
    Json,
    Yaml,
    Protobuf,
}

impl Encoding {
    /// Returns the encoding of a body of this media type. Unknown types count as YAML; their bodies are refused without being
    /// decoded.
    pub(crate) fn of(content_type: Option<&str>) -> Self {
        match media_type(content_type).as_str() {
            "application/vnd.kubernetes.protobuf" => Self::Protobuf,
            json if json.is_empty() || json.ends_with("json") => Self::Json,
            _ => Self::Yaml,
        }
    }
}

/// Parses a JSON patch; the registry limits its length.
fn json_patch(operations: Value) -> Result<json_patch::Patch, HttpError> {
    serde_json::from_value(operations).map_err(|error| {
        HttpError::BadRequest(format!("the body is not a JSON patch (RFC 6902): {error}"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use std::sync::Arc;

    use super::*;

    fn refusal<T: std::fmt::Debug>(result: Result<T, HttpError>) -> String {
        let status = result.unwrap_err().status();
        format!("{} {}", status.code, status.message)
    }

    fn protobuf() -> Arc<Schema> {
        Schema::for_tests()
    }

    fn object(content_type: Option<&str>, body: &[u8]) -> Result<Value, HttpError> {
        super::object(None, &protobuf(), content_type, body).map(|decoded| decoded.value)
    }

    /// Three bytes for each value took 950 MB. The format does not matter, nor where the values are.
    #[test]
    fn decoded_bodies_have_a_limit() {
        let list = format!("[{}{{}}]", "{},".repeat(100_000));
        let pod = format!(r#"{{"spec": {{"containers": {list}}}}}"#);
        let patch_body = format!(r#"[{{"op": "add", "path": "/a", "value": {list}}}]"#);
        let json_patch = patch(Some("application/json-patch+json"), patch_body.as_bytes());
        for refused in [
            refusal(object(None, pod.as_bytes())),
            refusal(object(Some("application/yaml"), pod.as_bytes())),
            refusal(patch(Some("application/merge-patch+json"), pod.as_bytes())),
            refusal(json_patch),
            refusal(options(&protobuf(), None, pod.as_bytes())),
            refusal(configuration(pod.as_bytes())),
        ] {
            assert!(
                refused.starts_with("413 the object is too large: its first "),
                "{refused}"
            );
        }
    }

    /// What fits into storage is accepted, however small its values are.
    #[test]
    fn limit_of_memory_admits_what_fits_into_storage() {
        const STORED_BYTES_MAX: usize = 1_572_864;
        let filled = |item: &dyn Fn(usize) -> String| {
            let mut items = String::new();
            for n in 0.. {
                let item = item(n);
                if items.len() + item.len() + 200 > STORED_BYTES_MAX {
                    break;
                }
                items.push_str(&item);
                items.push(',');
            }
            items.pop();
            items
        };
        let short_keys = filled(&|n| format!(r#""{n:x}":"""#));
        let numbers = filled(&|n| (n % 10).to_string());
        let objects = filled(&|n| format!(r#"{{"name":"item-{n}","value":"{n}"}}"#));
        for body in [
            format!(r#"{{"data":{{{short_keys}}}}}"#),
            format!(r#"{{"spec":{{"list":[{numbers}]}}}}"#),
            format!(r#"{{"spec":{{"list":[{objects}]}}}}"#),
        ] {
            assert!(body.len() > STORED_BYTES_MAX - 300);
            object(None, body.as_bytes()).unwrap();
        }
    }

    #[test]
    fn objects_by_content_type() {
        let expect = json!({"a": [1, true], "b": "x"});
        for content_type in [
            None,
            Some("application/json"),
            Some("Application/JSON; charset=utf-8"),
        ] {
            let actual = object(content_type, br#"{"a":[1,true],"b":"x"}"#);
            assert_eq!(actual.unwrap(), expect);
        }
        let yaml = b"a:\n- 1\n- yes\nb: x\n";
        assert_eq!(object(Some("application/yaml"), yaml).unwrap(), expect);
        let actual = refusal(object(Some("text/plain"), b"{}"));
        assert!(
            actual.starts_with("415 ") && actual.contains("text/plain"),
            "{actual}"
        );
        let actual = refusal(object(Some("application/vnd.kubernetes.protobuf"), b"{}"));
        assert!(
            actual.starts_with("400 the body is not valid protobuf"),
            "{actual}"
        );
        let actual = refusal(object(None, b"{\"a\":\n  x}"));
        assert!(
            actual.starts_with("400 ") && actual.contains("line 2 column 3"),
            "{actual}"
        );
        let actual = options(
            &protobuf(),
            None,
            b" 
",
        );
        assert_eq!(actual.unwrap(), None);
    }

    #[test]
    fn yaml_decodes_as_upstream() {
        let read = |text: &str| object(Some("application/yaml"), text.as_bytes());
        let value = read("a: 017\nb: 1.5\nc: \"017\"\nd: null\ne: off\nf: 0x10\ng: 12345678901\n");
        let expect = json!({
            "a": 15, "b": 1.5, "c": "017", "d": null, "e": false, "f": 16, "g": 12345678901_u64
        });
        assert_eq!(value.unwrap(), expect);
        for bad in ["a: 1\n---\nb: 2\n", "a: .inf\n", "a: [\n"] {
            let actual = refusal(read(bad));
            assert!(
                actual.starts_with("400 the body is not valid YAML"),
                "{bad:?}: {actual}"
            );
        }
        let actual = refusal(read("a: 1\nb: [\n"));
        assert!(
            actual.contains("line 3") || actual.contains("line 2"),
            "{actual}"
        );
    }

    #[test]
    fn duplicate_fields_are_reported() {
        let decoded = |content_type, body: &[u8]| {
            let decoded = super::object(None, &protobuf(), content_type, body).unwrap();
            (decoded.value, decoded.mistakes)
        };
        let twice = vec![r#"duplicate field "a[0].b""#.to_owned()];
        let expect = (json!({"a": [{"b": 2}]}), twice);
        assert_eq!(decoded(None, br#"{"a":[{"b":1,"b":2}]}"#), expect);
        let yaml = b"a:\n- b: 1\n  b: 2\n";
        assert_eq!(decoded(Some("application/yaml"), yaml), expect);
        let operations = br#"[{"op":"remove","path":"/a","path":"/b"}]"#;
        let (_, mistakes) = patch(Some("application/json-patch+json"), operations).unwrap();
        assert_eq!(mistakes, [r#"json patch duplicate field "[0].path""#]);
    }

    #[test]
    fn patches_by_content_type() {
        let json_patch = r#"[{"op":"remove","path":"/a"}]"#.as_bytes();
        let actual = patch(Some("application/json-patch+json"), json_patch);
        assert!(matches!(actual, Ok((Patch::Json(p), _)) if p.0.len() == 1));
        let actual = patch(Some("application/merge-patch+json"), b"{}");
        assert!(matches!(actual, Ok((Patch::Merge(_), _))));
        let actual = patch(Some("application/strategic-merge-patch+json"), b"{}");
        assert!(matches!(actual, Ok((Patch::Strategic(_), _))));
        assert!(is_apply(Some(
            "application/apply-patch+yaml; charset=utf-8"
        )));
        let (_, mistakes) = configuration(b"a: 1\na: 2\n").unwrap();
        assert_eq!(mistakes, [r#"duplicate field "a""#]);
        let actual = refusal(patch(Some("application/apply-patch+cbor"), b"x"));
        assert!(
            actual.starts_with("415 ") && actual.contains("application/apply-patch+yaml"),
            "{actual}"
        );
        for content_type in [None, Some("application/json")] {
            assert!(refusal(patch(content_type, b"{}")).starts_with("415 "));
        }
        let actual = refusal(patch(Some("application/json-patch+json"), b"{}"));
        assert!(actual.starts_with("400 "), "{actual}");
    }
}
