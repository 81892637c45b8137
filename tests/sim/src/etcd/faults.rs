//! Faults of single requests: lost requests, lost answers and delays. Breaks of a connection between bytes are the
//! network's.
//!
//! A request is never delivered twice: gRPC retries transparently only if the server has not processed the request, and a connection
//! is one TCP stream.

use std::collections::VecDeque;
use std::time::Duration;

use fastrand::Rng;

use super::random::random_duration;

/// What the client sees of a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Nothing: the client waits until its own timeout.
    Silence,
    /// Its connection breaks.
    Reset,
}

/// A fault of one unary request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestFault {
    /// The request is not executed.
    LoseRequest(Loss),
    /// The request is executed and not answered.
    LoseResponse(Loss),
    /// The request is executed after the time.
    Delay(Duration),
    /// The request is executed immediately, and its response is sent after the time.
    DelayResponse(Duration),
}

/// The probabilities of faults, for each unary request and for each message of a watch stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FaultRates {
    /// The probability of [`RequestFault::LoseRequest`].
    pub lose_request: f64,
    /// The probability of [`RequestFault::LoseResponse`].
    pub lose_response: f64,
    /// The probability of [`RequestFault::Delay`] or [`RequestFault::DelayResponse`], and that a watch stream pauses before a
    /// message.
    pub delay: f64,
    /// The longest delay.
    pub delay_max: Duration,
}

impl Default for FaultRates {
    /// Returns rates without faults.
    fn default() -> Self {
        Self {
            lose_request: 0.0,
            lose_response: 0.0,
            delay: 0.0,
            delay_max: Duration::ZERO,
        }
    }
}

/// The maximum number of faults that wait for a request.
const QUEUED_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Faults {
    pub(super) rates: FaultRates,
    /// The member and the fault of its next requests.
    queued: VecDeque<(usize, RequestFault)>,
}

impl Faults {
    pub(super) fn queue(&mut self, member: usize, fault: RequestFault) {
        assert!(self.queued.len() < QUEUED_MAX, "too many faults wait");
        self.queued.push_back((member, fault));
    }

    /// Returns the fault of a request that a member receives.
    pub(super) fn take(&mut self, member: usize, rng: &mut Rng) -> Option<RequestFault> {
        if let Some(position) = self.queued.iter().position(|(other, _)| *other == member) {
            return self.queued.remove(position).map(|(_, fault)| fault);
        }
        let FaultRates {
            lose_request,
            lose_response,
            delay,
            delay_max,
        } = self.rates;
        if lose_request + lose_response + delay <= 0.0 {
            return None;
        }
        let point = rng.f64();
        let loss = match rng.bool() {
            true => Loss::Silence,
            false => Loss::Reset,
        };
        if point < lose_request {
            Some(RequestFault::LoseRequest(loss))
        } else if point < lose_request + lose_response {
            Some(RequestFault::LoseResponse(loss))
        } else if point < lose_request + lose_response + delay {
            let delay = random_duration(rng, delay_max);
            Some(match rng.bool() {
                true => RequestFault::Delay(delay),
                false => RequestFault::DelayResponse(delay),
            })
        } else {
            None
        }
    }

    /// Returns the time for which a watch stream pauses before its next message.
    pub(super) fn pause_of_watch(&self, rng: &mut Rng) -> Duration {
        let FaultRates {
            delay, delay_max, ..
        } = self.rates;
        match delay > 0.0 && rng.f64() < delay {
            true => random_duration(rng, delay_max),
            false => Duration::ZERO,
        }
    }
}
