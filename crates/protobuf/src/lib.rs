//! The protobuf encoding of Kubernetes' built-in types, by the tables of `schema`, in the envelope that Go's clients and
//! kube-apiserver's storage use: `k8s\\0` and a `runtime.Unknown`.
//!
//! - [`Messages`] deserializes an object or converts it to JSON, and [`Encoder`] encodes JSON, whole or in the parts of lists and watches.
//! - [`TranscodingStorage`] reads and writes stored values in protobuf, over any storage whose other values are JSON.

mod decode;
mod encode;
mod error;
mod plan;
mod schema;
mod storage;
mod wire;
mod write;

pub use decode::{DecodedMemory, Deserializer};
pub use encode::{Encoder, frame_of_body, item_len, list_tail, metadata_field, write_item_head};
pub use error::{EncodeError, InvalidProtobuf, Unencodable};
pub use schema::{Messages, Schema};
pub use storage::{StorageMediaType, TranscodingStorage, UnsupportedMediaType, VersionConversion};
