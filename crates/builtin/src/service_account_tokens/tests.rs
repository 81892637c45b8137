//! Validation of service account tokens with the memory store and real caches.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;
use watchet_auth::{KubernetesClaims, Reference, ServiceAccountToken};

use crate::tests::{Fixture, fixture};
use watchet_test_registry::{Before, named, pod};

fn reference(object: &Value) -> Reference {
    let text = |member: &str| object["metadata"][member].as_str().unwrap().to_owned();
    Reference {
        name: text("name"),
        uid: text("uid"),
    }
}

fn token(account: &Value) -> KubernetesClaims {
    KubernetesClaims {
        namespace: "default".to_owned(),
        node: None,
        pod: None,
        secret: None,
        serviceaccount: reference(account),
        warnafter: None,
    }
}

/// The error message for a token whose object was deleted.
const INVALIDATED: &str = "service account token has been invalidated";

/// Returns the name of the user of a token with these claims, or the error.
async fn validate(fixture: &Fixture, claims: KubernetesClaims) -> String {
    let token = ServiceAccountToken::new(claims);
    match token.validate(&TokenObjects(&*fixture.registry)).await {
        Ok(user) => user.name,
        Err(error) => error.to_string(),
    }
}

/// Sets the deletion timestamp of an object to this many seconds ago, as another server would.
async fn mark(fixture: &Fixture, key: &'static str, seconds: i64) {
    let mut object = fixture.stored(key).await.unwrap();
    let at = Timestamp::now() - SignedDuration::from_secs(seconds);
    object["metadata"]["deletionTimestamp"] = at.to_string().into();
    object["metadata"]["finalizers"] = json!(["x.y/z"]);
    fixture
        .storage
        .write_concurrently(Before::Put(key, object))
        .await;
}

const USER: &str = "system:serviceaccount:default:robot";

/// A token remained valid forever if a finalizer, or a pod that does not terminate, kept its object from being deleted.
#[tokio::test]
async fn token_is_invalid_a_minute_after_the_deletion_of_its_object() {
    let fixture = fixture().await;
    let account = fixture.create("serviceaccounts", named("robot")).await;
    let (pod, secret) = (
        fixture.create("pods", pod("p")).await,
        fixture.create("secrets", named("s")).await,
    );
    let node = fixture.create("nodes", named("n")).await;
    let of_pod = KubernetesClaims {
        pod: Some(reference(&pod)),
        ..token(&account)
    };
    let of_secret = KubernetesClaims {
        secret: Some(reference(&secret)),
        ..token(&account)
    };
    let of_node = KubernetesClaims {
        node: Some(reference(&node)),
        ..token(&account)
    };
    for (key, claims) in [
        ("/pods/default/p", of_pod),
        ("/secrets/default/s", of_secret),
        ("/minions/n", of_node),
    ] {
        assert_eq!(validate(&fixture, claims.clone()).await, USER, "{key}");
        // The grace period of the pod is not over.
        for (seconds, expect) in [(-30, USER), (50, USER), (70, INVALIDATED)] {
            mark(&fixture, key, seconds).await;
            wait_for_caches(&fixture).await;
            assert_eq!(
                validate(&fixture, claims.clone()).await,
                expect,
                "{key} {seconds}"
            );
        }
    }
    mark(&fixture, "/serviceaccounts/default/robot", 50).await;
    wait_for_caches(&fixture).await;
    assert_eq!(validate(&fixture, token(&account)).await, USER);
    mark(&fixture, "/serviceaccounts/default/robot", 70).await;
    wait_for_caches(&fixture).await;
    let expect = "service account default/robot has been deleted";
    assert_eq!(validate(&fixture, token(&account)).await, expect);
}

/// Lists all resources, so that their caches are current: a list waits for its cache.
async fn wait_for_caches(fixture: &Fixture) {
    for plural in ["pods", "secrets", "nodes", "serviceaccounts"] {
        let resource = fixture.resource(plural);
        let all = watchet_api::ListOptions::default();
        fixture.registry.list(&resource, None, &all).await.unwrap();
    }
}

#[tokio::test]
async fn token_is_invalid_for_another_object_of_the_same_name() {
    let fixture = fixture().await;
    let account = fixture.create("serviceaccounts", named("robot")).await;
    let pod = fixture.create("pods", pod("p")).await;
    let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap().to_owned();
    let other = |name: &str| Reference {
        name: name.to_owned(),
        uid: "other".to_owned(),
    };
    let claims = KubernetesClaims {
        pod: Some(other("p")),
        ..token(&account)
    };
    let expect = format!(
        "pod UID ({}) does not match service account pod ref claim (other)",
        uid(&pod)
    );
    assert_eq!(validate(&fixture, claims).await, expect);
    let claims = KubernetesClaims {
        pod: Some(other("missing")),
        ..token(&account)
    };
    assert_eq!(validate(&fixture, claims).await, INVALIDATED);
    let claims = KubernetesClaims {
        serviceaccount: other("robot"),
        ..token(&account)
    };
    let expect = format!(
        "service account UID ({}) does not match claim (other)",
        uid(&account)
    );
    assert_eq!(validate(&fixture, claims).await, expect);
}
