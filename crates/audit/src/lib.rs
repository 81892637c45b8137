//! Audit logging, as in kube-apiserver.
//!
//! A [`Policy`](policy::Policy) decides what is recorded about a request, and the [`Auditor`] writes its events to the
//! log:
//!
//! ```
//! use watchet_audit::policy::{Level, Policy, RequestAttributes};
//!
//! let policy: Policy = "
//! apiVersion: audit.k8s.io/v1
//! kind: Policy
//! rules:
//! - level: None
//!   nonResourceURLs: ['/healthz*']
//! - level: Metadata
//! ".parse()?;
//! let probe = RequestAttributes { user: None, verb: "get", path: "/healthz/ping", resource: None };
//! assert_eq!(policy.evaluate(&probe).level, Level::None);
//! # Ok::<(), watchet_audit::policy::InvalidPolicy>(())
//! ```

mod auditor;
mod event;
mod log_file;
pub mod policy;
mod queue;
mod source_ips;

pub use auditor::{Auditor, BATCH_DELAY, Mode};
pub use event::{Event, ObjectReference, ResponseStatus};
pub use log_file::Rotation;
pub use source_ips::source_ips;
