//! The model check: random writes, reads and watches of several clients on two replicas, through lost storage watches
//! and compactions, compared with a simple model that retains every state. Every list must equal the model's state at
//! its version; every watch must receive exactly the later changes of the model, in order and once. The seed is
//! printed.

use std::collections::BTreeMap;

use fastrand::Rng;
use serde_json::{Value, json};

use super::site::{Site, version};
use super::watching::Watching;

const NAMESPACES: [&str; 2] = ["default", "kube-system"];
const APPS: [&str; 3] = ["x", "y", "z"];
const NAMES: usize = 6;
const STEPS: usize = 500;
/// The number of versions before the present one that a compaction retains.
const COMPACT_BEHIND: u64 = 40;

/// One version of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    at: u64,
    app: String,
    stamp: String,
}

/// `namespace/name` and its version.
type State = BTreeMap<String, Version>;

/// The namespace and labels that a read or watch selects.
#[derive(Debug, Clone)]
struct Selection {
    namespace: Option<&'static str>,
    app: Option<&'static str>,
    name: Option<String>,
}

/// One write.
#[derive(Debug)]
struct Change {
    at: u64,
    key: String,
    before: Option<Version>,
    after: Option<Version>,
}

#[derive(Debug, Default)]
struct Model {
    now: State,
    changes: Vec<Change>,
}

impl Selection {
    fn random(random: &mut Rng) -> Self {
        let namespace = [None, Some(NAMESPACES[0]), Some(NAMESPACES[1])][random.usize(..3)];
        let app = [None, None, Some(APPS[random.usize(..3)])][random.usize(..3)];
        let name = (random.usize(..6) == 0).then(|| format!("m{}", random.usize(..NAMES)));
        Self {
            namespace,
            app,
            name,
        }
    }

    fn matches(&self, key: &str, version: &Version) -> bool {
        let (namespace, name) = key.split_once('/').expect("both");
        self.namespace.is_none_or(|selected| selected == namespace)
            && self.app.is_none_or(|selected| selected == version.app)
            && self.name.as_deref().is_none_or(|selected| selected == name)
    }

    fn path(&self, query: &str) -> String {
        let collection = match self.namespace {
            Some(namespace) => format!("/api/v1/namespaces/{namespace}/configmaps"),
            None => "/api/v1/configmaps".to_owned(),
        };
        let app = self.app.map(|app| format!("&labelSelector=app%3D{app}"));
        let name = self.name.as_ref();
        let name = name.map(|name| format!("&fieldSelector=metadata.name%3D{name}"));
        format!(
            "{collection}?{query}{}{}",
            app.unwrap_or_default(),
            name.unwrap_or_default()
        )
    }
}

impl Model {
    fn wrote(&mut self, at: u64, key: &str, after: Option<Version>) {
        let before = match &after {
            Some(version) => self.now.insert(key.to_owned(), version.clone()),
            None => self.now.remove(key),
        };
        let key = key.to_owned();
        self.changes.push(Change {
            at,
            key,
            before,
            after,
        });
    }

    /// Returns the selected objects of the state at a version.
    fn selected(&self, selection: &Selection, at: u64) -> State {
        let mut state = State::new();
        for change in self.changes.iter().take_while(|change| change.at <= at) {
            match &change.after {
                Some(version) => drop(state.insert(change.key.clone(), version.clone())),
                None => drop(state.remove(&change.key)),
            }
        }
        state.retain(|key, version| selection.matches(key, version));
        state
    }

    /// Returns the events of a watch of the selection after a version: type, key, version.
    fn events_after(&self, selection: &Selection, after: u64) -> Vec<(&'static str, String, u64)> {
        let later = self.changes.iter().filter(|change| change.at > after);
        later
            .filter_map(|change| {
                let sees = |side: &Option<Version>| {
                    side.as_ref()
                        .is_some_and(|v| selection.matches(&change.key, v))
                };
                let kind = match (sees(&change.before), sees(&change.after)) {
                    (false, true) => "ADDED",
                    (true, true) => "MODIFIED",
                    (true, false) => "DELETED",
                    (false, false) => return None,
                };
                Some((kind, change.key.clone(), change.at))
            })
            .collect()
    }
}

