//! `JwtAuthenticator`: authenticates tokens of the current configuration of issuers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use jiff::Timestamp;
use tokio::time::Instant;
use watchet_auth::{ExternalAuthenticator, ExternalUser, InvalidToken, ReviewCache, ReviewKey};
use watchet_tasks::Tasks;

use super::claims::Claims;
use super::issuer_keys::{IssuerKeys, UnverifiedSignature};
use super::jws::{Jws, SigningAlgorithms};
use super::user_mapping;
use crate::RESULTS_MAX;
use crate::config::{ValidConfiguration, ValidJwt};

/// The time for which the user of a verified token is cached, as upstream.
const CACHE_TTL: Duration = Duration::from_secs(10);

/// The tolerated difference of clocks for the claim `nbf` in seconds, as upstream. There is none for `exp`.
const NOT_BEFORE_LEEWAY_SECONDS: i64 = 60;

/// Authenticates tokens of the configured issuers.
#[derive(Debug)]
pub struct JwtAuthenticator {
    issuers: ArcSwap<Issuers>,
    algorithms: SigningAlgorithms,
    /// The audiences of this server. A token of any issuer is for all of them, as upstream.
    audiences: Vec<String>,
    tasks: Tasks,
}

/// The issuers of one configuration, by their URLs.
#[derive(Debug)]
struct Issuers {
    by_url: BTreeMap<String, Arc<ConfiguredIssuer>>,
    cache: ReviewCache<Result<ExternalUser, InvalidToken>>,
}

#[derive(Debug)]
struct ConfiguredIssuer {
    jwt: ValidJwt,
    keys: Arc<IssuerKeys>,
}

impl JwtAuthenticator {
    /// Creates an authenticator of tokens that are signed with one of `algorithms`; starts to fetch the keys of the
    /// issuers in `tasks`.
    pub fn new(
        config: ValidConfiguration,
        algorithms: SigningAlgorithms,
        audiences: Vec<String>,
        tasks: &Tasks,
    ) -> Self {
        Self {
            issuers: ArcSwap::from_pointee(Issuers::new(config, None, tasks)),
            algorithms,
            audiences,
            tasks: tasks.clone(),
        }
    }

    /// Replaces the configuration. Issuers that have not changed retain their keys.
    pub fn replace(&self, config: ValidConfiguration) {
        let previous = self.issuers.load_full();
        let issuers = Issuers::new(config, Some(&previous), &self.tasks);
        self.issuers.store(Arc::new(issuers));
    }

    async fn verify(
        &self,
        issuer: &Arc<ConfiguredIssuer>,
        token: &str,
    ) -> Result<ExternalUser, InvalidToken> {
        let rejected = |error: String| InvalidToken::Rejected(error);
        let invalid =
            |error: String| InvalidToken::Rejected(format!("oidc: verify token: {error}"));
        let jws = Jws::parse(token).ok_or_else(|| invalid("oidc: malformed jwt".to_owned()))?;
        let claims = Claims::parse(&jws.payload).map_err(invalid)?;
        let expires = check_times(&claims, Timestamp::now().as_second()).map_err(invalid)?;
        check_audience(&claims, &issuer.jwt.config.issuer.audiences).map_err(invalid)?;
        let algorithm = jws.algorithm(&self.algorithms).map_err(invalid)?;
        match issuer.keys.verify(&jws, algorithm).await {
            Ok(()) => {}
            Err(UnverifiedSignature::NoKeys(error)) => return Err(InvalidToken::Unverified(error)),
            Err(UnverifiedSignature::Invalid) => {
                let error = "failed to verify signature: failed to verify id token signature";
                return Err(invalid(error.to_owned()));
            }
        }
        let of_issuer = Arc::clone(issuer);
        // The evaluation of expressions blocks its thread.
        let user = self.tasks.spawn_blocking("oidc-claims", move || {
            user_mapping::user(&of_issuer.jwt, &claims)
        });
        let user = user
            .await
            .map_err(|error| InvalidToken::Unverified(error.to_string()))?;
        Ok(ExternalUser {
            user: Arc::new(user.map_err(rejected)?),
            audiences: Vec::new(),
            expires: Some(expires),
            issuer: Some(issuer.jwt.config.issuer.url.as_str().into()),
        })
    }
}

impl Issuers {
    fn new(config: ValidConfiguration, previous: Option<&Self>, tasks: &Tasks) -> Self {
        let configured = |jwt: ValidJwt| {
            let issuer = &jwt.config.issuer;
            let known = previous.and_then(|previous| previous.by_url.get(&issuer.url));
            let known = known.filter(|known| known.keys.are_of(issuer));
            let keys = match known {
                Some(known) => Arc::clone(&known.keys),
                None => Arc::new(IssuerKeys::start(issuer, tasks)),
            };
            (issuer.url.clone(), Arc::new(ConfiguredIssuer { jwt, keys }))
        };
        Self {
            by_url: config.jwt.into_iter().map(configured).collect(),
            cache: ReviewCache::new(RESULTS_MAX, |result| {
                result.as_ref().map_or(0, ExternalUser::size)
            }),
        }
    }
}

