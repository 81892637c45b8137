//! Repeats requests to programs that review tokens or requests, as
//! [upstream](https://github.com/kubernetes/kubernetes/blob/v1.35.0/staging/src/k8s.io/apiserver/pkg/util/webhook/webhook.go).

use std::future::Future;
use std::time::Duration;

use super::error::RestError;

/// How often a review is sent, the first pause between two, and its growth.
const ATTEMPTS_MAX: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_FACTOR: f64 = 1.5;
/// The maximum random part of a pause, relative to it.
const PAUSE_JITTER: f64 = 0.2;

/// Calls `review` up to five times, with growing pauses, while the server responds that it cannot respond now: 429, 500,
/// 504, or any response with `Retry-After`.
///
/// # Errors
/// The error of the last call.
pub async fn retry_review<T, F>(mut review: impl FnMut() -> F) -> Result<T, RestError>
where
    F: Future<Output = Result<T, RestError>>,
{
    let mut pause = PAUSE;
    for _ in 1..ATTEMPTS_MAX {
        match review().await {
            Err(error) if is_temporary(&error) => {
                let jittered = pause.mul_f64(1.0 + PAUSE_JITTER * fastrand::f64());
                tokio::time::sleep(error.retry_after().unwrap_or(jittered)).await;
                pause = pause.mul_f64(PAUSE_FACTOR);
            }
            result => return result,
        }
    }
    review().await
}

fn is_temporary(error: &RestError) -> bool {
    matches!(error.code(), Some(429 | 500 | 504)) || error.retry_after().is_some()
}
