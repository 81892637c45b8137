//! Tests of the queue's rules, one by one; `model` tests them together.

mod model;

use futures_util::FutureExt as _;
use futures_util::future::join_all;

use super::super::{PartialObjectMetadata as Meta, key_of};
use super::*;
use crate::Indexers;

type Fifo = DeltaFifo<Meta>;

/// Returns an object with this name and state number.
fn object(name: &str, state: u32) -> Arc<Meta> {
    let mut object = Meta::default();
    object.metadata.name = Some(name.to_owned());
    object.metadata.resource_version = Some(state.to_string());
    Arc::new(object)
}

/// Formats a delta: `Updated 3` is an update to state 3, `Deleted 3?` a tombstone with it.
fn line(delta: &Delta<Meta>) -> String {
    let state = delta.object().metadata.resource_version.as_deref();
    let unknown = match delta {
        Delta::Deleted(Deleted::Unknown(tombstone)) => {
            assert_eq!(tombstone.key, key_of(&*tombstone.object));
            "?"
        }
        _ => "",
    };
    format!("{} {}{unknown}", delta.name(), state.unwrap_or_default())
}

/// Pops the next object, which must be queued; returns its key and deltas.
fn pop(fifo: &Fifo) -> String {
    let popped = fifo.pop(|deltas, _| {
        assert_eq!(deltas.iter().count(), deltas.len());
        let all: Vec<_> = deltas.iter().map(line).collect();
        assert_eq!(all[0], line(deltas.oldest()));
        Ok(format!("{}: {}", deltas.key(), all.join(", ")))
    });
    popped.now_or_never().expect("an object is queued").unwrap()
}

fn pop_all(fifo: &Fifo) -> Vec<String> {
    let count = fifo.len();
    let popped = (0..count).map(|_| pop(fifo)).collect();
    assert!(fifo.is_empty());
    popped
}

fn known(objects: &[Arc<Meta>]) -> (Fifo, Arc<ThreadSafeStore<Meta>>) {
    let store = Arc::new(ThreadSafeStore::new(Indexers::new()));
    store.replace(objects.to_vec());
    (Fifo::new().with_known_objects(store.clone()), store)
}

#[test]
fn keys_are_in_the_order_of_their_first_delta() {
    let fifo = Fifo::new();
    fifo.add(object("b", 1));
    fifo.add(object("a", 2));
    fifo.update(object("b", 3));
    fifo.delete(object("a", 4));
    assert_eq!(fifo.len(), 2);
    let expected = ["b: Added 1, Updated 3", "a: Added 2, Deleted 4"];
    assert_eq!(pop_all(&fifo), expected);
    fifo.update(object("b", 5));
    assert_eq!(pop_all(&fifo), ["b: Updated 5"]);
}

#[test]
fn two_deletions_in_a_row_are_one() {
    let fifo = Fifo::new();
    fifo.add(object("a", 1));
    fifo.delete(object("a", 2));
    fifo.delete(object("a", 3));
    assert_eq!(pop_all(&fifo), ["a: Added 1, Deleted 2"]);
    // Only the last two deltas are compared.
    fifo.add(object("a", 4));
    fifo.delete(object("a", 5));
    fifo.add(object("a", 6));
    fifo.delete(object("a", 7));
    let expected = ["a: Added 4, Deleted 5, Added 6, Deleted 7"];
    assert_eq!(pop_all(&fifo), expected);
}

#[test]
fn of_two_deletions_the_observed_one_is_retained() {
    let (fifo, _) = known(&[object("a", 1), object("b", 1)]);
    fifo.delete(object("a", 2));
    fifo.replace(vec![]);
    fifo.delete(object("b", 3));
    assert_eq!(pop_all(&fifo), ["a: Deleted 2", "b: Deleted 3"]);
    fifo.add(object("c", 1));
    fifo.replace(vec![]);
    fifo.replace(vec![]);
    let expected = ["a: Deleted 1?", "b: Deleted 1?", "c: Added 1, Deleted 1?"];
    let mut popped = pop_all(&fifo);
    popped.sort();
    assert_eq!(popped, expected, "two tombstones are one too");
}

