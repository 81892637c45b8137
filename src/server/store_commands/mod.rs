//! `watchet store`: checks, backs up, restores, compacts and copies the store of a data directory.
//!
//! All commands but `backup` need the store for themselves, so they lock the data directory as a server does. A backup
//! of a running server is requested from it, over the API: the server can read one revision while it writes later ones,
//! and nothing outside of the process can, because it has changes in memory and in its log that the data file lacks.

mod backup;
mod copy;
mod directory;
mod error;
mod local;
mod progress;
mod run;

pub(in crate::server) use error::StoreError;
pub(in crate::server) use run::run;
