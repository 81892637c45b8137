//! `RequestBody`: receives the body of a request and acquires what the request needs to go on: a permit of the limit of
//! writes in flight, and memory for the decoded object. `body` decodes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::error::HttpError;
use crate::in_flight::{Flow, InFlightPermit};
use crate::request::body::Encoding;
use crate::request::body_limits::{LARGE_BYTES_MIN, ReceivedBody};
use crate::request::body_memory::memory_bound;
use crate::request::received_request::{LargeBodyPermits, ReceivedRequest};
use crate::state::HttpState;

/// The maximum size of a body in bytes, as upstream: twice etcd's limit, so that a patch that makes
/// an object smaller may itself be large.
const BODY_BYTES_MAX: usize = 3 << 20;
/// The most that is preallocated for a body of announced length: a client may announce more than it
/// sends.
const BODY_BYTES_PREALLOCATED_MAX: u64 = 16 << 10;

/// How long a body may pause.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// How long the rest of a body may take when the server begins to shut down: clients that are sending it need no longer,
/// and others must not delay the shutdown.
const REST_AT_SHUTDOWN_MAX: Duration = Duration::from_secs(2);

/// The body of a request, read on first use and retained, because a write may be evaluated more
/// than once.
#[derive(Debug)]
pub(crate) struct RequestBody {
    unread: Mutex<Option<Body>>,
    read: OnceCell<Bytes>,
    encoding: Encoding,
    /// The user, whose incomplete bodies are limited.
    user: String,
    /// Receives the body, if the request is audited.
    audited: Option<ReceivedRequest>,
    /// The flow of the request; `None` without flow control.
    flow: Option<Flow>,
    /// The time limit of the request.
    limit: Duration,
    /// The estimated memory in bytes of the present object, which the write decodes too.
    present_bytes: usize,
    permits: Mutex<Permits>,
    is_large: Arc<AtomicBool>,
}

/// What a request has acquired after its body was received.
#[derive(Debug, Default)]
struct Permits {
    in_flight: Option<InFlightPermit>,
    /// Of a large body; released with it.
    _large: Option<Arc<LargeBodyPermits>>,
}

impl RequestBody {
    /// Creates the body of a new request. `present_bytes` is the estimated memory of the object that it changes.
    pub(crate) fn new(
        body: Body,
        content_type: Option<&str>,
        user: &str,
        present_bytes: usize,
        audited: Option<ReceivedRequest>,
        flow: Option<Flow>,
        limit: Duration,
    ) -> Self {
        Self {
            unread: Mutex::new(Some(body)),
            read: OnceCell::new(),
            encoding: Encoding::of(content_type),
            user: user.to_owned(),
            present_bytes,
            audited,
            flow,
            limit,
            permits: Mutex::default(),
            is_large: Arc::default(),
        }
    }

    /// Returns the flag that is set when the body was read and is large: the caller then continues the request on
    /// threads for blocking work.
    pub(crate) fn is_large(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_large)
    }

    /// Returns the permit of the limit of writes in flight, which [`Self::read`] has acquired.
    pub(crate) fn take_in_flight_permit(&self) -> Option<InFlightPermit> {
        self.permits.lock().in_flight.take()
    }

    /// Reads the whole body. Then the first call acquires a permit of the limit of writes in flight: a request that waits
    /// for its client does not count. If the body is large, it waits for memory at last: a request that waits for a
    /// permit occupies no memory that others wait for.
    ///
    /// # Errors
    /// 413 if the body is too large, 429 if too many writes are in flight or too many bodies of the user incomplete, 408
    /// if the body stops, 400 if it ends early, 429 if memory is scarce, or the server shuts down and the body remains incomplete.
    pub(crate) async fn read(&self, state: &HttpState) -> Result<Bytes, HttpError> {
        let reading = self.read.get_or_try_init(|| async {
            let body = self.unread.lock().take().unwrap_or_default();
            let mut received = state.body_limits.receive(&self.user)?;
            let stop = state.config.connections.token();
            // A body that is complete at the limit counts.
            let bytes = tokio::select! {
                biased;
                bytes = receive(body, &mut received) => bytes?,
                () = rest_at_shutdown(&stop) => return Err(HttpError::ShuttingDown),
            };
            if let Some(audited) = &self.audited {
                audited.set(&bytes);
            }
            let permit = state
                .in_flight
                .write(self.flow.as_ref(), self.limit)
                .await?;
            self.permits.lock().in_flight = Some(permit);
            let large = LARGE_BYTES_MIN.saturating_sub(self.present_bytes);
            let memory = memory_bound(self.encoding, &state.protobuf, &bytes, large);
            let memory = self.present_bytes + memory;
            if memory >= LARGE_BYTES_MIN {
                received.set_large()?;
                let memory = state.body_limits.decoded(memory).await?;
                let permits = Arc::new(LargeBodyPermits::new(received, memory));
                if let Some(audited) = &self.audited {
                    audited.hold(&permits);
                }
                self.permits.lock()._large = Some(permits);
                self.is_large.store(true, Ordering::SeqCst);
                // The caller polls again on another thread.
                tokio::task::yield_now().await;
            }
            Ok(bytes)
        });
        reading.await.cloned()
    }
}

