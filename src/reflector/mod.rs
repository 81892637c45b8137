//! The shared heart of server and informer: a `Reflector` lists and watches a source and keeps a
//! store equal to it; an `Indexer` holds objects by key and by value. Neither knows where objects come
//! from or what is done with them.

mod backoff;
mod indexer;
mod lister_watcher;
mod run;

pub use backoff::Backoff;
pub use indexer::{IndexFunc, Indexer, ObjectMap};
pub use lister_watcher::{Change, ChangeBatch, ChangeStream, ListerWatcher, Listing, SourceError};
pub use run::{Reflector, ReflectorStore, SHORT_WATCH};
