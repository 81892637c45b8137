//! The watches and informers of the correct implementation.

use crate::check::{
    EventKind, History, InformerLog, Notification, NotificationKind, Object, ReadVersion, Selector,
    WatchEvent, WatchLog, WatchStart,
};

use super::model_server::{Server, State};

/// The watch of all changes.
fn complete(server: &Server<'_>) -> WatchLog {
    WatchLog {
        id: 1,
        client: 1000,
        server: 0,
        opened: 0,
        selector: Selector::default(),
        start: WatchStart::After(server.initial.revision),
        resumes: None,
        events: Vec::new(),
        is_drained: true,
    }
}

/// Adds random watches, some of which are interrupted and resumed, and informers.
pub(super) fn add_watches(server: &mut Server<'_>, history: &mut History) {
    if server.size.has_complete_watch {
        let mut log = complete(server);
        run(server, &mut log, u64::MAX);
        history.watches.push(log);
    }
    for watch in 0..server.size.watches {
        let client = 1001 + watch as u32;
        let selector = server.selector();
        let opened = server.rng.u64(0..server.now);
        let start = start(server, opened);
        let mut log = WatchLog {
            id: 100 * (watch + 1),
            client,
            server: server.rng.u32(0..3),
            opened,
            selector,
            start,
            resumes: None,
            events: Vec::new(),
            is_drained: false,
        };
        let mut logs = Vec::new();
        loop {
            log.is_drained = logs.len() > 3 || server.rng.bool();
            let end = match log.is_drained {
                true => u64::MAX,
                false => log.opened + server.rng.u64(0..server.now),
            };
            run(server, &mut log, end);
            let revisions = log.events.iter().filter_map(|event| event.kind.revision());
            let is_interrupted = !log.is_drained;
            let last = revisions.max();
            let id = log.id;
            logs.push(log.clone());
            let (true, Some(last)) = (is_interrupted && has_state(&log), last) else {
                break;
            };
            log.id += 1;
            log.resumes = Some(id);
            log.start = WatchStart::After(last);
            log.opened = log.events.last().map_or(0, |event| event.time) + 1;
            log.events.clear();
        }
        if let WatchStart::State(_) = logs[0].start {
            history.informers.extend(informer(&logs));
        }
        history.watches.append(&mut logs);
    }
}

/// Returns true if a client can resume: it has received the complete state, and no part of a revision.
fn has_state(log: &WatchLog) -> bool {
    let is_end = |event: &WatchEvent| {
        matches!(
            event.kind,
            EventKind::Bookmark {
                ends_initial_events: true,
                ..
            }
        )
    };
    !matches!(log.start, WatchStart::State(_)) || log.events.iter().any(is_end)
}

fn start(server: &mut Server<'_>, opened: u64) -> WatchStart {
    let current = server.revision_at(opened);
    let revision = server.rng.u64(server.initial.revision..=current);
    match server.rng.u32(0..6) {
        0 => WatchStart::After(revision),
        1 => WatchStart::Now(ReadVersion::Consistent),
        2 => WatchStart::State(ReadVersion::Any),
        3 => WatchStart::State(ReadVersion::NotOlderThan(revision)),
        _ => WatchStart::State(ReadVersion::Consistent),
    }
}

/// Delivers events until a time.
fn run(server: &mut Server<'_>, log: &mut WatchLog, end: u64) {
    let mut time = log.opened;
    let current = server.revision_at(time);
    let mut revision = match log.start {
        WatchStart::After(revision) => revision,
        WatchStart::Now(_) | WatchStart::State(ReadVersion::Consistent) => current,
        WatchStart::State(ReadVersion::NotOlderThan(minimum)) => server.rng.u64(minimum..=current),
        WatchStart::State(_) => server.rng.u64(server.initial.revision..=current),
    };
    let mut state = server.state_at(revision);
    let has_bookmarks = server.rng.bool();
    if let WatchStart::State(_) = log.start {
        time += server.rng.u64(0..20);
        let is_selected = |object: &&Object| log.selector.matches(&object.key, &object.content);
        for object in state.values().filter(is_selected) {
            let kind = EventKind::Added(object.clone());
            log.events.push(WatchEvent { time, kind });
        }
        if has_bookmarks {
            let ends_initial_events = true;
            let kind = EventKind::Bookmark {
                revision,
                ends_initial_events,
            };
            log.events.push(WatchEvent { time, kind });
        }
    }
    for index in 0..server.commits.len() {
        let (at, committed) = (server.commits[index].revision, server.commits[index].time);
        if at <= revision {
            continue;
        }
        time = time.max(committed) + server.rng.u64(0..5);
        if end < time {
            return;
        }
        revision = at;
        for (key, content) in server.commits[index].changes.clone() {
            let next = content.map(|content| Object {
                key: key.clone(),
                revision,
                content,
            });
            if let Some(kind) = event(&log.selector, &state, &key, next.as_ref(), revision) {
                log.events.push(WatchEvent { time, kind });
            }
            match next {
                Some(object) => drop(state.insert(key, object)),
                None => drop(state.remove(&key)),
            }
        }
        if has_bookmarks && server.rng.u32(0..4) == 0 {
            let kind = EventKind::Bookmark {
                revision,
                ends_initial_events: false,
            };
            log.events.push(WatchEvent { time, kind });
        }
    }
}

fn event(
    selector: &Selector,
    state: &State,
    key: &str,
    next: Option<&Object>,
    revision: u64,
) -> Option<EventKind> {
    let is_selected = |object: &&Object| selector.matches(&object.key, &object.content);
    match (state.get(key).filter(is_selected), next.filter(is_selected)) {
        (None, Some(next)) => Some(EventKind::Added(next.clone())),
        (Some(_), Some(next)) => Some(EventKind::Modified(next.clone())),
        (Some(previous), None) => Some(EventKind::Deleted(Object {
            revision,
            ..previous.clone()
        })),
        (None, None) => None,
    }
}

/// Returns the informer that consumes the logs of a watch.
fn informer(logs: &[WatchLog]) -> Option<InformerLog> {
    let mut store = State::new();
    let mut notifications = Vec::new();
    for event in logs.iter().flat_map(|log| &log.events) {
        let kind = match &event.kind {
            EventKind::Added(object) | EventKind::Modified(object) => {
                match store.insert(object.key.clone(), object.clone()) {
                    Some(_) => NotificationKind::Updated(object.clone()),
                    None => NotificationKind::Added(object.clone()),
                }
            }
            EventKind::Deleted(object) => {
                store.remove(&object.key);
                NotificationKind::Deleted {
                    object: object.clone(),
                    is_final_state_unknown: false,
                }
            }
            _ => continue,
        };
        notifications.push(Notification {
            time: event.time + 1,
            kind,
        });
    }
    let last = logs.last()?;
    Some(InformerLog {
        id: last.id,
        client: last.client,
        selector: last.selector.clone(),
        notifications,
        store: last.is_drained.then(|| store.into_values().collect()),
    })
}
