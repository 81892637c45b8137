//! The subresource `token` of service accounts, which issues tokens, and `TokenReview`, which authenticates
//! them.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenReviewSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use super::reviews::spec;
use crate::TokenObjects;
use watchet_api::{GetOptions, Object, StatusCause, WriteOptions};
use watchet_auth::{
    AuthenticatedToken, Claims, KubernetesClaims, Reference, TokenAuthenticator, user_name,
};
use watchet_registry::{ApiError, Registry, Target, metadata};

/// The default, minimum and maximum validity of a token in seconds.
const EXPIRATION_SECONDS: i64 = 60 * 60;
const EXPIRATION_SECONDS_MIN: i64 = 10 * 60;
const EXPIRATION_SECONDS_MAX: i64 = 1 << 32;

/// `TokenRequestSpec`; every member is optional.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    audiences: Option<Vec<String>>,
    expiration_seconds: Option<i64>,
    bound_object_ref: Option<BoundObjectReference>,
}

/// Issues a token for the account that `target` names.
///
/// # Errors
/// 404 if the account or the object to bind the token to does not exist; 409 if that object has another uid;
/// 422 if the request is invalid.
pub(super) async fn request(
    registry: &Registry,
    tokens: &TokenAuthenticator,
    target: &Target,
    mut body: Value,
    options: &WriteOptions,
) -> Result<Arc<Object>, ApiError> {
    let _: Spec = spec(target, &body)?;
    if body["spec"]["expirationSeconds"].is_null() {
        body["spec"]["expirationSeconds"] = EXPIRATION_SECONDS.into();
    }
    let mut body = registry.mutated_post(target, body, options).await?;
    let given: Spec = spec(target, &body)?;
    check_name(target, &body)?;
    let account = Target {
        subresource: None,
        ..target.clone()
    };
    let account = registry.get(&account, GetOptions::default()).await?;
    let issuer = tokens.issuer();
    let audiences = match given.audiences {
        Some(named) if !named.is_empty() => named,
        _ => issuer.audiences().to_vec(),
    };
    let lasts = given.expiration_seconds.unwrap_or(EXPIRATION_SECONDS);
    check_expiration(target, lasts)?;
    let requested = lasts;
    let lasts = issuer.validity(requested);
    if lasts < requested {
        options.warnings.add(format!(
            "requested expiration of {requested} seconds shortened to {lasts} seconds"
        ));
    }
    body["spec"]["expirationSeconds"] = lasts.into();
    body["metadata"]["name"] = target.name.clone().into();
    body["metadata"]["namespace"] = json!(target.namespace);
    body["spec"]["audiences"] = json!(audiences);
    registry.admit_post(target, &body, options).await?;
    let bound = match &given.bound_object_ref {
        Some(reference) => read_bound_objects(registry, target, reference).await?,
        None => BoundObjects::default(),
    };
    let lifetime = issuer.lifetime(lasts, bound.pod.is_some(), &audiences);
    let now = metadata::now();
    let namespace = target.namespace.clone().unwrap_or_default();
    let token = issuer.sign(&Claims {
        aud: audiences.clone(),
        exp: now.as_second() + lifetime.expires_after,
        iat: now.as_second(),
        iss: issuer.name().to_owned(),
        jti: uuid::Uuid::new_v4().to_string(),
        nbf: now.as_second(),
        sub: user_name(&namespace, &target.name),
        kubernetes: KubernetesClaims {
            node: bound.node,
            pod: bound.pod,
            secret: bound.secret,
            serviceaccount: reference(&account),
            namespace,
            warnafter: lifetime.warn_after.map(|after| now.as_second() + after),
        },
    });
    let token = token.map_err(|why| ApiError::Unsupported(format!("cannot sign: {why}")))?;
    body["metadata"]["creationTimestamp"] = now.to_string().into();
    // Of an extended token too, so that the kubelet replaces it in time.
    body["status"] = json!({"token": token, "expirationTimestamp": after(now, lasts)});
    watchet_registry::response::unstored(target, &body)
}

fn after(now: Timestamp, seconds: i64) -> String {
    let until = now.checked_add(SignedDuration::from_secs(seconds));
    until
        .expect("2^32 seconds from now are in range")
        .to_string()
}

fn check_name(target: &Target, body: &Value) -> Result<(), ApiError> {
    let given = metadata::text(body, "name");
    if given.is_empty() || given == target.name {
        return Ok(());
    }
    let why = "must match the service account name if specified";
    let cause = StatusCause::invalid("metadata.name", given, why);
    Err(ApiError::invalid(
        &target.of_bodies(),
        &target.name,
        vec![cause],
    ))
}

