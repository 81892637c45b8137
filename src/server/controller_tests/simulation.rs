//! Simulation: random graphs and deletions, compared with a naive model of garbage collection. The
//! seed is printed; `WATCHET_SEED` repeats a run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::garbage::{COLLECTOR, reference};
use super::*;

/// Objects by number; every fourth is a cluster role, the others are config maps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Model {
    /// The owners of each existing object, by number.
    objects: BTreeMap<usize, BTreeSet<usize>>,
}

impl Model {
    /// Deletes garbage and removes references to absent owners, until nothing changes.
    fn converge(&mut self) {
        loop {
            let before = self.objects.clone();
            let is_there = |owner: &usize| before.contains_key(owner);
            self.objects
                .retain(|_, owners| owners.is_empty() || owners.iter().any(is_there));
            for owners in self.objects.values_mut() {
                owners.retain(|owner| is_there(owner));
            }
            if self.objects == before {
                return;
            }
        }
    }

    fn delete(&mut self, number: usize, policy: &str) {
        if policy == "Orphan" {
            for owners in self.objects.values_mut() {
                owners.remove(&number);
            }
        }
        self.objects.remove(&number);
        self.converge();
    }
}

const POLICIES: [&str; 3] = ["Background", "Foreground", "Orphan"];

fn plural(number: usize) -> &'static str {
    if number.is_multiple_of(4) {
        "clusterroles"
    } else {
        "configmaps"
    }
}

fn path(number: usize) -> String {
    format!("{}/o{number}", plural(number))
}

/// A server and the objects that were created in it.
struct Simulation {
    started: Started,
    made: Vec<Value>,
}

impl Simulation {
    async fn new() -> Self {
        Self {
            started: started().await,
            made: Vec::new(),
        }
    }

    /// Creates an object with these owners; returns its number.
    async fn make(&mut self, owners: &[(usize, bool)]) -> usize {
        let number = self.made.len();
        let owners: Vec<Value> = owners
            .iter()
            .map(|(owner, blocks)| reference(&self.made[*owner], *blocks))
            .collect();
        let name = format!("o{number}");
        let body = json!({"metadata": {"name": name, "ownerReferences": owners}});
        self.made
            .push(self.started.create(plural(number), body).await);
        number
    }

    /// Returns random owners for `number`; a cluster role has no namespaced owners.
    fn owners(&self, number: usize, random: &mut fastrand::Rng) -> Vec<(usize, bool)> {
        let mut chosen = BTreeMap::new();
        for _ in 0..random.usize(0..4).min(self.made.len()) {
            let owner = random.usize(0..self.made.len());
            if plural(number) == "configmaps" || plural(owner) == "clusterroles" {
                chosen.insert(owner, random.bool());
            }
        }
        chosen.into_iter().collect()
    }

    async fn stored(&self) -> Model {
        let mut objects = BTreeMap::new();
        for number in 0..self.made.len() {
            let key = match plural(number) {
                "clusterroles" => format!("/clusterroles/o{number}"),
                _ => format!("/configmaps/default/o{number}"),
            };
            if let Some(stored) = self.started.stored(&key).await {
                let owners = stored["metadata"]["ownerReferences"].as_array();
                let owners = owners.into_iter().flatten().map(|owner| {
                    let name = owner["name"].as_str().unwrap();
                    name[1..].parse().unwrap()
                });
                objects.insert(number, owners.collect());
            }
        }
        Model { objects }
    }