#[test]
fn deletions_of_unknown_objects_are_dropped() {
    let fifo = Fifo::new();
    fifo.delete(object("a", 1));
    assert!(fifo.is_empty());
    assert!(fifo.has_synced(), "it counts as populated all the same");
    let (fifo, _) = known(&[object("a", 1)]);
    fifo.delete(object("a", 2));
    fifo.delete(object("b", 2));
    assert_eq!(pop_all(&fifo), ["a: Deleted 2"]);
}

#[test]
fn a_list_queues_its_objects_and_deletions() {
    let (fifo, _) = known(&[object("kept", 1), object("gone", 2), object("deleted", 3)]);
    fifo.update(object("waits", 4));
    fifo.delete(object("deleted", 5));
    fifo.replace(vec![object("kept", 6), object("new", 7)]);
    let expected = [
        "waits: Updated 4, Deleted 4?",
        "deleted: Deleted 5",
        "kept: Replaced 6",
        "new: Replaced 7",
        "gone: Deleted 2?",
    ];
    assert_eq!(pop_all(&fifo), expected);
}

#[test]
fn without_known_objects_deletions_of_queued_objects_are_detected() {
    let fifo = Fifo::new();
    fifo.add(object("a", 1));
    fifo.update(object("a", 2));
    fifo.add(object("b", 3));
    fifo.replace(vec![object("b", 4)]);
    let expected = [
        "a: Added 1, Updated 2, Deleted 2?",
        "b: Added 3, Replaced 4",
    ];
    assert_eq!(pop_all(&fifo), expected);
    fifo.replace(vec![]);
    assert!(fifo.is_empty());
    fifo.resync();
    assert!(fifo.is_empty(), "there are no known objects to resync");
}

#[test]
fn a_list_can_be_queued_as_sync() {
    let fifo = Fifo::new().with_lists_as_sync();
    fifo.replace(vec![object("a", 1)]);
    assert_eq!(pop_all(&fifo), ["a: Sync 1"]);
}

#[test]
fn a_resync_queues_known_objects_that_are_not_queued() {
    let (fifo, _) = known(&[object("a", 1), object("b", 1), object("c", 1)]);
    fifo.update(object("b", 2));
    fifo.delete(object("c", 2));
    fifo.resync();
    let expected = ["b: Updated 2", "c: Deleted 2", "a: Sync 1"];
    assert_eq!(pop_all(&fifo), expected);
}

#[test]
fn has_synced_after_the_first_list_is_popped() {
    let (fifo, _) = known(&[object("gone", 1)]);
    assert!(!fifo.has_synced());
    fifo.replace(vec![object("a", 1), object("b", 1), object("a", 2)]);
    fifo.update(object("c", 1));
    let mut synced = Vec::new();
    while !fifo.is_empty() {
        let before = fifo.has_synced();
        let popped = fifo.pop(|deltas, initial| {
            assert_eq!(initial, !before);
            Ok(deltas.key().to_string())
        });
        let key = popped.now_or_never().unwrap().unwrap();
        synced.push((key, fifo.has_synced()));
    }
    // Deletions detected by the first list are part of it.
    let expected = [("a", false), ("b", false), ("gone", true), ("c", true)];
    let expected = expected.map(|(key, synced)| (key.to_owned(), synced));
    assert_eq!(synced, expected);
    fifo.replace(vec![object("d", 1)]);
    assert!(fifo.has_synced(), "the first list counts");
}

#[test]
fn has_synced_immediately_after_an_empty_list() {
    let fifo = Fifo::new();
    fifo.replace(vec![]);
    assert!(fifo.has_synced());
}

#[test]
fn a_change_before_any_list_counts_as_populated() {
    type Change = fn(&Fifo, Arc<Meta>);
    for change in [Fifo::add as Change, Fifo::update, Fifo::delete] {
        let fifo = Fifo::new();
        change(&fifo, object("a", 1));
        assert!(fifo.has_synced());
        fifo.replace(vec![object("b", 1)]);
        assert!(fifo.has_synced());
    }
}

