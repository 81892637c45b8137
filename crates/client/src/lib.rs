//! The client library: a local, indexed copy of a collection of any Kubernetes server, and handlers
//! that are notified of its changes. It uses the same [`Reflector`](watchet_reflector) as the
//! server's caches, with HTTP as the source and a `DeltaFifo` as the store. It does not depend on
//! the server's modules. [`SharedInformerFactory`] is where a program begins; its documentation has an example.
//!
//! ```text
//!                        Controller
//!  ┌──────────────────────────────────────────────────────────┐
//!  │ HttpListerWatcher ─▶ Reflector ─▶ DeltaFifo ─▶ pop loop  │
//!  └────────────────────────────────────────────────────┬─────┘
//!        Lister ─▶ indexer (ThreadSafeStore) ◀── first ─┤
//!                                                       ▼ then
//!                                            processor: pending notifications, merged if there are
//!                                            many
//!                                               │           │           │
//!                                            handler     handler     handler   ─▶ WorkQueue ─▶ you
//! ```

mod controller;
mod delta_fifo;
mod factory;
mod informer_snapshot;
mod key;
pub mod kubelet;
mod leader_election;
mod lister;
mod metrics;
mod object;
mod objects;
mod recorder;
mod rest;
mod shared;
mod source;
mod store;
mod undelta_store;
mod work_queue;

/// A duration longer than any program runs, since adding to an `Instant` can overflow.
const FOREVER: std::time::Duration = std::time::Duration::from_secs(30 * 365 * 86_400);

pub use controller::{
    Config as ControllerConfig, Controller, ControllerState, Resync, WatchErrorHandler,
    process_deltas,
};
pub use delta_fifo::{
    Deleted, DeletedFinalStateUnknown, Delta, DeltaFifo, DeltaFifoStore, Deltas, INTERMEDIATE_MAX,
    PopError, Requeue,
};
pub use factory::{FactoryNotSynced, SharedInformerFactory};
pub use key::{InvalidObjectKey, key_of, split_key};
pub use leader_election::{
    InvalidLeaderElection, LeaderElectionConfig, LeaderElector, LeaderEnded,
};
pub use lister::{Lister, NamespaceLister, NotFound};
pub use metrics::InformerMetrics;
pub use object::{DynamicObject, KubeObject, PartialObjectMetadata, TypeMeta};
pub use objects::Objects;
pub use recorder::EventRecorder;
pub use rest::{
    ApiResource, ByteStream, ClientCertificate, Dialer, Discovery, ExecPlugin, Impersonate,
    InvalidRestConfig, Kubeconfig, KubeconfigError, ListParams, ObjectList, ObjectScope, Patch,
    Pem, ResourceClient, RestClient, RestConfig, RestConfigError, RestError, Token,
    UnknownResource, connection_error_message, retry_review,
};
pub use shared::{
    AlreadyStarted, HandlerMetrics, HandlerRegistration, InformerStopped, InformerSynced,
    NeverSynced, Notification, ResourceEventHandler, ResourceEventHandlerFuncs, SharedInformer,
    wait_for_cache_sync,
};
pub use source::{HttpListerWatcher, ListWatchOptions, ReflectorMetrics};
pub use store::{IndexTaken, Indexers, NAMESPACE_INDEX, ThreadSafeStore, UnknownIndex};
pub use undelta_store::UndeltaStore;
pub use work_queue::{Exponential, MaxOf, RateLimiter, TokenBucket, WorkQueue};

pub use watchet_api::ObjectKey;
