//! The commands of `watchet` that read a server, or describe this program: past states (`at`, `diff`, `history`), its status, its watchers and caches
//! (`top`), its kubeconfig, and the version of the program.
//!
//! ```text
//! arguments -> ServerArgs -> RestClient ─▶ Moment -> Revision (/debug/storage/revisions)
//!                                       ─▶ lists at exactly that revision, or the history of one object
//! ```

mod args;
mod at;
mod diff;
mod error;
mod history;
mod kubeconfig;
mod moment;
mod output;
mod output_format;
mod redact;
mod revisions;
mod run;
mod status;
mod table;
mod top;
mod version;

pub use run::{COMMANDS, commands, main};
pub use version::Build;
