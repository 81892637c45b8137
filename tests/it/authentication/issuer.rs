//! An issuer of JSON Web Tokens: a TLS server in the process of the test with a discovery document and keys.

use std::sync::Arc;
use std::time::SystemTime;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::ca_of;
use crate::harness::{Reply, Webhook};

/// What the issuer responds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behaviour {
    /// The documents.
    Normal,
    /// 503.
    Unavailable,
    /// Nothing.
    Silent,
    /// A key set of 8 MiB.
    Huge,
    /// A discovery document of another issuer.
    Foreign,
}

struct State {
    url: String,
    behaviour: Behaviour,
    keys: Vec<Value>,
}

/// A key that signs tokens.
pub(super) struct SigningKey {
    id: String,
    pair: EcdsaKeyPair,
}

impl SigningKey {
    pub(super) fn new(id: &str) -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
        Self {
            id: id.to_owned(),
            pair,
        }
    }

    /// Returns the uncompressed point.
    pub(super) fn point(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    fn jwk(&self) -> Value {
        let (x, y) = self.point()[1..].split_at(32);
        let (x, y) = (encode(x), encode(y));
        json!({"kty": "EC", "crv": "P-256", "use": "sig", "kid": self.id, "x": x, "y": y})
    }

    /// Signs a token with these claims.
    pub(super) fn sign(&self, claims: &Value) -> String {
        let message = message(&json!({"alg": "ES256", "kid": self.id}), claims);
        let random = SystemRandom::new();
        let signature = self.pair.sign(&random, message.as_bytes());
        let signature = encode(signature.expect("a signature").as_ref());
        format!("{message}.{signature}")
    }
}

pub(super) fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns what is signed of a token.
pub(super) fn message(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| encode(value.to_string().as_bytes());
    format!("{}.{}", part(header), part(claims))
}

/// Returns the time in Unix seconds.
pub(super) fn now() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed();
    since.expect("a time after 1970").as_secs()
}

/// A running issuer.
pub(super) struct Issuer {
    server: Webhook,
    state: Arc<Mutex<State>>,
    pub(super) key: SigningKey,
}

impl Issuer {
    pub(super) async fn start() -> Self {
        Self::start_with(Behaviour::Normal).await
    }

    pub(super) async fn start_with(behaviour: Behaviour) -> Self {
        let key = SigningKey::new("first");
        let state = Arc::new(Mutex::new(State {
            url: String::new(),
            behaviour,
            keys: vec![key.jwk()],
        }));
        let shared = Arc::clone(&state);
        let server = Webhook::start(move |request| {
            let shared = Arc::clone(&shared);
            Box::pin(async move {
                let (reply, behaviour) = {
                    let state = shared.lock();
                    (state.reply(&request.path), state.behaviour)
                };
                if behaviour == Behaviour::Silent {
                    std::future::pending::<()>().await;
                }
                reply
            })
        });
        let server = server.await;
        state.lock().url = server.url("/tenant");
        Self { server, state, key }
    }

    pub(super) fn url(&self) -> String {
        self.server.url("/tenant")
    }

    pub(super) fn ca(&self) -> String {
        ca_of(&self.server)
    }

    pub(super) fn behave(&self, behaviour: Behaviour) {
        self.state.lock().behaviour = behaviour;
    }

    /// Replaces the key.
    pub(super) fn rotate(&mut self, id: &str) {
        self.key = SigningKey::new(id);
        self.state.lock().keys = vec![self.key.jwk()];
    }

    /// Returns the number of requests for `path`.
    pub(super) fn requests(&self, path: &str) -> usize {
        let calls = self.server.calls();
        calls.iter().filter(|one| one.path == path).count()
    }

    /// Returns the claims of a valid token, with `more`.
    pub(super) fn claims(&self, more: Value) -> Value {
        let mut claims = json!({
            "iss": self.url(), "sub": "jane", "aud": ["watchet", "other"],
            "iat": now(), "exp": now() + 600,
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            claims[name] = value.clone();
        }
        claims
    }

    /// Issues a valid token with `more` claims.
    pub(super) fn token(&self, more: Value) -> String {
        self.key.sign(&self.claims(more))
    }

    /// Returns the member of `jwt` for this issuer in JSON, with `more` members.
    pub(super) fn configuration(&self, more: Value) -> Value {
        let mut configuration = json!({
            "issuer": {
                "url": self.url(), "audiences": ["watchet"], "certificateAuthority": self.ca(),
            },
            "claimMappings": {"username": {"claim": "sub", "prefix": "oidc:"}},
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            configuration[name] = value.clone();
        }
        configuration
    }
}

impl State {
    fn reply(&self, path: &str) -> Reply {
        let url = &self.url;
        match (self.behaviour, path) {
            (Behaviour::Unavailable, _) => Reply::other(503, "later"),
            (Behaviour::Foreign, "/tenant/.well-known/openid-configuration") => {
                Reply::json(&json!({"issuer": "https://other", "jwks_uri": format!("{url}/keys")}))
            }
            (_, "/tenant/.well-known/openid-configuration") => {
                Reply::json(&json!({"issuer": url, "jwks_uri": format!("{url}/keys")}))
            }
            (Behaviour::Huge, "/tenant/keys") => Reply::other(200, &" ".repeat(8 << 20)),
            (_, "/tenant/keys") => Reply::json(&json!({"keys": self.keys})),
            _ => Reply::other(404, "no such document"),
        }
    }
}

/// Returns an `AuthenticationConfiguration` with these members of `jwt`.
pub(super) fn configuration(jwt: &[Value]) -> String {
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": jwt,
    })
    .to_string()
}
