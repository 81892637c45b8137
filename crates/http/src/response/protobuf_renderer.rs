//! Renders the objects of one response in protobuf. The encoding of a stored object is shared by all responses through the
//! [`EncodingCache`](watchet_api::EncodingCache); other forms are encoded for each response.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use watchet_api::{EncodedObject, EventType, Object};

use crate::request::accept::Form;
use crate::response::chunks::ChunkError;
use crate::response::render::Renderer;
use watchet_protobuf::{EncodeError, Encoder};
use watchet_protobuf::{frame_of_body, item_len, metadata_field, write_item_head};

/// Renders objects as [`Renderer`] does, in protobuf.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProtobufRenderer<'a> {
    renderer: &'a Renderer,
    encoder: &'a Encoder,
}

impl<'a> ProtobufRenderer<'a> {
    /// Returns the protobuf renderer of a response; `None` if the response is not protobuf.
    pub(crate) fn of(renderer: &'a Renderer) -> Option<Self> {
        let encoder = renderer.protobuf()?;
        Some(Self { renderer, encoder })
    }

    /// Returns the encoder.
    pub(crate) fn encoder(self) -> &'a Encoder {
        self.encoder
    }

    /// Returns the shared encoding of a stored object; the renderer is of its [stored form](Renderer::is_stored_form).
    fn shared(self, object: &Arc<Object>) -> Result<EncodedObject, EncodeError> {
        let encode = || {
            let (event_type, json) = (object.event_type(), object.body_slice());
            self.encoder.encode_cached(event_type, json)
        };
        self.encoder.encodings().get_or_encode(object, encode)
    }

    /// Returns the body of a response with one object.
    ///
    /// # Errors
    /// The object cannot be rendered, or a value does not fit its field.
    pub(crate) fn body(self, object: &Object) -> Result<Bytes, ChunkError> {
        if self.renderer.is_stored_form() {
            // Objects that were not listed or watched are not worth the memory of those that were.
            if let Some(encoding) = object.encoding() {
                return Ok(encoding.body());
            }
            return Ok(self.encoder.encode_body(object.body_slice())?);
        }
        let mut json = BytesMut::new();
        self.renderer.write_object(object, true, &mut json)?;
        Ok(self.encoder.encode_body(&json)?)
    }

    /// Returns the frame of a watch event.
    ///
    /// # Errors
    /// As [`Self::body`].
    pub(crate) fn frame(
        self,
        event_type: EventType,
        object: &Arc<Object>,
    ) -> Result<Bytes, ChunkError> {
        if self.renderer.is_stored_form() {
            let encoding = self.shared(object)?;
            return Ok(match object.event_type() == event_type {
                true => encoding.frame(),
                false => frame_of_body(event_type.as_str(), &encoding.body())?,
            });
        }
        let mut json = BytesMut::new();
        self.renderer.write_object(object, false, &mut json)?;
        self.frame_of_json(event_type.as_str(), &json)
    }

    /// Returns the frame of an event with this object, which is of the type of the response.
    ///
    /// # Errors
    /// As [`Self::body`].
    pub(crate) fn frame_of_json(self, event_type: &str, json: &[u8]) -> Result<Bytes, ChunkError> {
        let frame = self.encoder.encode_frame(event_type, json);
        Ok(frame?)
    }

    /// Returns the frame of an event with this `Status`.
    ///
    /// # Errors
    /// As [`Self::body`].
    pub(crate) fn frame_of_status(
        self,
        event_type: &str,
        json: &[u8],
    ) -> Result<Bytes, ChunkError> {
        Ok(self
            .encoder
            .status_encoder()
            .encode_frame(event_type, json)?)
    }

    /// Returns the length of an object as an item of a list.
    ///
    /// # Errors
    /// As [`Self::body`].
    pub(crate) fn item_len(self, object: &Arc<Object>) -> Result<usize, ChunkError> {
        if self.renderer.is_stored_form() {
            let known = object.encoded_message_len();
            let message = known.map_or_else(
                || Ok(self.shared(object)?.message().len()),
                Ok::<_, EncodeError>,
            );
            return Ok(item_len(message?));
        }
        if let Some(encoding) = self.encoded_metadata(object)
            && let Some(metadata) = metadata_field(encoding.message())
        {
            return Ok(item_len(metadata.len()));
        }
        let mut json = BytesMut::new();
        self.renderer.write_item(object, &mut json)?;
        Ok(item_len(self.encoder.message_len(&json)?))
    }

    /// Appends an object as an item of a list.
    ///
    /// # Errors
    /// As [`Self::body`].
    pub(crate) fn write_item(
        self,
        object: &Arc<Object>,
        out: &mut Vec<u8>,
    ) -> Result<(), ChunkError> {
        if self.renderer.is_stored_form() {
            let encoding = self.shared(object)?;
            write_item_head(encoding.message().len(), out);
            out.extend_from_slice(encoding.message());
            return Ok(());
        }
        if let Some(encoding) = self.encoded_metadata(object)
            && let Some(metadata) = metadata_field(encoding.message())
        {
            write_item_head(metadata.len(), out);
            out.extend_from_slice(metadata);
            return Ok(());
        }
        let mut json = BytesMut::new();
        self.renderer.write_item(object, &mut json)?;
        Ok(self.encoder.encode_item(&json, out)?)
    }

    /// Returns the shared encoding for a list of metadata: the metadata is its first field, as that of a
    /// PartialObjectMetadata. An object without an encoding is not encoded for that.
    fn encoded_metadata(self, object: &Object) -> Option<EncodedObject> {
        let reads_metadata = self.renderer.form() == Form::Metadata && !self.renderer.converts();
        reads_metadata.then(|| object.encoding()).flatten()
    }
}
