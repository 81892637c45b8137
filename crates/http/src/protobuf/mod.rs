//! Protobuf bodies: the messages of the built-in types, by the tables of `schema`, in the envelope of Go's clients.

mod decode;
mod encode;
mod error;
mod plan;
mod schema;
mod wire;
mod write;

pub(crate) use encode::{
    Encoder, frame_of_body, item_len, list_tail, metadata_field, write_item_head,
};
pub(crate) use error::EncodeError;
pub(crate) use schema::Schema;
