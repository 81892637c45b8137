//! Bounds the memory that a body takes before it is decoded, so that a large one waits for memory and does not occupy an async
//! worker.

use watchet_protobuf::Schema;
use watchet_schema::{OBJECT_BYTES_MAX, memory_of_json};

use crate::request::body::Encoding;

/// Returns an upper bound of the memory in bytes that `body` takes when it is decoded. Most bodies are so short that their length
/// is enough to know that it is less than `large`; the values of others are counted.
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
        // In the list `[{},{}]` three bytes are an item and a map.
        Encoding::Json => 256,
        // An alias can repeat any number of values.
        Encoding::Yaml if body.contains(&b'&') && body.contains(&b'*') => {
            return OBJECT_BYTES_MAX;
        }
        // Two bytes are a map with one member in the list `[: ,: ,: ]`.
        Encoding::Yaml => 360,
        // Two bytes are a map entry whose value is a message, or a message with a long name.
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

    /// The length of a body is a bound of what is counted, also for the bodies that take most memory for their length.
    #[test]
    fn memory_is_bounded_by_length() {
        let check = |encoding, body: &[u8]| {
            let counted = memory_bound(encoding, &protobuf(), body, 0);
            let by_length = memory_bound(encoding, &protobuf(), body, usize::MAX);
            let length = body.len();
            assert!(
                by_length >= counted,
                "{encoding:?}: {length} bytes: {by_length} < {counted}"
            );
        };
        for count in [0, 1, 10, 3_000] {
            for [head, item, tail] in [
                ["[{}", ",{}", "]"],
                ["{", "\"\":{\"\":[]},", "\"\":0}"],
                ["[", "[", "]"],
                ["", "{\"\":", "{}"],
                ["[[]", ",[{}]", "]"],
                ["[0", ",0", "]"],
            ] {
                let text = head.to_owned() + &item.repeat(count) + tail;
                check(Encoding::Json, text.as_bytes());
                check(Encoding::Yaml, text.as_bytes());
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
                check(Encoding::Protobuf, &body);
            }
        }
    }
}
