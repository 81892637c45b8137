//! Ends an open watch when its client loses access: a role or binding that allowed it is removed, or the certificate or
//! token of the client expires or is revoked. kube-apiserver checks access only when a watch starts.
//!
//! Watches with the same requirements share a [`WatchGrant`], so that a change of the roles costs one decision per client
//! and resource, however many watches are open.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::error::HttpError;
use watchet_api::Status;
use watchet_auth::{Attributes, Authorizer, Credential};
use watchet_tasks::Tasks;

/// The interval at which the credentials of open watches are checked.
const CREDENTIAL_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The pause after a round of checks, as a multiple of the duration of the round: checks use a tenth of a core, and
/// more where [`PAUSE_MAX`] limits the pause.
const PAUSE_FACTOR: u32 = 9;
/// The maximum of that pause, so that a watch ends about a second after the change at the latest.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// The number of checks after which a round yields to other tasks.
const CHECKS_PER_YIELD: usize = 64;
/// The maximum number of concurrent checks, which may wait for webhooks.
const CONCURRENT_CHECKS: usize = 32;

/// The conditions under which a watch may stay open.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Requirements {
    /// The credential that must be valid; `None` for anonymous users and on the insecure port.
    pub(crate) credential: Option<Credential>,
    /// The permissions to impersonate the user of the request; empty without impersonation.
    pub(crate) impersonation: Vec<Attributes>,
    /// The attributes of the request, which must be allowed.
    pub(crate) request: Attributes,
}

impl Requirements {
    /// Checks the credential and the permissions. A permission on which the authorizer cannot decide, because a webhook
    /// fails, counts as allowed.
    ///
    /// # Errors
    /// The status for the client, 401 or 403.
    async fn check(&self, authorizer: &dyn Authorizer) -> Result<(), Box<Status>> {
        self.check_credential().await?;
        for attributes in self.impersonation.iter().chain([&self.request]) {
            let decision = authorizer.authorize(attributes).await;
            if !decision.is_allowed() && decision.error().is_none() {
                return Err(Box::new(attributes.forbidden(decision.reason())));
            }
        }
        Ok(())
    }

    async fn check_credential(&self) -> Result<(), Box<Status>> {
        let Some(credential) = &self.credential else {
            return Ok(());
        };
        let checked = credential.check(jiff::Timestamp::now().as_second()).await;
        checked.map_err(|unauthorized| {
            tracing::info!(
                user = self.request.user.name,
                reason = unauthorized.reason(),
                "credential of open watches is no longer valid"
            );
            Box::new(unauthorized.status())
        })
    }
}

/// The access of all open watches with the same requirements.
#[derive(Debug)]
struct WatchGrant {
    requirements: Arc<Requirements>,
    /// The status for the client, set before `ended` is cancelled.
    denial: OnceLock<Box<Status>>,
    ended: CancellationToken,
}

impl WatchGrant {
    fn end(&self, status: Box<Status>) {
        let request = &self.requirements.request;
        tracing::info!(
            user = request.user.name,
            group = request.api_group,
            resource = request.resource,
            namespace = request.namespace,
            code = status.code,
            "watches end: their client has lost access"
        );
        // Set only once: the monitor has removed the grant.
        self.denial.get_or_init(|| status);
        self.ended.cancel();
    }
}

/// The access of one open watch.
#[derive(Debug)]
pub(crate) struct WatchAccess {
    grant: Arc<WatchGrant>,
    monitor: Arc<WatchAccessMonitor>,
}

impl WatchAccess {
    /// Returns a token that is cancelled when the access ends, and when the server stops.
    pub(crate) fn ended(&self) -> &CancellationToken {
        &self.grant.ended
    }

    /// Returns the status of the ended access, 401 or 403; `None` while the client has access.
    pub(crate) fn denial(&self) -> Option<&Status> {
        self.grant.denial.get().map(|status| &**status)
    }
}

impl Drop for WatchAccess {
    fn drop(&mut self) {
        self.monitor.leave(&self.grant);
    }
}

/// The grants and the requirements that a round checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckScope {
    /// All requirements of all grants.
    All,
    /// The credentials of the grants that have one.
    Credentials,
}

/// A grant and the number of watches that share it.
#[derive(Debug)]
struct SharedGrant {
    grant: Arc<WatchGrant>,
    watches: usize,
}

/// The grants of all open watches, and the task that checks them.
#[derive(Debug)]
pub(crate) struct WatchAccessMonitor {
    authorizer: Arc<dyn Authorizer>,
    /// The task group of the watches.
    tasks: Tasks,
    grants: Mutex<HashMap<Arc<Requirements>, SharedGrant>>,
    /// Notified when decisions may have changed; set when the task is started.
    changed: OnceLock<Arc<Notify>>,
}

impl WatchAccessMonitor {
    /// Creates a monitor that calls `authorizer`; its task will run in `tasks`.
    pub(crate) fn new(authorizer: Arc<dyn Authorizer>, tasks: Tasks) -> Self {
        Self {
            authorizer,
            tasks,
            grants: Mutex::default(),
            changed: OnceLock::new(),
        }
    }

