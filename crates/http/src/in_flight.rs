//! The limits of requests in flight: API Priority and Fairness, or without it one limit for reads and one for writes.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::http::request::Parts;
use axum::http::{HeaderName, Method, Uri};
use axum::response::Response;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::HttpConfig;
use crate::error::HttpError;
use crate::request::percent::decode_bytes;
use crate::request::request_info::{RequestInfo, ResourceRequest, Verb};
use watchet_api::UserInfo;
use watchet_flowcontrol::{
    Classification, DigestTarget, FlowControl, RequestDetails, RequestDigest, Seat, Work,
};

/// The headers with the uids of the FlowSchema and the priority level of a request. As upstream, they have no names, so
/// that clients do not learn them.
const FLOW_SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const PRIORITY_LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// A request may wait for a seat for this fraction of its time limit, and at most for [`WAIT_MAX`], as upstream.
const WAIT_DIVISOR: u32 = 4;
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The number of permits without a limit: more requests than a process can have.
const UNLIMITED: usize = 1 << 32;

/// The limits of requests in flight.
#[derive(Debug)]
pub(crate) struct InFlight {
    flow_control: Option<Arc<FlowControl>>,
    /// Reads without watches. With flow control, reads and writes are only counted.
    reads: Counted,
    writes: Counted,
}

#[derive(Debug)]
struct Counted {
    max: usize,
    permits: Arc<Semaphore>,
}

/// The right of a request to run; released when dropped.
#[derive(Debug)]
pub(crate) struct InFlightPermit {
    _counted: OwnedSemaphorePermit,
    _seat: Option<Seat>,
}

/// The flow of a request and its work.
#[derive(Debug, Clone)]
pub(crate) struct Flow {
    pub(crate) classification: Classification,
    pub(crate) work: Work,
}

impl Counted {
    fn new(max: usize) -> Self {
        Self {
            max,
            permits: Arc::new(Semaphore::new(max)),
        }
    }

    fn acquire(&self) -> Result<OwnedSemaphorePermit, HttpError> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        permit.map_err(|_| HttpError::TooManyRequests)
    }

    fn count(&self) -> usize {
        self.max - self.permits.available_permits()
    }
}

impl InFlight {
    pub(crate) fn new(config: &HttpConfig) -> Self {
        let max = |configured| match &config.flow_control {
            Some(_) => UNLIMITED,
            None => configured,
        };
        Self {
            flow_control: config.flow_control.clone(),
            reads: Counted::new(max(config.reads_in_flight_max)),
            writes: Counted::new(max(config.writes_in_flight_max)),
        }
    }

    /// Returns the number of reads in flight, without watches.
    pub(crate) fn reads(&self) -> usize {
        self.reads.count()
    }

    /// Returns the number of writes in flight.
    pub(crate) fn writes(&self) -> usize {
        self.writes.count()
    }

    /// Returns the flow of a request; `None` without flow control. The extensions of the request contain its user.
    pub(crate) fn classify(&self, parts: &Parts, info: &RequestInfo) -> Option<Classification> {
        let control = self.flow_control.as_ref()?;
        let user = parts.extensions.get::<Arc<UserInfo>>();
        let (verb, target) = match info {
            RequestInfo::Resource(request) => {
                let verb = request.verb.map_or("", Verb::as_str);
                (verb.into(), target_of(request))
            }
            RequestInfo::NonResource(_) => (method_verb(&parts.method), target_of_path(parts)),
        };
        let flow = control.classify(&RequestDigest {
            user: user.map_or("", |user| &user.name),
            groups: user.map_or(&[], |user| &user.groups),
            verb,
            target,
        });
        let (user, method, uri) = (user.cloned(), parts.method.clone(), parts.uri.clone());
        Some(flow.with_details(move || details(user.as_deref(), &method, &uri)))
    }

    /// Returns the flow control, if it is enabled.
    pub(crate) fn flow_control(&self) -> Option<&FlowControl> {
        self.flow_control.as_deref()
    }

    /// Admits a read with the time limit `limit`.
    ///
    /// # Errors
    /// 429 if the limit is reached, or the wait for a seat is too long.
    pub(crate) async fn read(
        &self,
        flow: Option<&Flow>,
        limit: Duration,
    ) -> Result<InFlightPermit, HttpError> {
        let seat = seat(flow, false, limit).await?;
        Ok(InFlightPermit {
            _counted: self.reads.acquire()?,
            _seat: seat,
        })
    }

