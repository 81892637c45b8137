//! The shared heart of server and informer: a `Reflector` lists and watches a source and keeps a
//! store equal to it. It does not know where objects come from or what the store does with them.

mod backoff;
mod lister_watcher;
mod run;

pub use backoff::Backoff;
pub use lister_watcher::{Change, ChangeBatch, ChangeStream, ListerWatcher, Listing, SourceError};
pub use run::{Reflector, ReflectorStore};
