//! The client half of the watch cache: a local, indexed copy of a collection of any Kubernetes server,
//! and handlers that are told of each change of it. The same [`Reflector`](crate::reflector) that fills
//! the server's caches from storage fills a `DeltaFifo` from HTTP here. It knows nothing of our server's
//! other rooms.

mod object;

pub use object::{DynamicObject, KubeObject, PartialObjectMetadata, TypeMeta};
