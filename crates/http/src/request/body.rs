//! Request bodies: read up to a limit, decoded from JSON, YAML or protobuf by Content-Type.
//! Validation of the object is in `registry`.

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::OnceCell;

use watchet_registry::Patch;
use watchet_schema::{Decoded, KindType, decode_untyped};

use crate::error::HttpError;
use crate::protobuf::Schema;

/// The maximum size of a body in bytes, as upstream: twice etcd's limit, so that a patch that makes
/// an object smaller may itself be large.
const BODY_BYTES_MAX: usize = 3 << 20;
/// The most that is preallocated for a body of announced length: a client may announce more than it
/// sends.
const BODY_BYTES_PREALLOCATED_MAX: u64 = 16 << 10;

const OBJECT_TYPES: &str =
    "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const PATCH_TYPES: &str = "application/json-patch+json, application/merge-patch+json, \
                           application/strategic-merge-patch+json, application/apply-patch+yaml";

/// The accepted patch types of custom resources.
const PATCH_TYPES_CUSTOM: &str = "application/json-patch+json, application/merge-patch+json, \
                                  application/apply-patch+yaml";

/// The body of a request, read on first use and retained, because a write may be evaluated more
/// than once.
pub(crate) struct RequestBody {
    unread: Mutex<Option<Body>>,
    read: OnceCell<Bytes>,
}

impl RequestBody {
    /// Creates the body of a new request.
    pub(crate) fn new(body: Body) -> Self {
        Self {
            unread: Mutex::new(Some(body)),
            read: OnceCell::new(),
        }
    }

    /// Reads the whole body.
    pub(crate) async fn read(&self) -> Result<Bytes, HttpError> {
        let reading = self.read.get_or_try_init(|| {
            let body = self.unread.lock().take();
            read(body.unwrap_or_default())
        });
        reading.await.cloned()
    }
}

/// Reads all of `body` up to the limit.
async fn read(mut body: Body) -> Result<Bytes, HttpError> {
    let too_large = || {
        HttpError::TooLarge(format!(
            "Request entity too large: limit is {BODY_BYTES_MAX}"
        ))
    };
    if http_body::Body::size_hint(&body).lower() > BODY_BYTES_MAX as u64 {
        return Err(too_large());
    }
    let announced = http_body::Body::size_hint(&body).lower();
    let mut all = BytesMut::with_capacity(announced.min(BODY_BYTES_PREALLOCATED_MAX) as usize);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            HttpError::BadRequest(format!("the body of the request ended early: {error}"))
        })?;
        let Ok(data) = frame.into_data() else {
            continue; // A trailers frame.
        };
        if all.len() + data.len() > BODY_BYTES_MAX {
            return Err(too_large());
        }
        all.extend_from_slice(&data);
    }
    Ok(all.freeze())
}

/// Decodes the object in a body, with its type if known.
pub(crate) fn object(
    kind: Option<&KindType>,
    protobuf: &Schema,
    content_type: Option<&str>,
    body: &[u8],
) -> Result<Decoded, HttpError> {
    match media_type(content_type).as_str() {
        "" | "application/json" => json(kind, body),
        "application/vnd.kubernetes.protobuf" => {
            let value = protobuf.object(body).map_err(|error| {
                HttpError::BadRequest(format!("the body is not valid protobuf: {error}"))
            })?;
            // Messages have looser types than objects: a quantity is any string there.
            decode(kind, value).map_err(|error: serde_json::Error| {
                HttpError::BadRequest(format!("the body is not valid protobuf: {error}"))
            })
        }
        "application/yaml" | "application/x-yaml" | "text/yaml" => yaml(kind, body),
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
    yaml(None, body).map(|decoded| (decoded.value, decoded.mistakes))
}

/// Decodes the patch in a body; also returns duplicate fields.
pub(crate) fn patch(
    content_type: Option<&str>,
    body: &[u8],
) -> Result<(Patch, Vec<String>), HttpError> {
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

fn json(kind: Option<&KindType>, body: &[u8]) -> Result<Decoded, HttpError> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let decoded = decode(kind, &mut reader);
    let decoded = decoded.and_then(|decoded| reader.end().map(|()| decoded));
    decoded.map_err(|error| HttpError::BadRequest(format!("the body is not valid JSON: {error}")))
}

/// Decodes YAML 1.1 as upstream does: `yes` is true and `017` is fifteen. Infinities and several
/// documents, which JSON cannot express, are errors, as are alias bombs.
fn yaml(kind: Option<&KindType>, body: &[u8]) -> Result<Decoded, HttpError> {
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        with_snippet: false,
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::PassThrough,
    };
    let read = |reader: serde_saphyr::Deserializer<'_, '_>| decode(kind, reader);
    serde_saphyr::with_deserializer_from_slice_with_options(body, options, read)
        .map_err(|error| HttpError::BadRequest(format!("the body is not valid YAML: {error}")))
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

/// Parses a JSON patch; the registry limits its length.
fn json_patch(operations: Value) -> Result<json_patch::Patch, HttpError> {
    serde_json::from_value(operations).map_err(|error| {
        HttpError::BadRequest(format!("the body is not a JSON patch (RFC 6902): {error}"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use watchet_schema::Types;

    fn refusal<T: std::fmt::Debug>(result: Result<T, HttpError>) -> String {
        let status = result.unwrap_err().status();
        format!("{} {}", status.code, status.message)
    }

    fn protobuf() -> Schema {
        Schema::new(Types::builtins())
    }

    fn object(content_type: Option<&str>, body: &[u8]) -> Result<Value, HttpError> {
        super::object(None, &protobuf(), content_type, body).map(|decoded| decoded.value)
    }

    #[tokio::test]
    async fn bodies_have_a_limit() {
        let fits = vec![b'x'; BODY_BYTES_MAX];
        assert_eq!(read(Body::from(fits)).await.unwrap().len(), BODY_BYTES_MAX);
        let over = Body::from(vec![b'x'; BODY_BYTES_MAX + 1]);
        let actual = refusal(read(over).await);
        assert_eq!(actual, "413 Request entity too large: limit is 3145728");
        // The length is unknown, so only counting detects the excess.
        let chunk = Bytes::from(vec![b'x'; BODY_BYTES_MAX / 2 + 1]);
        let chunks = [chunk.clone(), chunk].map(Ok::<_, std::io::Error>);
        let over = Body::from_stream(futures_util::stream::iter(chunks));
        assert!(refusal(read(over).await).starts_with("413 "));
        let broken = [Err::<Bytes, _>(std::io::Error::other("reset"))];
        let broken = Body::from_stream(futures_util::stream::iter(broken));
        assert!(refusal(read(broken).await).starts_with("400 the body of the request ended early"));
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
