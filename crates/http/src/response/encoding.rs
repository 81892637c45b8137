//! Encodes objects and lists as responses, in the negotiated media type and form.

use axum::http::StatusCode;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use serde_json::Value;

use crate::error::HttpError;
use crate::request::accept::{Media, Negotiated};
use crate::response::chunks::{ChunkError, ChunkSource, Pretty, SingleChunk, encode};
use crate::response::document::response;
use crate::response::headers::mark_gzip;
use crate::response::list_body::{ListSource, ProtobufListSource, YamlListSource};
use crate::response::protobuf_renderer::ProtobufRenderer;
use crate::response::render::Renderer;
use crate::response::yaml::yaml;
use watchet_api::{Object, ShardSelector};
use watchet_registry::ObjectList;

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
        let body = match ProtobufRenderer::of(renderer) {
            Some(protobuf) => protobuf.body(object)?,
            None if renderer.is_verbatim() => object.body(),
            None => {
                let mut out = BytesMut::new();
                renderer.write_object(object, true, &mut out)?;
                out.freeze()
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
        match renderer.protobuf() {
            Some(_) => {
                let list = ProtobufListSource::new(renderer, list, shard).await?;
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

/// Encodes the chunks of `source` as YAML: one object, or a Table.
fn whole_yaml(mut source: impl ChunkSource) -> Result<Bytes, HttpError> {
    let mut json = BytesMut::new();
    while let Some(chunk) = source.next_chunk() {
        json.extend_from_slice(&chunk?);
    }
    let value: Value = serde_json::from_slice(&json).map_err(ChunkError::from)?;
    Ok(yaml(&value)?.into())
}
