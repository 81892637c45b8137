//! Audit logging, as in kube-apiserver.
//!
//! A [`Policy`](policy::Policy) decides what is recorded about a request:
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

pub mod policy;