#[test]
fn requeued_deltas_go_to_the_end() {
    let fifo = Fifo::new();
    fifo.replace(vec![object("a", 1), object("b", 1)]);
    let failed = fifo.pop::<()>(|_, _| Err(Requeue)).now_or_never();
    assert_eq!(failed, Some(Err(PopError::Requeued)));
    fifo.update(object("a", 2));
    assert_eq!(pop(&fifo), "b: Replaced 1");
    assert!(!fifo.has_synced(), "the first list is not processed");
    assert_eq!(pop(&fifo), "a: Replaced 1, Updated 2");
    assert!(fifo.has_synced());
}

#[test]
fn deltas_remain_after_a_panic() {
    let fifo = Fifo::new();
    fifo.add(object("a", 1));
    let popped = || fifo.pop::<()>(|_, _| panic!("on purpose")).now_or_never();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(popped));
    assert!(panicked.is_err());
    assert_eq!(pop_all(&fifo), ["a: Added 1"]);
}

#[tokio::test]
async fn close_wakes_all_waiting_pops() {
    let fifo = Fifo::new();
    let wait = || fifo.pop(|deltas, _| Ok(deltas.key().to_string()));
    let closing = async {
        tokio::task::yield_now().await;
        fifo.add(object("a", 1));
        fifo.close();
    };
    let (popped, ()) = tokio::join!(join_all([wait(), wait(), wait()]), closing);
    let (some, none): (Vec<_>, Vec<_>) = popped.into_iter().partition(Result::is_ok);
    assert_eq!(some, [Ok("a".to_owned())], "what is queued is still popped");
    assert_eq!(none, vec![Err(PopError::Closed); 2]);
    assert!(fifo.is_closed());
}

#[tokio::test]
async fn a_delta_wakes_a_waiting_pop() {
    let fifo = Fifo::new();
    let coming = async {
        for state in 0..100 {
            fifo.add(object("a", state));
            tokio::task::yield_now().await;
        }
    };
    let popping = async {
        let mut states = Vec::new();
        while states.len() < 100 {
            let popped = fifo.pop(|deltas, _| Ok(deltas.iter().map(line).collect::<Vec<_>>()));
            states.extend(popped.await.unwrap());
        }
        states
    };
    let (states, ()) = tokio::join!(popping, coming);
    let expected: Vec<_> = (0..100).map(|state| format!("Added {state}")).collect();
    assert_eq!(states, expected);
}

#[test]
fn an_object_is_transformed_once() {
    let (fifo, store) = known(&[]);
    let fifo = fifo.with_transform(|object: &mut Meta| {
        let times = object.metadata.generation.unwrap_or_default();
        object.metadata.generation = Some(times + 1);
    });
    let process = |fifo: &Fifo| {
        let popped = fifo.pop(|deltas, _| {
            for delta in deltas.iter() {
                assert_eq!(delta.object().metadata.generation, Some(1), "{delta:?}");
            }
            match deltas.newest() {
                Delta::Deleted(_) => store.delete_by_key(deltas.key().as_str()),
                delta => store.put(deltas.key(), delta.object().clone()),
            };
            Ok(deltas.len())
        });
        popped.now_or_never().unwrap().unwrap()
    };
    let shared = object("a", 1);
    fifo.add(shared.clone());
    assert_eq!(
        shared.metadata.generation, None,
        "transformed in place only if not shared"
    );
    fifo.update(object("a", 2));
    fifo.replace(vec![object("a", 3), object("b", 1)]);
    assert_eq!((process(&fifo), process(&fifo)), (3, 1));
    fifo.resync();
    fifo.delete(object("b", 2));
    assert_eq!((process(&fifo), process(&fifo)), (1, 2));
    fifo.replace(vec![]);
    assert_eq!(process(&fifo), 1, "neither is a tombstone");
}

