//! The indexer against a naive model that looks at every object.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Words by their letters: several, or none.
#[derive(Debug, Clone)]
struct Letters;

impl IndexFunc<String> for Letters {
    type Values<'a> = Vec<&'a str>;
    type Value<'a> = &'a str;

    fn values<'a>(&'a self, word: &'a String) -> Vec<&'a str> {
        word.split("").filter(|letter| !letter.is_empty()).collect()
    }
}

type Words = Indexer<String, Letters>;
type Model = BTreeMap<String, String>;

fn check(words: &Words, model: &Model) {
    let objects = words.objects().iter();
    let objects: Model = objects
        .map(|(key, word)| (key.to_string(), word.to_string()))
        .collect();
    assert_eq!(objects, *model);
    let mut expected: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (key, word) in model {
        let mut letters = Letters.values(word);
        letters.sort_unstable();
        letters.dedup();
        for letter in letters {
            expected.entry(letter).or_default().push(key);
        }
    }
    for index in 0..words.funcs().len() {
        let found = words.values(index).map(|(value, objects)| {
            assert_eq!(
                words.by_index(index, value).map(ObjectMap::len),
                Some(objects.len())
            );
            let keys = objects.iter().map(|(key, word)| {
                assert!(
                    Arc::ptr_eq(word, &words.objects()[key]),
                    "{key} is an older one"
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
    let words = prop::collection::btree_map("[a-f]", "[a-e]{0,4}", 0..6);
    prop_oneof![
        8 => insert,
        4 => "[a-f]".prop_map(Step::Remove),
        1 => words.prop_map(Step::Replace),
        1 => Just(Step::AddIndex),
    ]
}

proptest! {
    #[test]
    fn an_object_is_under_each_of_its_values_and_no_other(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let (mut words, mut model) = (Words::new([Letters], ObjectMap::new()), Model::new());
        let mut kept = Vec::new();
        for step in steps {
            kept.push((words.clone(), model.clone()));
            match step {
                Step::Insert(key, text) => {
                    let (id, object) = word(&key, &text);
                    let before = words.insert(&id, &object).map(|word| word.to_string());
                    assert_eq!(before, model.insert(key, text));
                }
                Step::Remove(key) => {
                    let before = words.remove(&key).map(|word| word.to_string());
                    assert_eq!(before, model.remove(&key));
                }
                Step::Replace(all) => {
                    words.replace(all.iter().map(|(key, text)| word(key, text)).collect());
                    model = all;
                }
                Step::AddIndex => words.add_index(Letters),
            }
            check(&words, &model);
        }
        // What was taken before is as it was then.
        for (words, model) in kept {
            check(&words, &model);
        }
    }
}

/// Where the map of a value's objects is, in which nothing was changed as long as it is there.
fn same_map(a: &Words, b: &Words, value: &str) -> bool {
    let maps = (a.by_index(0, value), b.by_index(0, value));
    maps.0.unwrap().ptr_eq(maps.1.unwrap())
}

#[test]
fn an_update_touches_its_own_values_only() {
    let mut words = Words::new([Letters], ObjectMap::new());
    for (key, text) in [("1", "a"), ("2", "b"), ("3", "bc")] {
        let (key, object) = word(key, text);
        words.insert(&key, &object);
    }
    let before = words.clone();
    let (key, object) = word("3", "bc");
    words.insert(&key, &object);
    assert!(same_map(&before, &words, "a"), "it is not its value");
    assert_eq!(words.by_index(0, "b").unwrap().len(), 2);
}

#[test]
fn an_emptied_value_is_dropped() {
    let mut words = Words::new([Letters], ObjectMap::new());
    for (key, text) in [("1", "ab"), ("1", "b"), ("1", "")] {
        let (key, object) = word(key, text);
        words.insert(&key, &object);
    }
    assert_eq!(words.values(0).count(), 0);
    assert_eq!(words.objects().len(), 1);
}
