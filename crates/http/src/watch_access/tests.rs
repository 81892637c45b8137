//! Tests of the monitor: access that ends while watches are open.

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use watchet_api::UserInfo;
use watchet_auth::{Decision, TokenAuthenticator, TokenDigest, TokenFile, TokenIssuer};

use super::*;

/// Allows every request, except those of the users in `denied`.
#[derive(Debug, Default)]
struct Switch {
    denied: Mutex<Vec<&'static str>>,
    subscribers: Mutex<Vec<Arc<Notify>>>,
    was_called: AtomicBool,
}

impl Switch {
    fn deny(&self, user: &'static str) {
        self.denied.lock().push(user);
        for changed in &*self.subscribers.lock() {
            changed.notify_one();
        }
    }
}

#[async_trait]
impl Authorizer for Switch {
    async fn authorize(&self, attributes: &Attributes) -> Decision {
        self.was_called.store(true, Ordering::SeqCst);
        match self.denied.lock().contains(&&*attributes.user.name) {
            true => Decision::NoOpinion("no role".into()),
            false => Decision::Allow("".into()),
        }
    }

    fn notify_changes(&self, changed: &Arc<Notify>) {
        self.subscribers.lock().push(Arc::clone(changed));
    }
}

struct Fixture {
    authorizer: Arc<Switch>,
    monitor: Arc<WatchAccessMonitor>,
    tasks: Tasks,
}

fn fixture() -> Fixture {
    let authorizer = Arc::new(Switch::default());
    let tasks = Tasks::new();
    let monitor = WatchAccessMonitor::new(authorizer.clone(), tasks.clone());
    Fixture {
        authorizer,
        monitor: Arc::new(monitor),
        tasks,
    }
}

fn watch_pods(user: &str) -> Attributes {
    let user = UserInfo::authenticated(user.to_owned(), String::new(), Vec::new());
    Attributes {
        user: Arc::new(user),
        verb: "watch".to_owned(),
        is_resource_request: true,
        resource: "pods".to_owned(),
        ..Attributes::default()
    }
}

fn of_user(user: &str) -> Requirements {
    Requirements {
        credential: None,
        impersonation: Vec::new(),
        request: watch_pods(user),
    }
}

#[tokio::test(start_paused = true)]
async fn all_watches_of_a_user_end_when_its_permission_ends() {
    let Fixture {
        authorizer,
        monitor,
        tasks,
    } = fixture();
    let first = monitor.open(of_user("ann")).await.unwrap();
    let second = monitor.open(of_user("ann")).await.unwrap();
    let other = monitor.open(of_user("bob")).await.unwrap();
    assert!(Arc::ptr_eq(&first.grant, &second.grant));
    authorizer.deny("ann");
    first.ended().cancelled().await;
    assert!(second.ended().is_cancelled());
    let denial = first.denial().unwrap();
    assert_eq!(denial.code, 403);
    assert_eq!(
        denial.message,
        r#"pods is forbidden: User "ann" cannot watch resource "pods" in API group "" at the cluster scope: no role"#
    );
    assert!(!other.ended().is_cancelled() && other.denial().is_none());
    let denied = monitor.open(of_user("ann")).await.unwrap_err();
    assert_eq!(denied.status().code, 403);
    tasks.drain(Duration::from_secs(1)).await.unwrap();
    assert!(other.ended().is_cancelled() && other.denial().is_none());
}

/// Without the check in `open`, the change would not be noticed: it precedes the watch.
#[tokio::test(start_paused = true)]
async fn permission_that_ended_before_the_watch_opened_is_noticed() {
    let Fixture {
        authorizer,
        monitor,
        ..
    } = fixture();
    authorizer.denied.lock().push("ann");
    let denied = monitor.open(of_user("ann")).await.unwrap_err();
    assert_eq!(denied.status().code, 403);
}

#[tokio::test(start_paused = true)]
async fn watch_ends_when_the_permission_to_impersonate_ends() {
    let Fixture {
        authorizer,
        monitor,
        ..
    } = fixture();
    let requirements = Requirements {
        impersonation: vec![Attributes {
            verb: "impersonate".to_owned(),
            resource: "users".to_owned(),
            name: "ann".to_owned(),
            ..watch_pods("admin")
        }],
        ..of_user("ann")
    };
    let access = monitor.open(requirements).await.unwrap();
    authorizer.deny("admin");
    access.ended().cancelled().await;
    let message = &access.denial().unwrap().message;
    assert!(
        message.contains(r#""admin" cannot impersonate"#),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn watch_ends_when_its_token_is_revoked() {
    let Fixture {
        authorizer,
        monitor,
        ..
    } = fixture();
    let file = |text| TokenFile::parse(text).unwrap();
    let tokens = TokenAuthenticator::new(Some(file("t,ann,u")), TokenIssuer::ephemeral());
    let tokens = Arc::new(tokens);
    let requirements = Requirements {
        credential: Some(Credential::StaticToken {
            digest: TokenDigest::new("t"),
            tokens: tokens.clone(),
        }),
        ..of_user("ann")
    };
    let access = monitor.open(requirements).await.unwrap();
    authorizer.was_called.store(false, Ordering::SeqCst);
    tokio::time::sleep(CREDENTIAL_CHECK_INTERVAL * 2).await;
    assert!(access.denial().is_none());
    tokens.replace_token_file(file(""));
    let revoked = Instant::now();
    access.ended().cancelled().await;
    assert!(revoked.elapsed() <= Duration::from_secs(1), "virtual time");
    assert_eq!(access.denial().unwrap().code, 401);
    let was_called = authorizer.was_called.load(Ordering::SeqCst);
    assert!(!was_called, "a token does not change decisions");
}

#[tokio::test(start_paused = true)]
async fn grants_are_dropped_with_their_last_watch() {
    let Fixture {
        authorizer,
        monitor,
        ..
    } = fixture();
    let first = monitor.open(of_user("ann")).await.unwrap();
    let second = monitor.open(of_user("ann")).await.unwrap();
    drop(first);
    assert_eq!(monitor.grants.lock().len(), 1);
    drop(second);
    assert_eq!(monitor.grants.lock().len(), 0);
    // Dropping a watch of an ended grant does not remove the grant that replaced it.
    let ended = monitor.open(of_user("ann")).await.unwrap();
    authorizer.deny("ann");
    ended.ended().cancelled().await;
    authorizer.denied.lock().clear();
    let successor = monitor.open(of_user("ann")).await.unwrap();
    drop(ended);
    assert_eq!(monitor.grants.lock().len(), 1);
    drop(successor);
    assert_eq!(monitor.grants.lock().len(), 0);
}
