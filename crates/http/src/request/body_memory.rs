//! Computes, before a body is decoded, an upper bound of the memory that decoding takes. Large bodies wait for memory and are decoded
//! outside of the async workers.

use watchet_protobuf::Schema;
use watchet_schema::{OBJECT_BYTES_MAX, memory_of_json};

use crate::request::body::Encoding;

/// Returns an upper bound of the memory in bytes that decoding `body` takes. If the bound by its length is less than `large`, returns
/// that without reading the body, which is so for most bodies; otherwise counts its values.
pub(crate) fn memory_bound(
    encoding: Encoding,
    protobuf: &Schema,
    body: &[u8],
    large: usize,
) -> usize {
    let by_length = memory_by_length(encoding, body);
    let (object_bytes, working_bytes) = match encoding {
        _ if by_length + body.len() < large => (by_length, 0),
        Encoding::Json => (memory_of_json(body), 0),
        // As most clients send it.
        Encoding::Yaml if is_json_document(body) => (memory_of_json(body), 0),
        Encoding::Yaml => (by_length, 0),
        Encoding::Protobuf => {
            let memory = protobuf.decoded_memory(body);
            (memory.object_bytes, memory.working_bytes)
        }
    };
    object_bytes.min(OBJECT_BYTES_MAX) + working_bytes + body.len()
}

/// Returns the most memory in bytes that a body of this length takes when it is decoded.
fn memory_by_length(encoding: Encoding, body: &[u8]) -> usize {
    /// The memory of the object itself, and of its apiVersion and kind.
    const OBJECT_BYTES: usize = 2 << 10;
    let per_byte = match encoding {
        // In `[{},{}]` the three bytes of an item take 683 (`MemoryBudget`), which is 228 for each.
        Encoding::Json => 256,
        // An alias can repeat any number of values.
        Encoding::Yaml if body.contains(&b'&') && body.contains(&b'*') => {
            return OBJECT_BYTES_MAX;
        }
        // In a list of objects the two bytes of an empty item take 682, which is 341 for each.
        Encoding::Yaml => 360,
        // The two bytes of an empty map entry whose value is a message take 914, and those of an empty message with the longest
        // name 882: at most 457 for each.
        Encoding::Protobuf => 512,
    };
    OBJECT_BYTES + body.len() * per_byte
}

