//! Protobuf bodies: the messages of the built-in types, by the tables of `schema`, in the envelope of Go's clients.

mod decode;
mod encode;
mod error;
mod messages;
mod schema;
mod wire;

pub(crate) use error::EncodeError;
pub(crate) use schema::Schema;
