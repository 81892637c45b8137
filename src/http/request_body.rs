//! Bodies of requests: read within a limit, and decoded from JSON or YAML by their Content-Type. What
//! an object may contain is the business of `registry`.

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::registry::Patch;
use crate::schema::{Decoded, KindType, decode_untyped};

use super::error::WireError;
use super::protobuf::Schema;

/// The largest body that is read, in bytes: upstream's, twice what etcd takes, so that a patch that
/// makes an object smaller may itself be large.
const BODY_BYTES_MAX: usize = 3 << 20;
/// So much is made room for at once when a body is announced to be as large: a client can announce
/// what it never sends.
const BODY_BYTES_USUAL: u64 = 16 << 10;

const OBJECT_TYPES: &str =
    "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const PATCH_TYPES: &str = "application/json-patch+json, application/merge-patch+json, \
                           application/strategic-merge-patch+json, application/apply-patch+yaml";

/// The same for custom resources.
const PATCH_TYPES_CUSTOM: &str = "application/json-patch+json, application/merge-patch+json, \
                                  application/apply-patch+yaml";

/// The body of a request: read when it is first asked for, and kept, because a write may have to be decided
/// more than once.
pub(crate) struct Sent {
    unread: Mutex<Option<Body>>,
    read: OnceCell<Bytes>,
}

impl Sent {
    /// Of a request that has just come.
    pub(crate) fn new(body: Body) -> Self {
        Self {
            unread: Mutex::new(Some(body)),
            read: OnceCell::new(),
        }
    }

    /// All of it.
    pub(crate) async fn read(&self) -> Result<Bytes, WireError> {
        let reading = self.read.get_or_try_init(|| {
            let body = self.unread.lock().take();
            read(body.unwrap_or_default())
        });
        reading.await.cloned()
    }
}

/// All of `body`.
async fn read(mut body: Body) -> Result<Bytes, WireError> {
    let too_large = || {
        WireError::TooLarge(format!(
            "Request entity too large: limit is {BODY_BYTES_MAX}"
        ))
    };
    if http_body::Body::size_hint(&body).lower() > BODY_BYTES_MAX as u64 {
        return Err(too_large());
    }
    let announced = http_body::Body::size_hint(&body).lower();
    let mut all = BytesMut::with_capacity(announced.min(BODY_BYTES_USUAL) as usize);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            WireError::BadRequest(format!("the body of the request broke off: {error}"))
        })?;
        let Ok(data) = frame.into_data() else {
            continue; // Trailers say nothing that is asked for here.
        };
        if all.len() + data.len() > BODY_BYTES_MAX {
            return Err(too_large());
        }
        all.extend_from_slice(&data);
    }
    Ok(all.freeze())
}