/// A client's watch, and the number of events that it has received.
struct Client {
    watch: Watching,
    selection: Selection,
    after: u64,
    received: usize,
}

impl Client {
    /// Reads the events that the model predicts and compares them.
    async fn catch_up(&mut self, model: &Model) {
        let expected = model.events_after(&self.selection, self.after);
        while self.received < expected.len() {
            let frame = self.watch.events(1).await.remove(0);
            let object = &frame["object"];
            assert_ne!(frame["type"], "ERROR", "{frame}");
            let received = (
                frame["type"].as_str().unwrap(),
                key_of(object),
                version(object),
            );
            let (kind, key, at) = &expected[self.received];
            assert_eq!(
                received,
                (*kind, key.clone(), *at),
                "{:?} after {}",
                self.selection,
                self.after
            );
            self.received += 1;
        }
    }
}

fn key_of(object: &Value) -> String {
    let text = |field: &str| {
        object["metadata"][field]
            .as_str()
            .expect("a text")
            .to_owned()
    };
    format!("{}/{}", text("namespace"), text("name"))
}

fn version_of(object: &Value) -> Version {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    Version {
        at: version(object),
        app: text(&object["metadata"]["labels"]["app"]),
        stamp: text(&object["data"]["stamp"]),
    }
}

fn state_of(list: &Value) -> State {
    let items = list["items"].as_array().expect("items").iter();
    items.map(|item| (key_of(item), version_of(item))).collect()
}

/// The servers that share a store, the model, and the clients.
struct Run<'a> {
    sites: [&'a Site; 2],
    random: Rng,
    model: Model,
    clients: Vec<Client>,
    /// Reads at earlier versions may be expired.
    compacted: u64,
}

