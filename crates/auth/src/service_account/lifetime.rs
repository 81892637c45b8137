//! The validity of new tokens, its extension for the tokens of pods, and the audit annotation of requests with a token
//! that should have been replaced. Rules of KEP-1205 and of upstream's `pkg/registry/core/serviceaccount/storage/token.go`
//! and `pkg/serviceaccount/claims.go`.

use watchet_api::AuditAnnotations;
use watchet_metrics::ServiceAccountTokenMetrics;

use super::claims::user_name;
use super::token::ServiceAccountToken;

/// The validity in seconds that is extended. The admission plugin `ServiceAccount` requests it for the volumes that it adds
/// to pods.
pub const WARN_ONLY_EXPIRATION_SECONDS: i64 = 60 * 60 + 7;

/// The extended validity in seconds: 365 days.
pub const EXTENDED_EXPIRATION_SECONDS: i64 = 365 * 24 * 60 * 60;

/// The audit annotation of a request whose token should have been replaced.
const STALE_TOKEN: &str = "authentication.k8s.io/stale-token";

/// The validity of a new token, from its issue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenLifetime {
    /// The seconds after which it expires.
    pub expires_after: i64,
    /// The seconds after which its use is reported; `None` if its validity is not extended.
    pub warn_after: Option<i64>,
}

impl ServiceAccountToken {
    /// Counts the use at `now`, in Unix seconds, of a valid token whose validity was extended. If the token should have been
    /// replaced by then, adds the annotation `authentication.k8s.io/stale-token` to those of the request. The use of
    /// any other token is not counted.
    pub fn record_use(
        &self,
        now: i64,
        metrics: &ServiceAccountTokenMetrics,
        annotations: &AuditAnnotations,
    ) {
        let claims = &self.kubernetes;
        let Some(warn_after) = claims.warnafter.filter(|at| *at != 0) else {
            return;
        };
        if now <= warn_after {
            metrics.valid.inc();
            return;
        }
        metrics.stale.inc();
        let subject = user_name(&claims.namespace, &claims.serviceaccount.name);
        let seconds = now - warn_after;
        let value = format!("subject: {subject}, seconds after warning threshold: {seconds}");
        annotations.add(STALE_TOKEN, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service_account::{KubernetesClaims, Reference};

    fn token(warnafter: Option<i64>) -> ServiceAccountToken {
        ServiceAccountToken::new(KubernetesClaims {
            namespace: "ns".to_owned(),
            node: None,
            pod: None,
            secret: None,
            serviceaccount: Reference {
                name: "robot".to_owned(),
                uid: "u".to_owned(),
            },
            warnafter,
        })
    }

    /// Returns the counters of valid and stale tokens and the annotation after a use at `now`.
    fn use_of(warnafter: Option<i64>, now: i64) -> (u64, u64, Option<String>) {
        let metrics = ServiceAccountTokenMetrics::default();
        let annotations = AuditAnnotations::default();
        token(warnafter).record_use(now, &metrics, &annotations);
        let mut annotations = annotations.all();
        let annotation = annotations.remove("authentication.k8s.io/stale-token");
        assert!(annotations.is_empty());
        (metrics.valid.get(), metrics.stale.get(), annotation)
    }

    #[test]
    fn use_of_a_token_is_recorded_only_if_its_validity_was_extended() {
        assert_eq!(use_of(None, 1000), (0, 0, None));
        // Upstream's decoder reads an absent claim as zero.
        assert_eq!(use_of(Some(0), 1000), (0, 0, None));
        assert_eq!(use_of(Some(1000), 999), (1, 0, None));
        assert_eq!(use_of(Some(1000), 1000), (1, 0, None));
        let annotation =
            "subject: system:serviceaccount:ns:robot, seconds after warning threshold: 61";
        assert_eq!(
            use_of(Some(1000), 1061),
            (0, 1, Some(annotation.to_owned()))
        );
    }
}
