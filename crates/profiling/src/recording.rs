//! `Recording`: a profile that is being recorded. A process records one profile at a time, because it has only one timer of CPU time
//! and one sampling of allocations.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use watchet_tasks::Tasks;

use crate::error::ProfileError;

/// The kind of the profile that is being recorded.
static IN_PROGRESS: Mutex<Option<&'static str>> = Mutex::new(None);

/// The permission to record a profile, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit(());

impl Permit {
    /// Returns the permission to record a `profile`.
    ///
    /// # Errors
    /// [`ProfileError::InProgress`] if a profile is being recorded.
    pub(crate) fn acquire(profile: &'static str) -> Result<Self, ProfileError> {
        let mut in_progress = IN_PROGRESS.lock();
        match *in_progress {
            Some(other) => Err(ProfileError::InProgress(other)),
            None => {
                *in_progress = Some(profile);
                Ok(Self(()))
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *IN_PROGRESS.lock() = None;
    }
}

/// A profile that is being recorded. The functions block, so [`record`] runs them on threads for blocking work.
pub(crate) trait Recording: Sized + Send + 'static {
    /// `CPU` or `heap`.
    const PROFILE: &'static str;

    /// Starts the recording.
    fn start() -> Result<Self, ProfileError>;

    /// Stops the recording. Returns the encoded profile.
    fn finish(self) -> Result<Vec<u8>, ProfileError>;

    /// Stops the recording and discards its samples.
    fn abandon(self);
}

/// Records for `duration`, or until the tasks are cancelled. If the returned future is dropped, the recording stops.
///
/// # Errors
/// Another profile is being recorded, or the recording failed.
pub(crate) async fn record<R: Recording>(
    tasks: &Tasks,
    duration: Duration,
) -> Result<Vec<u8>, ProfileError> {
    let permit = Permit::acquire(R::PROFILE)?;
    let (group, stopped) = (tasks.clone(), tasks.token());
    let abandoned = CancellationToken::new();
    let _guard = abandoned.clone().drop_guard();
    let recorded = tasks.spawn("profile", async move {
        let started = group.spawn_blocking("profile-start", R::start);
        let recording = started.await.map_err(failed::<R>)??;
        tokio::select! {
            // The order does not matter: each ends the recording.
            biased;
            () = sleep(duration) => {}
            () = stopped.cancelled() => {}
            () = abandoned.cancelled() => {}
        }
        let finish = move || {
            // Dropped at the end of this closure, so that no other recording starts before this one has stopped.
            let _permit = permit;
            match abandoned.is_cancelled() {
                true => {
                    recording.abandon();
                    Ok(Vec::new())
                }
                false => recording.finish(),
            }
        };
        let finished = group.spawn_blocking("profile-finish", finish);
        finished.await.map_err(failed::<R>)?
    });
    recorded.await.map_err(failed::<R>)?
}

fn failed<R: Recording>(error: impl std::fmt::Display) -> ProfileError {
    ProfileError::Failed {
        profile: R::PROFILE,
        detail: error.to_string(),
    }
}
