//! What a listener serves: the router, and how requests are authenticated.

use std::sync::Arc;

use crate::api::UserInfo;
use crate::audit::Auditor;
use crate::auth::Authenticator;
use crate::tasks::Tasks;

/// The service of a listener.
#[derive(Debug, Clone)]
pub(in crate::server) struct Service {
    /// The router of authenticated requests.
    pub(in crate::server) router: axum::Router,
    /// The router of the console's files and logins, which need no credentials; `None` if it is not served.
    pub(in crate::server) console: Option<axum::Router>,
    /// How requests are authenticated.
    pub(in crate::server) authentication: Authentication,
    /// Records rejected requests; `None` if there is no audit log.
    pub(in crate::server) auditor: Option<Arc<Auditor>>,
    /// Logs and counts the panics of requests.
    pub(in crate::server) tasks: Tasks,
}

/// How requests are authenticated.
#[derive(Debug, Clone)]
pub(in crate::server) enum Authentication {
    /// By certificate or token.
    Required {
        /// Authenticates requests.
        authenticator: Arc<Authenticator>,
        /// The router of requests whose token needs further checks: it authenticates them before it passes
        /// them on.
        token_routes: axum::Router,
    },
    /// Not at all: every request from a local program has this user.
    Unsecured(Arc<UserInfo>),
}
