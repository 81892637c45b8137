//! `RbacAuthorizer`: authorizes requests with the current `RoleIndex`.

use std::sync::{Arc, Weak};

use arc_swap::{ArcSwap, ArcSwapOption};
use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::kind::RbacKind;
use super::objects::{InvalidRbacObject, RbacChange, RbacObjects};
use super::policy_rule::PolicyRule;
use super::role_index::RoleIndex;
use super::rule_filter::RuleFilter;
use crate::attributes::Attributes;
use crate::authorizer::{Authorizer, Decision, NonResourceRule, ResourceRule, SubjectRules};
use watchet_api::{SYSTEM_MASTERS, UserInfo};

/// Authorizes by roles and bindings, as kube-apiserver with `--authorization-mode=RBAC`: the group `system:masters` may
/// do everything, and other users what their roles allow. The caller passes the stored objects with
/// [`replace`](Self::replace) and [`change`](Self::change). Decisions take no lock.
#[derive(Debug, Default)]
pub struct RbacAuthorizer {
    index: ArcSwap<RoleIndex>,
    /// Locked while they are changed.
    objects: Mutex<RbacObjects>,
    /// The default policy, which applies as long as its objects may not be stored yet.
    defaults: ArcSwapOption<RbacObjects>,
    /// Notified after each change.
    subscribers: Mutex<Vec<Weak<Notify>>>,
}

impl RbacAuthorizer {
    /// Returns an authorizer without roles.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns an authorizer with the [default policy](super::default_policy()), as if the objects that are missing in
    /// storage were stored, until [`omit_defaults`](Self::omit_defaults) is called. So the decisions of a new server
    /// are correct before it has created these objects.
    pub fn with_default_policy() -> Self {
        let authorizer = Self {
            defaults: ArcSwapOption::from_pointee(RbacObjects::default_policy()),
            ..Self::default()
        };
        authorizer.rebuild(&authorizer.objects.lock());
        authorizer
    }

    /// Removes the default policy from the decisions. To be called once the objects of the default policy are stored.
    pub fn omit_defaults(&self) {
        let objects = self.objects.lock();
        self.defaults.store(None);
        self.rebuild(&objects);
        drop(objects);
        self.notify();
    }

    /// Replaces all objects of a kind. Returns the errors of those that are invalid; the others take effect.
    pub fn replace<'a>(
        &self,
        kind: RbacKind,
        all: impl IntoIterator<Item = RbacChange<'a>>,
    ) -> Vec<InvalidRbacObject> {
        self.update(kind, true, all)
    }

    /// Changes objects of a kind. Returns the errors of those that are invalid; the others take effect.
    pub fn change<'a>(
        &self,
        kind: RbacKind,
        changes: impl IntoIterator<Item = RbacChange<'a>>,
    ) -> Vec<InvalidRbacObject> {
        self.update(kind, false, changes)
    }

    fn update<'a>(
        &self,
        kind: RbacKind,
        replaces: bool,
        changes: impl IntoIterator<Item = RbacChange<'a>>,
    ) -> Vec<InvalidRbacObject> {
        let mut objects = self.objects.lock();
        if replaces {
            objects.clear(kind);
        }
        let changes = changes.into_iter();
        let errors = changes.filter_map(|change| objects.apply(kind, &change).err());
        let errors = errors.collect();
        self.rebuild(&objects);
        drop(objects);
        self.notify();
        errors
    }

    /// Replaces the index. The caller holds the lock of `objects`, so that an older index never replaces a newer one.
    fn rebuild(&self, objects: &RbacObjects) {
        let index = match &*self.defaults.load() {
            Some(defaults) => {
                let mut all = objects.clone();
                all.add_missing(defaults);
                RoleIndex::new(&all)
            }
            None => RoleIndex::new(objects),
        };
        self.index.store(Arc::new(index));
    }

    fn notify(&self) {
        self.subscribers.lock().retain(|subscriber| {
            let subscriber = subscriber.upgrade();
            subscriber.inspect(|changed| changed.notify_one()).is_some()
        });
    }

    /// Returns the rules of a user everywhere and in `namespace`, each once, and the errors of roles that do not exist.
    pub fn rules_of(&self, user: &UserInfo, namespace: &str) -> (Vec<PolicyRule>, Vec<String>) {
        let (mut rules, mut errors): (Vec<PolicyRule>, Vec<String>) = (Vec::new(), Vec::new());
        if is_master(user) {
            let all = || vec!["*".to_owned()];
            rules.push(PolicyRule {
                verbs: all(),
                api_groups: all(),
                resources: all(),
                ..PolicyRule::default()
            });
            rules.push(PolicyRule {
                verbs: all(),
                non_resource_urls: all(),
                ..PolicyRule::default()
            });
        }
        let index = self.index.load();
        for grant in index.of_user(user).grants(namespace, None) {
            match &grant.rules {
                Ok(granted) => {
                    let new = granted.all().iter().filter(|rule| !rules.contains(rule));
                    let new: Vec<PolicyRule> = new.cloned().collect();
                    rules.extend(new);
                }
                Err(error) => errors.push(error.clone()),
            }
        }
        (rules, errors)
    }
}