    /// Admits a write with the time limit `limit`.
    ///
    /// # Errors
    /// 429 if the limit is reached, or the wait for a seat is too long.
    pub(crate) async fn write(
        &self,
        flow: Option<&Flow>,
        limit: Duration,
    ) -> Result<InFlightPermit, HttpError> {
        let seat = seat(flow, false, limit).await?;
        Ok(InFlightPermit {
            _counted: self.writes.acquire()?,
            _seat: seat,
        })
    }

    /// Admits the initialization of a watch; `limit` is the time limit of requests that are not watches.
    ///
    /// # Errors
    /// 429 if the wait for a seat is too long, or no request may wait.
    pub(crate) async fn watch(
        &self,
        flow: Option<&Flow>,
        limit: Duration,
    ) -> Result<Option<Seat>, HttpError> {
        seat(flow, true, limit).await
    }
}

async fn seat(
    flow: Option<&Flow>,
    is_watch: bool,
    limit: Duration,
) -> Result<Option<Seat>, HttpError> {
    let Some(Flow {
        classification,
        work,
    }) = flow
    else {
        return Ok(None);
    };
    let wait_max = (limit / WAIT_DIVISOR).min(WAIT_MAX);
    let admitted = classification.admit(*work, is_watch, wait_max).await;
    admitted.map(Some).map_err(|rejected| HttpError::Rejected {
        retry_after_seconds: rejected.retry_after_seconds,
    })
}

/// Returns the details of a request for dumps.
fn details(user: Option<&UserInfo>, method: &Method, uri: &Uri) -> RequestDetails {
    let user = user.map_or_else(String::new, |user| user.name.clone());
    let path = uri.path().to_owned();
    match RequestInfo::parse(method, uri.path(), uri.query()) {
        Ok(RequestInfo::Resource(request)) => {
            let target = target_of(&request);
            RequestDetails {
                user,
                verb: request.verb.map_or("", Verb::as_str).to_owned(),
                path,
                namespace: target.namespace().to_owned(),
                name: request.name.clone().unwrap_or_default(),
                api_version: match &*request.group {
                    "" => request.version.clone(),
                    group => format!("{group}/{}", request.version),
                },
                resource: request.resource.clone(),
                subresource: request.subresource.clone().unwrap_or_default(),
            }
        }
        Ok(RequestInfo::NonResource(_)) | Err(_) => RequestDetails {
            user,
            verb: method_verb(method).into_owned(),
            path,
            ..RequestDetails::default()
        },
    }
}

fn target_of(request: &ResourceRequest) -> DigestTarget<'_> {
    let namespace = match &request.namespace {
        // The namespace of a request for a Namespace is that Namespace.
        None if request.resource == "namespaces" => &request.name,
        namespace => namespace,
    };
    DigestTarget::Resource {
        api_group: &request.group,
        resource: &request.resource,
        subresource: request.subresource.as_deref().unwrap_or_default(),
        namespace: namespace.as_deref().unwrap_or_default(),
    }
}

fn target_of_path(parts: &Parts) -> DigestTarget<'_> {
    let path = parts.uri.path();
    let decoded = path
        .contains('%')
        .then(|| decode_bytes(path, false))
        .flatten();
    let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    DigestTarget::Path(decoded.map_or(Cow::Borrowed(path), Cow::Owned))
}

/// Returns the HTTP method in lower case, which is the verb of a request for a path.
fn method_verb(method: &Method) -> Cow<'static, str> {
    match *method {
        Method::GET => "get".into(),
        Method::HEAD => "head".into(),
        Method::POST => "post".into(),
        Method::PUT => "put".into(),
        _ => method.as_str().to_ascii_lowercase().into(),
    }
}

/// Adds the headers that identify the flow.
pub(crate) fn add_headers(response: &mut Response, flow: &Classification) {
    let headers = response.headers_mut();
    let uids = [
        (FLOW_SCHEMA_UID, flow.flow_schema_uid()),
        (PRIORITY_LEVEL_UID, flow.priority_level_uid()),
    ];
    for (name, uid) in uids {
        if let Some(uid) = uid {
            headers.insert(name, uid.clone());
        }
    }
}
