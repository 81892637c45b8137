//! A correct implementation of the API, which generates histories: one storage, servers whose caches lag behind it, and clients
//! that send requests concurrently and lose responses.

use std::collections::{BTreeMap, BinaryHeap};

use fastrand::Rng;

use crate::check::{
    Change, Content, Failure, FinalState, History, Labels, Object, Operation, Outcome, Page,
    ReadVersion, Request, Selector, Snapshot,
};

/// The size of a history.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) operations: usize,
    pub(super) clients: u32,
    pub(super) keys: u32,
    /// Out of 100 requests, those with unknown outcomes.
    pub(super) unknown_percent: u32,
    pub(super) watches: u64,
    /// Whether a watch shows everything.
    pub(super) has_complete_watch: bool,
}

pub(super) type State = BTreeMap<String, Object>;

/// A committed revision.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) revision: u64,
    pub(super) time: u64,
    pub(super) changes: Vec<(String, Option<Content>)>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Call,
    Effect(usize),
    Return(usize),
}

pub(super) struct Server<'r> {
    pub(super) rng: &'r mut Rng,
    pub(super) size: Size,
    pub(super) initial: Snapshot,
    pub(super) commits: Vec<Commit>,
    /// The revision after each commit.
    revision: u64,
    state: State,
    /// The revisions of the servers' caches.
    caches: Vec<u64>,
    queue: BinaryHeap<std::cmp::Reverse<(u64, u64, u32, Phase)>>,
    sequence: u64,
    operations: Vec<Operation>,
    /// The outcome, which the client may not receive.
    outcomes: BTreeMap<usize, Outcome>,
    values: u64,
    pub(super) now: u64,
}

const SERVERS: u32 = 3;

/// Generates a history.
pub(super) fn generate(rng: &mut Rng, size: Size) -> History {
    let mut server = Server::new(rng, size);
    for client in 0..size.clients {
        let time = server.rng.u64(0..100);
        server.push(time, client, Phase::Call);
    }
    while let Some(std::cmp::Reverse((time, _, client, phase))) = server.queue.pop() {
        server.now = time;
        server.refresh_caches();
        server.step(client, phase);
    }
    server.finish()
}

impl<'r> Server<'r> {
    fn new(rng: &'r mut Rng, size: Size) -> Self {
        let mut server = Self {
            rng,
            size,
            initial: Snapshot::default(),
            commits: Vec::new(),
            revision: 10,
            state: State::new(),
            caches: vec![10; SERVERS as usize],
            queue: BinaryHeap::new(),
            sequence: 0,
            operations: Vec::new(),
            outcomes: BTreeMap::new(),
            values: 0,
            now: 0,
        };
        for index in 0..size.keys / 3 {
            let object = Object {
                key: key(index),
                revision: 1 + u64::from(index) % 9,
                content: server.content(),
            };
            server.state.insert(object.key.clone(), object);
        }
        server.initial = Snapshot {
            revision: 10,
            objects: server.state.values().cloned().collect(),
        };
        server
    }

    fn push(&mut self, time: u64, client: u32, phase: Phase) {
        self.sequence += 1;
        let entry = (time, self.sequence, client, phase);
        self.queue.push(std::cmp::Reverse(entry));
    }

    fn content(&mut self) -> Content {
        self.values += 1;
        let color = ["red", "green", "blue"][self.rng.usize(0..3)];
        let labels = Labels::from([("color".to_owned(), color.to_owned())]);
        Content {
            value: self.values,
            labels,
        }
    }

    fn refresh_caches(&mut self) {
        for index in 0..self.caches.len() {
            if self.rng.u32(0..4) == 0 {
                let low = self.caches[index];
                self.caches[index] = self.rng.u64(low..=self.revision);
            }
        }
    }

    fn step(&mut self, client: u32, phase: Phase) {
        match phase {
            Phase::Call => self.call(client),
            Phase::Effect(index) => {
                let outcome = self.execute(index);
                self.outcomes.insert(index, outcome);
            }
            Phase::Return(index) => {
                let outcome = self.outcomes.remove(&index);
                let operation = &mut self.operations[index];
                operation.returned = Some(self.now);
                if let Some(outcome) = outcome.filter(|_| operation.outcome == Outcome::Unknown) {
                    operation.outcome = outcome;
                }
                if self.continue_list(index) {
                    return;
                }
                let time = self.now + self.rng.u64(1..60);
                self.push(time, client, Phase::Call);
            }
        }
    }

    fn call(&mut self, client: u32) {
        if self.operations.len() >= self.size.operations {
            return;
        }
        let request = self.request();
        let server = self.rng.u32(0..SERVERS);
        self.send(client, server, request);
    }

