//! The deadline for a client to receive a response.

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::response::response_tracker::ResponseAbortHandle;

/// A response extension: the deadline for the client to receive the whole response. The connection
/// layer enforces it, because the body is not polled while the client does not read.
#[derive(Debug, Clone)]
pub struct SendDeadline {
    /// The latest time.
    pub deadline: Instant,
    /// The token whose cancellation ends a watch: the client must receive the rest soon after that.
    pub end: Option<CancellationToken>,
    /// Aborts the response before its deadline: if memory is scarce, or if the client of a backup does not read.
    pub abort: Option<ResponseAbortHandle>,
}

impl From<Instant> for SendDeadline {
    fn from(deadline: Instant) -> Self {
        Self {
            deadline,
            end: None,
            abort: None,
        }
    }
}