/// Returns true if a body of YAML is one document of JSON, which has no aliases.
fn is_json_document(body: &[u8]) -> bool {
    body.trim_ascii_start().starts_with(b"{")
        && serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use watchet_schema::{KindType, MemoryBudget, Types};

    use super::*;

    fn protobuf() -> std::sync::Arc<Schema> {
        Schema::for_tests()
    }

    /// Returns a body with the message of an object.
    fn in_envelope(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
        let field = |tag: u8, content: &[u8]| {
            let mut field = vec![tag];
            let mut length = content.len();
            while length >= 0x80 {
                field.push(length as u8 | 0x80);
                length >>= 7;
            }
            field.push(length as u8);
            [&*field, content].concat()
        };
        let type_meta = [
            field(0x0a, api_version.as_bytes()),
            field(0x12, kind.as_bytes()),
        ];
        let envelope = [field(0x0a, &type_meta.concat()), field(0x12, object)];
        [b"k8s\0", &*envelope.concat()].concat()
    }

    /// Bodies with a bound of 1 MiB or more are processed by other threads, so that of ordinary objects must be less.
    #[test]
    fn memory_is_bounded_by_encoding() {
        let bound = |encoding, body: &[u8]| memory_bound(encoding, &protobuf(), body, 0);
        let data: serde_json::Map<String, Value> = (0..100)
            .map(|n| (format!("key-{n}"), "x".repeat(40).into()))
            .collect();
        let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data});
        let json = config_map.to_string();
        let encoder = watchet_protobuf::Encoder::new(&protobuf(), "v1", "ConfigMap").unwrap();
        let body = encoder.encode_body(json.as_bytes()).unwrap();
        assert!(body.len() > 5_000);
        assert!(bound(Encoding::Json, json.as_bytes()) < 100_000);
        assert!(bound(Encoding::Protobuf, &body) < 100_000);
        let script = br#"{"kind": "CronJob", "schedule": "*/5 * * * *", "command": "a && b"}"#;
        assert_eq!(bound(Encoding::Yaml, script), bound(Encoding::Json, script));
        let yaml = b"a: &a [{}, {}]\nb: *a\n";
        assert_eq!(bound(Encoding::Yaml, yaml), OBJECT_BYTES_MAX + yaml.len());
        assert!(bound(Encoding::Yaml, b"a: [{}, {}]\n") < 10_000);
        for (content_type, encoding) in [
            (None, Encoding::Json),
            (Some("application/merge-patch+json"), Encoding::Json),
            (Some("application/apply-patch+yaml"), Encoding::Yaml),
            (
                Some("application/vnd.kubernetes.protobuf"),
                Encoding::Protobuf,
            ),
        ] {
            assert_eq!(Encoding::of(content_type), encoding);
        }
    }

    /// Both bounds are at least what decoding counts, also for the bodies that take most memory for their length.
    #[test]
    fn memory_is_bounded_by_length() {
        let bounds = |encoding, body: &[u8]| {
            let bound = |large| memory_bound(encoding, &protobuf(), body, large);
            let (counted, by_length) = (bound(0), bound(usize::MAX));
            let length = body.len();
            assert!(
                by_length >= counted,
                "{encoding:?}: {length} bytes: {by_length} < {counted}"
            );
            counted
        };
        let kind = KindType::builtin(&Types::builtins(), "v1", "Pod").expect("a built-in kind");
        for count in [1, 10, 3_000] {
            let list = |item: &str| format!("{item},").repeat(count) + item;
            for text in [
                format!(r#"{{"spec":{{"containers":[{}]}}}}"#, list("{}")),
                // Nulls become objects.
                format!(r#"{{"spec":{{"containers":[{}]}}}}"#, list("null")),
                format!(r#"{{"metadata":{{"finalizers":[{}]}}}}"#, list("null")),
                format!(r#"{{"metadata":{{"labels":{{{}}}}}}}"#, list(r#""":"""#)),
                format!(
                    r#"{{"spec":{{"containers":[{}]}}}}"#,
                    list(r#"{"env":[{}]}"#)
                ),
            ] {
                let counted = bounds(Encoding::Json, text.as_bytes());
                assert_eq!(bounds(Encoding::Yaml, text.as_bytes()), counted);
                let budget = MemoryBudget::new(counted);
                let decoded = kind.decode(&mut serde_json::Deserializer::from_str(&text), &budget);
                assert!(
                    decoded.is_ok(),
                    "{:?} of {}...",
                    budget.check(),
                    &text[..60]
                );
            }
            // A container; a term of a preference; a property of a schema, and one of its members with a longer name.
            for (api_version, kind, field) in [
                ("v1", "Pod", &[0x12, 0x02, 0x12, 0x00][..]),
                ("v1", "Pod", &[0x0a, 0x02, 0x5a, 0x00]),
                ("v1", "ConfigMap", &[0x12, 0x00]),
                ("v1", "Node", &[0x1a, 0x02, 0x32, 0x00]),
                (
                    "apiextensions.k8s.io/v1",
                    "CustomResourceDefinition",
                    &[0x12, 0x00],
                ),
                (
                    "authorization.k8s.io/v1",
                    "SubjectAccessReview",
                    &[0x12, 0x02, 0x2a, 0x00],
                ),
            ] {
                let body = in_envelope(api_version, kind, &field.repeat(count));
                assert!(count == 0 || protobuf().decoded_memory(&body).object_bytes > 0);
                bounds(Encoding::Protobuf, &body);
            }
        }
    }
}
