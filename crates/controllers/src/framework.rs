//! The framework of controllers: a loop takes keys from the work queue, reconciles a few
//! concurrently, and retries failures with backoff.

use std::fmt::Debug;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};

use crate::queue::{Next, WorkQueue};
use watchet_api::{Object, UserInfo, WriteOptions};
use watchet_registry::{ApiError, Patch, Registry, Target};
use watchet_tasks::Tasks;

/// A control loop: reconciles one key at a time, level-triggered, i.e. from the current state and
/// not from events.
pub(super) trait Controller: Send + Sync + 'static {
    /// The keys in the work queue.
    type Key: Clone + Eq + Hash + Debug + Send + Sync;

    /// The name, as in `--controllers`.
    const NAME: &'static str;

    /// The maximum number of concurrent reconciles.
    const WORKERS: usize;

    /// Returns the work queue.
    fn queue(&self) -> &WorkQueue<Self::Key>;

    /// Watches resources and fills the queue; never returns.
    fn follow(&self) -> impl Future<Output = ()> + Send;

    /// Reconciles `key`. The future may be dropped at any await and run again later, here or in
    /// another server.
    fn reconcile(&self, key: &Self::Key) -> impl Future<Output = Result<Next, ApiError>> + Send;
}

/// Runs a controller until the group is cancelled.
pub(super) async fn run<C: Controller>(controller: Arc<C>, tasks: Tasks) {
    let stop = tasks.token();
    tracing::debug!(controller = C::NAME, "started");
    tokio::select! {
        // Stopping comes first: unfinished work is found again at the next start.
        biased;
        () = stop.cancelled() => {}
        () = controller.follow() => {}
        () = work(&*controller, &tasks) => {}
    }
}

async fn work<C: Controller>(controller: &C, tasks: &Tasks) {
    let mut running = FuturesUnordered::new();
    loop {
        // Completed reconciles come first, since they free a worker.
        tokio::select! {
            biased;
            Some(()) = running.next() => {}
            key = controller.queue().get(), if running.len() < C::WORKERS => {
                let key = key.expect("the queue is never shut down");
                running.push(reconcile_key(controller, key, tasks));
            }
        }
    }
}

async fn reconcile_key<C: Controller>(controller: &C, key: C::Key, tasks: &Tasks) {
    // A panic about one key must not stop the others.
    let result = AssertUnwindSafe(controller.reconcile(&key)).catch_unwind();
    let next = match result.await {
        Ok(Ok(next)) => next,
        // Another client wrote first, which is normal: the next reconcile sees its change.
        // The outage itself is logged once.
        Ok(Err(error)) if error.is_outage() || matches!(error, ApiError::Conflict { .. }) => {
            tracing::debug!(controller = C::NAME, ?key, %error, "reconcile failed, retrying");
            Next::Again
        }
        Ok(Err(error)) => {
            tracing::warn!(controller = C::NAME, ?key, %error, "reconcile failed, retrying");
            Next::Again
        }
        Err(panic) => {
            tasks.record_panic(C::NAME, &*panic);
            tracing::error!(
                controller = C::NAME,
                ?key,
                "reconcile panicked, which is a bug"
            );
            Next::Again
        }
    };
    next.apply(controller.queue(), key);
}

/// Returns the user of a controller: upstream's service account with this name.
pub(super) fn user(account: &str) -> Arc<UserInfo> {
    Arc::new(UserInfo::authenticated(
        format!("system:serviceaccount:kube-system:{account}"),
        String::new(),
        vec![
            "system:serviceaccounts".to_owned(),
            "system:serviceaccounts:kube-system".to_owned(),
        ],
    ))
}

/// Returns the options of a controller's writes.
pub(super) fn write_options(account: &str) -> WriteOptions {
    WriteOptions {
        user: user(account),
        field_manager: account.to_owned(),
        ..WriteOptions::default()
    }
}

/// Merges into the metadata of an object at exactly this version.
///
/// # Errors
/// 409 if the object has changed since.
pub(super) async fn patch_metadata(
    registry: &Registry,
    account: &str,
    target: &Target,
    object: &Object,
    mut metadata: Value,
) -> Result<Arc<Object>, ApiError> {
    metadata["uid"] = object.uid().into();
    metadata["resourceVersion"] = object.resource_version().to_string().into();
    let patch = Patch::Merge(json!({"metadata": metadata}));
    registry
        .patch(target, &patch, &write_options(account))
        .await
}
