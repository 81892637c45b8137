//! The queue compared with a naive model, with a consumer that maintains a known store. The number
//! of deltas stays below the bound of compression, which the model does not have.

use proptest::prelude::*;

use super::*;

/// The deltas of an entry, as formatted by `line`.
type Lines = Vec<String>;

#[derive(Default)]
struct Model {
    /// The entries in queue order.
    queued_items: Vec<(String, Lines)>,
    known: Vec<(String, u32)>,
    /// The keys of the first list that are not popped yet; `None` before any list or change.
    initial: Option<Vec<String>>,
}

impl Model {
    fn queue(&mut self, name: &str, delta: String) {
        let place = self.queued_items.iter().position(|(key, _)| key == name);
        let place = place.unwrap_or_else(|| {
            self.queued_items.push((name.to_owned(), Vec::new()));
            self.queued_items.len() - 1
        });
        let deltas = &mut self.queued_items[place].1;
        match deltas.last() {
            Some(last) if last.starts_with("Deleted") && delta.starts_with("Deleted") => {
                if last.ends_with('?') {
                    deltas.pop();
                    deltas.push(delta);
                }
            }
            _ => deltas.push(delta),
        }
    }

    fn has(&self, name: &str) -> bool {
        let known = self.known.iter().any(|(key, _)| key == name);
        known || self.queued_items.iter().any(|(key, _)| key == name)
    }

    fn change(&mut self, what: &str, name: &str, state: u32) {
        self.initial.get_or_insert_default();
        if what != "Deleted" || self.has(name) {
            self.queue(name, format!("{what} {state}"));
        }
    }

    fn replace(&mut self, list: &[(String, u32)]) {
        let waited: Vec<_> = self.queued_items.clone();
        for (name, state) in list {
            self.queue(name, format!("Replaced {state}"));
        }
        let listed = |name: &str| list.iter().any(|(key, _)| key == name);
        for (name, deltas) in &waited {
            if !listed(name) {
                let state: String = deltas
                    .last()
                    .unwrap()
                    .split(' ')
                    .next_back()
                    .unwrap()
                    .into();
                self.queue(name, format!("Deleted {}?", state.trim_end_matches('?')));
            }
        }
        for (name, state) in self.known.clone() {
            if !listed(&name) && !waited.iter().any(|(key, _)| *key == name) {
                self.queue(&name, format!("Deleted {state}?"));
            }
        }
        if self.initial.is_none() {
            self.initial = Some(
                self.queued_items
                    .iter()
                    .map(|(key, _)| key.clone())
                    .collect(),
            );
        }
    }

    fn resync(&mut self) {
        for (name, state) in self.known.clone() {
            if !self.queued_items.iter().any(|(key, _)| *key == name) {
                self.queue(&name, format!("Sync {state}"));
            }
        }
    }

    /// Pops the first key and its deltas, and updates the known objects.
    fn pop(&mut self, requeue: bool) -> Option<(String, Lines, bool)> {
        if self.queued_items.is_empty() {
            return None;
        }
        let initial = !self.has_synced();
        let (name, deltas) = self.queued_items.remove(0);
        if requeue {
            self.queued_items.push((name.clone(), deltas.clone()));
            return Some((name, deltas, initial));
        }
        if let Some(first) = &mut self.initial {
            first.retain(|key| *key != name);
        }
        self.known.retain(|(key, _)| *key != name);
        let last = deltas.last().unwrap();
        if let Some((what, state)) = last.split_once(' ')
            && what != "Deleted"
        {
            self.known.push((name.clone(), state.parse().unwrap()));
            self.known.sort();
        }
        Some((name, deltas, initial))
    }

    fn has_synced(&self) -> bool {
        self.initial.as_ref().is_some_and(Vec::is_empty)
    }
}

#[derive(Debug, Clone)]
enum Step {
    Change(&'static str, String),
    Replace(Vec<String>),
    Resync,
    Pop { requeue: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let what = prop::sample::select(vec!["Added", "Updated", "Deleted"]);
    prop_oneof![
        6 => (what, "[a-e]").prop_map(|(what, name)| Step::Change(what, name)),
        1 => prop::collection::vec("[a-f]", 0..6).prop_map(Step::Replace),
        1 => Just(Step::Resync),
        4 => prop::bool::weighted(0.2).prop_map(|requeue| Step::Pop { requeue }),
    ]
}

fn check_invariants(fifo: &Fifo) {
    let state = fifo.state.lock();
    let queued: HashSet<_> = state.queue.iter().collect();
    assert_eq!(queued.len(), state.queue.len(), "no key is queued twice");
    assert_eq!(queued, state.items.keys().collect());
    let beyond: usize = state.items.values().map(|deltas| deltas.len() - 1).sum();
    assert_eq!(state.intermediate, beyond);
}

proptest! {
    #[test]
    fn queue_equals_model(steps in prop::collection::vec(step(), 1..80)) {
        let (fifo, store) = known(&[]);
        let mut model = Model::default();
        for (state, step) in (1..).zip(steps) {
            match step {
                Step::Change(what, name) => {
                    let changed = object(&name, state);
                    match what {
                        "Added" => fifo.add(changed),
                        "Updated" => fifo.update(changed),
                        _ => fifo.delete(changed),
                    }
                    model.change(what, &name, state);
                }
                Step::Replace(names) => {
                    let list: Vec<_> = names.into_iter().map(|name| (name, state)).collect();
                    fifo.replace(list.iter().map(|(name, state)| object(name, *state)).collect());
                    model.replace(&list);
                }
                Step::Resync => {
                    fifo.resync();
                    model.resync();
                }
                Step::Pop { requeue } => {
                    let mut popped = None;
                    let process = |deltas: &Deltas<Meta>, initial| {
                        let all: Lines = deltas.iter().map(line).collect();
                        popped = Some((deltas.key().to_string(), all, initial));
                        if requeue {
                            return Err(Requeue);
                        }
                        match deltas.newest() {
                            Delta::Deleted(_) => store.delete_by_key(deltas.key().as_str()),
                            delta => store.put(deltas.key(), delta.object().clone()),
                        };
                        Ok(())
                    };
                    let outcome = fifo.pop(process).now_or_never();
                    prop_assert_eq!(outcome.is_some(), popped.is_some());
                    prop_assert_eq!(popped, model.pop(requeue));
                }
            }
            prop_assert_eq!(fifo.has_synced(), model.has_synced());
            prop_assert_eq!(fifo.len(), model.queued_items.len());
            check_invariants(&fifo);
        }
        // At the end the known objects equal the model's.
        while let Some((name, all, _)) = model.pop(false) {
            let popped = fifo.pop(|deltas, _| {
                match deltas.newest() {
                    Delta::Deleted(_) => store.delete_by_key(deltas.key().as_str()),
                    delta => store.put(deltas.key(), delta.object().clone()),
                };
                Ok((deltas.key().to_string(), deltas.iter().map(line).collect::<Lines>()))
            });
            prop_assert_eq!(popped.now_or_never().unwrap().unwrap(), (name, all));
        }
        let known = store.list();
        let known: Vec<_> = known.entries().map(|(key, object)| {
            let state = object.metadata.resource_version.as_deref().unwrap();
            (key.to_string(), state.parse::<u32>().unwrap())
        }).collect();
        prop_assert_eq!(known, model.known);
    }
}
