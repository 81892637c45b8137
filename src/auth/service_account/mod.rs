//! Service accounts as users: the tokens that they show, and what must still be there for a token to
//! count. Who asks for a token is answered by the subresource `token`.

mod issuer;
mod keys;
mod secret_tokens;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::api::{GetOptions, Object, ResourceVersion, UserInfo};

use self::secret_tokens::SecretToken;
use super::{Registry, Target};

pub(crate) use issuer::{Claims, Kubernetes, Reference};
pub use issuer::{DEFAULT_ISSUER, TokenIssuer};
pub use keys::InvalidKeys;
pub(super) use secret_tokens::start_tracking;

/// How long after its deletion an object still counts that something holds back; upstream's leeway for
/// clocks that are apart.
const DELETED_MAX: SignedDuration = SignedDuration::from_secs(60);

const ACCOUNT: &str = "service account";

const INVALIDATED: &str = "service account token has been invalidated";

/// Tokens that are known by themselves, e.g. by a file.
pub trait TokenTable: fmt::Debug + Send + Sync {
    /// Whose token it is.
    fn user(&self, token: &str) -> Option<Arc<UserInfo>>;
}

/// Which bearer tokens are believed.
#[derive(Debug)]
pub struct Credentials {
    table: Option<Box<dyn TokenTable>>,
    issuer: TokenIssuer,
}

impl Default for Credentials {
    /// Tokens that this process alone makes and knows.
    fn default() -> Self {
        Self::new(None, TokenIssuer::ephemeral())
    }
}

/// A token of a service account that is signed and holds, if what it names is still there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedUser {
    kubernetes: Kubernetes,
    /// The ID of the token; empty for one that is stored in a Secret.
    token_id: String,
    audiences: Vec<String>,
    /// The token itself, if it is one that its Secret must hold.
    secret_token: Option<SecretToken>,
}

/// What a bearer token is worth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bearer {
    /// It is this user's.
    Known(Arc<UserInfo>),
    /// It says so; [`Registry::claimed_user`] tells whether that is still true.
    Claimed(Box<ClaimedUser>),
}

/// Why a token is not believed, for reviews; requests are told nothing of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToken {
    /// Nobody whose word counts has made it.
    #[error("invalid bearer token")]
    NotOurs,
    /// Its time is over.
    #[error("service account token has expired")]
    Expired,
    /// Its time is to come.
    #[error("service account token is not valid yet")]
    NotYetValid,
    /// It is for others.
    #[error(
        "token audiences {} is invalid for the target audiences {}",
        List(token),
        List(asked)
    )]
    Audiences {
        /// For whom it is.
        token: Vec<String>,
        /// Who was asked for.
        asked: Vec<String>,
    },
    /// The account or what the token is bound to is gone, or another of that name.
    #[error("{0}")]
    Invalidated(String),
}

/// A list of strings as Go's `%q` writes it.
struct List<'a>(&'a [String]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted: Vec<String> = self.0.iter().map(|text| format!("{text:?}")).collect();
        write!(f, "[{}]", quoted.join(" "))
    }
}

impl Credentials {
    /// Believes `table`, and what `issuer` verifies.
    pub fn new(table: Option<Box<dyn TokenTable>>, issuer: TokenIssuer) -> Self {
        Self { table, issuer }
    }

    /// Makes tokens.
    pub fn issuer(&self) -> &TokenIssuer {
        &self.issuer
    }

    /// What `token` is worth for one of `audiences`; none are this server.
    ///
    /// # Errors
    /// It is not believed.
    pub fn bearer(&self, token: &str, audiences: &[String]) -> Result<Bearer, InvalidToken> {
        if let Some(user) = self.table.as_ref().and_then(|table| table.user(token)) {
            let own = self.issuer.audiences();
            // Such a token says nothing of audiences: it is for this server.
            return match audiences.is_empty() || audiences.iter().any(|one| own.contains(one)) {
                true => Ok(Bearer::Known(user)),
                false => Err(InvalidToken::NotOurs),
            };
        }
        let claimed = match self.issuer.verify(token, audiences) {
            Ok((claims, audiences)) => ClaimedUser {
                kubernetes: claims.kubernetes,
                token_id: claims.jti,
                audiences,
                secret_token: None,
            },
            Err(InvalidToken::NotOurs) => {
                let (kubernetes, audiences) = self.issuer.verify_secret_token(token, audiences)?;
                ClaimedUser {
                    kubernetes,
                    token_id: String::new(),
                    audiences,
                    secret_token: Some(SecretToken(token.to_owned())),
                }
            }
            Err(error) => return Err(error),
        };
        Ok(Bearer::Claimed(Box::new(claimed)))
    }
}

