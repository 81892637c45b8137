//! How the client opens connections to members, and how it spreads its retries: replaced by tests, and by programs that
//! reach etcd through a tunnel.

use std::fmt;
use std::hash::{BuildHasher as _, DefaultHasher, Hash as _, Hasher as _, RandomState};
use std::sync::Arc;

use tonic::transport::{Channel, Endpoint};
use tower::util::BoxCloneSyncService;

use super::traced_channel::TracedChannel;

type Dial = dyn Fn(&Endpoint) -> Channel + Send + Sync;

/// Opens the connections to members. The default connects by TCP, with TLS for `https://`, and spreads retries
/// randomly.
#[derive(Clone)]
pub struct Dialer {
    dial: Option<Arc<Dial>>,
    seed: u64,
}

impl Default for Dialer {
    fn default() -> Self {
        Self {
            dial: None,
            seed: RandomState::new().hash_one(0_u8),
        }
    }
}

impl Dialer {
    /// Returns a dialer that calls `dial` for each connection, usually [`Endpoint::connect_with_connector_lazy`]. The
    /// endpoint has the configured timeouts. The seed determines the spread of retries.
    pub fn new(dial: impl Fn(&Endpoint) -> Channel + Send + Sync + 'static, seed: u64) -> Self {
        let dial: Arc<Dial> = Arc::new(dial);
        Self {
            dial: Some(dial),
            seed,
        }
    }

    /// Returns a channel that connects on its first use.
    pub(super) fn channel(&self, endpoint: &Endpoint) -> etcd_client::Channel {
        let channel = match &self.dial {
            Some(dial) => dial(endpoint),
            None => endpoint.connect_lazy(),
        };
        etcd_client::Channel::Custom(BoxCloneSyncService::new(TracedChannel::new(channel)))
    }

    /// Returns a factor in [1, 1.5) for a member's delay after `failures`, so that servers do not reconnect to etcd
    /// simultaneously.
    pub(super) fn jitter(&self, member: &str, failures: u32) -> f64 {
        let mut hasher = DefaultHasher::new();
        (self.seed, member, failures).hash(&mut hasher);
        // 53 bits fit exactly into a double.
        let random = hasher.finish() >> 11;
        1.0 + 0.5 * (random as f64 / (1_u64 << 53) as f64)
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer")
            .field("is_default", &self.dial.is_none())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_depends_on_seed_member_and_failures() {
        let dialer = |seed| Dialer { dial: None, seed };
        let factor = dialer(1).jitter("http://a/", 0);
        assert!((1.0..1.5).contains(&factor), "{factor}");
        assert_eq!(factor.to_bits(), dialer(1).jitter("http://a/", 0).to_bits());
        for other in [
            dialer(2).jitter("http://a/", 0),
            dialer(1).jitter("http://b/", 0),
            dialer(1).jitter("http://a/", 1),
        ] {
            assert_ne!(factor.to_bits(), other.to_bits());
        }
    }
}
