//! Watch scripts: a text format for tests of list, watch and informers, its parser, and the runner that executes a script
//! against any [`Driver`]. `docs/watch-scripts.md` describes the format.
//!
//! ```
//! use watchet_test_util::watch_script::Script;
//!
//! let text = "# WC-122: an update that leaves the selector is DELETED.
//! put    pods/a @1 app=web
//! watch  w1 pods from=@1 labels=app=web
//! put    pods/a @2 app=db
//! expect w1: DELETED a@2 app=web
//! ";
//! let script = Script::parse("example.script", text).unwrap();
//! assert_eq!(script.steps.len(), 4);
//!
//! let error = Script::parse("example.script", "# A rule.\nput pods/a app=web\n").unwrap_err();
//! assert!(error.to_string().starts_with("example.script:2:12: "));
//! ```

mod clients;
mod corpus;
mod driver;
mod expect;
mod failure;
mod generate;
#[cfg(feature = "informer")]
mod informer;
mod item;
mod lines;
mod model;
mod need;
mod needs;
mod object;
mod parse;
mod parse_items;
mod print;
mod run;
mod script;
mod version_ref;
mod versions;
mod word_reader;

pub use corpus::{Corpus, DRIVERS, DriverInfo};
pub use driver::{
    ApiError, Driver, Informer, InformerRequest, ListResponse, Notifications, ReadRequest,
    Received, Timing, WatchStream, WriteRequest,
};
pub use failure::Failure;
pub use generate::{random_actions, shrink};
#[cfg(feature = "informer")]
pub use informer::ScriptInformer;
pub use item::{EventKind, Item, Notification};
pub use lines::ParseError;
pub use need::Need;
pub use object::{Content, ObjectName, ReceivedObject, Resource, StoredObject};
pub use run::run;
pub use script::{Action, InformerOptions, Link, Match, Read, Script, StartVersion, Step, Write};
pub use version_ref::VersionRef;

#[cfg(test)]
mod tests;
