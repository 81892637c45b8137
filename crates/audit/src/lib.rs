//! Audit logging, as in kube-apiserver.
//!
//! A [`Policy`](policy::Policy) selects what is recorded about a request, and the [`Auditor`] sends its events to a log
//! file, to a webhook, or to both:
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
mod batch;
mod delivery;
mod event;
mod event_json;
mod legacy;
mod log_backend;
mod log_backups;
mod log_file;
mod object_writer;
pub mod policy;
mod queue;
mod rotation;
mod source_ips;
mod truncate;
mod webhook;

use std::time::Duration;

pub use auditor::Auditor;
pub use batch::{BatchOptions, Throttle};
pub use delivery::{Delivery, Mode, NotWritten};
pub use event::{Event, ObjectReference, ResponseStatus};
pub use log_backend::{LogFormat, LogOptions};
pub use rotation::Rotation;
pub use source_ips::source_ips;
pub use truncate::{TRUNCATED, Truncate};
pub use webhook::WebhookOptions;

/// The minimum time between two log messages about failures of one kind.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
