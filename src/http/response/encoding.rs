//! Builds responses: statuses, objects, lists and plain documents in the negotiated media type,
//! with their headers.

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

use crate::http::request::accept::{Media, Negotiated};
use crate::http::response::chunks::{ChunkError, ChunkSource, Pretty, SingleChunk, encode};
use crate::http::error::HttpError;
use crate::http::response::list_body::{ListSource, ProtobufListSource, YamlListSource};
use crate::http::protobuf::Schema;
use crate::http::response::render::Renderer;

/// The header that identifies a request, in the response and in log lines.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// The maximum length of an Audit-Id that is adopted from a client.
const AUDIT_ID_BYTES_MAX: usize = 64;

/// Returns a response with this body and Content-Type.
pub(crate) fn response(code: StatusCode, content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// Sets a header to a value of our own, which must be valid.
pub(crate) fn set(response: &mut Response, name: HeaderName, value: &str) {
    match HeaderValue::from_str(value) {
        Ok(value) => {
            response.headers_mut().insert(name, value);
        }
        Err(error) => tracing::error!(%name, value, %error, "invalid response header"),
    }
}

/// Returns the response of a layer above the router that rejects a request with these headers (401,
/// 403).
pub fn error_response(request: &HeaderMap, status: &Status) -> Response {
    let mut response = status_response(status);
    set_common_headers(&mut response, &audit_id(request));
    response
}

/// Sets the headers of every response; `Cache-Control` only if absent.
pub(crate) fn set_common_headers(response: &mut Response, audit_id: &str) {
    set(response, AUDIT_ID, audit_id);
    let uncached = HeaderValue::from_static("no-cache, private");
    response
        .headers_mut()
        .entry(CACHE_CONTROL)
        .or_insert(uncached);
}

/// Returns the client's Audit-Id if valid, else a new one.
pub(crate) fn audit_id(headers: &HeaderMap) -> String {
    let given = headers.get(AUDIT_ID).and_then(|value| value.to_str().ok());
    match given {
        Some(id) if !id.is_empty() && id.len() <= AUDIT_ID_BYTES_MAX => id.to_owned(),
        // The ID only identifies requests, so it needs no cryptographic randomness.
        _ => uuid::Builder::from_random_bytes(fastrand::u128(..).to_ne_bytes())
            .into_uuid()
            .to_string(),
    }
}

/// Returns a response with `status` as body and its code, 200 for a success.
pub(crate) fn status_response(status: &Status) -> Response {
    status_response_as(status, false)
}

/// Returns a response with `status` in the encoding that the client accepts for objects.
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
        // A status can always be encoded; if not, JSON is the fallback.
        Err(error) => {
            tracing::error!(%error, "cannot encode a status");
            response
        }
    }
}

/// Returns a JSON response with `status`, indented if `pretty`.
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

/// Returns a JSON document as a response.
pub(crate) fn json_response(code: StatusCode, document: &impl Serialize) -> Response {
    document_response(code, serde_json::to_vec(document))
}

/// Returns a JSON document as a response, indented.
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
            tracing::error!(%error, "cannot encode a document");
            let code = StatusCode::INTERNAL_SERVER_ERROR;
            response(code, "text/plain", Body::from(error.to_string()))
        }
    }
}

/// Returns true if the client accepts gzip.
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

/// The negotiated encoding of a response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseEncoding {
    /// The result of content negotiation.
    pub(crate) negotiated: Negotiated,
    /// Whether the client accepts gzip.
    pub(crate) gzip: bool,
}

impl ResponseEncoding {
    /// Encodes one object.
    pub(crate) fn object(
        self,
        code: StatusCode,
        renderer: &Renderer,
        object: &Object,
    ) -> Result<Response, HttpError> {
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
        self.source(code, SingleChunk::new(body))
    }

    /// Encodes a list; `shard` is the requested shard.
    pub(crate) async fn list(
        self,
        renderer: Renderer,
        list: ObjectList,
        shard: Option<&ShardSelector>,
    ) -> Result<Response, HttpError> {
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

    fn source(self, code: StatusCode, source: impl ChunkSource) -> Result<Response, HttpError> {
        let media = self.negotiated.media;
        let source: Box<dyn ChunkSource> = match media {
            Media::Yaml => Box::new(SingleChunk::new(whole_yaml(source)?)),
            Media::Json if self.negotiated.pretty => Box::new(Pretty::new(source)),
            Media::Json | Media::Protobuf => Box::new(source),
        };
        self.stream(code, source)
    }

    /// Streams the chunks of `source`, which are in the negotiated media type.
    fn stream(self, code: StatusCode, source: Box<dyn ChunkSource>) -> Result<Response, HttpError> {
        let media = self.negotiated.media;
        let encoded = encode(source, self.gzip)?;
        let mut response = response(code, media.content_type(), encoded.body);
        if encoded.gzip {
            mark_gzip(&mut response);
        }
        Ok(response)
    }
}

/// Returns a text as a response, compressed if it is large and the client accepts that.
pub(crate) fn text(
    content_type: &'static str,
    text: String,
    gzip: bool,
) -> Result<Response, HttpError> {
    let encoded = encode(Box::new(SingleChunk::new(text.into())), gzip)?;
    let mut response = response(StatusCode::OK, content_type, encoded.body);
    if encoded.gzip {
        mark_gzip(&mut response);
    }
    Ok(response)
}

/// Sets the headers of a compressed body.
pub(crate) fn mark_gzip(response: &mut Response) {
    set(response, CONTENT_ENCODING, "gzip");
    set(response, VARY, "Accept-Encoding");
}

impl From<ChunkError> for HttpError {
    fn from(error: ChunkError) -> Self {
        Self::Internal(error.to_string())
    }
}

/// Encodes the chunks of `source` as YAML: one object, or a Table.
fn whole_yaml(mut source: impl ChunkSource) -> Result<Bytes, HttpError> {
    let mut json = BytesMut::new();
    while let Some(chunk) = source.next_chunk() {
        json.extend_from_slice(&chunk?);
    }
    let value: Value = serde_json::from_slice(&json).map_err(ChunkError::from)?;
    Ok(yaml(&value)?.into())
}

/// Encodes a document as YAML.
pub(crate) fn yaml(value: &Value) -> Result<String, ChunkError> {
    serde_saphyr::to_string(value).map_err(|error| ChunkError::Yaml(error.to_string()))
}
