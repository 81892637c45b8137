//! What must still be there for a token to count, over the memory store and real caches.

use serde_json::{Value, json};

use super::*;
use crate::builtin::tests::meddler::Before;
use crate::builtin::tests::{Fixture, fixture, named, pod};

fn reference(object: &Value) -> Reference {
    let text = |member: &str| object["metadata"][member].as_str().unwrap().to_owned();
    Reference {
        name: text("name"),
        uid: text("uid"),
    }
}

fn token(account: &Value) -> Kubernetes {
    Kubernetes {
        namespace: "default".to_owned(),
        node: None,
        pod: None,
        secret: None,
        serviceaccount: reference(account),
    }
}

/// What a token that says this is worth: the user's name, or why it is refused.
async fn told(fixture: &Fixture, says: Kubernetes) -> String {
    let claimed = ClaimedUser {
        kubernetes: says,
        token_id: String::new(),
        audiences: Vec::new(),
        secret_token: None,
    };
    match fixture.registry.claimed_user(&claimed).await {
        Ok(user) => user.name,
        Err(error) => error.to_string(),
    }
}

/// Another server has marked the object as being deleted, so many seconds ago.
async fn mark(fixture: &Fixture, key: &'static str, seconds: i64) {
    let mut object = fixture.stored(key).await.unwrap();
    let at = Timestamp::now() - SignedDuration::from_secs(seconds);
    object["metadata"]["deletionTimestamp"] = at.to_string().into();
    object["metadata"]["finalizers"] = json!(["x.y/z"]);
    fixture.storage.meddle(Before::Put(key, object)).await;
}

const USER: &str = "system:serviceaccount:default:robot";

/// A finalizer, or a pod that takes its time, once kept tokens good for ever.
#[tokio::test]
async fn what_was_deleted_a_minute_ago_counts_no_longer() {
    let fixture = fixture().await;
    let account = fixture.create("serviceaccounts", named("robot")).await;
    let (pod, secret) = (
        fixture.create("pods", pod("p")).await,
        fixture.create("secrets", named("s")).await,
    );
    let node = fixture.create("nodes", named("n")).await;
    let of_pod = Kubernetes {
        pod: Some(reference(&pod)),
        ..token(&account)
    };
    let of_secret = Kubernetes {
        secret: Some(reference(&secret)),
        ..token(&account)
    };
    let of_node = Kubernetes {
        node: Some(reference(&node)),
        ..token(&account)
    };
    for (key, says) in [
        ("/pods/default/p", of_pod),
        ("/secrets/default/s", of_secret),
        ("/minions/n", of_node),
    ] {
        assert_eq!(told(&fixture, says.clone()).await, USER, "{key}");
        // The time that a pod was given to end is still to come.
        for (seconds, expect) in [(-30, USER), (50, USER), (70, INVALIDATED)] {
            mark(&fixture, key, seconds).await;
            settled(&fixture).await;
            assert_eq!(
                told(&fixture, says.clone()).await,
                expect,
                "{key} {seconds}"
            );
        }
    }
    mark(&fixture, "/serviceaccounts/default/robot", 50).await;
    settled(&fixture).await;
    assert_eq!(told(&fixture, token(&account)).await, USER);
    mark(&fixture, "/serviceaccounts/default/robot", 70).await;
    settled(&fixture).await;
    let expect = "service account default/robot has been deleted";
    assert_eq!(told(&fixture, token(&account)).await, expect);
}

/// A list waits for the cache, whose word counts as long as it is good.
async fn settled(fixture: &Fixture) {
    for plural in ["pods", "secrets", "nodes", "serviceaccounts"] {
        let resource = fixture.resource(plural);
        let all = crate::api::ListOptions::default();
        fixture.registry.list(&resource, None, &all).await.unwrap();
    }
}

#[tokio::test]
async fn another_of_the_same_name_is_not_meant() {
    let fixture = fixture().await;
    let account = fixture.create("serviceaccounts", named("robot")).await;
    let pod = fixture.create("pods", pod("p")).await;
    let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap().to_owned();
    let other = |name: &str| Reference {
        name: name.to_owned(),
        uid: "other".to_owned(),
    };
    let says = Kubernetes {
        pod: Some(other("p")),
        ..token(&account)
    };
    let expect = format!(
        "pod UID ({}) does not match service account pod ref claim (other)",
        uid(&pod)
    );
    assert_eq!(told(&fixture, says).await, expect);
    let says = Kubernetes {
        pod: Some(other("gone")),
        ..token(&account)
    };
    assert_eq!(told(&fixture, says).await, INVALIDATED);
    let says = Kubernetes {
        serviceaccount: other("robot"),
        ..token(&account)
    };
    let expect = format!(
        "service account UID ({}) does not match claim (other)",
        uid(&account)
    );
    assert_eq!(told(&fixture, says).await, expect);
}
