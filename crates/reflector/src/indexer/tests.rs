//! Tests of the indexer against a model that scans all objects.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Indexes strings by their characters: several values, or none.
#[derive(Debug, Clone)]
struct ByCharacter;

impl IndexFunc<String> for ByCharacter {
    type Values<'a> = Vec<&'a str>;
    type Value<'a> = &'a str;

    fn values<'a>(&'a self, word: &'a String) -> Vec<&'a str> {
        word.split("").filter(|letter| !letter.is_empty()).collect()
    }
}

type Strings = Indexer<String, ByCharacter>;
type Model = BTreeMap<String, String>;

fn check(strings: &Strings, model: &Model) {
    let objects = strings.objects().iter();
    let objects: Model = objects
        .map(|(key, word)| (key.to_string(), word.to_string()))
        .collect();
    assert_eq!(objects, *model);
    let mut expected: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (key, word) in model {
        let mut letters = ByCharacter.values(word);
        letters.sort_unstable();
        letters.dedup();
        for letter in letters {
            expected.entry(letter).or_default().push(key);
        }
    }
    for index in 0..strings.funcs().len() {
        let found = strings.values(index).map(|(value, objects)| {
            assert_eq!(
                strings.by_index(index, value).map(ObjectMap::len),
                Some(objects.len())
            );
            let keys = objects.iter().map(|(key, word)| {
                assert!(
                    Arc::ptr_eq(word, &strings.objects()[key]),
                    "{key} is outdated"
                );
                key.as_str()
            });
            (&**value, keys.collect::<Vec<_>>())
        });
        assert_eq!(found.collect::<BTreeMap<_, _>>(), expected, "index {index}");
    }
}

fn word(key: &str, word: &str) -> (ObjectKey, Arc<String>) {
    (ObjectKey::from(key), Arc::new(word.to_owned()))
}

#[derive(Debug, Clone)]
enum Step {
    Insert(String, String),
    Remove(String),
    Replace(Model),
    AddIndex,
}

fn step() -> impl Strategy<Value = Step> {
    let insert = ("[a-f]", "[a-e]{0,4}").prop_map(|(key, word)| Step::Insert(key, word));
    let strings = prop::collection::btree_map("[a-f]", "[a-e]{0,4}", 0..6);
    prop_oneof![
        8 => insert,
        4 => "[a-f]".prop_map(Step::Remove),
        1 => strings.prop_map(Step::Replace),
        1 => Just(Step::AddIndex),
    ]
}

proptest! {
    #[test]
    fn index_contains_objects_under_their_values_only(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let (mut strings, mut model) = (Strings::new([ByCharacter], ObjectMap::new()), Model::new());
        let mut clones = Vec::new();
        for step in steps {
            clones.push((strings.clone(), model.clone()));
            match step {
                Step::Insert(key, text) => {
                    let (id, object) = word(&key, &text);
                    let before = strings.insert(&id, &object).map(|word| word.to_string());
                    assert_eq!(before, model.insert(key, text));
                }
                Step::Remove(key) => {
                    let before = strings.remove(&key).map(|word| word.to_string());
                    assert_eq!(before, model.remove(&key));
                }
                Step::Replace(all) => {
                    strings.replace(all.iter().map(|(key, text)| word(key, text)).collect());
                    model = all;
                }
                Step::AddIndex => strings.add_index(ByCharacter),
            }
            check(&strings, &model);
        }
        // Earlier clones are unchanged.
        for (strings, model) in clones {
            check(&strings, &model);
        }
    }
}

/// Returns true if both indexers share the map of a value's objects.
fn same_map(a: &Strings, b: &Strings, value: &str) -> bool {
    let maps = (a.by_index(0, value), b.by_index(0, value));
    maps.0.unwrap().ptr_eq(maps.1.unwrap())
}

#[test]
fn update_touches_its_own_values_only() {
    let mut strings = Strings::new([ByCharacter], ObjectMap::new());
    for (key, text) in [("1", "a"), ("2", "b"), ("3", "bc")] {
        let (key, object) = word(key, text);
        strings.insert(&key, &object);
    }
    let before = strings.clone();
    let (key, object) = word("3", "bc");
    strings.insert(&key, &object);
    assert!(
        same_map(&before, &strings, "a"),
        "not a value of the object"
    );
    assert_eq!(strings.by_index(0, "b").unwrap().len(), 2);
}

#[test]
fn value_without_objects_is_removed() {
    let mut strings = Strings::new([ByCharacter], ObjectMap::new());
    for (key, text) in [("1", "ab"), ("1", "b"), ("1", "")] {
        let (key, object) = word(key, text);
        strings.insert(&key, &object);
    }
    assert_eq!(strings.values(0).count(), 0);
    assert_eq!(strings.objects().len(), 1);
}
