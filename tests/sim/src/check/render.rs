//! Renders a history as a timeline for people: a line for each operation, event and notification, in the order of time.

use std::fmt::Write as _;

use super::history::{
    Content, EventKind, Failure, History, NotificationKind, Object, Outcome, ReadVersion, Request,
    Selector, WatchLog, WatchStart,
};
use super::violation::{Source, Violation};

struct Line {
    time: u64,
    source: Source,
    text: String,
}

/// Returns the violation and the timeline. The lines that prove the violation begin with `>>`.
pub fn render(history: &History, violation: &Violation) -> String {
    let mut lines = Vec::new();
    add_operations(history, &mut lines);
    add_watches(history, &mut lines);
    add_informers(history, &mut lines);
    if let Some(state) = &history.final_state {
        lines.push(Line {
            time: state.call,
            source: Source::Final,
            text: format!(
                "[{}, {}] final state at {}: {}",
                state.call,
                state.returned,
                state.snapshot.revision,
                objects(&state.snapshot.objects)
            ),
        });
    }
    lines.sort_by_key(|line| line.time);
    let marked = violation.sources();
    let mut text = format!("{violation}\n");
    let initial = &history.initial;
    lines.insert(
        0,
        Line {
            time: 0,
            source: Source::Initial,
            text: format!(
                "initial state at {}: {}",
                initial.revision,
                objects(&initial.objects)
            ),
        },
    );
    for line in lines {
        let mark = if marked.contains(&line.source) {
            ">>"
        } else {
            "  "
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{mark} {}", line.text);
    }
    text
}

fn add_operations(history: &History, lines: &mut Vec<Line>) {
    for operation in &history.operations {
        let returned = match operation.returned {
            Some(returned) => returned.to_string(),
            None => "...".to_owned(),
        };
        lines.push(Line {
            time: operation.call,
            source: Source::Operation(operation.id),
            text: format!(
                "[{}, {returned}] operation {}, client {}, server {}: {} -> {}",
                operation.call,
                operation.id,
                operation.client,
                operation.server,
                request(&operation.request),
                outcome(&operation.outcome)
            ),
        });
    }
}

fn add_watches(history: &History, lines: &mut Vec<Line>) {
    for log in &history.watches {
        lines.push(Line {
            time: log.opened,
            source: Source::Watch(log.id),
            text: format!("[{}, ...] {}", log.opened, watch(log)),
        });
        for (index, event) in log.events.iter().enumerate() {
            let kind = match &event.kind {
                EventKind::Added(found) => format!("ADDED {}", object(found)),
                EventKind::Modified(found) => format!("MODIFIED {}", object(found)),
                EventKind::Deleted(found) => format!("DELETED {}", object(found)),
                EventKind::Bookmark {
                    revision,
                    ends_initial_events: false,
                } => format!("BOOKMARK {revision}"),
                EventKind::Bookmark { revision, .. } => {
                    format!("BOOKMARK {revision}, end of initial events")
                }
                EventKind::Error { code, .. } => format!("ERROR {code}"),
            };
            lines.push(Line {
                time: event.time,
                source: Source::Event {
                    watch: log.id,
                    index,
                },
                text: format!("[{}] watch {} event {index}: {kind}", event.time, log.id),
            });
        }
    }
}

fn add_informers(history: &History, lines: &mut Vec<Line>) {
    for log in &history.informers {
        let id = log.id;
        for (index, notification) in log.notifications.iter().enumerate() {
            let call = match &notification.kind {
                NotificationKind::Added(_) => "OnAdd",
                NotificationKind::Updated(_) => "OnUpdate",
                NotificationKind::Deleted { .. } => "OnDelete",
            };
            let time = notification.time;
            let shown = object(notification.kind.object());
            lines.push(Line {
                time,
                source: Source::Notification {
                    informer: id,
                    index,
                },
                text: format!("[{time}] informer {id} notification {index}: {call} {shown}"),
            });
        }
        if let Some(store) = &log.store {
            lines.push(Line {
                time: u64::MAX,
                source: Source::Store(id),
                text: format!("informer {id}: its store at the end: {}", objects(store)),
            });
        }
    }
}

fn watch(log: &WatchLog) -> String {
    let start = match log.start {
        WatchStart::After(revision) => format!("after {revision}"),
        WatchStart::State(read) => format!("state {}", version(read)),
        WatchStart::Now(read) => format!("changes after now, {}", version(read)),
    };
    let resumes = log
        .resumes
        .map_or(String::new(), |id| format!(", resumes watch {id}"));
    let drained = if log.is_drained { ", complete" } else { "" };
    format!(
        "watch {}, client {}, server {}: {} {start}{resumes}{drained}",
        log.id,
        log.client,
        log.server,
        selector(&log.selector)
    )
}

fn content(content: &Content) -> String {
    let mut text = format!("value {}", content.value);
    for (name, value) in &content.labels {
        let _ = write!(text, " {name}={value}");
    }
    text
}

fn object(object: &Object) -> String {
    format!(
        "{}@{} ({})",
        object.key,
        object.revision,
        content(&object.content)
    )
}

fn objects(found: &[Object]) -> String {
    let found: Vec<String> = found.iter().map(object).collect();
    match &found[..] {
        [] => "nothing".to_owned(),
        found => found.join(", "),
    }
}

fn selector(selector: &Selector) -> String {
    let mut text = match &*selector.prefix {
        "" => "everything".to_owned(),
        prefix => prefix.to_owned(),
    };
    for (name, value) in &selector.labels {
        let _ = write!(text, " {name}={value}");
    }
    text
}

fn version(version: ReadVersion) -> String {
    match version {
        ReadVersion::Consistent => "consistent".to_owned(),
        ReadVersion::Any => "resourceVersion=0".to_owned(),
        ReadVersion::NotOlderThan(revision) => format!("not older than {revision}"),
        ReadVersion::Exact(revision) => format!("exactly {revision}"),
    }
}

fn request(request: &Request) -> String {
    let required = |precondition: &Option<u64>| {
        precondition.map_or(String::new(), |revision| format!(" if at {revision}"))
    };
    match request {
        Request::Create { key, content: new } => format!("create {key} ({})", content(new)),
        Request::Update {
            key,
            content: new,
            precondition,
        } => {
            let required = required(precondition);
            format!("update {key}{required} ({})", content(new))
        }
        Request::Delete { key, precondition } => {
            format!("delete {key}{}", required(precondition))
        }
        Request::Transaction { changes } => {
            let changes = changes.iter().map(|change| match &change.content {
                Some(new) => format!("put {} ({})", change.key, content(new)),
                None => format!("delete {}", change.key),
            });
            let changes: Vec<String> = changes.collect();
            format!("transaction: {}", changes.join(", "))
        }
        Request::Get { key, version: read } => format!("get {key} {}", version(*read)),
        Request::List {
            selector: selected,
            version: read,
            limit,
            continues,
        } => {
            let limit = limit.map_or(String::new(), |limit| format!(" limit {limit}"));
            let page = continues.map_or(String::new(), |id| format!(" continues operation {id}"));
            format!(
                "list {} {}{limit}{page}",
                selector(selected),
                version(*read)
            )
        }
    }
}

fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Written { revision } => format!("written at {revision}"),
        Outcome::Deleted {
            revision: Some(revision),
        } => format!("deleted at {revision}"),
        Outcome::Deleted { revision: None } => "deleted".to_owned(),
        Outcome::Found(found) => object(found),
        Outcome::Listed(page) => {
            let more = if page.has_more { ", more follows" } else { "" };
            format!("at {}: {}{more}", page.revision, objects(&page.objects))
        }
        Outcome::Failed(failure) => match failure {
            Failure::NotFound => "404 NotFound".to_owned(),
            Failure::AlreadyExists => "409 AlreadyExists".to_owned(),
            Failure::Conflict => "409 Conflict".to_owned(),
            Failure::Expired { .. } => "410 Expired".to_owned(),
            Failure::Rejected => "rejected".to_owned(),
        },
        Outcome::Unknown => "unknown".to_owned(),
    }
}
