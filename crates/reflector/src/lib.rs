//! The part shared by the server and the informer: `Reflector` lists and watches a source and
//! updates a store; `Indexer` holds objects by key and by indexed values.
//!
//! The examples of [`Reflector`] and [`Indexer`] are complete programs.

mod backoff;
mod indexer;
mod lister_watcher;
mod run;

pub use backoff::Backoff;
pub use indexer::{IndexFunc, Indexer, ObjectMap};
pub use lister_watcher::{Change, ChangeBatch, ChangeStream, ListerWatcher, Listing, SourceError};
pub use run::{Reflector, ReflectorStore, SHORT_WATCH};
