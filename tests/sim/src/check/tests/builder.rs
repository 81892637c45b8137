//! Short ways to write histories by hand.

use crate::check::{
    Content, EventKind, Failure, FinalState, History, Labels, Object, Operation, Outcome, Page,
    ReadVersion, Request, Selector, Snapshot, Violation, WatchEvent, WatchLog, WatchStart, check,
    render,
};

/// Returns the content with this value; odd values are red.
pub(super) fn content(value: u64) -> Content {
    let color = if value % 2 == 1 { "red" } else { "blue" };
    Content {
        value,
        labels: Labels::from([("color".to_owned(), color.to_owned())]),
    }
}

pub(super) fn key(name: &str) -> String {
    format!("pods/default/{name}")
}

/// Returns the object with this name, revision and value.
pub(super) fn object(name: &str, revision: u64, value: u64) -> Object {
    Object {
        key: key(name),
        revision,
        content: content(value),
    }
}

pub(super) fn create(name: &str, value: u64) -> Request {
    Request::Create {
        key: key(name),
        content: content(value),
    }
}

pub(super) fn update(name: &str, value: u64, precondition: Option<u64>) -> Request {
    Request::Update {
        key: key(name),
        content: content(value),
        precondition,
    }
}

pub(super) fn delete(name: &str, precondition: Option<u64>) -> Request {
    Request::Delete {
        key: key(name),
        precondition,
    }
}

pub(super) fn get(name: &str, version: ReadVersion) -> Request {
    Request::Get {
        key: key(name),
        version,
    }
}

pub(super) fn list(version: ReadVersion) -> Request {
    page(version, None, None)
}

pub(super) fn page(version: ReadVersion, limit: Option<u64>, continues: Option<u64>) -> Request {
    Request::List {
        selector: Selector::prefix("pods/"),
        version,
        limit,
        continues,
    }
}

pub(super) fn written(revision: u64) -> Outcome {
    Outcome::Written { revision }
}

pub(super) fn deleted(revision: Option<u64>) -> Outcome {
    Outcome::Deleted { revision }
}

pub(super) fn failed(failure: Failure) -> Outcome {
    Outcome::Failed(failure)
}

pub(super) fn listed(revision: u64, objects: &[Object]) -> Outcome {
    Outcome::Listed(Page {
        revision,
        objects: objects.to_vec(),
        has_more: false,
        remaining: None,
    })
}

pub(super) fn first_page(revision: u64, objects: &[Object]) -> Outcome {
    Outcome::Listed(Page {
        revision,
        objects: objects.to_vec(),
        has_more: true,
        remaining: None,
    })
}

pub(super) fn added(name: &str, revision: u64, value: u64) -> EventKind {
    EventKind::Added(object(name, revision, value))
}

pub(super) fn modified(name: &str, revision: u64, value: u64) -> EventKind {
    EventKind::Modified(object(name, revision, value))
}

pub(super) fn removed(name: &str, revision: u64, value: u64) -> EventKind {
    EventKind::Deleted(object(name, revision, value))
}

pub(super) fn bookmark(revision: u64) -> EventKind {
    EventKind::Bookmark {
        revision,
        ends_initial_events: false,
    }
}

pub(super) fn end_bookmark(revision: u64) -> EventKind {
    EventKind::Bookmark {
        revision,
        ends_initial_events: true,
    }
}

/// A history that grows by one operation after the other.
#[derive(Default)]
pub(super) struct Builder {
    pub(super) history: History,
    now: u64,
}

impl Builder {
    /// Adds an operation that begins after all others ended.
    pub(super) fn then(mut self, request: Request, outcome: Outcome) -> Self {
        let call = self.now + 10;
        self.now += 20;
        let returned = Some(self.now).filter(|_| outcome != Outcome::Unknown);
        self.at(call, returned, request, outcome)
    }

    /// Adds an operation at a time.
    pub(super) fn at(
        mut self,
        call: u64,
        returned: Option<u64>,
        request: Request,
        outcome: Outcome,
    ) -> Self {
        let id = self.history.operations.len() as u64 + 1;
        self.history.operations.push(Operation {
            id,
            client: 1,
            server: 1,
            call,
            returned,
            request,
            outcome,
        });
        self
    }

    /// Adds a watch of all pods, which receives its events at the end.
    pub(super) fn watch(self, start: WatchStart, events: &[EventKind]) -> Self {
        self.select("pods/", false, start, events)
    }

    /// Adds a watch of red pods.
    pub(super) fn watch_red(self, start: WatchStart, events: &[EventKind]) -> Self {
        self.select("pods/", true, start, events)
    }

    fn select(
        mut self,
        prefix: &str,
        is_red: bool,
        start: WatchStart,
        events: &[EventKind],
    ) -> Self {
        let mut selector = Selector::prefix(prefix);
        if is_red {
            selector.labels = content(1).labels;
        }
        let time = self.now + 1000;
        let events = events.iter().cloned();
        self.history.watches.push(WatchLog {
            id: self.history.watches.len() as u64 + 1,
            client: 2,
            server: 1,
            opened: self.now + 1,
            selector,
            start,
            resumes: None,
            events: events.map(|kind| WatchEvent { time, kind }).collect(),
            is_drained: false,
        });
        self
    }

    /// The last watch resumes the one before it.
    pub(super) fn resuming(mut self) -> Self {
        let count = self.history.watches.len();
        self.history.watches[count - 1].resumes = Some(count as u64 - 1);
        self
    }

    pub(super) fn finally(mut self, revision: u64, objects: &[Object]) -> Self {
        self.history.final_state = Some(FinalState {
            call: self.now + 5000,
            returned: self.now + 5001,
            snapshot: Snapshot {
                revision,
                objects: objects.to_vec(),
            },
        });
        self
    }

    pub(super) fn passes(self) {
        if let Err(violation) = check(&self.history) {
            panic!("{}", render(&self.history, &violation));
        }
    }

    /// Asserts that the check finds a violation with this name.
    pub(super) fn fails(self, name: &str) -> Violation {
        match check(&self.history) {
            Ok(statistics) => panic!("no violation, but {name}: {statistics:?}"),
            Err(violation) => {
                let text = render(&self.history, &violation);
                assert_eq!(violation.name(), name, "{text}");
                assert!(
                    violation.sources().is_empty() || text.contains("\n>>"),
                    "the timeline marks no line: {text}"
                );
                violation
            }
        }
    }
}

/// Objects `a` at revision 1, `b` at 2, `a` again at 3; `b` is deleted at 4, and `c` is created at 5.
pub(super) fn story() -> Builder {
    Builder::default()
        .then(create("a", 1), written(1))
        .then(create("b", 2), written(2))
        .then(update("a", 3, Some(1)), written(3))
        .then(delete("b", None), deleted(Some(4)))
        .then(create("c", 5), written(5))
}
