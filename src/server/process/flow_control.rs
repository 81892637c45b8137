//! Starts API Priority and Fairness: creates and maintains the default objects, and passes the stored ones to the flow
//! control.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::controllers;
use crate::flowcontrol::FlowControl;
use crate::http::HealthCheck;
use crate::registry::Registry;
use crate::server::process::roles::until_true;
use crate::tasks::Tasks;

/// The pause before the creation of the default objects is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Starts the tasks in `tasks`. The default objects are created once the system namespaces exist. The receiver becomes
/// true once they are stored and the flow control has them.
pub(super) fn start(
    registry: &Arc<Registry>,
    control: &Arc<FlowControl>,
    bootstrapped: watch::Receiver<bool>,
    tasks: &Tasks,
) -> watch::Receiver<bool> {
    let (stored, has_defaults) = watch::channel(false);
    let producing = Arc::clone(registry);
    let stop = tasks.token();
    tasks.spawn("flow-control-defaults", async move {
        let produce = async {
            until_true(bootstrapped).await;
            while let Err(error) = controllers::ensure_default_flow_objects(&producing).await {
                tracing::warn!(%error, "cannot create the default objects of flow control, retrying");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            stored.send_replace(true);
            controllers::maintain_default_flow_objects(&producing).await;
        };
        let _stopped: Option<()> = stop.run_until_cancelled(produce).await;
    });
    let (configured, is_configured) = watch::channel(false);
    let (registry, control) = (Arc::clone(registry), Arc::clone(control));
    let stop = tasks.token();
    tasks.spawn("flow-control-configuration", async move {
        let feed = async {
            // Until then it has the mandatory objects.
            until_true(has_defaults).await;
            controllers::feed_flow_control(&registry, &control, || {
                configured.send_replace(true);
            })
            .await;
        };
        let _stopped: Option<()> = stop.run_until_cancelled(feed).await;
    });
    is_configured
}

/// Returns the readiness check of [`start`]'s result, with upstream's name.
pub(super) fn check(is_configured: watch::Receiver<bool>) -> HealthCheck {
    let name = "poststarthook/priority-and-fairness-config-producer";
    HealthCheck::new(name, move || {
        let is_configured = *is_configured.borrow();
        async move {
            match is_configured {
                true => Ok(()),
                false => Err("the default objects of flow control do not exist yet".to_owned()),
            }
        }
    })
}