impl Run<'_> {
    fn site(&mut self) -> usize {
        self.random.usize(..2)
    }

    async fn write(&mut self) {
        let site = self.sites[self.site()];
        let namespace = NAMESPACES[self.random.usize(..2)];
        let name = format!("m{}", self.random.usize(..NAMES));
        let key = format!("{namespace}/{name}");
        let collection = format!("/api/v1/namespaces/{namespace}/configmaps");
        let path = format!("{collection}/{name}");
        let app = APPS[self.random.usize(..3)];
        let stamp = self.random.u64(..).to_string();
        let body = json!({
            "metadata": {"name": name, "labels": {"app": app}}, "data": {"stamp": stamp},
        });
        let exists = self.model.now.contains_key(&key);
        match self.random.usize(..5) {
            0 | 1 if exists => {
                let written = site.patch(&path, "merge", &body).await.ok(200);
                self.model
                    .wrote(version(&written), &key, Some(version_of(&written)));
            }
            2 if exists => {
                let written = site.put(&path, &body).await.ok(200);
                self.model
                    .wrote(version(&written), &key, Some(version_of(&written)));
            }
            _ if exists => {
                site.delete(&path, &Value::Null).await.ok(200);
                let at = site.revision().await;
                self.model.wrote(at, &key, None);
            }
            _ => {
                let written = site.post(&collection, &body).await.ok(201);
                self.model
                    .wrote(version(&written), &key, Some(version_of(&written)));
            }
        }
    }

    /// Lists with random options; the result must be a state of the model.
    async fn read(&mut self) {
        let index = self.site();
        let site = self.sites[index];
        let selection = Selection::random(&mut self.random);
        let now = site.revision().await;
        let past = now.saturating_sub(self.random.usize(..60) as u64).max(1);
        let (query, least, exact) = match self.random.usize(..5) {
            0 => (String::new(), now, None),
            1 => ("resourceVersion=0".to_owned(), 0, None),
            2 => (format!("resourceVersion={past}"), past, None),
            3 => return self.pages(index, &selection, now).await,
            _ => {
                let query = format!("resourceVersionMatch=Exact&resourceVersion={past}");
                (query, past, Some(past))
            }
        };
        let answer = site.get(&selection.path(&query)).await;
        if exact.is_some_and(|at| at < self.compacted) && answer.code == 410 {
            answer.failure(410, "Expired");
            return;
        }
        let list = answer.ok(200);
        let at = version(&list);
        assert!(
            at >= least && exact.is_none_or(|exact| exact == at),
            "{query}: {at}"
        );
        assert_eq!(
            state_of(&list),
            self.model.selected(&selection, at),
            "{query} {selection:?}"
        );
    }

    /// Lists in pages of random size with writes in between; the pages must be of one state.
    async fn pages(&mut self, index: usize, selection: &Selection, least: u64) {
        let limit = 1 + self.random.usize(..4);
        let mut query = format!("limit={limit}");
        let mut state = State::new();
        let mut first = None;
        loop {
            let list = self.sites[index].get(&selection.path(&query)).await.ok(200);
            let at = *first.get_or_insert(version(&list));
            assert_eq!(version(&list), at);
            let page = state_of(&list);
            assert!(page.len() <= limit);
            state.extend(page);
            let Some(token) = list["metadata"]["continue"].as_str() else {
                assert!(at >= least);
                assert_eq!(state, self.model.selected(selection, at), "{selection:?}");
                return;
            };
            query = format!("limit={limit}&continue={token}");
            Box::pin(self.write()).await;
        }
    }

    /// Opens a watch from a list, from the past, or with initial events.
    async fn open(&mut self) {
        let site = self.sites[self.site()];
        let selection = Selection::random(&mut self.random);
        let now = site.revision().await;
        let after = match self.random.usize(..3) {
            0 => version(&site.get(&selection.path("")).await.ok(200)),
            1 => now
                .saturating_sub(self.random.usize(..30) as u64)
                .max(self.compacted),
            _ => return self.stream(site, selection).await,
        };
        let path = selection.path(&format!("resourceVersion={after}"));
        let watch = site.watch(&path).await;
        self.clients.push(Client {
            watch,
            selection,
            after,
            received: 0,
        });
    }

    async fn stream(&mut self, site: &Site, selection: Selection) {
        let query =
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1";
        let mut watch = site.watch(&selection.path(query)).await;
        let mut state = State::new();
        loop {
            let frame = watch.next().await.expect("it goes on");
            let object = &frame["object"];
            if frame["type"] == "BOOKMARK" {
                let after = version(object);
                assert_eq!(
                    state,
                    self.model.selected(&selection, after),
                    "{selection:?}"
                );
                self.clients.push(Client {
                    watch,
                    selection,
                    after,
                    received: 0,
                });
                return;
            }
            assert_eq!(frame["type"], "ADDED", "{frame}");
            state.insert(key_of(object), version_of(object));
        }
    }

    async fn disturb(&mut self) {
        let now = self.sites[0].revision().await;
        match self.random.usize(..4) {
            0 => {
                // If storage compacts versions while a cache is disconnected, the cache lists again and sends only the
                // differences; other tests cover that.
                for site in self.sites {
                    let path = format!("/api/v1/configmaps?resourceVersion={now}");
                    site.get(&path).await.ok(200);
                }
                self.compacted = now.saturating_sub(COMPACT_BEHIND).max(self.compacted);
                self.sites[0].compact(self.compacted).await;
            }
            _ => {
                let site = self.site();
                self.sites[site].storage.cut_watches();
            }
        }
    }

    async fn step(&mut self) {
        match self.random.usize(..20) {
            0..=9 => self.write().await,
            10..=13 => self.read().await,
            14..=15 => self.open().await,
            16..=18 if !self.clients.is_empty() => {
                let client = self.random.usize(..self.clients.len());
                self.clients[client].catch_up(&self.model).await;
                if self.random.usize(..3) == 0 {
                    self.clients.swap_remove(client);
                }
            }
            _ => self.disturb().await,
        }
    }
}

pub(crate) async fn reads_and_watches_agree_with_the_model(site: &Site) {
    let other = site.replica().await;
    let mut run = Run {
        sites: [site, &other],
        random: Rng::with_seed(watchet_test_util::seeds::seed()),
        model: Model::default(),
        clients: Vec::new(),
        compacted: 1,
    };
    for _ in 0..STEPS {
        run.step().await;
    }
    for client in &mut run.clients {
        client.catch_up(&run.model).await;
    }
    for client in &mut run.clients {
        client.watch.has_no_event().await;
    }
}