    fn send(&mut self, client: u32, server: u32, request: Request) {
        let index = self.operations.len();
        self.operations.push(Operation {
            id: index as u64 + 1,
            client,
            server,
            call: self.now,
            returned: None,
            request,
            outcome: Outcome::Unknown,
        });
        let effect = self.now + self.rng.u64(0..50);
        if self.rng.u32(0..100) >= self.size.unknown_percent {
            self.push(effect, client, Phase::Effect(index));
            let returned = effect + self.rng.u64(0..50);
            self.push(returned, client, Phase::Return(index));
            return;
        }
        // The client receives no outcome: the request is lost, or takes effect at any later time.
        if self.rng.bool() {
            let late = effect + self.rng.u64(0..300);
            self.push(late, client, Phase::Effect(index));
        }
        let time = self.now + self.rng.u64(20..100);
        self.push(time, client, Phase::Call);
    }

    fn request(&mut self) -> Request {
        let index = self.rng.u32(0..self.size.keys);
        let key = key(index);
        let present = self.state.get(&key).map(|object| object.revision);
        // A client knows a revision that may be outdated.
        let revision = present.map(|revision| revision - self.rng.u64(0..20) / 18);
        match self.rng.u32(0..20) {
            0..=3 => Request::Create {
                key,
                content: self.content(),
            },
            4..=8 => Request::Update {
                key,
                content: self.content(),
                precondition: revision.filter(|_| self.rng.bool()),
            },
            9..=10 => Request::Delete {
                key,
                precondition: revision.filter(|_| self.rng.bool()),
            },
            11 => {
                let other = format!("configmaps/t/x{}", self.rng.u32(0..4));
                let content = self.content();
                let second = self.rng.bool().then(|| self.content());
                let change = |key, content| Change { key, content };
                Request::Transaction {
                    changes: vec![change(key, second), change(other, Some(content))],
                }
            }
            12..=15 => Request::Get {
                key,
                version: self.version(false),
            },
            _ => {
                let version = self.version(true);
                Request::List {
                    selector: self.selector(),
                    version,
                    limit: self.rng.bool().then(|| self.rng.u64(1..5)),
                    continues: None,
                }
            }
        }
    }

    fn version(&mut self, is_list: bool) -> ReadVersion {
        let revision = self.rng.u64(10..=self.revision);
        match self.rng.u32(0..8) {
            0..=3 => ReadVersion::Consistent,
            4..=5 => ReadVersion::Any,
            6 if is_list => ReadVersion::Exact(revision),
            _ => ReadVersion::NotOlderThan(revision),
        }
    }

    pub(super) fn selector(&mut self) -> Selector {
        let mut selector = Selector::prefix(["pods/", "pods/a/", ""][self.rng.usize(0..3)]);
        if self.rng.u32(0..3) == 0 {
            let label = ("color".to_owned(), "red".to_owned());
            selector.labels.extend([label]);
        }
        selector
    }

    fn continue_list(&mut self, index: usize) -> bool {
        let operation = &self.operations[index];
        let (Request::List { .. }, Outcome::Listed(page)) =
            (&operation.request, &operation.outcome)
        else {
            return false;
        };
        let has_more = page.has_more;
        if has_more {
            let mut request = operation.request.clone();
            if let Request::List { continues, .. } = &mut request {
                *continues = Some(operation.id);
            }
            self.send(operation.client, operation.server, request);
        }
        has_more
    }

    fn commit(&mut self, changes: Vec<(String, Option<Content>)>) -> u64 {
        self.revision += self.rng.u64(1..3);
        let revision = self.revision;
        let mut effective = Vec::new();
        for (key, content) in changes {
            let removed = self.state.remove(&key);
            if removed.is_some() || content.is_some() {
                effective.push((key.clone(), content.clone()));
            }
            if let Some(content) = content {
                let object = Object {
                    key: key.clone(),
                    revision,
                    content,
                };
                self.state.insert(key, object);
            }
        }
        self.commits.push(Commit {
            revision,
            time: self.now,
            changes: effective,
        });
        revision
    }

