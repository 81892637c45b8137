//! The endpoints that are not about objects: discovery, OpenAPI, the version, the keys of service account tokens, health
//! checks, metrics, the backup of the storage, and links to the console.

pub(crate) mod backup;
pub(crate) mod console_link;
pub(crate) mod discovery;
pub(crate) mod failing_checks;
pub(crate) mod flow_control;
pub(crate) mod health;
pub(crate) mod method;
pub(crate) mod metrics;
pub(crate) mod openapi;
pub(crate) mod route;
pub(crate) mod version;
