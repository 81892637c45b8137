//! The model of a watch cache: the log of all writes. It predicts what lists and watches receive, for randomized scripts.

use std::collections::BTreeMap;

use super::item::{EventKind, Item, ItemKind, ObjectItem, ObjectVersion};
use super::object::{Content, ObjectName, Resource};
use super::script::{Action, Read, StartVersion, Write};
use super::version_ref::VersionRef;

type State = BTreeMap<ObjectName, (u32, Content)>;

/// A change of a pod.
struct Change {
    version: u32,
    object: ObjectName,
    before: Option<(u32, Content)>,
    after: Option<Content>,
}

struct Watch {
    read: Read,
    /// The index in the log of the next change to send: earlier changes were sent, or precede the watch.
    next: usize,
    initial: Vec<Item>,
    is_paused: bool,
}

/// Every change so far, and the open watches.
#[derive(Default)]
struct Model {
    state: State,
    log: Vec<Change>,
    versions: Vec<u32>,
    watches: BTreeMap<String, Watch>,
    expectations: Vec<Action>,
}

/// Returns the actions with the expectations that a correct cache meets. Actions that are not possible, such as the
/// deletion of a missing object, are removed.
pub(super) fn with_expectations(actions: &[Action]) -> Vec<Action> {
    let mut model = Model::default();
    let mut all = Vec::new();
    for action in actions {
        if model.apply(action) {
            all.push(action.clone());
        }
        all.append(&mut model.expectations);
    }
    for name in model.watches.keys().cloned().collect::<Vec<_>>() {
        if model.watches[&name].is_paused {
            all.push(Action::Resume(name.clone()));
        }
        all.push(model.expect(&name));
    }
    all
}

/// Returns whether a selector of requirements `key=value` and `key!=value` selects the object.
fn is_selected(read: &Read, object: &ObjectName, content: &Content) -> bool {
    let requirements = read.labels.split(',').chain(read.fields.split(','));
    let value = |key: &str| match key {
        "spec.nodeName" => &content.node_name,
        "metadata.name" => &object.name,
        key => content.labels.get(key).unwrap_or(const { &String::new() }),
    };
    read.namespace
        .as_ref()
        .is_none_or(|namespace| *namespace == object.namespace)
        && requirements
            .filter(|requirement| !requirement.is_empty())
            .all(|requirement| match requirement.split_once("!=") {
                Some((key, expected)) => value(key) != expected,
                None => requirement
                    .split_once('=')
                    .is_some_and(|(key, expected)| value(key) == expected),
            })
}

fn object_item(kind: ItemKind, object: &ObjectName, version: u32, content: &Content) -> Item {
    Item::Object(ObjectItem {
        kind,
        name: object.short(),
        version: ObjectVersion {
            version: VersionRef::named(version),
            index: None,
        },
        // A script cannot express an object without labels and fields.
        content: (*content != Content::default()).then(|| content.clone()),
        count: 1,
    })
}

impl Change {
    /// Returns the event of a watch, if its selector matches the object before or after the change.
    fn event(&self, read: &Read) -> Option<Item> {
        let before = self.before.as_ref().map(|(_, content)| content);
        let selected = |content: &&Content| is_selected(read, &self.object, content);
        let (before, after) = (
            before.filter(selected),
            self.after.as_ref().filter(selected),
        );
        let (kind, content) = match (before, after) {
            (None, Some(after)) => (EventKind::Added, after),
            (Some(_), Some(after)) => (EventKind::Modified, after),
            (Some(before), None) => (EventKind::Deleted, before),
            (None, None) => return None,
        };
        Some(object_item(
            ItemKind::Event(kind),
            &self.object,
            self.version,
            content,
        ))
    }
}

impl Model {
    /// Returns the version of the last write.
    fn now(&self) -> VersionRef {
        VersionRef::named(self.versions.last().copied().unwrap_or(0))
    }

    /// Applies an action; returns false if it is not possible.
    fn apply(&mut self, action: &Action) -> bool {
        match action {
            Action::Write {
                writes, version, ..
            } => return self.write(writes, *version),
            Action::Watch(name, read) => return self.watch(name, read),
            Action::List(name, read) => self.list(name, read),
            Action::Pause(name) | Action::Resume(name) => {
                let pause = matches!(action, Action::Pause(_));
                let watch = self
                    .watches
                    .get_mut(name)
                    .filter(|watch| watch.is_paused != pause);
                return watch.map(|watch| watch.is_paused = pause).is_some();
            }
            Action::Expect(name, _) => {
                if self.watches.get(name).is_some_and(|watch| !watch.is_paused) {
                    let expectation = self.expect(name);
                    self.expectations.push(expectation);
                }
                return false;
            }
            _ => {}
        }
        true
    }

    fn write(&mut self, writes: &[Write], version: u32) -> bool {
        let exists = |write: &Write| match write {
            Write::Put(..) => true,
            Write::Delete(object) => self.state.contains_key(object),
            Write::Corrupt(_) => false,
        };
        if !writes.iter().all(exists) {
            return false;
        }
        self.versions.push(version);
        for write in writes
            .iter()
            .filter(|write| write.object().resource == Resource::Pods)
        {
            let object = write.object().clone();
            let after = match write {
                Write::Put(_, content) => Some(content.clone()),
                _ => None,
            };
            let before = match &after {
                Some(content) => self
                    .state
                    .insert(object.clone(), (version, content.clone())),
                None => self.state.remove(&object),
            };
            self.log.push(Change {
                version,
                object,
                before,
                after,
            });
        }
        true
    }

    fn selected(&self, read: &Read, kind: ItemKind) -> Vec<Item> {
        let selected = self
            .state
            .iter()
            .filter(|(object, (_, content))| is_selected(read, object, content));
        selected
            .map(|(object, (version, content))| object_item(kind, object, *version, content))
            .collect()
    }

    fn watch(&mut self, name: &str, read: &Read) -> bool {
        if self.watches.contains_key(name) {
            return false;
        }
        let mut watch = Watch {
            read: read.clone(),
            next: self.log.len(),
            initial: Vec::new(),
            is_paused: false,
        };
        match read.from {
            StartVersion::At(version)
                if version.name > 0 && !self.versions.contains(&version.name) =>
            {
                return false;
            }
            StartVersion::At(version) => {
                watch.next = self
                    .log
                    .iter()
                    .take_while(|change| change.version <= version.name)
                    .count();
            }
            StartVersion::Zero | StartVersion::Unset => {
                watch.initial = self.selected(read, ItemKind::Event(EventKind::Added));
                if read.bookmarks {
                    let version = self.now();
                    watch.initial.push(Item::Bookmark {
                        version,
                        is_initial_events_end: true,
                    });
                }
            }
        }
        self.watches.insert(name.to_owned(), watch);
        true
    }

    fn list(&mut self, name: &str, read: &Read) {
        let mut items = self.selected(read, ItemKind::Listed);
        items.push(Item::ListVersion(self.now()));
        self.expectations
            .push(Action::Expect(name.to_owned(), items));
    }

    /// Returns the expectation of all items that the client has not yet received.
    fn expect(&mut self, name: &str) -> Action {
        let watch = self.watches.get_mut(name).expect("an open watch");
        let mut items = std::mem::take(&mut watch.initial);
        items.extend(
            self.log[watch.next..]
                .iter()
                .filter_map(|change| change.event(&watch.read)),
        );
        watch.next = self.log.len();
        Action::Expect(name.to_owned(), items)
    }
}
