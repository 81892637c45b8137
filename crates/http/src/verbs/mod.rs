//! Requests about objects, by verb: decodes the options and the body, calls the registry, encodes the response.

mod authorized_watch;
pub(crate) mod call;
mod delete;
mod read;
mod run;
mod verb_check;
mod watch;
mod watch_events;
mod write;

pub(crate) use run::run;
