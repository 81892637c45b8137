//! `ReceivedRequest`: shares the body of a request with its audit events.

use std::sync::{Arc, OnceLock};

use crate::request::body_limits::{DecodedPermit, ReceivedBody};
use bytes::Bytes;

/// The body of a request, an extension of requests that are audited.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReceivedRequest(Arc<Received>);

#[derive(Debug, Default)]
struct Received {
    bytes: OnceLock<Bytes>,
    /// Held because the body of an event is decoded again.
    _permits: OnceLock<Arc<LargeBodyPermits>>,
}

impl ReceivedRequest {
    /// Stores the body; only the first call has an effect.
    pub(crate) fn set(&self, body: &Bytes) {
        self.0.bytes.get_or_init(|| body.clone());
    }

    /// Holds the permits of a large body until the last event; only the first call has an effect.
    pub(crate) fn hold(&self, permits: &Arc<LargeBodyPermits>) {
        self.0._permits.get_or_init(|| Arc::clone(permits));
    }

    /// Returns the body, if it has arrived.
    pub(crate) fn get(&self) -> Option<&Bytes> {
        self.0.bytes.get()
    }
}

/// What a large body counts for, until it is no longer needed.
#[derive(Debug)]
pub(crate) struct LargeBodyPermits {
    _received: ReceivedBody,
    _decoded: DecodedPermit,
}

impl LargeBodyPermits {
    pub(crate) fn new(received: ReceivedBody, decoded: DecodedPermit) -> Self {
        Self {
            _received: received,
            _decoded: decoded,
        }
    }
}
