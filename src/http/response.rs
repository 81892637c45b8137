//! Answers: statuses, objects, lists and plain documents as HTTP responses in the agreed media type,
//! with the headers that go with the body, and those that every response carries.

use axum::body::Body;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName,
    RETRY_AFTER, VARY,
};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use serde::Serialize;
use serde_json::Value;

use crate::api::{Object, ShardSelector, Status};
use crate::registry::ObjectList;

use super::accept::{Media, Negotiated};
use super::chunks::{ChunkError, ChunkSource, Pretty, Whole, encode};
use super::error::WireError;
use super::list_body::{ListSource, ProtobufListSource, YamlListSource};
use super::protobuf::Schema;
use super::render::Renderer;

/// Names a request, in its log lines and in its response.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// The longest Audit-Id that is taken over from a client.
const AUDIT_ID_BYTES_MAX: usize = 64;

/// A response with this body and Content-Type.
pub(crate) fn response(code: StatusCode, content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// Sets a header to a value that is ours, and thus valid.
pub(crate) fn set(response: &mut Response, name: HeaderName, value: &str) {
    match HeaderValue::from_str(value) {
        Ok(value) => {
            response.headers_mut().insert(name, value);
        }
        Err(error) => tracing::error!(%name, value, %error, "a header cannot be sent"),
    }
}

/// What a layer above the router answers when it refuses the request with these headers (401, 403).
pub fn refusal(request: &HeaderMap, status: &Status) -> Response {
    let mut response = status_response(status);
    finish(&mut response, &audit_id(request));
    response
}

/// Sets what every response carries; few say themselves how long they may be kept.
pub(crate) fn finish(response: &mut Response, audit_id: &str) {
    set(response, AUDIT_ID, audit_id);
    let uncached = HeaderValue::from_static("no-cache, private");
    response
        .headers_mut()
        .entry(CACHE_CONTROL)
        .or_insert(uncached);
}

/// The client's name for the request if it gave one, else a new one.
pub(crate) fn audit_id(headers: &HeaderMap) -> String {
    let given = headers.get(AUDIT_ID).and_then(|value| value.to_str().ok());
    match given {
        Some(id) if !id.is_empty() && id.len() <= AUDIT_ID_BYTES_MAX => id.to_owned(),
        // It only tells requests apart: that is no business of the system's generator.
        _ => uuid::Builder::from_random_bytes(fastrand::u128(..).to_ne_bytes())
            .into_uuid()
            .to_string(),
    }
}

/// A response whose body is `status` and whose code is the status' own (§8.5), 200 for a success.
pub(crate) fn status_response(status: &Status) -> Response {
    status_response_as(status, false)
}

/// The same in the encoding that its client reads objects in.
pub(crate) fn status_response_in(
    status: &Status,
    media: Media,
    pretty: bool,
    schema: &Schema,
) -> Response {
    let response = status_response_as(status, pretty);
    let json = serde_json::to_value(status).map_err(ChunkError::from);
    let encoded = match media {
        Media::Json => return response,
        Media::Yaml => json.and_then(|status| yaml(&status)).map(Body::from),
        Media::Protobuf => json
            .and_then(|status| schema.encode_object(status.to_string().as_bytes()))
            .map(Body::from),
    };
    match encoded {
        Ok(body) => {
            let mut response = response.map(|_json| body);
            set(&mut response, CONTENT_TYPE, media.content_type());
            response
        }
        // Our own words can always be written; should they not, JSON is better than none.
        Err(error) => {
            tracing::error!(%error, "a status cannot be encoded");
            response
        }
    }
}

/// The same, indented when a person reads it.
pub(crate) fn status_response_as(status: &Status, pretty: bool) -> Response {
    let code = match status.code {
        0 => StatusCode::OK,
        code => StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
    };
    let mut response = match pretty {
        true => pretty_response(code, status),
        false => json_response(code, status),
    };
    if let Some(details) = &status.details
        && details.retry_after_seconds > 0
    {
        let seconds = details.retry_after_seconds.to_string();
        set(&mut response, RETRY_AFTER, &seconds);
    }
    response
}

/// A JSON document of ours.
pub(crate) fn json_response(code: StatusCode, document: &impl Serialize) -> Response {
    document_response(code, serde_json::to_vec(document))
}

/// A JSON document of ours, indented.
pub(crate) fn pretty_response(code: StatusCode, document: &impl Serialize) -> Response {
    document_response(code, serde_json::to_vec_pretty(document))
}

fn document_response(code: StatusCode, json: Result<Vec<u8>, serde_json::Error>) -> Response {
    match json {
        Ok(mut json) => {
            json.push(b'\n');
            response(code, Media::Json.content_type(), Body::from(json))
        }
        Err(error) => {
            tracing::error!(%error, "a document of ours cannot be encoded");
            let code = StatusCode::INTERNAL_SERVER_ERROR;
            response(code, "text/plain", Body::from(error.to_string()))
        }
    }
}

/// Whether the client takes gzip.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    headers
        .get_all(ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let named = parts.next().is_some_and(|coding| coding == "gzip");
            let refused = parts.any(|part| {
                let quality = part.strip_prefix("q=").and_then(|q| q.parse::<f32>().ok());
                quality == Some(0.0)
            });
            named && !refused
        })
}

