//! `Recording`: a profile that is being recorded. There is one at a time in a process, because the timer of the CPU time and
//! the sampling of allocations belong to the process.

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

/// How to record a kind of profile. The functions block, so they run on threads for blocking work.
pub(crate) trait Recording: Sized + Send + 'static {
    /// `CPU` or `heap`.
    const PROFILE: &'static str;

    /// Starts to record.
    fn start() -> Result<Self, ProfileError>;

    /// Stops. Returns the encoded profile.
    fn finish(self) -> Result<Vec<u8>, ProfileError>;

    /// Stops without a profile.
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
    let (own, stopped) = (tasks.clone(), tasks.token());
    let abandoned = CancellationToken::new();
    let _guard = abandoned.clone().drop_guard();
    let recorded = tasks.spawn("profile", async move {
        let started = own.spawn_blocking("profile-start", R::start);
        let recording = started.await.map_err(failed::<R>)??;
        tokio::select! {
            // The order does not matter: each ends the recording.
            biased;
            () = sleep(duration) => {}
            () = stopped.cancelled() => {}
            () = abandoned.cancelled() => {}
        }
        let finish = move || {
            // Released at the end, so that no other recording starts before this one has stopped.
            let _permit = permit;
            match abandoned.is_cancelled() {
                true => {
                    recording.abandon();
                    Ok(Vec::new())
                }
                false => recording.finish(),
            }
        };
        let finished = own.spawn_blocking("profile-finish", finish);
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
