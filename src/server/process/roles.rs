//! Starts authorization by roles: creates the default roles, and passes the stored ones to the authorizer.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::auth::rbac::RbacAuthorizer;
use crate::controllers::{self, RoleVersions};
use crate::http::HealthCheck;
use crate::registry::Registry;
use crate::tasks::Tasks;

/// The pause before the creation of the default roles is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Starts the tasks in `tasks`. The default roles are created once the system namespaces exist. The receiver becomes
/// true once they are stored and the authorizer has received them; until then the authorizer applies the built-in ones.
pub(super) fn start(
    registry: &Arc<Registry>,
    authorizer: Arc<RbacAuthorizer>,
    bootstrapped: watch::Receiver<bool>,
    tasks: &Tasks,
) -> watch::Receiver<bool> {
    let (versions_sender, mut received) = watch::channel(RoleVersions::default());
    let feeding = Arc::clone(registry);
    let fed = Arc::clone(&authorizer);
    let stop = tasks.token();
    tasks.spawn("rbac-roles", async move {
        let feed = controllers::feed_authorizer(&feeding, &fed, &versions_sender);
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
            let versions = loop {
                match controllers::create_default_policy(&registry).await {
                    Ok(versions) => break versions,
                    Err(error) => {
                        tracing::warn!(%error, "cannot create the default roles, retrying");
                        tokio::time::sleep(RETRY_PAUSE).await;
                    }
                }
            };
            let received = received.wait_for(|received| received.has_reached(&versions));
            // An error means that the server stops.
            if received.await.is_ok() {
                authorizer.omit_defaults();
                stored.send_replace(true);
            }
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
                false => {
                    Err("the authorizer has not received the stored default roles yet".to_owned())
                }
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

#[cfg(test)]
mod tests {
    use tokio::time::timeout;
    use watchet_test_registry::TestRegistry;

    use super::*;
    use crate::api::UserInfo;
    use crate::auth::{Attributes, Authorizer as _};
    use crate::builtin::new_registry;
    use crate::metrics::Metrics;
    use crate::registry::CacherConfig;

    /// A new server denied discovery, and `/livez` to anonymous users, between the creation of the default roles and the
    /// arrival of their events.
    #[tokio::test]
    async fn default_roles_apply_until_the_stored_ones_are_received() {
        let config = CacherConfig {
            // While the events are delayed, storage answers the reads.
            freshness_timeout: Duration::from_millis(10),
            ..CacherConfig::default()
        };
        let build = |storage, tasks: &Tasks| new_registry(storage, tasks, config, Metrics::new());
        let server = TestRegistry::start(build).await;
        let authorizer = Arc::new(RbacAuthorizer::with_default_policy());
        let user = UserInfo::authenticated("jane".to_owned(), String::new(), Vec::new());
        let discovery = Attributes {
            user: Arc::new(user),
            verb: "get".to_owned(),
            path: "/api".to_owned(),
            ..Attributes::default()
        };
        let is_allowed = async || authorizer.authorize(&discovery).await.is_allowed();
        server.storage.freeze_below("/clusterrolebindings");
        let (_bootstrap, bootstrapped) = watch::channel(true);
        let authorizer_of_server = Arc::clone(&authorizer);
        let stored = start(
            &server.registry,
            authorizer_of_server,
            bootstrapped,
            &server.tasks,
        );
        // The aggregated roles are created last.
        for name in ["admin", "edit", "view"] {
            while server
                .stored(&format!("/clusterroles/{name}"))
                .await
                .is_none()
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        let early = timeout(Duration::from_secs(1), until_true(stored.clone())).await;
        assert!(early.is_err());
        assert!(is_allowed().await);
        server.storage.freeze(false);
        let received = timeout(Duration::from_secs(30), until_true(stored)).await;
        received.expect("the events arrive");
        assert!(is_allowed().await);
    }
}
