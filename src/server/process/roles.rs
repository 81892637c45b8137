//! Starts authorization by roles: creates the default roles, and passes the stored ones to the authorizer.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::auth::rbac::RbacAuthorizer;
use crate::controllers;
use crate::http::HealthCheck;
use crate::registry::Registry;
use crate::tasks::Tasks;

/// The pause before the creation of the default roles is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Starts the tasks in `tasks`. The default roles are created once the system namespaces exist. The receiver becomes
/// true once they are stored and the authorizer has all stored roles; it has the default ones from the beginning.
pub(super) fn start(
    registry: &Arc<Registry>,
    authorizer: Arc<RbacAuthorizer>,
    bootstrapped: watch::Receiver<bool>,
    tasks: &Tasks,
) -> watch::Receiver<bool> {
    let (complete, has_roles) = watch::channel(false);
    let feeding = Arc::clone(registry);
    let fed = Arc::clone(&authorizer);
    let stop = tasks.token();
    tasks.spawn("rbac-roles", async move {
        let feed = controllers::feed_authorizer(&feeding, &fed, || {
            complete.send_replace(true);
        });
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = feed => {}
        }
    });
    let (stored, defaults_stored) = watch::channel(false);
    let registry = Arc::clone(registry);
    let stop = tasks.token();
    tasks.spawn("rbac-default-policy", async move {
        let create = async {
            until_true(bootstrapped).await;
            while let Err(error) = controllers::create_default_policy(&registry).await {
                tracing::warn!(%error, "cannot create the default roles, retrying");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            until_true(has_roles).await;
            authorizer.omit_defaults();
            stored.send_replace(true);
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = create => {}
        }
    });
    defaults_stored
}

/// Returns the readiness check of [`start`]'s result, with upstream's name.
pub(super) fn check(defaults_stored: watch::Receiver<bool>) -> HealthCheck {
    HealthCheck::new("poststarthook/rbac/bootstrap-roles", move || {
        let is_stored = *defaults_stored.borrow();
        async move {
            match is_stored {
                true => Ok(()),
                false => Err("the default roles do not exist yet".to_owned()),
            }
        }
    })
}

/// Waits until the value is true; forever if its sender is dropped, as when the server stops.
pub(super) async fn until_true(mut receiver: watch::Receiver<bool>) {
    if receiver.wait_for(|value| *value).await.is_err() {
        std::future::pending::<()>().await;
    }
}
