//! `IssuerKeys`: the keys of one issuer. A task fetches the discovery document and the key set: at the start, every hour,
//! and when a token has an unknown key, with a pause between two attempts.
//!
//! ```text
//! start ─▶ fetching ─▶ loaded ──(an hour, or an unknown key)──▶ fetching
//!             │  ▲                                                 │
//!             ▼  │ (1 s, 2 s, ... 10 s)                            ▼
//!            failed                          loaded with the previous keys, if it fails
//! ```

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use watchet_tasks::Tasks;

use super::fetch::Fetcher;
use super::jws::{Jws, SigningAlgorithm};
use super::key_set::KeySet;
use crate::config::Issuer;

/// The interval of periodic fetches.
const REFRESH_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The minimum time between two fetches because of unknown keys: clients choose the key ID of a token.
const UNKNOWN_KEY_INTERVAL: Duration = Duration::from_secs(5);

/// The first and the maximum pause after a failed fetch.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(10);

/// The maximum time that a token waits for the keys: the time limit of a fetch of both documents.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The keys of an issuer.
#[derive(Debug)]
pub(super) struct IssuerKeys {
    url: String,
    discovery_url: String,
    certificate_authority: String,
    /// The fetching task sends; authentications of tokens receive.
    fetched: watch::Receiver<Fetched>,
    unknown_key: Arc<Notify>,
    stop: CancellationToken,
}

/// The result of the fetches so far.
#[derive(Debug, Clone, Default)]
struct Fetched {
    keys: Option<Arc<KeySet>>,
    /// The error of the last fetch.
    error: Option<String>,
    /// The number of fetches that have ended.
    attempts: u64,
    /// The time at which the last fetch ended.
    at: Option<Instant>,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

/// The error of a token whose signature is not verified.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UnverifiedSignature {
    /// No fetch has succeeded yet.
    NoKeys(String),
    /// No key verifies the signature.
    Invalid,
}

impl Drop for IssuerKeys {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl IssuerKeys {
    /// Starts to fetch the keys in a task of `tasks`, which ends when this value is dropped.
    pub(super) fn start(issuer: &Issuer, tasks: &Tasks) -> Self {
        let (sender, fetched) = watch::channel(Fetched::default());
        let unknown_key = Arc::new(Notify::new());
        let stop = tasks.token().child_token();
        let source = Source::new(issuer);
        let (wake, until, group) = (Arc::clone(&unknown_key), stop.clone(), tasks.clone());
        tasks.spawn("oidc-keys", async move {
            until
                .run_until_cancelled(source.keep_fetching(&sender, &wake, &group))
                .await;
        });
        Self {
            url: issuer.url.clone(),
            discovery_url: issuer.discovery_url.clone(),
            certificate_authority: issuer.certificate_authority.clone(),
            fetched,
            unknown_key,
            stop,
        }
    }

    /// Returns true if these are the keys of `issuer`.
    pub(super) fn are_of(&self, issuer: &Issuer) -> bool {
        self.url == issuer.url
            && self.discovery_url == issuer.discovery_url
            && self.certificate_authority == issuer.certificate_authority
    }

    /// Verifies the signature of a token. Waits for the first fetch, and if no key verifies it, for one more fetch.
    pub(super) async fn verify(
        &self,
        token: &Jws<'_>,
        algorithm: SigningAlgorithm,
    ) -> Result<(), UnverifiedSignature> {
        let first = self.after_attempt(0).await;
        let Some(keys) = &first.keys else {
            return Err(UnverifiedSignature::NoKeys(match first.error {
                Some(error) => format!("oidc: authenticator not initialized: {error}"),
                None => "oidc: authenticator not initialized".to_owned(),
            }));
        };
        if keys.verifies(token, algorithm) {
            return Ok(());
        }
        let is_recent = |at: Instant| at.elapsed() < UNKNOWN_KEY_INTERVAL;
        if first.at.is_some_and(is_recent) {
            return Err(UnverifiedSignature::Invalid);
        }
        self.unknown_key.notify_one();
        let second = self.after_attempt(first.attempts).await;
        let is_verified = |keys: &Arc<KeySet>| keys.verifies(token, algorithm);
        match second.keys.is_some_and(|keys| is_verified(&keys)) {
            true => Ok(()),
            false => Err(UnverifiedSignature::Invalid),
        }
    }

