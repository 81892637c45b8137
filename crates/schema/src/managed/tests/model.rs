//! Random writes against a model: a map of values and each manager's set of keys.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const KEYS: &[&str] = &["a", "b", "c"];
const NAMES: &[&str] = &["m", "n", "o"];

type Data = BTreeMap<&'static str, u8>;

#[derive(Debug, Clone)]
enum Write {
    Update(Data),
    Apply(Data, bool),
}

fn data_strategy() -> impl Strategy<Value = Data> {
    prop::collection::btree_map(prop::sample::select(KEYS), 0..2_u8, 0..4)
}

fn writes() -> impl Strategy<Value = Vec<(&'static str, Write)>> {
    let write = prop_oneof![
        data_strategy().prop_map(Write::Update),
        (data_strategy(), any::<bool>()).prop_map(|(data, force)| Write::Apply(data, force)),
    ];
    prop::collection::vec((prop::sample::select(NAMES), write), 1..12)
}

#[derive(Debug, Default, Clone, PartialEq)]
struct Model {
    data: Data,
    /// By name; true for an applier.
    managers: BTreeMap<(&'static str, bool), BTreeSet<&'static str>>,
}

impl Model {
    fn update(&mut self, name: &'static str, new: &Data) {
        for key in KEYS {
            if self.data.get(key) != new.get(key) {
                self.release(key, None);
                if new.contains_key(key) {
                    self.managers.entry((name, false)).or_default().insert(key);
                }
            }
        }
        self.data = new.clone();
    }

    /// Removes all owners of `key` except one.
    fn release(&mut self, key: &str, but: Option<(&'static str, bool)>) {
        for (manager, keys) in &mut self.managers {
            if Some(*manager) != but {
                keys.remove(key);
            }
        }
    }

    fn others_have(&self, key: &str, own: (&'static str, bool)) -> bool {
        let mut others = self.managers.iter().filter(|(m, _)| **m != own);
        others.any(|(_, keys)| keys.contains(key))
    }

    fn apply(&mut self, name: &'static str, applied: &Data, force: bool) -> bool {
        let own = (name, true);
        let changes = |key: &&str| self.data.get(key) != applied.get(key);
        let changed: Vec<&str> = applied.keys().copied().filter(changes).collect();
        if !force && changed.iter().any(|key| self.others_have(key, own)) {
            return false;
        }
        let last = self.managers.remove(&own).unwrap_or_default();
        for key in changed {
            self.release(key, Some(own));
        }
        for key in last.into_iter().filter(|key| !applied.contains_key(key)) {
            if !self.others_have(key, own) {
                self.data.remove(key);
            }
        }
        self.data.extend(applied);
        self.managers.insert(own, applied.keys().copied().collect());
        true
    }
}

/// An empty map is a field too, which the model does not have.
fn body(data: &Data) -> Value {
    if data.is_empty() {
        return json!({});
    }
    let pair = |(key, value): (&&str, &u8)| ((*key).to_owned(), Value::from(value.to_string()));
    json!({"data": Value::Object(data.iter().map(pair).collect())})
}

/// Returns the state of the object, without the map itself.
fn model_of(object: &TestObject) -> Model {
    let mut model = Model::default();
    for key in KEYS {
        if let Some(value) = object.body()["data"][key].as_str() {
            model.data.insert(key, value.parse().unwrap());
        }
    }
    for entry in object.entries() {
        let Some(name) = NAMES.iter().find(|name| entry["manager"] == **name) else {
            continue; // the manager of the map
        };
        let has = |key: &&&str| !entry["fieldsV1"]["f:data"][format!("f:{key}")].is_null();
        let keys: BTreeSet<&str> = KEYS.iter().filter(has).copied().collect();
        if !keys.is_empty() {
            model
                .managers
                .insert((name, entry["operation"] == "Apply"), keys);
        }
    }
    model
}

proptest! {
    #[test]
    fn writes_equal_the_model(writes in writes()) {
        let mut object = config_map();
        let mut model = Model::default();
        // Ensures that an object with managed fields exists.
        object.apply("keeper", json!({"metadata": {"labels": {"kept": "yes"}}}));
        for (name, write) in &writes {
            match write {
                Write::Update(data) => {
                    let mut body = body(data);
                    body["metadata"] = json!({"labels": {"kept": "yes"}});
                    object.update(name, body);
                    model.update(name, data);
                }
                Write::Apply(data, force) => {
                    let done = object.try_apply(name, body(data), *force).is_ok();
                    prop_assert_eq!(done, model.apply(name, data, *force), "{} {:?}", name, write);
                }
            }
            model.managers.retain(|_, keys| !keys.is_empty());
            prop_assert_eq!(&model_of(&object), &model, "after {} {:?}", name, write);
        }
    }
}
