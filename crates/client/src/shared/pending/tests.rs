//! Pending notifications compared with a model: a collection, and a handler that checks each
//! notification against what it received before.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;

use super::*;
use crate::DeletedFinalStateUnknown;

fn map(name: &str, uid: u64, version: u64) -> Arc<ConfigMap> {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map.metadata.uid = Some(uid.to_string());
    map.metadata.resource_version = Some(version.to_string());
    Arc::new(map)
}

fn uid(map: &ConfigMap) -> u64 {
    map.metadata.uid.as_ref().unwrap().parse().unwrap()
}

fn version(map: &ConfigMap) -> u64 {
    map.metadata
        .resource_version
        .as_ref()
        .unwrap()
        .parse()
        .unwrap()
}

/// A step of the test.
#[derive(Debug, Clone)]
enum Step {
    Put(u8),
    /// Observed, or missed.
    Delete(u8, bool),
    Resync(u8),
    Notify,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0u8..6).prop_map(Step::Put),
        3 => (0u8..6, any::<bool>()).prop_map(|(key, seen)| Step::Delete(key, seen)),
        1 => (0u8..6).prop_map(Step::Resync),
        3 => Just(Step::Notify),
    ];
    prop::collection::vec(step, 0..120)
}

/// A collection, and a handler that received some of its changes.
#[derive(Default)]
struct Model {
    objects: BTreeMap<String, Arc<ConfigMap>>,
    known: BTreeMap<String, Arc<ConfigMap>>,
    count: u64,
}

impl Model {
    /// Returns the processor's notification for a step.
    fn step(&mut self, step: &Step) -> Option<Notification<ConfigMap>> {
        self.count += 1;
        match step {
            Step::Put(key) => {
                let key = key.to_string();
                let old = self.objects.get(&key).cloned();
                let uid = old.as_ref().map_or(self.count, |old| uid(old));
                let object = map(&key, uid, self.count);
                self.objects.insert(key, object.clone());
                Some(match old {
                    Some(old) => Notification::Updated { old, new: object },
                    None => Notification::Added {
                        object,
                        is_in_initial_list: uid.is_multiple_of(2),
                    },
                })
            }
            Step::Delete(key, seen) => {
                let object = self.objects.remove(&key.to_string())?;
                Some(Notification::Deleted(match seen {
                    true => Deleted::Observed(map(&key.to_string(), uid(&object), self.count)),
                    false => Deleted::Unknown(DeletedFinalStateUnknown {
                        key: key_of(&*object),
                        object,
                    }),
                }))
            }
            Step::Resync(key) => {
                let old = self.objects.get(&key.to_string())?.clone();
                let new = old.clone();
                Some(Notification::Updated { old, new })
            }
            Step::Notify => None,
        }
    }

    /// Delivers a notification to the handler, which checks it against its state.
    fn deliver(&mut self, notification: Notification<ConfigMap>) {
        match notification {
            Notification::Added {
                object,
                is_in_initial_list,
            } => {
                assert_eq!(is_in_initial_list, uid(&object).is_multiple_of(2));
                let name = object.metadata.name.clone().unwrap();
                assert!(self.known.insert(name, object).is_none());
            }
            Notification::Updated { old, new } => {
                let name = new.metadata.name.clone().unwrap();
                assert!(version(&old) <= version(&new));
                assert_eq!(uid(&old), uid(&new));
                let previous = self.known.insert(name, new);
                assert!(Arc::ptr_eq(&previous.expect("a known object"), &old));
            }
            Notification::Deleted(deleted) => {
                let object = deleted.object();
                let known = self.known.remove(object.metadata.name.as_ref().unwrap());
                assert_eq!(uid(&known.expect("an object that is known")), uid(object));
            }
        }
    }
}

proptest! {
    #[test]
    fn pending_notifications_lead_to_the_current_state(steps in steps(), exact_max in 0usize..12) {
        let mut model = Model::default();
        let mut pending = Pending::new(exact_max);
        for step in &steps {
            if let Some(notification) = model.step(step) {
                pending.push(notification);
            } else if matches!(step, Step::Notify)
                && let Some(next) = pending.pop()
            {
                model.deliver(next);
            }
            let of_keys = model.known.keys().chain(model.objects.keys());
            let keys = of_keys.collect::<std::collections::BTreeSet<_>>().len();
            prop_assert!(pending.len() <= exact_max.max(keys));
            prop_assert_eq!(pending.len() == 0, pending.oldest().is_none());
        }
        while let Some(next) = pending.pop() {
            model.deliver(next);
        }
        prop_assert_eq!(model.known, model.objects);
    }

    /// A few notifications are delivered unchanged.
    #[test]
    fn few_notifications_are_unchanged(steps in steps()) {
        let mut model = Model::default();
        let mut pending = Pending::new(steps.len());
        let received: Vec<_> = steps.iter().filter_map(|step| model.step(step)).collect();
        received.iter().for_each(|notification| pending.push(notification.clone()));
        let known: Vec<_> = std::iter::from_fn(|| pending.pop()).collect();
        prop_assert_eq!(format!("{received:?}"), format!("{known:?}"));
    }
}

/// Names used only once, such as those of jobs' pods, must not accumulate.
#[test]
fn unseen_objects_leave_nothing() {
    let mut pending = Pending::new(2);
    for n in 0..10_000 {
        let object = map(&format!("job-{n}"), n, n);
        pending.push(Notification::Added {
            object: object.clone(),
            is_in_initial_list: false,
        });
        pending.push(Notification::Deleted(Deleted::Observed(object)));
        assert!(pending.len() <= 2);
    }
}

/// Merged notifications keep their position, so that a busy object does not delay a quiet one.
#[test]
fn the_oldest_is_delivered_first() {
    let mut pending = Pending::new(1);
    let [a, b] = ["a", "b"].map(|name| map(name, 1, 1));
    for (old, new) in [(&a, &a), (&b, &b), (&a, &a)] {
        let (old, new) = (old.clone(), new.clone());
        pending.push(Notification::Updated { old, new });
    }
    assert_eq!(
        (pending.len(), pending.oldest(), pending.next()),
        (2, Some(0), 3)
    );
    let names = std::iter::from_fn(|| pending.pop()).map(|notification| match notification {
        Notification::Updated { new, .. } => new.metadata.name.clone().unwrap(),
        other => panic!("{other:?}"),
    });
    assert_eq!(names.collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(pending.oldest(), None);
}

#[test]
fn cleared_notifications_are_not_delivered() {
    let mut pending = Pending::new(0);
    let object = map("a", 1, 1);
    pending.push(Notification::Deleted(Deleted::Observed(object)));
    pending.clear();
    assert!(pending.pop().is_none());
}