    /// Returns the state after more than `attempts` fetches, or when the maximum time of waiting has passed.
    async fn after_attempt(&self, attempts: u64) -> Fetched {
        let mut fetched = self.fetched.clone();
        let waited = fetched.wait_for(|fetched| fetched.attempts > attempts);
        if let Ok(Ok(fetched)) = tokio::time::timeout(WAIT_MAX, waited).await {
            return fetched.clone();
        }
        self.fetched.borrow().clone()
    }
}

/// The URLs of an issuer, and the CAs of its server.
struct Source {
    issuer: String,
    discovery_url: String,
    certificate_authority: String,
}

impl Source {
    fn new(issuer: &Issuer) -> Self {
        let discovery_url = match issuer.discovery_url.as_str() {
            "" => {
                let url = issuer.url.trim_end_matches('/');
                format!("{url}/.well-known/openid-configuration")
            }
            given => given.to_owned(),
        };
        Self {
            issuer: issuer.url.clone(),
            discovery_url,
            certificate_authority: issuer.certificate_authority.clone(),
        }
    }

    async fn keep_fetching(&self, sender: &watch::Sender<Fetched>, wake: &Notify, tasks: &Tasks) {
        let mut pause = RETRY_PAUSE;
        loop {
            let result = self.fetch(tasks).await;
            let issuer = &self.issuer;
            let wait = match &result {
                Ok(keys) => {
                    tracing::debug!(issuer, keys = keys.len(), "keys of the issuer fetched");
                    pause = RETRY_PAUSE;
                    REFRESH_INTERVAL
                }
                Err(error) => {
                    tracing::warn!(
                        issuer,
                        error,
                        ?pause,
                        "keys of the issuer cannot be fetched"
                    );
                    let wait = pause;
                    pause = (pause * 2).min(RETRY_PAUSE_MAX);
                    wait
                }
            };
            sender.send_modify(|fetched| {
                fetched.attempts += 1;
                fetched.at = Some(Instant::now());
                match result {
                    Ok(keys) => {
                        fetched.keys = Some(Arc::new(keys));
                        fetched.error = None;
                    }
                    Err(error) => fetched.error = Some(error),
                }
            });
            let next = Instant::now() + wait;
            let earliest = (Instant::now() + UNKNOWN_KEY_INTERVAL).min(next);
            tokio::time::sleep_until(earliest).await;
            tokio::select! {
                () = tokio::time::sleep_until(next) => {}
                () = wake.notified() => {}
            }
        }
    }

    async fn fetch(&self, tasks: &Tasks) -> Result<KeySet, String> {
        let pem = self.certificate_authority.clone();
        // Loading the CAs of the system reads files.
        let fetcher = tasks.spawn_blocking("oidc-trust", move || Fetcher::new(&pem));
        let fetcher = fetcher.await.map_err(|error| error.to_string())??;
        let document = fetcher.get(&self.discovery_url).await?;
        let discovery: Discovery = serde_json::from_slice(&document).map_err(|error| {
            format!("oidc: failed to decode provider discovery object: {error}")
        })?;
        if discovery.issuer != self.issuer {
            return Err(format!(
                "oidc: issuer did not match the issuer returned by provider, expected {:?} got {:?}",
                self.issuer, discovery.issuer
            ));
        }
        let document = fetcher.get(&discovery.jwks_uri).await?;
        KeySet::parse(&document).map_err(|error| format!("oidc: failed to decode keys: {error}"))
    }
}
