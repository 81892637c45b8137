//! `WebhookAuthenticator`: authenticates tokens by sending a `TokenReview` of `authentication.k8s.io`, with the retries of
//! [upstream](https://github.com/kubernetes/kubernetes/blob/v1.35.0/staging/src/k8s.io/apiserver/plugin/pkg/authenticator/token/webhook/webhook.go).
//! Definite responses are cached, errors are not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use watchet_api::UserInfo;
use watchet_auth::{ExternalAuthenticator, ExternalUser, InvalidToken, ReviewCache, ReviewKey};
use watchet_client::{RestClient, RestError, retry_review};

use crate::RESULTS_MAX;

/// The version of `TokenReview`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `authentication.k8s.io/v1`
    V1,
    /// `authentication.k8s.io/v1beta1`
    V1Beta1,
}

impl ReviewVersion {
    fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "authentication.k8s.io/v1",
            Self::V1Beta1 => "authentication.k8s.io/v1beta1",
        }
    }
}

/// Authenticates tokens with a webhook.
#[derive(Debug)]
pub struct WebhookAuthenticator {
    reviewer: ArcSwap<Reviewer>,
    version: ReviewVersion,
    /// The time for which a response is cached; zero disables the cache.
    cache_ttl: Duration,
    /// The audiences of a response that names none.
    audiences: Vec<String>,
}

/// The server that reviews tokens, and its responses.
#[derive(Debug)]
struct Reviewer {
    client: RestClient,
    /// `None` is a token that the webhook does not accept.
    cache: ReviewCache<Result<Option<ExternalUser>, InvalidToken>>,
}

impl Reviewer {
    fn new(client: RestClient) -> Self {
        Self {
            client,
            cache: ReviewCache::new(RESULTS_MAX, |reviewed| match reviewed {
                Ok(Some(user)) => user.size(),
                Ok(None) | Err(_) => 0,
            }),
        }
    }
}

#[derive(Debug, Deserialize)]
struct Review {
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    authenticated: bool,
    user: Option<User>,
    audiences: Option<Vec<String>>,
    error: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
    uid: String,
    groups: Option<Vec<String>>,
    extra: Option<BTreeMap<String, Vec<String>>>,
}

impl WebhookAuthenticator {
    /// Creates an authenticator that posts reviews to the server of `client`. A response is valid for `cache_ttl`. Tokens
    /// without audiences are for `audiences`.
    pub fn new(
        client: RestClient,
        version: ReviewVersion,
        cache_ttl: Duration,
        audiences: Vec<String>,
    ) -> Self {
        Self {
            reviewer: ArcSwap::from_pointee(Reviewer::new(client)),
            version,
            cache_ttl,
            audiences,
        }
    }

    /// Posts reviews to the server of `client` from now on. Cached responses of the previous server are no longer used.
    pub fn replace_client(&self, client: RestClient) {
        self.reviewer.store(Arc::new(Reviewer::new(client)));
    }

    async fn review(
        &self,
        client: &RestClient,
        token: &str,
        audiences: &[String],
    ) -> Result<Option<ExternalUser>, InvalidToken> {
        let review = json!({
            "kind": "TokenReview",
            "apiVersion": self.version.api_version(),
            "metadata": {},
            "spec": {"token": token, "audiences": audiences},
            "status": {"user": {}},
        });
        let response = post(client, &review).await.map_err(|error| {
            let server = client.server();
            tracing::error!(server, %error, "token webhook failed");
            InvalidToken::Unverified(error.to_string())
        })?;
        self.user(response.status, audiences)
    }

    fn user(
        &self,
        status: Status,
        requested: &[String],
    ) -> Result<Option<ExternalUser>, InvalidToken> {
        let named = status.audiences.filter(|named| !named.is_empty());
        let audiences = named.as_deref().unwrap_or(&self.audiences);
        let common = requested.iter().filter(|one| audiences.contains(one));
        let audiences: Vec<String> = common.cloned().collect();
        if audiences.is_empty() {
            return Ok(None);
        }
        if !status.authenticated {
            return match status.error.is_empty() {
                true => Ok(None),
                false => Err(InvalidToken::Rejected(status.error)),
            };
        }
        let user = status.user.unwrap_or_default();
        let groups = user.groups.unwrap_or_default();
        let mut info = UserInfo::authenticated(user.username, user.uid, groups);
        info.extra = user.extra.unwrap_or_default();
        Ok(Some(ExternalUser {
            user: Arc::new(info),
            audiences,
            expires: None,
            issuer: None,
        }))
    }
}

async fn post(client: &RestClient, review: &Value) -> Result<Review, RestError> {
    let body = Bytes::from(review.to_string());
    retry_review(|| client.post_json(body.clone())).await
}

#[async_trait]
impl ExternalAuthenticator for WebhookAuthenticator {
    async fn authenticate(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Result<Option<ExternalUser>, InvalidToken> {
        let texts = [token]
            .into_iter()
            .chain(audiences.iter().map(String::as_str));
        let reviewer = self.reviewer.load_full();
        let found = reviewer
            .cache
            .get_or_compute(ReviewKey::new(texts), || async {
                let reviewed = self.review(&reviewer.client, token, audiences).await;
                let ttl = match reviewed {
                    Ok(_) => self.cache_ttl,
                    Err(_) => Duration::ZERO,
                };
                (reviewed, Instant::now() + ttl)
            });
        found.await
    }

    fn accepts_issuer(&self, _: &str) -> bool {
        false
    }
}