impl ClaimedUser {
    /// Those who were asked for that the token is for.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    fn user(&self) -> UserInfo {
        let Kubernetes {
            namespace,
            serviceaccount,
            pod,
            node,
            ..
        } = &self.kubernetes;
        let mut extra = BTreeMap::new();
        let mut tell = |key: &str, value: &str| {
            if !value.is_empty() {
                let key = format!("authentication.kubernetes.io/{key}");
                extra.insert(key, vec![value.to_owned()]);
            }
        };
        for (kind, bound) in [("pod", pod), ("node", node)] {
            if let Some(Reference { name, uid }) = bound {
                tell(&format!("{kind}-name"), name);
                tell(&format!("{kind}-uid"), uid);
            }
        }
        if !self.token_id.is_empty() {
            tell("credential-id", &format!("JTI={}", self.token_id));
        }
        let groups = vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
        ];
        let name = user_name(namespace, &serviceaccount.name);
        let user = UserInfo::authenticated(name, serviceaccount.uid.clone(), groups);
        UserInfo { extra, ..user }
    }
}

/// How a service account is called as a user.
pub(crate) fn user_name(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

impl Registry {
    /// The user that a token claims to be, if the account and what the token is bound to are there and
    /// are those that it was made for. The caches say so; storage is asked before somebody is refused.
    ///
    /// # Errors
    /// [`InvalidToken::Invalidated`]
    pub async fn claimed_user(&self, claimed: &ClaimedUser) -> Result<UserInfo, InvalidToken> {
        let said = &claimed.kubernetes;
        let namespace = Some(said.namespace.as_str());
        self.require("serviceaccounts", namespace, &said.serviceaccount, ACCOUNT)
            .await?;
        match (&said.secret, &claimed.secret_token) {
            (Some(secret), Some(token)) => {
                secret_tokens::require(self, &said.namespace, &secret.name, token).await?;
            }
            (Some(secret), None) => self.require("secrets", namespace, secret, "secret").await?,
            (None, _) => {}
        }
        if let Some(pod) = &said.pod {
            self.require("pods", namespace, pod, "pod").await?;
        }
        // A node beside a pod is only told of.
        if let (Some(node), None) = (&said.node, &said.pod) {
            self.require("nodes", None, node, "node").await?;
        }
        Ok(claimed.user())
    }

    async fn require(
        &self,
        plural: &str,
        namespace: Option<&str>,
        reference: &Reference,
        what: &str,
    ) -> Result<(), InvalidToken> {
        let resource = self
            .resource("", "v1", plural)
            .expect("the table has what tokens are bound to");
        let target = Target {
            resource,
            namespace: namespace.map(str::to_owned),
            name: reference.name.clone(),
            subresource: None,
        };
        let any = GetOptions {
            resource_version: Some(ResourceVersion::ZERO),
        };
        let now = Timestamp::now();
        if let Ok(cached) = self.get(&target, any).await
            && invalidated(&cached, reference, what, now).is_none()
        {
            return Ok(());
        }
        let why = match self.get(&target, GetOptions::default()).await {
            Ok(object) => invalidated(&object, reference, what, now),
            Err(error) if error.is_not_found() && what != ACCOUNT => Some(INVALIDATED.to_owned()),
            Err(error) => Some(error.to_string()),
        };
        why.map_or(Ok(()), |why| Err(InvalidToken::Invalidated(why)))
    }
}

/// Why `object` is not what a token names as its `what`, if so.
fn invalidated(object: &Object, named: &Reference, what: &str, now: Timestamp) -> Option<String> {
    let uid = object.uid();
    if deleted_at(object).is_some_and(|at| at < now - DELETED_MAX) {
        return Some(match what {
            ACCOUNT => format!("service account {} has been deleted", object.key()),
            _ => INVALIDATED.to_owned(),
        });
    }
    if uid == named.uid {
        return None;
    }
    let claim = match what {
        ACCOUNT => "claim".to_owned(),
        _ => format!("service account {what} ref claim"),
    };
    let named = &named.uid;
    Some(format!(
        "{what} UID ({uid}) does not match {claim} ({named})"
    ))
}

/// When an object was deleted that something holds back.
fn deleted_at(object: &Object) -> Option<Timestamp> {
    #[derive(serde::Deserialize)]
    struct Body {
        metadata: Metadata,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        deletion_timestamp: Option<Timestamp>,
    }
    let body = object.body_slice();
    // Seldom, and every request of an account comes by here.
    memchr::memmem::find(body, b"\"deletionTimestamp\"")?;
    let body: Body = serde_json::from_slice(body).ok()?;
    body.metadata.deletion_timestamp
}

#[cfg(test)]
mod tests;
