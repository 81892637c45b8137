//! `ConfiguredAuthorizer`: consults the authorizers of a configuration in order; the configuration can be replaced.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Notify;
use watchet_api::{SYSTEM_MASTERS, UserInfo};
use watchet_auth::{Attributes, Authorizer, Decision, SubjectRules};
use watchet_metrics::AuthorizerMetrics;
use watchet_tasks::Tasks;

/// An authorizer of a configuration, with the metrics of its decisions.
#[derive(Debug, Clone)]
pub struct InstrumentedAuthorizer {
    /// The authorizer.
    pub authorizer: Arc<dyn Authorizer>,
    /// Counts its decisions.
    pub metrics: Arc<AuthorizerMetrics>,
    /// The interval at which open watches are authorized again, for a webhook. `None` for an authorizer in this
    /// process, which notifies subscribers of changes.
    pub recheck_interval: Option<Duration>,
}

/// Allows every request of the group `system:masters`; for other users consults authorizers in order until one allows
/// or denies the request. Without authorizers, no other request is allowed.
///
/// Watches are authorized again when the configuration is replaced, and regularly if it has a webhook.
pub struct ConfiguredAuthorizer {
    authorizers: ArcSwap<Vec<InstrumentedAuthorizer>>,
    /// Notified when decisions may have changed.
    subscribers: Mutex<Vec<Weak<Notify>>>,
    /// The authorizers in this process, which notify subscribers of changes. All configurations share them.
    local: Vec<Arc<dyn Authorizer>>,
    replaced: Notify,
}

impl fmt::Debug for ConfiguredAuthorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ConfiguredAuthorizer")
            .field(&self.authorizers)
            .finish()
    }
}

impl ConfiguredAuthorizer {
    /// Creates an authorizer. `local` are the authorizers in this process, which all configurations share. A task in
    /// `tasks` notifies subscribers regularly if the configuration has a webhook.
    pub fn start(
        authorizers: Vec<InstrumentedAuthorizer>,
        local: Vec<Arc<dyn Authorizer>>,
        tasks: &Tasks,
    ) -> Arc<Self> {
        let authorizer = Arc::new(Self {
            authorizers: ArcSwap::from_pointee(authorizers),
            subscribers: Mutex::default(),
            local,
            replaced: Notify::new(),
        });
        let (rechecking, stop) = (Arc::clone(&authorizer), tasks.token());
        tasks.spawn("authorization-recheck", async move {
            stop.run_until_cancelled(rechecking.notify_regularly())
                .await;
        });
        authorizer
    }

    /// Replaces the authorizers.
    pub fn replace(&self, authorizers: Vec<InstrumentedAuthorizer>) {
        self.authorizers.store(Arc::new(authorizers));
        self.replaced.notify_one();
        self.notify();
    }

    async fn notify_regularly(&self) {
        loop {
            let interval = {
                let authorizers = self.authorizers.load();
                authorizers
                    .iter()
                    .filter_map(|instrumented| instrumented.recheck_interval)
                    .min()
            };
            let passed = async {
                match interval {
                    Some(interval) => tokio::time::sleep(interval).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.replaced.notified() => {}
                () = passed => self.notify(),
            }
        }
    }

    fn notify(&self) {
        self.subscribers.lock().retain(|changed| {
            let changed = changed.upgrade();
            if let Some(changed) = &changed {
                changed.notify_one();
            }
            changed.is_some()
        });
    }
}

#[async_trait]
impl Authorizer for ConfiguredAuthorizer {
    async fn authorize(&self, attributes: &Attributes) -> Decision {
        if attributes
            .user
            .groups
            .iter()
            .any(|one| one == SYSTEM_MASTERS)
        {
            return Decision::Allow("".into());
        }
        let authorizers = self.authorizers.load_full();
        let mut reasons: Vec<Cow<'static, str>> = Vec::new();
        let mut errors: Vec<Cow<'static, str>> = Vec::new();
        for instrumented in authorizers.iter() {
            let decision = instrumented.authorizer.authorize(attributes).await;
            match decision {
                Decision::Allow(_) => instrumented.metrics.allowed.inc(),
                _ if decision.is_denied() => instrumented.metrics.denied.inc(),
                Decision::Failed { error, .. } => {
                    errors.push(error);
                    continue;
                }
                Decision::NoOpinion(reason) => {
                    if !reason.is_empty() {
                        reasons.push(reason);
                    }
                    continue;
                }
                Decision::Deny(_) => {}
            }
            return decision;
        }
        match errors.is_empty() {
            true => Decision::NoOpinion(reasons.join("\n").into()),
            false => Decision::Failed {
                is_denied: false,
                error: errors.join(", ").into(),
            },
        }
    }