#[async_trait]
impl ExternalAuthenticator for JwtAuthenticator {
    async fn authenticate(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<Option<ExternalUser>, InvalidToken> {
        let common = audiences.iter().filter(|one| self.audiences.contains(one));
        let audiences: Vec<String> = common.cloned().collect();
        // Tokens of the issuers are for the audiences of this server only.
        if audiences.is_empty() {
            return Ok(None);
        }
        let issuers = self.issuers.load_full();
        let claims = Jws::parse(token).and_then(|jws| Claims::parse(&jws.payload).ok());
        let issuer = claims.as_ref().and_then(Claims::issuer);
        let Some(issuer) = issuer.and_then(|issuer| issuers.by_url.get(issuer)) else {
            return Ok(None);
        };
        let found = issuers
            .cache
            .get_or_compute(ReviewKey::new([token]), || async {
                let verified = self.verify(issuer, token).await;
                let until = match &verified {
                    Ok(user) => Instant::now() + remaining(user.expires).min(CACHE_TTL),
                    Err(_) => Instant::now(),
                };
                (verified, until)
            });
        let user = found.await?;
        Ok(Some(ExternalUser { audiences, ..user }))
    }

    fn accepts_issuer(&self, issuer: &str) -> bool {
        self.issuers.load().by_url.contains_key(issuer)
    }
}

/// Returns the time until `expires`.
fn remaining(expires: Option<i64>) -> Duration {
    let now = Timestamp::now().as_second();
    let seconds = expires.map_or(0, |expires| expires.saturating_sub(now));
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

/// Checks that the claims are valid at `now`; returns the end of their validity.
fn check_times(claims: &Claims, now: i64) -> Result<i64, String> {
    let expires = claims.time("exp")?.unwrap_or(0);
    let shown = |seconds: i64| Timestamp::from_second(seconds).unwrap_or_default();
    if expires < now {
        return Err(format!(
            "oidc: token is expired (Token Expiry: {})",
            shown(expires)
        ));
    }
    match claims.time("nbf")? {
        Some(begins) if now.saturating_add(NOT_BEFORE_LEEWAY_SECONDS) < begins => Err(format!(
            "oidc: current time {} before the nbf (not before) time: {}",
            shown(now),
            shown(begins)
        )),
        _ => Ok(expires),
    }
}

fn check_audience(claims: &Claims, accepted: &[String]) -> Result<(), String> {
    let audiences = claims.strings("aud");
    let audiences =
        audiences.map_err(|error| format!("oidc: failed to unmarshal claims: aud: {error}"))?;
    let audiences = audiences.unwrap_or_default();
    match audiences.iter().any(|one| accepted.contains(one)) {
        true => Ok(()),
        false => Err(format!(
            "oidc: expected audience in {} got {}",
            quoted(accepted),
            quoted(&audiences)
        )),
    }
}

/// Formats texts as Go's `%q`.
fn quoted(texts: &[String]) -> String {
    let all: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", all.join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn validity_has_a_leeway_only_at_its_begin() {
        let now = 1_000_000;
        let check = |exp: serde_json::Value, nbf: serde_json::Value| {
            check_times(&Claims(json!({"exp": exp, "nbf": nbf})), now)
        };
        assert_eq!(check(json!(now), json!(now)), Ok(now));
        assert!(
            check(json!(now - 1), json!(0))
                .unwrap_err()
                .contains("token is expired")
        );
        assert_eq!(check(json!(now + 9), json!(now + 60)), Ok(now + 9));
        assert!(
            check(json!(now + 99), json!(now + 61))
                .unwrap_err()
                .contains("before the nbf")
        );
        assert_eq!(check(json!(1_000_000.9), json!(0.5)), Ok(now));
        assert!(check(json!("soon"), json!(0)).is_err());
        assert!(check_times(&Claims(json!({})), now).is_err());
        assert_eq!(check(json!(1e300), json!(0)), Ok(i64::MAX));
    }

    #[test]
    fn one_audience_is_enough() {
        let accepted = ["a".to_owned(), "b".to_owned()];
        let check =
            |aud: serde_json::Value| check_audience(&Claims(json!({"aud": aud})), &accepted);
        assert_eq!(check(json!("b")), Ok(()));
        assert_eq!(check(json!(["x", "a"])), Ok(()));
        assert_eq!(
            check(json!(["x"])).unwrap_err(),
            r#"oidc: expected audience in ["a" "b"] got ["x"]"#
        );
        assert!(check(json!(7)).is_err() && check(json!(null)).is_err());
    }
}