/// How answers about objects go out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outgoing {
    /// What was agreed on.
    pub(crate) negotiated: Negotiated,
    /// The client takes gzip.
    pub(crate) gzip: bool,
}

impl Outgoing {
    /// One object.
    pub(crate) fn object(
        self,
        code: StatusCode,
        renderer: &Renderer,
        object: &Object,
    ) -> Result<Response, WireError> {
        let body = if renderer.is_verbatim() {
            object.body()
        } else {
            let mut out = BytesMut::new();
            renderer.write_object(object, true, &mut out)?;
            match renderer.protobuf() {
                Some(schema) => schema.encode_object(&out)?.into(),
                None => out.freeze(),
            }
        };
        self.source(code, Whole::new(body))
    }

    /// A list, of `shard` if one was asked for.
    pub(crate) async fn list(
        self,
        renderer: Renderer,
        list: ObjectList,
        shard: Option<&ShardSelector>,
    ) -> Result<Response, WireError> {
        match renderer.protobuf().cloned() {
            Some(schema) => {
                let list = ProtobufListSource::new(renderer, schema, list, shard).await?;
                self.source(StatusCode::OK, list)
            }
            None if self.negotiated.media == Media::Yaml && !renderer.is_table() => {
                let list = YamlListSource::new(renderer, list, shard)?;
                self.stream(StatusCode::OK, Box::new(list))
            }
            None => self.source(StatusCode::OK, ListSource::new(renderer, list, shard)),
        }
    }

    fn source(self, code: StatusCode, source: impl ChunkSource) -> Result<Response, WireError> {
        let media = self.negotiated.media;
        let source: Box<dyn ChunkSource> = match media {
            Media::Yaml => Box::new(Whole::new(whole_yaml(source)?)),
            Media::Json if self.negotiated.pretty => Box::new(Pretty::new(source)),
            Media::Json | Media::Protobuf => Box::new(source),
        };
        self.stream(code, source)
    }

    /// What `source` makes, which is in the agreed media type.
    fn stream(self, code: StatusCode, source: Box<dyn ChunkSource>) -> Result<Response, WireError> {
        let media = self.negotiated.media;
        let encoded = encode(source, self.gzip)?;
        let mut response = response(code, media.content_type(), encoded.body);
        if encoded.gzip {
            mark_gzip(&mut response);
        }
        Ok(response)
    }
}

/// A text of ours, compressed when it is large and the client takes that.
pub(crate) fn text(
    content_type: &'static str,
    text: String,
    gzip: bool,
) -> Result<Response, WireError> {
    let encoded = encode(Box::new(Whole::new(text.into())), gzip)?;
    let mut response = response(StatusCode::OK, content_type, encoded.body);
    if encoded.gzip {
        mark_gzip(&mut response);
    }
    Ok(response)
}

/// Says that the body is compressed.
pub(crate) fn mark_gzip(response: &mut Response) {
    set(response, CONTENT_ENCODING, "gzip");
    set(response, VARY, "Accept-Encoding");
}

impl From<ChunkError> for WireError {
    fn from(error: ChunkError) -> Self {
        Self::Internal(error.to_string())
    }
}

/// What `source` makes, as YAML: one object, or a Table, which people read.
fn whole_yaml(mut source: impl ChunkSource) -> Result<Bytes, WireError> {
    let mut json = BytesMut::new();
    while let Some(chunk) = source.next_chunk() {
        json.extend_from_slice(&chunk?);
    }
    let value: Value = serde_json::from_slice(&json).map_err(ChunkError::from)?;
    Ok(yaml(&value)?.into())
}

/// A document in YAML.
pub(crate) fn yaml(value: &Value) -> Result<String, ChunkError> {
    serde_saphyr::to_string(value).map_err(|error| ChunkError::Yaml(error.to_string()))
}