    /// Waits until `right` accepts the stored objects.
    async fn until(&self, seed: u64, right: impl Fn(&Model) -> Result<(), String>) {
        let mut wrong = String::new();
        for _ in 0..600 {
            match right(&self.stored().await) {
                Ok(()) => return,
                Err(why) => wrong = why,
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("seed {seed}: {wrong}");
    }
}

/// After each of a sequence of steps the stored objects equal the model.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequential_steps_equal_the_model() {
    for seed in watchet_test_util::seeds::seeds(4) {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut simulation, mut model) = (Simulation::new().await, Model::default());
        for _ in 0..40 {
            let alive: Vec<usize> = model.objects.keys().copied().collect();
            let some = (!alive.is_empty()).then(|| alive[random.usize(..alive.len())]);
            match (random.u8(0..10), some) {
                (0..3, Some(number)) => {
                    let policy = POLICIES[random.usize(..3)];
                    simulation.started.delete_as(&path(number), policy).await;
                    model.delete(number, policy);
                }
                (3..5, Some(number)) => {
                    // An object may own itself, or its owners.
                    let mut owners = simulation.owners(number, &mut random);
                    owners.retain(|(owner, _)| model.objects.contains_key(owner));
                    let references: Vec<Value> = owners
                        .iter()
                        .map(|(owner, blocks)| reference(&simulation.made[*owner], *blocks))
                        .collect();
                    let patch = json!({"metadata": {"ownerReferences": references}});
                    simulation.started.merge_patch(&path(number), patch).await;
                    let owners = owners.into_iter().map(|(owner, _)| owner);
                    model.objects.insert(number, owners.collect());
                }
                _ => {
                    let owners = simulation.owners(simulation.made.len(), &mut random);
                    let number = simulation.make(&owners).await;
                    let owners = owners.into_iter().map(|(owner, _)| owner);
                    model.objects.insert(number, owners.collect());
                    model.converge();
                }
            }
            simulation
                .until(seed, |stored| match *stored == model {
                    true => Ok(()),
                    false => Err(format!("{stored:?} is not {model:?}")),
                })
                .await;
        }
        simulation.started.stop().await;
    }
}

/// After concurrent deletions with two collectors, the objects that must be deleted are deleted, those that must remain
/// remain, and no object refers to an absent owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_steps_stay_within_the_model() {
    for seed in watchet_test_util::seeds::seeds(6) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut simulation = Simulation::new().await;
        let other = simulation.started.another();
        let mut owners_of: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for _ in 0..40 {
            let owners = simulation.owners(simulation.made.len(), &mut random);
            let number = simulation.make(&owners).await;
            owners_of.insert(number, owners.into_iter().map(|(o, _)| o).collect());
        }
        let mut deleted: BTreeMap<usize, &str> = BTreeMap::new();
        for _ in 0..12 {
            deleted.insert(random.usize(..40), POLICIES[random.usize(..3)]);
        }
        let deletions = deleted.iter().map(|(number, policy)| {
            let (path, options) = (path(*number), json!({"propagationPolicy": policy}));
            let started = &simulation.started;
            async move { started.try_delete(&path, options).await }
        });
        for result in futures_util::future::join_all(deletions).await {
            // It may have been deleted with its owner.
            assert!(result.as_ref().is_err_and(ApiError::is_not_found) || result.is_ok());
        }
        let (mut goes, mut may_go): (BTreeSet<usize>, BTreeSet<usize>) = (
            deleted.keys().copied().collect(),
            deleted.keys().copied().collect(),
        );
        loop {
            let before = (goes.len(), may_go.len());
            for (number, owners) in owners_of.iter().filter(|(_, o)| !o.is_empty()) {
                let orphans = |o: &usize| deleted.get(o) == Some(&"Orphan");
                if owners.iter().all(|o| goes.contains(o) && !orphans(o)) {
                    goes.insert(*number);
                }
                if owners.iter().all(|o| may_go.contains(o)) {
                    may_go.insert(*number);
                }
            }
            if before == (goes.len(), may_go.len()) {
                break;
            }
        }
        let right = |stored: &Model| {
            let there: BTreeSet<usize> = stored.objects.keys().copied().collect();
            let left: Vec<_> = goes.intersection(&there).collect();
            let lost: Vec<_> = (0..40)
                .filter(|n| !may_go.contains(n) && !there.contains(n))
                .collect();
            let named = stored.objects.values().flatten();
            let dangling: Vec<_> = named.filter(|owner| !there.contains(owner)).collect();
            match left.is_empty() && lost.is_empty() && dangling.is_empty() {
                true => Ok(()),
                false => Err(format!(
                    "left {left:?}, lost {lost:?}, dangling {dangling:?}"
                )),
            }
        };
        simulation.until(seed, &right).await;
        simulation.started.collector_follows().await;
        other.queues.wait_until_idle(COLLECTOR).await;
        assert_eq!(right(&simulation.stored().await), Ok(()), "seed {seed}");
        simulation.started.stop().await;
    }
}
