//! `watchet tail`: follows a resource of any Kubernetes server through a shared informer and prints a
//! line for each change, with what changed. It is the client library's worked example, and knows nothing
//! of how a server works.
//!
//! ```text
//! arguments -> RestClient -> discovery -> Telling(HttpListerWatcher) -> SharedInformer
//!                                                                           │ handler: what changed?
//!                                                                           ▼
//!                                     stdout <- one thread that writes <- lines
//! ```

mod args;
mod connection;
mod difference;
mod line;
mod output;
mod run;

pub use run::{command, main};