/// The object in a body, read by its type as far as that is known.
pub(crate) fn object(
    kind: Option<&KindType>,
    protobuf: &Schema,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<Decoded, WireError> {
    match media_type(content_type).as_str() {
        "" | "application/json" => json(kind, body),
        "application/vnd.kubernetes.protobuf" => {
            let value = protobuf.object(body).map_err(|error| {
                WireError::BadRequest(format!("the body is not valid protobuf: {error}"))
            })?;
            // Messages are typed more loosely than objects: a quantity is any text there.
            decode(kind, value).map_err(|error: serde_json::Error| {
                WireError::BadRequest(format!("the body is not valid protobuf: {error}"))
            })
        }
        "application/yaml" | "application/x-yaml" | "text/yaml" => yaml(kind, body),
        other => Err(unsupported(other, OBJECT_TYPES)),
    }
}

/// The options in a body that may be empty.
pub(crate) fn options(
    protobuf: &Schema,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<Option<Value>, WireError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let decoded = object(None, protobuf, content_type, body)?;
    Ok(Some(decoded.value))
}

/// Whether a PATCH applies a configuration.
pub(crate) fn is_apply(content_type: Option<&str>) -> bool {
    media_type(content_type) == "application/apply-patch+yaml"
}

/// The applied configuration in a body, and the members that it gives twice.
pub(crate) fn configuration(body: &[u8]) -> Result<(Value, Vec<String>), WireError> {
    yaml(None, body).map(|decoded| (decoded.value, decoded.mistakes))
}

/// The patch in a body, and the members that it gives twice.
pub(crate) fn patch(
    content_type: Option<&str>,
    body: &[u8],
) -> Result<(Patch, Vec<String>), WireError> {
    let whole = || json(None, body).map(|decoded| (decoded.value, decoded.mistakes));
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

/// The refusal of a patch that custom resources do not take.
pub(crate) fn unsupported_for_custom() -> WireError {
    WireError::UnsupportedMediaType(PATCH_TYPES_CUSTOM.to_owned())
}

/// The type without its parameters, lower case.
fn media_type(content_type: Option<&str>) -> String {
    let text = content_type.unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

fn unsupported(given: &str, accepted: &str) -> WireError {
    WireError::UnsupportedMediaType(format!("{accepted} (the request has {given:?})"))
}

fn json(kind: Option<&KindType>, body: &[u8]) -> Result<Decoded, WireError> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let decoded = decode(kind, &mut reader);
    let decoded = decoded.and_then(|decoded| reader.end().map(|()| decoded));
    decoded.map_err(|error| WireError::BadRequest(format!("the body is not valid JSON: {error}")))
}

/// YAML as upstream reads it: version 1.1, where `yes` is true and `017` is fifteen. What JSON has
/// no word for (infinities, several documents) is refused, as are alias bombs.
fn yaml(kind: Option<&KindType>, body: &[u8]) -> Result<Decoded, WireError> {
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        with_snippet: false,
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::PassThrough,
    };
    let read = |reader: serde_saphyr::Deserializer<'_, '_>| decode(kind, reader);
    serde_saphyr::with_deserializer_from_slice_with_options(body, options, read)
        .map_err(|error| WireError::BadRequest(format!("the body is not valid YAML: {error}")))
}

fn decode<'de, D: serde::Deserializer<'de>>(
    kind: Option<&KindType>,
    body: D,
) -> Result<Decoded, D::Error> {
    match kind {
        Some(kind) => kind.decode(body),
        None => decode_untyped(body),
    }
}

/// How long it may be, and what a merge patch may be, is for the registry to say.
fn json_patch(operations: Value) -> Result<json_patch::Patch, WireError> {
    serde_json::from_value(operations).map_err(|error| {
        WireError::BadRequest(format!("the body is not a JSON patch (RFC 6902): {error}"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::Types;

    fn refusal<T: std::fmt::Debug>(result: Result<T, WireError>) -> String {
        let status = result.unwrap_err().status();
        format!("{} {}", status.code, status.message)
    }

    fn protobuf() -> Schema {
        Schema::new(Types::builtins())
    }

    fn object(content_type: Option<&str>, body: &[u8]) -> Result<Value, WireError> {
        super::object(None, &protobuf(), content_type, body).map(|decoded| decoded.value)
    }

    #[tokio::test]
    async fn bodies_have_a_limit() {
        let fits = vec![b'x'; BODY_BYTES_MAX];
        assert_eq!(read(Body::from(fits)).await.unwrap().len(), BODY_BYTES_MAX);
        let over = Body::from(vec![b'x'; BODY_BYTES_MAX + 1]);
        let told = refusal(read(over).await);
        assert_eq!(told, "413 Request entity too large: limit is 3145728");
        // Of unknown length: only counting finds out.
        let chunk = Bytes::from(vec![b'x'; BODY_BYTES_MAX / 2 + 1]);
        let chunks = [chunk.clone(), chunk].map(Ok::<_, std::io::Error>);
        let over = Body::from_stream(futures_util::stream::iter(chunks));
        assert!(refusal(read(over).await).starts_with("413 "));
        let broken = [Err::<Bytes, _>(std::io::Error::other("reset"))];
        let broken = Body::from_stream(futures_util::stream::iter(broken));
        assert!(refusal(read(broken).await).starts_with("400 the body of the request broke off"));
    }

    #[test]
    fn objects_by_content_type() {
        let expect = json!({"a": [1, true], "b": "x"});
        for content_type in [
            None,
            Some("application/json"),
            Some("Application/JSON; charset=utf-8"),
        ] {
            let told = object(content_type, br#"{"a":[1,true],"b":"x"}"#);
            assert_eq!(told.unwrap(), expect);
        }
        let yaml = b"a:\n- 1\n- yes\nb: x\n";
        assert_eq!(object(Some("application/yaml"), yaml).unwrap(), expect);
        let told = refusal(object(Some("text/plain"), b"{}"));
        assert!(
            told.starts_with("415 ") && told.contains("text/plain"),
            "{told}"
        );
        let told = refusal(object(Some("application/vnd.kubernetes.protobuf"), b"{}"));
        assert!(
            told.starts_with("400 the body is not valid protobuf"),
            "{told}"
        );
        let told = refusal(object(None, b"{\"a\":\n  x}"));
        assert!(
            told.starts_with("400 ") && told.contains("line 2 column 3"),
            "{told}"
        );
        let told = options(
            &protobuf(),
            None,
            b" 
",
        );
        assert_eq!(told.unwrap(), None);
    }

    #[test]
    fn yaml_reads_as_upstream_reads_it() {
        let read = |text: &str| object(Some("application/yaml"), text.as_bytes());
        let value = read("a: 017\nb: 1.5\nc: \"017\"\nd: null\ne: off\nf: 0x10\ng: 12345678901\n");
        let expect = json!({
            "a": 15, "b": 1.5, "c": "017", "d": null, "e": false, "f": 16, "g": 12345678901_u64
        });
        assert_eq!(value.unwrap(), expect);
        for bad in ["a: 1\n---\nb: 2\n", "a: .inf\n", "a: [\n"] {
            let told = refusal(read(bad));
            assert!(
                told.starts_with("400 the body is not valid YAML"),
                "{bad:?}: {told}"
            );
        }
        let told = refusal(read("a: 1\nb: [\n"));
        assert!(told.contains("line 3") || told.contains("line 2"), "{told}");
    }

    #[test]
    fn what_is_given_twice_is_noticed() {
        let noticed = |content_type, body: &[u8]| {
            let decoded = super::object(None, &protobuf(), content_type, body).unwrap();
            (decoded.value, decoded.mistakes)
        };
        let twice = vec![r#"duplicate field "a[0].b""#.to_owned()];
        let expect = (json!({"a": [{"b": 2}]}), twice);
        assert_eq!(noticed(None, br#"{"a":[{"b":1,"b":2}]}"#), expect);
        let yaml = b"a:\n- b: 1\n  b: 2\n";
        assert_eq!(noticed(Some("application/yaml"), yaml), expect);
        let operations = br#"[{"op":"remove","path":"/a","path":"/b"}]"#;
        let (_, mistakes) = patch(Some("application/json-patch+json"), operations).unwrap();
        assert_eq!(mistakes, [r#"json patch duplicate field "[0].path""#]);
    }

    #[test]
    fn patches_by_content_type() {
        let json_patch = r#"[{"op":"remove","path":"/a"}]"#.as_bytes();
        let told = patch(Some("application/json-patch+json"), json_patch);
        assert!(matches!(told, Ok((Patch::Json(p), _)) if p.0.len() == 1));
        let told = patch(Some("application/merge-patch+json"), b"{}");
        assert!(matches!(told, Ok((Patch::Merge(_), _))));
        let told = patch(Some("application/strategic-merge-patch+json"), b"{}");
        assert!(matches!(told, Ok((Patch::Strategic(_), _))));
        assert!(is_apply(Some(
            "application/apply-patch+yaml; charset=utf-8"
        )));
        let (_, mistakes) = configuration(b"a: 1\na: 2\n").unwrap();
        assert_eq!(mistakes, [r#"duplicate field "a""#]);
        let told = refusal(patch(Some("application/apply-patch+cbor"), b"x"));
        assert!(
            told.starts_with("415 ") && told.contains("application/apply-patch+yaml"),
            "{told}"
        );
        for content_type in [None, Some("application/json")] {
            assert!(refusal(patch(content_type, b"{}")).starts_with("415 "));
        }
        let told = refusal(patch(Some("application/json-patch+json"), b"{}"));
        assert!(told.starts_with("400 "), "{told}");
    }
}