fn is_master(user: &UserInfo) -> bool {
    user.groups.iter().any(|group| group == SYSTEM_MASTERS)
}

#[async_trait]
impl Authorizer for RbacAuthorizer {
    async fn authorize(&self, attributes: &Attributes) -> Decision {
        if is_master(&attributes.user) {
            return Decision::Allow("".into());
        }
        let index = self.index.load();
        let mut errors: Vec<&str> = Vec::new();
        let filter = RuleFilter::of_request(attributes);
        let of_user = index.of_user(&attributes.user);
        for grant in of_user.grants(&attributes.namespace, Some(filter)) {
            match &grant.rules {
                Ok(rules) if rules.allow(attributes, filter) => {
                    return Decision::Allow(grant.reason.clone().into());
                }
                Ok(_) => {}
                Err(error) => errors.push(error),
            }
        }
        Decision::NoOpinion(describe(&errors).into())
    }

    fn notify_changes(&self, changed: &Arc<Notify>) {
        self.subscribers.lock().push(Arc::downgrade(changed));
    }

    async fn rules(&self, user: &UserInfo, namespace: &str) -> SubjectRules {
        let (rules, errors) = self.rules_of(user, namespace);
        let mut subject_rules = SubjectRules {
            incomplete: !errors.is_empty(),
            evaluation_error: match errors.len() {
                0 => String::new(),
                _ => list(&errors),
            },
            ..SubjectRules::default()
        };
        for rule in rules {
            if !rule.resources.is_empty() {
                subject_rules.resource_rules.push(ResourceRule {
                    verbs: rule.verbs.clone(),
                    api_groups: rule.api_groups,
                    resources: rule.resources,
                    resource_names: rule.resource_names,
                });
            }
            if !rule.non_resource_urls.is_empty() {
                subject_rules.non_resource_rules.push(NonResourceRule {
                    verbs: rule.verbs,
                    non_resource_urls: rule.non_resource_urls,
                });
            }
        }
        subject_rules
    }
}

/// Returns the reason for a request that no rule allows: the missing roles of its bindings.
fn describe(errors: &[&str]) -> String {
    match errors.is_empty() {
        true => String::new(),
        false => format!("RBAC: {}", list(errors)),
    }
}

/// Joins different errors, as upstream's aggregate does.
fn list<S: AsRef<str>>(errors: &[S]) -> String {
    let mut distinct: Vec<&str> = Vec::new();
    for error in errors {
        if !distinct.contains(&error.as_ref()) {
            distinct.push(error.as_ref());
        }
    }
    match &*distinct {
        [one] => (*one).to_owned(),
        several => format!("[{}]", several.join(", ")),
    }
}