    fn notify_changes(&self, changed: &Arc<Notify>) {
        self.subscribers.lock().push(Arc::downgrade(changed));
        for authorizer in &self.local {
            authorizer.notify_changes(changed);
        }
    }

    async fn rules(&self, user: &UserInfo, namespace: &str) -> SubjectRules {
        let mut all = SubjectRules::default();
        let mut errors = Vec::new();
        for instrumented in self.authorizers.load_full().iter() {
            let rules = instrumented.authorizer.rules(user, namespace).await;
            all.resource_rules.extend(rules.resource_rules);
            all.non_resource_rules.extend(rules.non_resource_rules);
            all.incomplete |= rules.incomplete;
            if !rules.evaluation_error.is_empty() {
                errors.push(rules.evaluation_error);
            }
        }
        all.evaluation_error = errors.join(", ");
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use watchet_auth::ResourceRule;

    #[derive(Debug)]
    struct Fixed(Decision);

    #[async_trait]
    impl Authorizer for Fixed {
        async fn authorize(&self, _: &Attributes) -> Decision {
            self.0.clone()
        }

        async fn rules(&self, _: &UserInfo, _: &str) -> SubjectRules {
            SubjectRules {
                resource_rules: vec![ResourceRule::default()],
                evaluation_error: self.0.reason().to_owned(),
                ..SubjectRules::default()
            }
        }
    }

    fn instrumented(decision: Decision) -> InstrumentedAuthorizer {
        InstrumentedAuthorizer {
            authorizer: Arc::new(Fixed(decision)),
            metrics: Arc::default(),
            recheck_interval: None,
        }
    }

    fn configured(decisions: &[Decision]) -> Arc<ConfiguredAuthorizer> {
        let authorizers = decisions.iter().cloned().map(instrumented);
        ConfiguredAuthorizer::start(authorizers.collect(), Vec::new(), &Tasks::new())
    }

    async fn decision(decisions: &[Decision]) -> Decision {
        let attributes = Attributes::default();
        configured(decisions).authorize(&attributes).await
    }

    fn none(reason: &'static str) -> Decision {
        Decision::NoOpinion(reason.into())
    }

    fn failed(is_denied: bool) -> Decision {
        let error = "no response".into();
        Decision::Failed { is_denied, error }
    }

    #[tokio::test]
    async fn the_first_opinion_counts() {
        let (allow, deny) = (Decision::Allow("a".into()), Decision::Deny("d".into()));
        let all = [none("n"), deny.clone(), allow.clone()];
        assert_eq!(decision(&all).await, deny);
        let all = [none("n"), allow.clone(), deny];
        assert_eq!(decision(&all).await, allow);
        let rules = configured(&all).rules(&UserInfo::default(), "").await;
        assert_eq!(rules.resource_rules.len(), 3);
        assert_eq!(rules.evaluation_error, "n, a, d");
        let all = [none("n"), none(""), none("m")];
        assert_eq!(decision(&all).await, none("n\nm"));
        assert_eq!(decision(&[]).await, none(""));
    }

    #[tokio::test]
    async fn a_failure_denies_or_is_reported_unless_another_authorizer_allows() {
        let allow = Decision::Allow("a".into());
        assert_eq!(decision(&[failed(false), allow.clone()]).await, allow);
        assert_eq!(decision(&[failed(true), allow]).await, failed(true));
        assert_eq!(decision(&[failed(false), none("n")]).await, failed(false));
    }

    #[tokio::test]
    async fn the_group_of_administrators_is_allowed_everything() {
        let groups = vec![SYSTEM_MASTERS.to_owned()];
        let user = UserInfo::authenticated("root".to_owned(), String::new(), groups);
        let attributes = Attributes {
            user: Arc::new(user),
            ..Attributes::default()
        };
        let denying = configured(&[Decision::Deny("d".into())]);
        assert!(denying.authorize(&attributes).await.is_allowed());
    }

    #[tokio::test(start_paused = true)]
    async fn replacements_are_notified_and_rechecks_while_a_webhook_decides() {
        let authorizer = configured(&[none("")]);
        let changed = Arc::new(Notify::new());
        authorizer.notify_changes(&changed);
        let hour = Duration::from_secs(3600);
        assert!(
            tokio::time::timeout(hour, changed.notified())
                .await
                .is_err()
        );
        let minute = Duration::from_secs(60);
        authorizer.replace(vec![InstrumentedAuthorizer {
            recheck_interval: Some(minute),
            ..instrumented(none(""))
        }]);
        changed.notified().await;
        let replaced = tokio::time::Instant::now();
        changed.notified().await;
        assert_eq!(replaced.elapsed().as_secs(), 60);
        drop(changed);
        tokio::time::sleep(minute * 2).await;
        assert!(authorizer.subscribers.lock().is_empty());
    }
}
