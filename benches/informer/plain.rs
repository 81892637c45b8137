//! The store to compare with: client-go's `threadSafeMap` with Rust's hash maps. One map of the objects and one for each
//! index, from value to keys, under one lock. It has only the methods that the benches call.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::RwLock;
use watchet::client::{ObjectKey, key_of};

type Map<K, V> = HashMap<K, V, RandomState>;
type Func = fn(&Pod) -> Vec<String>;

struct Index {
    func: Func,
    keys: Map<String, HashSet<ObjectKey, RandomState>>,
}

#[derive(Default)]
struct State {
    objects: Map<ObjectKey, Arc<Pod>>,
    indexes: Vec<Index>,
}

#[derive(Default)]
pub(crate) struct PlainStore(RwLock<State>);

impl PlainStore {
    pub(crate) fn new(indexes: usize) -> Self {
        let namespace: Func = |pod| vec![pod.metadata.namespace.clone().unwrap_or_default()];
        let funcs = [namespace, super::node];
        let index = |func: &Func| Index {
            func: *func,
            keys: Map::default(),
        };
        let indexes = funcs[..indexes].iter().map(index).collect();
        Self(RwLock::new(State {
            objects: Map::default(),
            indexes,
        }))
    }

    pub(crate) fn add(&self, pod: Arc<Pod>) -> Option<Arc<Pod>> {
        let key = key_of(&*pod);
        let mut state = self.0.write();
        let before = state.objects.insert(key.clone(), pod.clone());
        for Index { func, keys } in &mut state.indexes {
            let old = before.as_ref().map(|before| func(before));
            let (old, new) = (old.unwrap_or_default(), func(&pod));
            if old == new {
                continue;
            }
            for value in old {
                if let Some(set) = keys.get_mut(&value) {
                    set.remove(&key);
                    if set.is_empty() {
                        keys.remove(&value);
                    }
                }
            }
            for value in new {
                keys.entry(value).or_default().insert(key.clone());
            }
        }
        before
    }

    pub(crate) fn get(&self, key: &str) -> Option<Arc<Pod>> {
        self.0.read().objects.get(key).cloned()
    }

    pub(crate) fn list(&self) -> Vec<Arc<Pod>> {
        self.0.read().objects.values().cloned().collect()
    }

    pub(crate) fn by_index(&self, index: usize, value: &str) -> Vec<Arc<Pod>> {
        let state = self.0.read();
        let keys = state.indexes[index].keys.get(value).into_iter().flatten();
        keys.map(|key| state.objects[key].clone()).collect()
    }
}
