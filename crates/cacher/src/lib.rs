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

mod backfill;
mod cache_watcher;
mod cacher;
mod config;
mod consistency;
mod consistency_check;
mod delegator;
mod dispatcher;
mod error;
mod event;
mod freshness;
mod inbox;
mod index;
mod list_plan;
mod metered;
mod object_list;
mod object_map;
mod page;
mod probe;
mod read_metrics;
mod relist;
mod replay;
mod resource;
mod select;
mod snapshot;
mod source;
mod storage_reads;
mod unreadable;
mod watch_cache;
mod watch_item;

pub use cache_watcher::CacheWatcher;
pub use cacher::Cacher;
pub use config::CacherConfig;
pub use error::{CorruptObjects, ReadError};
pub use object_list::ObjectList;
pub use resource::{CachedResource, StoredTransform};
pub use watch_item::WatchItem;

#[cfg(test)]
mod tests;