fn check_expiration(target: &Target, seconds: i64) -> Result<(), ApiError> {
    let why = match seconds {
        ..EXPIRATION_SECONDS_MIN => "may not specify a duration less than 10 minutes",
        EXPIRATION_SECONDS_MIN..=EXPIRATION_SECONDS_MAX => return Ok(()),
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    let cause = StatusCause {
        message: format!("Invalid value: {seconds}: {why}"),
        ..StatusCause::invalid("spec.expirationSeconds", "", "")
    };
    Err(ApiError::invalid(&target.of_bodies(), "", vec![cause]))
}

/// The objects that a token is bound to.
#[derive(Debug, Default)]
struct BoundObjects {
    node: Option<Reference>,
    pod: Option<Reference>,
    secret: Option<Reference>,
}

fn reference(object: &Object) -> Reference {
    Reference {
        name: object.key().name().to_owned(),
        uid: object.uid().to_owned(),
    }
}

async fn read_bound_objects(
    registry: &Registry,
    target: &Target,
    named: &BoundObjectReference,
) -> Result<BoundObjects, ApiError> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (version, kind, name) = (
        text(&named.api_version),
        text(&named.kind),
        text(&named.name),
    );
    let find = async |plural: &str| {
        let resource = registry
            .resource("", "v1", plural)
            .expect("the resource table has the resources that tokens are bound to");
        let namespace = target.namespace.clone().filter(|_| resource.namespaced);
        let object = Target {
            resource,
            namespace,
            name: name.clone(),
            subresource: None,
        };
        registry.get(&object, GetOptions::default()).await
    };
    let mut bound = BoundObjects::default();
    // Only the group is compared, as upstream.
    let core = !version.contains('/');
    let found = match kind.as_str() {
        "Pod" if core => {
            let pod = find("pods").await?;
            bound.node = node_of(registry, target, &pod).await?;
            bound.pod.insert(reference(&pod)).clone()
        }
        "Secret" if core => {
            let secret = find("secrets").await?;
            bound.secret.insert(reference(&secret)).clone()
        }
        "Node" if core => {
            let node = find("nodes").await?;
            bound.node.insert(reference(&node)).clone()
        }
        _ => {
            return Err(ApiError::BadRequest(format!(
                "cannot bind token to object of type {version}, Kind={kind}"
            )));
        }
    };
    let uid = text(&named.uid);
    if !uid.is_empty() && uid != found.uid {
        return Err(ApiError::Conflict {
            resource: kind,
            name,
            detail: format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. \
                 The object might have been deleted and then recreated"
            ),
        });
    }
    Ok(bound)
}

/// Returns the node of a pod of this account; the node may no longer exist.
async fn node_of(
    registry: &Registry,
    target: &Target,
    pod: &Object,
) -> Result<Option<Reference>, ApiError> {
    let unreadable = |error: serde_json::Error| {
        let key = pod.key();
        ApiError::Read(watchet_cacher::ReadError::Undecodable(format!(
            "{key}: {error}"
        )))
    };
    let value: Value = serde_json::from_slice(pod.body_slice()).map_err(unreadable)?;
    if value["spec"]["serviceAccountName"] != target.name.as_str() {
        return Err(ApiError::BadRequest(format!(
            "cannot bind token for serviceaccount {:?} to pod running with different \
             serviceaccount name.",
            target.name
        )));
    }
    let Some(name) = value["spec"]["nodeName"]
        .as_str()
        .filter(|name| !name.is_empty())
    else {
        return Ok(None);
    };
    let node = Target {
        resource: registry
            .resource("", "v1", "nodes")
            .expect("the resource table has nodes"),
        namespace: None,
        name: name.to_owned(),
        subresource: None,
    };
    match registry.get(&node, GetOptions::default()).await {
        Ok(node) => Ok(Some(reference(&node))),
        Err(error) if error.is_not_found() => Ok(Some(Reference {
            name: name.to_owned(),
            uid: String::new(),
        })),
        Err(error) => Err(error),
    }
}

/// Authenticates the token of a `TokenReview`.
pub(super) async fn review(
    registry: &Registry,
    tokens: &TokenAuthenticator,
    target: &Target,
    mut body: Value,
    options: &WriteOptions,
) -> Result<Arc<Object>, ApiError> {
    let given: TokenReviewSpec = spec(target, &body)?;
    let token = given.token;
    if token.is_empty() {
        let message = "token is required for TokenReview in authentication";
        return Err(ApiError::BadRequest(message.to_owned()));
    }
    let requested = given.audiences.unwrap_or_default();
    let own = tokens.issuer();
    let authenticated = match tokens.authenticate(&token, &requested) {
        Ok(AuthenticatedToken::Static { user, .. }) => {
            let own = own.audiences().iter();
            let common = own.filter(|one| requested.is_empty() || requested.contains(one));
            Ok((user, common.cloned().collect()))
        }
        Ok(AuthenticatedToken::ServiceAccount(token)) => {
            let user = token.validate(&TokenObjects(registry)).await;
            user.map(|user| {
                tokens.record_use(&token, &options.audit_annotations);
                (Arc::new(user), token.audiences)
            })
        }
        Err(error) if tokens.has_external() => {
            let found = tokens.authenticate_external(&token, &requested, error);
            found.await.map(|found| (found.user, found.audiences))
        }
        Err(error) => Err(error),
    };
    body["status"] = match authenticated {
        Ok((user, audiences)) => {
            let audiences: Vec<String> = audiences;
            json!({"authenticated": true, "user": *user, "audiences": audiences})
        }
        Err(error) => json!({"user": {}, "error": error.to_string()}),
    };
    watchet_registry::response::unstored(target, &body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    #[test]
    fn validity_is_limited() {
        let all = table::all();
        let target = Target {
            resource: all
                .into_iter()
                .find(|r| r.plural == "serviceaccounts")
                .unwrap(),
            namespace: Some("ns".to_owned()),
            name: "a".to_owned(),
            subresource: Some("token".to_owned()),
        };
        for (seconds, refusal) in [
            (600, None),
            (
                599,
                Some("Invalid value: 599: may not specify a duration less than 10 minutes"),
            ),
            (
                -1,
                Some("Invalid value: -1: may not specify a duration less than 10 minutes"),
            ),
            (1 << 32, None),
            (
                (1 << 32) + 1,
                Some(
                    "Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
                ),
            ),
        ] {
            let message = match check_expiration(&target, seconds) {
                Ok(()) => None,
                Err(ApiError::Invalid { kind, causes, .. }) => {
                    assert_eq!(kind, "TokenRequest");
                    Some(causes[0].message.clone())
                }
                Err(other) => panic!("{other}"),
            };
            assert_eq!(message.as_deref(), refusal);
        }
        assert_eq!(after(Timestamp::UNIX_EPOCH, 60), "1970-01-01T00:01:00Z");
    }
}
