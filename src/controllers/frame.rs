//! What every controller has in common: keys come into its queue, a few at a time are looked at, what
//! failed comes again later, and all of it ends when the server does. What a look finds and does is the
//! controller's.

use std::fmt::Debug;
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::queue::{Next, WorkQueue};
use crate::api::{Object, UserInfo, WriteOptions};
use crate::registry::{ApiError, Patch, Registry, Target};

/// A control loop: it brings the world that it watches to where it should be, one key after the other,
/// by what the world is at that moment and not by what it was told.
pub(super) trait Controller: Send + Sync + 'static {
    /// What it looks at.
    type Key: Clone + Eq + Hash + Debug + Send + Sync;

    /// Its name, as in `--controllers`.
    const NAME: &'static str;

    /// How many keys are looked at at once.
    const WORKERS: usize;

    /// Where its keys wait.
    fn queue(&self) -> &WorkQueue<Self::Key>;

    /// Fills the queue, for ever.
    fn follow(&self) -> impl Future<Output = ()> + Send;

    /// Looks at `key` and does the next thing about it. It may be dropped at every await and come again
    /// later, here or on another server.
    fn reconcile(&self, key: &Self::Key) -> impl Future<Output = Result<Next, ApiError>> + Send;
}

/// Runs a controller until the token is cancelled.
pub(super) async fn run<C: Controller>(controller: Arc<C>, stop: CancellationToken) {
    tracing::debug!(controller = C::NAME, "started");
    tokio::select! {
        // Stopping comes first: what is left is found again at the next start.
        biased;
        () = stop.cancelled() => {}
        () = controller.follow() => {}
        () = work(&*controller) => {}
    }
}

async fn work<C: Controller>(controller: &C) {
    let mut looks = FuturesUnordered::new();
    loop {
        // What has ended comes first: it makes room.
        tokio::select! {
            biased;
            Some(()) = looks.next() => {}
            key = controller.queue().get(), if looks.len() < C::WORKERS => {
                let key = key.expect("nobody shuts the queue down");
                looks.push(look(controller, key));
            }
        }
    }
}

async fn look<C: Controller>(controller: &C, key: C::Key) {
    // A panic about one key must not keep the others for ever.
    let looked = AssertUnwindSafe(controller.reconcile(&key)).catch_unwind();
    let next = match looked.await {
        Ok(Ok(next)) => next,
        // Somebody else was faster. That is how it should be, and the next look sees what they did.
        Ok(Err(error @ ApiError::Conflict { .. })) => {
            tracing::debug!(controller = C::NAME, ?key, %error, "trying again");
            Next::Again
        }
        Ok(Err(error)) => {
            tracing::warn!(controller = C::NAME, ?key, %error, "trying again");
            Next::Again
        }
        Err(_) => {
            tracing::error!(controller = C::NAME, ?key, "panicked, which is a bug");
            Next::Again
        }
    };
    next.settle(controller.queue(), key);
}

/// As whom a controller writes: upstream's service account of that name.
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

/// How a controller of this name writes.
pub(super) fn write_options(account: &str) -> WriteOptions {
    WriteOptions {
        user: user(account),
        field_manager: account.to_owned(),
        ..WriteOptions::default()
    }
}

/// Merges into the metadata of this very version of an object.
///
/// # Errors
/// 409 when it has changed since.
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
