//! A minimal history for each property of watches and informers.

use crate::check::{
    Change, EventKind, InformerLog, Notification, NotificationKind, Object, ReadVersion, Request,
    Selector, WatchStart,
};

use super::builder::{
    Builder, added, bookmark, content, create, delete, deleted, end_bookmark, key, modified,
    object, removed, story, written,
};

use WatchStart::{After, State};

#[test]
fn all_starts_pass() {
    let rest = [modified("a", 3, 3), removed("b", 4, 2), added("c", 5, 5)];
    story().watch(After(2), &rest).passes();
    let with = |first: &[EventKind]| [first, &rest].concat();
    story()
        .watch(After(0), &with(&[added("a", 1, 1), added("b", 2, 2)]))
        .passes();
    let state = [added("b", 2, 2), added("a", 1, 1), end_bookmark(2)];
    story()
        .watch(State(ReadVersion::Any), &with(&state))
        .passes();
    story()
        .watch(State(ReadVersion::Any), &with(&state[..2]))
        .passes();
    story().watch(State(ReadVersion::Any), &state[..1]).passes();
    story()
        .watch(WatchStart::Now(ReadVersion::Any), &rest[1..])
        .passes();
    story().watch(After(5), &[]).passes();
}

#[test]
fn a_selector_changes_types() {
    // `a` is red at 1 and 3, `c` at 5; `b` never is.
    let update = |value, revision| (super::builder::update("c", value, None), written(revision));
    let ((to_blue, sixth), (to_red, seventh)) = (update(8, 6), update(9, 7));
    story()
        .then(to_blue, sixth)
        .then(to_red, seventh)
        .watch_red(
            After(0),
            &[
                added("a", 1, 1),
                modified("a", 3, 3),
                added("c", 5, 5),
                removed("c", 6, 5),
                added("c", 7, 9),
            ],
        )
        .passes();
}

#[test]
fn ordered() {
    story()
        .watch(
            After(2),
            &[modified("a", 3, 3), removed("b", 4, 2), modified("a", 3, 3)],
        )
        .fails("Unique");
    let swapped = [modified("a", 3, 3), added("c", 5, 5), removed("b", 4, 2)];
    story().watch(After(2), &swapped).fails("Ordered");
    let state = [added("a", 3, 3), end_bookmark(4), added("c", 5, 5)];
    let old = [&state[..], &[removed("b", 4, 2)]].concat();
    story()
        .watch(State(ReadVersion::Any), &old)
        .fails("Bookmarkable");
    let old = [added("a", 3, 3), added("c", 5, 5), removed("b", 4, 2)];
    story()
        .watch(State(ReadVersion::Any), &old)
        .fails("Ordered");
}

#[test]
fn unique() {
    story()
        .watch(After(3), &[removed("b", 4, 2), removed("b", 4, 2)])
        .fails("Unique");
    let twice = [added("a", 1, 1), added("b", 2, 2), added("b", 2, 2)];
    story()
        .watch(State(ReadVersion::Any), &twice)
        .fails("Unique");
}

#[test]
fn reliable() {
    story()
        .watch(After(2), &[modified("a", 3, 3), added("c", 5, 5)])
        .fails("Reliable");
    let mut drained = story().watch(After(2), &[modified("a", 3, 3), removed("b", 4, 2)]);
    drained.history.watches[0].is_drained = true;
    drained
        .finally(5, &[object("a", 3, 3), object("c", 5, 5)])
        .fails("Reliable");
}

#[test]
fn reliable_delete() {
    story()
        .then(delete("a", None), deleted(None))
        .then(create("d", 9), written(8))
        .watch(After(5), &[added("d", 8, 9)])
        .fails("ReliableDelete");
}

fn transaction() -> Builder {
    let change = |name: &str, value| Change {
        key: key(name),
        content: Some(content(value)),
    };
    let changes = vec![change("x", 11), change("y", 13)];
    story()
        .then(Request::Transaction { changes }, written(8))
        .then(create("z", 15), written(9))
}

#[test]
fn atomic() {
    let (x, y, z) = (added("x", 8, 11), added("y", 8, 13), added("z", 9, 15));
    let watch = |events: &[_]| transaction().watch(After(5), events);
    watch(&[y.clone(), x.clone(), z.clone()]).passes();
    // The connection may break between the events, but the client cannot resume then.
    watch(std::slice::from_ref(&x)).passes();
    watch(std::slice::from_ref(&x))
        .watch(After(8), std::slice::from_ref(&z))
        .resuming()
        .fails("Atomic");
    watch(&[x.clone(), z.clone()]).fails("Atomic");
    watch(&[x.clone(), bookmark(8)]).fails("Atomic");
    watch(&[x, y]).watch(After(8), &[z]).resuming().passes();
}

#[test]
fn resumable() {
    story()
        .watch(After(2), &[removed("b", 4, 2)])
        .fails("Resumable");
    story()
        .watch(After(3), &[modified("a", 3, 3)])
        .fails("Resumable");
}