    fn execute(&mut self, index: usize) -> Outcome {
        let operation = self.operations[index].clone();
        let present = |key: &String| self.state.get(key).cloned();
        match operation.request {
            Request::Create { key, .. } if present(&key).is_some() => {
                Outcome::Failed(Failure::AlreadyExists)
            }
            Request::Create { key, content } => Outcome::Written {
                revision: self.commit(vec![(key, Some(content))]),
            },
            Request::Update {
                key,
                content,
                precondition,
            } => match present(&key) {
                None => Outcome::Failed(Failure::NotFound),
                Some(object) if precondition.is_some_and(|p| p != object.revision) => {
                    Outcome::Failed(Failure::Conflict)
                }
                Some(_) => Outcome::Written {
                    revision: self.commit(vec![(key, Some(content))]),
                },
            },
            Request::Delete { key, precondition } => match present(&key) {
                None => Outcome::Failed(Failure::NotFound),
                Some(object) if precondition.is_some_and(|p| p != object.revision) => {
                    Outcome::Failed(Failure::Conflict)
                }
                Some(_) => {
                    let revision = self.commit(vec![(key, None)]);
                    let revision = Some(revision).filter(|_| self.rng.u32(0..3) == 0);
                    Outcome::Deleted { revision }
                }
            },
            Request::Transaction { changes } => Outcome::Written {
                revision: {
                    let changes = changes.into_iter();
                    self.commit(changes.map(|change| (change.key, change.content)).collect())
                },
            },
            Request::Get { key, version } => {
                let state = self.state_at(self.read_revision(operation.server, version));
                match state.get(&key) {
                    Some(object) => Outcome::Found(object.clone()),
                    None => Outcome::Failed(Failure::NotFound),
                }
            }
            Request::List {
                selector,
                version,
                limit,
                continues,
            } => self.list(operation.server, &selector, version, limit, continues),
        }
    }

    fn read_revision(&self, server: u32, version: ReadVersion) -> u64 {
        let cache = self.caches[server as usize];
        match version {
            ReadVersion::Consistent => self.revision,
            ReadVersion::Any => cache,
            ReadVersion::NotOlderThan(minimum) => cache.max(minimum),
            ReadVersion::Exact(revision) => revision,
        }
    }

    fn list(
        &mut self,
        server: u32,
        selector: &Selector,
        version: ReadVersion,
        limit: Option<u64>,
        continues: Option<u64>,
    ) -> Outcome {
        let mut revision = self.read_revision(server, version);
        if let ReadVersion::NotOlderThan(_) | ReadVersion::Any = version {
            // Only unlimited lists raise what later reads of a session may return, so a raised cache is never undone.
            self.caches[server as usize] = revision.max(self.caches[server as usize]);
        }
        let mut after = String::new();
        if let Some(previous) = continues {
            let previous = &self.operations[previous as usize - 1];
            let Outcome::Listed(page) = &previous.outcome else {
                panic!("only pages are continued");
            };
            revision = page.revision;
            after = page
                .objects
                .last()
                .map_or(String::new(), |last| last.key.clone());
        }
        let state = self.state_at(revision);
        let matching = state
            .into_values()
            .filter(|object| after < object.key && selector.matches(&object.key, &object.content));
        let mut objects: Vec<Object> = matching.collect();
        let total = objects.len();
        if version != ReadVersion::Any {
            objects.truncate(limit.unwrap_or(u64::MAX) as usize);
        }
        let remaining = (total - objects.len()) as u64;
        Outcome::Listed(Page {
            revision,
            objects,
            has_more: remaining > 0,
            remaining: selector.labels.is_empty().then_some(remaining),
        })
    }

    /// Returns the newest revision at a time.
    pub(super) fn revision_at(&self, time: u64) -> u64 {
        let commits = self.commits.iter().take_while(|commit| commit.time <= time);
        commits
            .last()
            .map_or(self.initial.revision, |commit| commit.revision)
    }

    pub(super) fn state_at(&self, revision: u64) -> State {
        let objects = self.initial.objects.iter().cloned();
        let mut state: State = objects.map(|object| (object.key.clone(), object)).collect();
        for commit in self.commits.iter().take_while(|c| c.revision <= revision) {
            for (key, content) in &commit.changes {
                match content {
                    Some(content) => {
                        let object = Object {
                            key: key.clone(),
                            revision: commit.revision,
                            content: content.clone(),
                        };
                        state.insert(key.clone(), object);
                    }
                    None => drop(state.remove(key)),
                }
            }
        }
        state
    }

    fn finish(mut self) -> History {
        self.now += 1000;
        let snapshot = Snapshot {
            revision: self.revision,
            objects: self.state.values().cloned().collect(),
        };
        let mut history = History {
            initial: self.initial.clone(),
            final_state: Some(FinalState {
                call: self.now,
                returned: self.now + 10,
                snapshot,
            }),
            ..History::default()
        };
        super::model_watch::add_watches(&mut self, &mut history);
        history.operations = self.operations;
        history
    }
}

pub(super) fn key(index: u32) -> String {
    format!("pods/{}/p{index}", ["a", "b"][index as usize % 2])
}
