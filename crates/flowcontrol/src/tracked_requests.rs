//! The requests of a level that wait or run, which the dumps list.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use crate::objects::Distinguisher;
use crate::work::Work;

/// The attributes of a request in a dump. The fields have the meaning of those of upstream's `RequestInfo`, and are
/// empty if they do not apply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestDetails {
    /// The name of the user; of the impersonated one, if there is one.
    pub user: String,
    /// The verb, or the HTTP method in lower case.
    pub verb: String,
    /// The path of the URL.
    pub path: String,
    /// The namespace. The namespace of a Namespace is its name.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The group and the version, such as `apps/v1`.
    pub api_version: String,
    /// The plural name.
    pub resource: String,
    /// The subresource, such as `status`.
    pub subresource: String,
}

/// Returns the details of a request. It is called only by dumps, so that requests do not pay for them.
#[derive(Clone)]
pub(crate) struct Describe(pub(crate) Arc<dyn Fn() -> RequestDetails + Send + Sync>);

impl fmt::Debug for Describe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Describe")
    }
}

/// The FlowSchema, the flow and the details of a request.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    /// The name of the FlowSchema.
    pub(crate) schema: Arc<str>,
    pub(crate) distinguisher: Option<Distinguisher>,
    pub(crate) describe: Option<Describe>,
}

impl Origin {
    /// Returns the details, and the flow distinguisher: the user or the namespace, or empty.
    pub(crate) fn details(&self) -> (RequestDetails, String) {
        let details = self.describe.as_ref().map(|Describe(describe)| describe());
        let details = details.unwrap_or_default();
        let distinguisher = match self.distinguisher {
            Some(Distinguisher::ByUser) => details.user.clone(),
            Some(Distinguisher::ByNamespace) => details.namespace.clone(),
            None => String::new(),
        };
        (details, distinguisher)
    }
}

/// A request that waits or runs.
#[derive(Debug, Clone)]
pub(crate) struct TrackedRequest {
    pub(crate) origin: Origin,
    pub(crate) work: Work,
    pub(crate) arrived: Timestamp,
    /// `None` while it waits.
    pub(crate) started: Option<Timestamp>,
    /// The index of its queue, if it waited in one or its level has queues.
    pub(crate) queue: Option<usize>,
}

impl TrackedRequest {
    /// Returns a request that arrives now.
    pub(crate) fn new(origin: Origin, work: Work) -> Self {
        Self {
            origin,
            work,
            arrived: Timestamp::now(),
            started: None,
            queue: None,
        }
    }

    /// Marks it as running, in the queue that dispatched it.
    pub(crate) fn start(&mut self, queue: Option<usize>) {
        self.started = Some(Timestamp::now());
        self.queue = queue;
    }
}
