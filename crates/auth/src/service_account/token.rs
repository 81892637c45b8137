//! Service account tokens with a valid signature. A token is valid as long as its service account and the
//! object that it is bound to exist.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::claims::{KubernetesClaims, Reference, group_names, user_name};
use super::secret_token::{self, SecretToken};
use crate::object_reader::{Freshness, ObjectReadError, ObjectReader};
use crate::token_error::InvalidToken;
use watchet_api::{Object, UserInfo};

/// The time after the deletion timestamp of an object for which tokens bound to it remain valid, as upstream.
const DELETION_LEEWAY: SignedDuration = SignedDuration::from_secs(60);

const SERVICE_ACCOUNT: &str = "service account";

/// A service account token with a valid signature.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServiceAccountToken {
    /// The account and the bound objects.
    pub kubernetes: KubernetesClaims,
    /// The ID of the token; empty for one that is stored in a Secret.
    pub token_id: String,
    /// Those of the requested audiences that the token is for.
    pub audiences: Vec<String>,
    /// The time until which the token is accepted, in Unix seconds; `None` for one that is stored in a Secret.
    pub(crate) accepted_until: Option<i64>,
    /// The token itself, if it must be stored in a Secret.
    pub(super) secret_token: Option<SecretToken>,
}

impl ServiceAccountToken {
    /// Creates a token with these claims, as if it was verified.
    pub fn new(kubernetes: KubernetesClaims) -> Self {
        Self {
            kubernetes,
            token_id: String::new(),
            audiences: Vec::new(),
            accepted_until: None,
            secret_token: None,
        }
    }

    /// Returns the user of the token if its account and the object that it is bound to exist. Reads
    /// storage before it rejects a token, because a cache may be behind.
    ///
    /// # Errors
    /// [`InvalidToken::Invalidated`] or [`InvalidToken::Unverified`]
    pub async fn validate(&self, objects: &dyn ObjectReader) -> Result<UserInfo, InvalidToken> {
        let claims = &self.kubernetes;
        let namespace = Some(claims.namespace.as_str());
        let account = &claims.serviceaccount;
        let kind = SERVICE_ACCOUNT;
        check_object(objects, "serviceaccounts", namespace, account, kind).await?;
        match (&claims.secret, &self.secret_token) {
            (Some(secret), Some(token)) => {
                secret_token::check(objects, &claims.namespace, &secret.name, token).await?;
            }
            (Some(secret), None) => {
                check_object(objects, "secrets", namespace, secret, "secret").await?;
            }
            (None, _) => {}
        }
        if let Some(pod) = &claims.pod {
            check_object(objects, "pods", namespace, pod, "pod").await?;
        }
        // The node of a pod is informational: it is not checked.
        if let (Some(node), None) = (&claims.node, &claims.pod) {
            check_object(objects, "nodes", None, node, "node").await?;
        }
        Ok(self.user())
    }

    /// Returns until when the token is accepted, in Unix seconds: after its expiry, by the tolerated difference of
    /// clocks. `None` for a token without expiry, which is stored in a Secret.
    pub fn accepted_until(&self) -> Option<i64> {
        self.accepted_until
    }

    fn user(&self) -> UserInfo {
        let KubernetesClaims {
            namespace,
            serviceaccount,
            pod,
            node,
            ..
        } = &self.kubernetes;
        let mut extra = BTreeMap::new();
        let mut add = |key: &str, value: &str| {
            if !value.is_empty() {
                let key = format!("authentication.kubernetes.io/{key}");
                extra.insert(key, vec![value.to_owned()]);
            }
        };
        for (kind, bound) in [("pod", pod), ("node", node)] {
            if let Some(Reference { name, uid }) = bound {
                add(&format!("{kind}-name"), name);
                add(&format!("{kind}-uid"), uid);
            }
        }
        if !self.token_id.is_empty() {
            add("credential-id", &format!("JTI={}", self.token_id));
        }
        let name = user_name(namespace, &serviceaccount.name);
        let groups = group_names(namespace);
        let user = UserInfo::authenticated(name, serviceaccount.uid.clone(), groups);
        UserInfo { extra, ..user }
    }
}

/// Checks that the object that `reference` names exists and has its uid. `kind` is used in messages.
async fn check_object(
    objects: &dyn ObjectReader,
    resource: &str,
    namespace: Option<&str>,
    reference: &Reference,
    kind: &str,
) -> Result<(), InvalidToken> {
    let name = &reference.name;
    let now = Timestamp::now();
    let cached = objects
        .read(resource, namespace, name, Freshness::Any)
        .await;
    if let Ok(cached) = cached
        && check_reference(&cached, reference, kind, now).is_ok()
    {
        return Ok(());
    }
    let latest = objects.read(resource, namespace, name, Freshness::Latest);
    match latest.await {
        Ok(object) => check_reference(&object, reference, kind, now),
        Err(ObjectReadError::NotFound(_)) if kind != SERVICE_ACCOUNT => {
            Err(InvalidToken::invalidated())
        }
        Err(ObjectReadError::NotFound(error)) => Err(InvalidToken::Invalidated(error)),
        Err(ObjectReadError::Failed(error)) => Err(InvalidToken::Unverified(error)),
    }
}

/// Checks that `object` is the one that `reference` names, and that it was not deleted before the leeway.
fn check_reference(
    object: &Object,
    reference: &Reference,
    kind: &str,
    now: Timestamp,
) -> Result<(), InvalidToken> {
    if deletion_timestamp(object).is_some_and(|at| at < now - DELETION_LEEWAY) {
        return Err(match kind {
            SERVICE_ACCOUNT => InvalidToken::Invalidated(format!(
                "service account {} has been deleted",
                object.key()
            )),
            _ => InvalidToken::invalidated(),
        });
    }
    let (actual, expected) = (object.uid(), &reference.uid);
    if actual == expected {
        return Ok(());
    }
    let claim = match kind {
        SERVICE_ACCOUNT => "claim".to_owned(),
        _ => format!("service account {kind} ref claim"),
    };
    Err(InvalidToken::Invalidated(format!(
        "{kind} UID ({actual}) does not match {claim} ({expected})"
    )))
}

/// Returns the deletion timestamp of an object.
fn deletion_timestamp(object: &Object) -> Option<Timestamp> {
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
    // Most objects have no deletion timestamp, and each request of a service account runs this check.
    memchr::memmem::find(body, b"\"deletionTimestamp\"")?;
    let body: Body = serde_json::from_slice(body).ok()?;
    body.metadata.deletion_timestamp
}