#[test]
fn bookmarkable() {
    story()
        .watch(After(2), &[modified("a", 3, 3), bookmark(4)])
        .fails("Bookmarkable");
    story()
        .watch(After(2), &[modified("a", 3, 3), bookmark(2)])
        .fails("Bookmarkable");
    story()
        .watch(After(3), &[bookmark(3), removed("b", 4, 2)])
        .passes();
    story()
        .watch(After(2), &[modified("a", 3, 3), bookmark(3), bookmark(2)])
        .fails("Bookmarkable");
}

#[test]
fn filter() {
    story()
        .watch_red(After(1), &[added("b", 2, 2)])
        .fails("Filter");
    story()
        .watch_red(After(3), &[removed("b", 4, 2)])
        .fails("Filter");
    let mut other_scope = story().watch(After(4), &[added("c", 5, 5)]);
    other_scope.history.watches[0].selector = Selector::prefix("pods/default/a");
    other_scope.fails("Filter");
}

#[test]
fn prev_kv() {
    story()
        .watch(After(3), &[removed("b", 4, 1)])
        .fails("PrevKV");
}

#[test]
fn is_create_and_event_type() {
    story()
        .watch(After(2), &[added("a", 3, 3)])
        .fails("IsCreate");
    story()
        .watch(After(4), &[modified("c", 5, 5)])
        .fails("IsCreate");
    story()
        .watch(After(2), &[removed("a", 3, 1)])
        .fails("EventType");
    story()
        .watch(After(3), &[modified("b", 4, 2)])
        .fails("WrongContent");
}

#[test]
fn initial_state() {
    let (a, b) = (added("a", 1, 1), added("b", 2, 2));
    let watch = |events: &[_]| story().watch(State(ReadVersion::Any), events);
    watch(&[a.clone(), b.clone(), end_bookmark(3)]).fails("InitialState");
    watch(&[b.clone(), added("c", 5, 5), end_bookmark(5)]).fails("InitialState");
    watch(&[a.clone(), b.clone(), added("c", 5, 5)]).fails("Reliable");
    watch(&[b, end_bookmark(2)]).fails("InitialState");
}

#[test]
fn the_initial_state_is_as_new_as_requested() {
    let old = [added("a", 1, 1), added("b", 2, 2)];
    let watch = |version| story().watch(State(version), &old);
    watch(ReadVersion::Consistent).fails("StaleRead");
    watch(ReadVersion::NotOlderThan(3)).fails("TooOld");
    watch(ReadVersion::NotOlderThan(2)).passes();
    let now = WatchStart::Now(ReadVersion::Consistent);
    story().watch(now, &[added("c", 5, 5)]).fails("Resumable");
}

/// It failed before it had shown anything, so it did not begin with the empty state of the first revision.
#[test]
fn a_watch_without_events_has_no_initial_state() {
    let error = EventKind::Error {
        code: 500,
        is_legal: true,
    };
    let failed = story().watch(State(ReadVersion::Consistent), &[error]);
    failed.passes();
}

#[test]
fn errors_end_watches() {
    let error = |code, is_legal| EventKind::Error { code, is_legal };
    story().watch(After(0), &[error(410, true)]).passes();
    story()
        .watch(After(0), &[error(410, false)])
        .fails("UnjustifiedExpiry");
    story()
        .watch(After(4), &[error(500, false), added("c", 5, 5)])
        .fails("EventAfterError");
}

fn informer(kinds: &[NotificationKind], store: &[Object]) -> Builder {
    let mut builder = story().finally(5, &[object("a", 3, 3), object("c", 5, 5)]);
    let kinds = kinds.iter().cloned();
    builder.history.informers.push(InformerLog {
        id: 1,
        client: 3,
        selector: Selector::prefix("pods/"),
        notifications: kinds
            .map(|kind| Notification { time: 2000, kind })
            .collect(),
        store: Some(store.to_vec()),
    });
    builder
}

#[test]
fn informers() {
    use NotificationKind::{Added, Updated};
    let (old, a) = (object("a", 1, 1), object("a", 3, 3));
    let (b, c) = (object("b", 2, 2), object("c", 5, 5));
    let gone = |object: Object, is_final_state_unknown| NotificationKind::Deleted {
        object,
        is_final_state_unknown,
    };
    let store = [a.clone(), c.clone()];
    informer(
        &[Added(b.clone()), gone(b.clone(), true), Added(a.clone())],
        &store,
    )
    .passes();
    informer(&[Added(b.clone()), gone(object("b", 4, 2), false)], &store).passes();
    informer(&[Added(a.clone()), Updated(a.clone())], &store).passes();
    informer(&[Added(a.clone()), Updated(old)], &store).fails("InformerWentBack");
    informer(&[Added(a.clone()), Added(a.clone())], &store).fails("InformerType");
    informer(&[Updated(a.clone())], &store).fails("InformerType");
    informer(&[Added(b.clone()), gone(object("b", 4, 1), false)], &store).fails("PrevKV");
    informer(&[], std::slice::from_ref(&a)).fails("InformerDiverged");
    informer(&[], &[a.clone(), b, c.clone()]).fails("InformerDiverged");
    informer(&[], &[object("a", 1, 1), c]).fails("InformerDiverged");
}
