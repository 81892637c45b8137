//! The endpoints that are not about objects: discovery, OpenAPI, the version, the keys of service account tokens, health
//! checks, metrics, the backup and the revisions of the storage, links to the console, the clients that list, the log level, and profiles.

pub(crate) mod backup;
pub(crate) mod console_link;
pub(crate) mod discovery;
pub(crate) mod failing_checks;
pub(crate) mod flow_control;
pub(crate) mod health;
pub(crate) mod list_clients;
pub(crate) mod log_level;
pub(crate) mod method;
pub(crate) mod metrics;
pub(crate) mod openapi;
pub(crate) mod profiles;
pub(crate) mod revisions;
pub(crate) mod route;
pub(crate) mod version;
