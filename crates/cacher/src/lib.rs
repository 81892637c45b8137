//! The watch cache. A `Cacher` keeps one resource's objects and recent history in memory, answers
//! gets and lists, and feeds any number of watches. It reads storage and never writes it.
//!
//! ```text
//!  storage ─▶ StorageSource ─▶ Reflector ─▶ WatchCache ─publishes─▶ Snapshot (objects + history)
//!                                                                      │            │
//!                            delegator: get, list ◀────────────────────┤            │
//!                                                                      ▼            ▼
//!                          CacheWatcher ◀─ Inbox ◀─ Dispatcher (a cursor)     CatchUp reads
//! ```
//!
//! # Example
//!
//! `examples/toy_store.rs` implements `Storage` for a store of its own; here it is one in memory.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use watchet_api::{ListOptions, SelectionPredicate, StorageKey};
//! use watchet_cacher::{CachedResource, Cacher, CacherConfig, WatchItem};
//! use watchet_metrics::Metrics;
//! use watchet_storage::{Expect, Put, Storage as _, memory::Memory};
//! use watchet_tasks::Tasks;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (tasks, metrics) = (Tasks::new(), Metrics::new());
//! let storage = Memory::new(Duration::from_secs(300))?;
//! let prefix = StorageKey::new("/configmaps/")?;
//! let key = prefix.join("default/settings")?;
//! let value = r#"{"metadata":{"name":"settings","namespace":"default"}}"#.into();
//! storage.put(Put { key, value, expect: Expect::Absent, ttl: None }).await?;
//!
//! let resource = CachedResource {
//!     name: "configmaps".to_owned(),
//!     namespaced: true,
//!     prefix,
//!     columns: Arc::default(),
//!     triggers: Vec::new(),
//!     metrics: metrics.resource("", "configmaps"),
//!     transform: None,
//! };
//! let cacher = Cacher::start(resource, storage, &tasks, CacherConfig::default());
//! let all = SelectionPredicate::default();
//! let list = cacher.list(&all, &ListOptions::default()).await?;
//! assert_eq!(list.items[0].key().as_str(), "default/settings");
//!
//! let mut watch = cacher.watch(all, &ListOptions::default()).await?;
//! let items = watch.next().await.expect("the watch is open");
//! assert!(matches!(&items[..], [WatchItem::Initial(_)]));
//! # tasks.drain(Duration::from_secs(10)).await?;
//! # Ok(())
//! # }
//! ```

mod backfill;
mod cache_status;
mod cache_watcher;
mod cacher;
mod config;
mod consistency;
mod consistency_check;
mod decode;
mod delegator;
mod dispatcher;
mod error;
mod event;
mod freshness;
mod inbox;
mod index;
mod interrupts;
mod list_plan;
mod metered;
mod object_list;
mod object_map;
mod page;
mod pressure;
mod probe;
mod read_metrics;
mod received_events;
mod replay;
mod resource;
mod select;
mod snapshot;
mod source;
mod storage_history;
mod storage_reads;
mod unreadable;
mod watch_cache;
mod watch_context;
mod watch_item;
mod watch_monitor;
mod watch_status;

pub use cache_status::{CacheHistory, CacheSize, CacheStatus};
pub use cache_watcher::CacheWatcher;
pub use cacher::Cacher;
pub use config::CacherConfig;
pub use error::{CorruptObjects, ReadError};
pub use object_list::ObjectList;
pub use received_events::ReceivedEvents;
pub use resource::{CachedResource, StoredTransform};
pub use storage_history::StorageHistory;
pub use watch_item::WatchItem;
pub use watch_monitor::WatchMonitor;
pub use watch_status::{WatchLag, WatchPhase, WatchStatus};

#[cfg(test)]
mod tests;
