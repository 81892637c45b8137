//! The TTL-after-finished controller: deletes a finished job and its dependents when its
//! `ttlSecondsAfterFinished` has expired.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use memchr::memmem;
use serde_json::Value;

use crate::follower::{Follower, FollowerEvent};
use crate::framework::{self, Controller};
use crate::queue::{Next, Pauses, WorkQueue};
use watchet_api::{DeleteOptions, GetOptions, Object, ObjectKey, Preconditions, PropagationPolicy};
use watchet_metrics::Metrics;
use watchet_registry::{ApiError, Registry, Resource, Target};

const NAME: &str = "ttl-after-finished-controller";

const PAUSES: Pauses = Pauses {
    first: Duration::from_millis(50),
    max: Duration::from_secs(10),
};

/// Deletes jobs whose TTL has expired.
#[derive(Debug)]
pub(super) struct FinishedJobs {
    registry: Arc<Registry>,
    queue: WorkQueue<ObjectKey>,
}

impl FinishedJobs {
    pub(super) fn new(registry: Arc<Registry>, metrics: &Metrics) -> Self {
        Self {
            registry,
            queue: WorkQueue::new(PAUSES, metrics.work_queue(NAME)),
        }
    }

    fn resource(&self) -> Arc<Resource> {
        let resource = self.registry.resource("batch", "v1", "jobs");
        resource.expect("the table of built-ins has it")
    }
}

impl Controller for FinishedJobs {
    type Key = ObjectKey;
    const NAME: &'static str = NAME;
    const WORKERS: usize = 5;

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    async fn follow(&self) {
        let mut jobs = Follower::new(self.registry.clone(), self.resource());
        loop {
            for event in jobs.next().await {
                if let FollowerEvent::Object(job) = event
                    && memmem::find(job.body_slice(), b"\"ttlSecondsAfterFinished\"").is_some()
                    && expiry(&parse(&job)).is_some()
                {
                    self.queue.add(job.key().clone());
                }
            }
        }
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Next, ApiError> {
        let target = Target {
            resource: self.resource(),
            namespace: Some(key.namespace().to_owned()),
            name: key.name().to_owned(),
            subresource: None,
        };
        let job = match self.registry.get(&target, GetOptions::default()).await {
            Ok(job) => parse(&job),
            Err(error) if error.is_not_found() => return Ok(Next::Done),
            Err(error) => return Err(error),
        };
        let Some(expiry) = expiry(&job) else {
            return Ok(Next::Done);
        };
        let left = expiry.duration_since(Timestamp::now());
        if left.is_positive() {
            // A change of the job adds it again before that.
            return Ok(Next::After(left.unsigned_abs()));
        }
        let options = DeleteOptions {
            propagation_policy: Some(PropagationPolicy::Foreground),
            preconditions: Some(Preconditions {
                uid: job["metadata"]["uid"].as_str().map(str::to_owned),
                resource_version: None,
            }),
            user: framework::user("ttl-after-finished-controller"),
            ..DeleteOptions::default()
        };
        match self.registry.delete(&target, &options).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(Next::Done),
        }
    }
}

/// Returns when the TTL of a job expires; `None` if it is not finished, is being deleted, or has no
/// TTL.
fn expiry(job: &Value) -> Option<Timestamp> {
    if job["metadata"]["deletionTimestamp"].is_string() {
        return None;
    }
    let seconds = job["spec"]["ttlSecondsAfterFinished"].as_i64()?;
    let mut conditions = job["status"]["conditions"].as_array()?.iter();
    let finished = conditions.find(|condition| {
        let kind = condition["type"].as_str();
        matches!(kind, Some("Complete" | "Failed")) && condition["status"] == "True"
    })?;
    let at: Timestamp = finished["lastTransitionTime"].as_str()?.parse().ok()?;
    at.checked_add(SignedDuration::from_secs(seconds)).ok()
}

fn parse(object: &Object) -> Value {
    serde_json::from_slice(object.body_slice()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_expires_after_its_ttl() {
        let job = |ttl: Value, kind: &str, status: &str| {
            let condition = json!({
                "type": kind, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            let spec = json!({"ttlSecondsAfterFinished": ttl});
            json!({"metadata": {}, "spec": spec, "status": {"conditions": [condition]}})
        };
        let at = |text: &str| Some(text.parse().unwrap());
        let expected = at("2026-01-01T00:01:30Z");
        assert_eq!(expiry(&job(json!(90), "Complete", "True")), expected);
        assert_eq!(expiry(&job(json!(90), "Failed", "True")), expected);
        let start = at("2026-01-01T00:00:00Z");
        assert_eq!(expiry(&job(json!(0), "Complete", "True")), start);
        assert_eq!(expiry(&job(json!(90), "Complete", "False")), None);
        assert_eq!(expiry(&job(json!(90), "Suspended", "True")), None);
        assert_eq!(expiry(&job(Value::Null, "Complete", "True")), None);
        assert_eq!(expiry(&job(json!(i64::MAX), "Complete", "True")), None);
        let mut deleted = job(json!(90), "Complete", "True");
        deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert_eq!(expiry(&deleted), None);
    }
}
