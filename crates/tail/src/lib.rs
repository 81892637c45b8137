//! `watchet tail`: follows a resource of any Kubernetes server with a shared informer and prints a
//! line per change. It is also an example of the use of `watchet-client`.
//!
//! ```text
//! arguments -> RestClient -> discovery -> ReportingSource(HttpListerWatcher) -> SharedInformer
//!                                                                                │ handler:
//!                                                                                difference
//!                                                                                ▼
//!                                          stdout <- one thread that writes <- lines
//! ```

mod args;
mod connection;
mod difference;
mod line;
mod managers;
mod output;
mod run;

pub use difference::{FieldChange, between};
pub use line::{escaped, text_of};
pub use managers::author;
pub use output::colours;
pub use run::{command, main};
