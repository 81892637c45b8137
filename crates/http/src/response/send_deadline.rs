//! The deadline for a client to receive a response.

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A response extension: the deadline for the client to receive the whole response. The connection
/// layer enforces it, because the body is not polled while the client does not read.
#[derive(Debug, Clone)]
pub struct SendDeadline {
    /// The latest time.
    pub deadline: Instant,
    /// The token whose cancellation ends a watch: the client must receive the rest soon after that.
    pub end: Option<CancellationToken>,
    /// The token whose cancellation aborts the response.
    pub abort: Option<CancellationToken>,
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