    /// Returns the access of a watch whose request was authorized.
    ///
    /// # Errors
    /// 401 or 403: the client has lost access since the authorization.
    pub(crate) async fn open(
        self: &Arc<Self>,
        requirements: Requirements,
    ) -> Result<WatchAccess, HttpError> {
        self.start();
        let (access, is_new) = self.join(requirements);
        // Access may have changed after the authorization and before the monitor had the watch.
        if is_new {
            self.check(&access.grant, CheckScope::All).await;
        }
        match access.denial() {
            Some(denial) => Err(HttpError::Denied(Box::new(denial.clone()))),
            None => Ok(access),
        }
    }

    /// Starts the task with the first watch.
    fn start(self: &Arc<Self>) {
        self.changed.get_or_init(|| {
            let changed = Arc::new(Notify::new());
            self.authorizer.notify_changes(&changed);
            let monitor = Arc::clone(self);
            let run = monitor.run(Arc::clone(&changed));
            let stop = self.tasks.token();
            self.tasks.spawn("watch-access", async move {
                stop.run_until_cancelled(run).await;
            });
            changed
        });
    }

    /// Returns the access of a watch, and true if it is the first with these requirements.
    fn join(self: &Arc<Self>, requirements: Requirements) -> (WatchAccess, bool) {
        let mut grants = self.grants.lock();
        let (grant, is_new) = match grants.entry(Arc::new(requirements)) {
            Entry::Occupied(mut occupied) => {
                let shared = occupied.get_mut();
                shared.watches += 1;
                (Arc::clone(&shared.grant), false)
            }
            Entry::Vacant(vacant) => {
                let grant = Arc::new(WatchGrant {
                    requirements: Arc::clone(vacant.key()),
                    denial: OnceLock::new(),
                    ended: self.tasks.token().child_token(),
                });
                vacant.insert(SharedGrant {
                    grant: Arc::clone(&grant),
                    watches: 1,
                });
                (grant, true)
            }
        };
        let monitor = Arc::clone(self);
        (WatchAccess { grant, monitor }, is_new)
    }

    /// Removes a watch of `grant`.
    fn leave(&self, grant: &Arc<WatchGrant>) {
        let mut grants = self.grants.lock();
        // A new grant may have replaced this one after it had ended.
        if let Some(shared) = grants.get_mut(&grant.requirements)
            && Arc::ptr_eq(&shared.grant, grant)
        {
            shared.watches -= 1;
            if shared.watches == 0 {
                grants.remove(&grant.requirements);
            }
        }
    }

    async fn run(self: Arc<Self>, changed: Arc<Notify>) {
        // Separate loops: an authorizer may wait for a webhook, which must not delay checks of credentials.
        tokio::join!(self.check_changes(&changed), self.check_credentials());
    }

    async fn check_changes(&self, changed: &Notify) {
        loop {
            changed.notified().await;
            self.check_all(CheckScope::All).await;
        }
    }

    async fn check_credentials(&self) {
        let mut ticks = tokio::time::interval(CREDENTIAL_CHECK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.check_all(CheckScope::Credentials).await;
        }
    }

    /// Checks the grants, and then pauses.
    async fn check_all(&self, checks: CheckScope) {
        let started = Instant::now();
        let grants: Vec<Arc<WatchGrant>> = {
            let grants = self.grants.lock();
            let grants = grants.values().map(|shared| &shared.grant);
            let has_check = |grant: &&Arc<WatchGrant>| {
                checks == CheckScope::All || grant.requirements.credential.is_some()
            };
            grants.filter(has_check).cloned().collect()
        };
        let all = stream::iter(grants.iter().enumerate());
        all.for_each_concurrent(CONCURRENT_CHECKS, async |(index, grant)| {
            if index % CHECKS_PER_YIELD == CHECKS_PER_YIELD - 1 {
                tokio::task::yield_now().await;
            }
            self.check(grant, checks).await;
        })
        .await;
        tokio::time::sleep((started.elapsed() * PAUSE_FACTOR).min(PAUSE_MAX)).await;
    }

    /// Ends `grant` if a requirement no longer holds.
    async fn check(&self, grant: &Arc<WatchGrant>, checks: CheckScope) {
        let requirements = &grant.requirements;
        let checked = match checks {
            CheckScope::All => requirements.check(&*self.authorizer).await,
            CheckScope::Credentials => requirements.check_credential().await,
        };
        if let Err(status) = checked {
            // A watch that starts now must not share the ended grant.
            self.remove(grant);
            grant.end(status);
        }
    }

    fn remove(&self, grant: &Arc<WatchGrant>) {
        let mut grants = self.grants.lock();
        if let Some(shared) = grants.get(&grant.requirements)
            && Arc::ptr_eq(&shared.grant, grant)
        {
            grants.remove(&grant.requirements);
        }
    }
}

#[cfg(test)]
mod tests;