/// Returns the compressed deltas of a key.
fn compressed(deltas: &[(&str, u32)]) -> String {
    let delta_of = |(name, state): &(&str, u32)| {
        let object = object("a", *state);
        match *name {
            "Added" => Delta::Added(object),
            "Updated" => Delta::Updated(object),
            "Replaced" => Delta::Replaced(object),
            "Sync" => Delta::Sync(object),
            _ => Delta::Deleted(Deleted::Observed(object)),
        }
    };
    let mut deltas = deltas.iter().map(delta_of);
    let mut all = Deltas::new(ObjectKey::from("a"), false, deltas.next().unwrap());
    deltas.for_each(|delta| all.push(delta));
    all.compress();
    all.iter().map(line).collect::<Vec<_>>().join(", ")
}

#[test]
fn compression_keeps_the_beginning_and_the_end() {
    let (added, updated, deleted) = ("Added", "Updated", "Deleted");
    assert_eq!(compressed(&[(added, 1)]), "Added 1");
    assert_eq!(
        compressed(&[(added, 1), (updated, 2), (updated, 3)]),
        "Added 3"
    );
    assert_eq!(
        compressed(&[(updated, 1), (deleted, 2)]),
        "Updated 1, Deleted 2"
    );
    // A consumer that knew the object sees its deletion and that there is another.
    let lives = [
        (updated, 1),
        (deleted, 2),
        (added, 3),
        (deleted, 4),
        (added, 5),
        (updated, 6),
    ];
    assert_eq!(compressed(&lives), "Updated 1, Deleted 2, Added 6");
    assert_eq!(compressed(&lives[..4]), "Updated 1, Deleted 2");
    // An update is not merged into a weaker type.
    assert_eq!(compressed(&[(updated, 1), ("Replaced", 2)]), "Updated 2");
    assert_eq!(compressed(&[("Replaced", 1), ("Sync", 2)]), "Replaced 2");
    assert_eq!(compressed(&[("Sync", 1), (updated, 2)]), "Updated 2");
}

#[test]
fn a_slow_consumer_gets_fewer_deltas_but_the_newest_state() {
    let fifo = Fifo::new();
    let changes = INTERMEDIATE_MAX as u32 + 1;
    (0..changes).for_each(|state| fifo.update(object("a", state)));
    let all = || {
        fifo.state
            .lock()
            .items
            .values()
            .map(Deltas::len)
            .sum::<usize>()
    };
    assert_eq!(all(), INTERMEDIATE_MAX + 1, "the maximum is retained");
    for state in 0..changes {
        fifo.update(object("a", changes + state));
        fifo.delete(object("b", state));
        fifo.add(object("b", state));
        fifo.delete(object("c", state));
        fifo.add(object("c", state));
        assert!(all() <= INTERMEDIATE_MAX + 3 * fifo.len());
    }
    let popped = pop_all(&fifo);
    let last = changes - 1;
    assert!(
        popped[0].ends_with(&format!("Updated {}", changes + last)),
        "{}",
        popped[0]
    );
    assert!(popped[1].ends_with(&format!("Added {last}")));
    assert_eq!(fifo.state.lock().intermediate, 0);
}

#[tokio::test]
async fn a_reflector_fills_the_queue() {
    let fifo = Arc::new(Fifo::new());
    let mut sink = DeltaFifoStore(fifo.clone());
    let rv = ResourceVersion::new;
    ReflectorStore::replace(&mut sink, vec![object("a", 1)], rv(1)).await;
    let changes = vec![
        Change::Added(object("b", 2)),
        Change::Modified(object("a", 3)),
        Change::Deleted(object("b", 4)),
    ];
    sink.apply(ChangeBatch { changes, at: rv(4) }).await;
    let bookmark = ChangeBatch {
        changes: vec![],
        at: rv(9),
    };
    sink.apply(bookmark).await;
    let expected = ["a: Replaced 1, Updated 3", "b: Added 2, Deleted 4"];
    assert_eq!(pop_all(&fifo), expected);
}
