//! The garbage collector: deletes objects whose owners are all absent, and carries out foreground
//! and orphaning deletions, by upstream's rules. It watches the metadata of every resource and
//! never scans.
//!
//! ```text
//!  Follower of each resource ─▶ Graph ─▶ WorkQueue ─▶ examine: get, decide, delete or patch
//!                                                 └─▶ orphan:  patch the dependents, then the owner
//! ```
//!
//! The graph only determines which objects to examine. Decisions are based on objects read from
//! storage: every delete and patch has the uid and version of the object it was decided on as
//! preconditions. The finalizer of an owner that waits for its dependents is removed only when the
//! watches of all resources that existed at the version of that decision have caught up to it, so
//! that all its dependents are reached.

// In reading order: the graph, what fills it, what acts on it.
mod graph;
mod metadata;

mod monitors;

mod collector;
mod examine;
mod warning;

pub(super) use collector::GarbageCollector;