/// Returns when the server has been shutting down for as long as the rest of a body may take.
async fn rest_at_shutdown(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(REST_AT_SHUTDOWN_MAX).await;
}

/// Receives all of `body` up to the limit.
async fn receive(mut body: Body, received: &mut ReceivedBody) -> Result<Bytes, HttpError> {
    let too_large = || {
        HttpError::TooLarge(format!(
            "Request entity too large: limit is {BODY_BYTES_MAX}"
        ))
    };
    if http_body::Body::size_hint(&body).lower() > BODY_BYTES_MAX as u64 {
        return Err(too_large());
    }
    let announced = http_body::Body::size_hint(&body).lower();
    let mut all = BytesMut::with_capacity(announced.min(BODY_BYTES_PREALLOCATED_MAX) as usize);
    loop {
        let frame = timeout(PAUSE_MAX, body.frame()).await;
        let Some(frame) = frame.map_err(|_| HttpError::BodyStopped(PAUSE_MAX))? else {
            return Ok(all.freeze());
        };
        let frame = frame.map_err(|error| {
            HttpError::BadRequest(format!("the body of the request ended early: {error}"))
        })?;
        let Ok(data) = frame.into_data() else {
            continue; // A trailers frame.
        };
        if all.len() + data.len() > BODY_BYTES_MAX {
            return Err(too_large());
        }
        received.add(data.len())?;
        all.extend_from_slice(&data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::body_limits::BodyLimits;

    async fn read(body: Body) -> Result<Bytes, HttpError> {
        let mut received = BodyLimits::new(&Arc::default()).receive("ann").unwrap();
        receive(body, &mut received).await
    }

    fn refusal<T: std::fmt::Debug>(result: Result<T, HttpError>) -> String {
        let status = result.unwrap_err().status();
        format!("{} {}", status.code, status.message)
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_have_a_limit() {
        let fits = vec![b'x'; BODY_BYTES_MAX];
        assert_eq!(read(Body::from(fits)).await.unwrap().len(), BODY_BYTES_MAX);
        let over = Body::from(vec![b'x'; BODY_BYTES_MAX + 1]);
        let actual = refusal(read(over).await);
        assert_eq!(actual, "413 Request entity too large: limit is 3145728");
        // The length is unknown, so only counting detects the excess.
        let chunk = Bytes::from(vec![b'x'; BODY_BYTES_MAX / 2 + 1]);
        let chunks = [chunk.clone(), chunk].map(Ok::<_, std::io::Error>);
        let over = Body::from_stream(futures_util::stream::iter(chunks));
        assert!(refusal(read(over).await).starts_with("413 "));
        let broken = [Err::<Bytes, _>(std::io::Error::other("reset"))];
        let broken = Body::from_stream(futures_util::stream::iter(broken));
        assert!(refusal(read(broken).await).starts_with("400 the body of the request ended early"));
        let stalled = Body::from_stream(futures_util::stream::pending::<std::io::Result<Bytes>>());
        let actual = refusal(read(stalled).await);
        assert_eq!(
            actual,
            "408 the body of the request stopped: no data arrived within 10s"
        );
    }
}
