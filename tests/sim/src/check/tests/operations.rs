//! A minimal history for each property of writes and reads.

use crate::check::{Change, Failure, Outcome, ReadVersion, Request};

use super::builder::{
    Builder, content, create, delete, deleted, failed, first_page, get, key, list, listed, object,
    page, removed, story, update, written,
};
use crate::check::WatchStart;

use ReadVersion::{Any, Consistent, Exact, NotOlderThan};

#[test]
fn a_sequence_of_operations_passes() {
    story()
        .then(get("a", Consistent), Outcome::Found(object("a", 3, 3)))
        .then(get("b", Consistent), failed(Failure::NotFound))
        .then(
            list(Consistent),
            listed(5, &[object("a", 3, 3), object("c", 5, 5)]),
        )
        .then(
            list(Exact(2)),
            listed(2, &[object("a", 1, 1), object("b", 2, 2)]),
        )
        .then(update("a", 7, Some(1)), failed(Failure::Conflict))
        .then(create("a", 9), failed(Failure::AlreadyExists))
        .finally(5, &[object("a", 3, 3), object("c", 5, 5)])
        .passes();
}

#[test]
fn malformed() {
    let response_to_nothing = Builder::default().at(5, None, create("a", 1), written(1));
    response_to_nothing.fails("Malformed");
    let before_call = Builder::default().at(5, Some(4), create("a", 1), written(1));
    before_call.fails("Malformed");
    let other_kind = Builder::default().then(create("a", 1), deleted(None));
    other_kind.fails("Malformed");
}

#[test]
fn revision_reused() {
    story()
        .then(create("d", 7), written(5))
        .fails("RevisionReused");
    story()
        .then(update("a", 7, None), written(3))
        .fails("RevisionReused");
}

#[test]
fn an_update_that_changes_nothing_keeps_the_revision() {
    story()
        .then(update("a", 3, Some(3)), written(3))
        .then(update("a", 3, None), written(3))
        .passes();
    // Another write changed the object before.
    story()
        .then(update("c", 3, Some(5)), written(6))
        .then(update("c", 5, None), written(5))
        .fails("StaleRead");
    story()
        .then(update("a", 9, Some(3)), written(3))
        .fails("WrongContent");
}

#[test]
fn revision_went_back() {
    Builder::default()
        .then(create("a", 1), written(7))
        .then(create("b", 2), written(6))
        .fails("RevisionWentBack");
    // Concurrent writes may have any order.
    Builder::default()
        .at(0, Some(50), create("a", 1), written(7))
        .at(10, Some(20), create("b", 2), written(6))
        .passes();
}

#[test]
fn future_revision() {
    Builder::default()
        .at(0, Some(10), list(Any), listed(9, &[]))
        .at(20, Some(30), create("a", 1), written(8))
        .fails("FutureRevision");
}

#[test]
fn never_written() {
    let other = |found| story().then(get("a", Any), Outcome::Found(found));
    other(object("a", 6, 9)).fails("NeverWritten");
    other(object("a", 4, 3)).fails("NeverWritten");
    // One write cannot have two revisions.
    Builder::default()
        .then(create("a", 1), Outcome::Unknown)
        .then(get("a", Any), Outcome::Found(object("a", 1, 1)))
        .then(get("a", Any), Outcome::Found(object("a", 2, 1)))
        .fails("NeverWritten");
}

#[test]
fn failed_write_happened() {
    story()
        .then(update("a", 9, Some(3)), failed(Failure::Conflict))
        .then(get("a", Consistent), Outcome::Found(object("a", 6, 9)))
        .fails("FailedWriteHappened");
}

#[test]
fn wrong_content() {
    let read = get("a", Consistent);
    story()
        .then(read, Outcome::Found(object("a", 3, 1)))
        .fails("WrongContent");
}

#[test]
fn lost_write() {
    story().finally(5, &[object("a", 3, 3)]).fails("LostWrite");
    story()
        .finally(5, &[object("a", 1, 1), object("c", 5, 5)])
        .fails("LostWrite");
    story().finally(4, &[object("a", 3, 3)]).fails("LostWrite");
    story()
        .finally(
            5,
            &[object("a", 3, 3), object("b", 2, 2), object("c", 5, 5)],
        )
        .fails("WrongState");
}

#[test]
fn precondition_ignored() {
    story()
        .then(update("a", 7, Some(1)), written(6))
        .fails("PreconditionIgnored");
    story()
        .then(create("a", 7), written(6))
        .fails("PreconditionIgnored");
    story()
        .then(update("b", 7, None), written(6))
        .fails("PreconditionIgnored");
    story()
        .then(delete("a", Some(1)), deleted(Some(6)))
        .fails("PreconditionIgnored");
    story()
        .then(delete("b", None), deleted(None))
        .fails("PreconditionIgnored");
    story()
        .then(delete("a", None), deleted(None))
        .then(delete("a", None), deleted(None))
        .fails("PreconditionIgnored");
}

#[test]
fn wrong_state() {
    let (old, new) = (object("a", 1, 1), object("a", 3, 3));
    let (b, c) = (object("b", 2, 2), object("c", 5, 5));
    let reads = |found: &[_]| story().then(list(Consistent), listed(5, found));
    reads(&[old, c.clone()]).fails("WrongState");
    reads(&[new.clone(), b, c.clone()]).fails("WrongState");
    reads(std::slice::from_ref(&new)).fails("WrongState");
    reads(&[new.clone(), c.clone(), c.clone()]).fails("WrongState");
    let limited = page(Consistent, Some(1), None);
    story()
        .then(limited, listed(5, &[new, c]))
        .fails("WrongState");
}

#[test]
fn wrong_revision_and_too_old() {
    let at_2 = [object("a", 1, 1), object("b", 2, 2)];
    story()
        .then(list(Exact(3)), listed(2, &at_2))
        .fails("WrongRevision");
    story()
        .then(list(NotOlderThan(3)), listed(2, &at_2))
        .fails("TooOld");
    let read = |minimum| {
        story().then(
            get("a", NotOlderThan(minimum)),
            Outcome::Found(object("a", 1, 1)),
        )
    };
    read(3).fails("TooOld");
    read(2).passes();
    let read = |minimum| story().then(get("c", NotOlderThan(minimum)), failed(Failure::NotFound));
    read(5).fails("TooOld");
    read(4).passes();
}

#[test]
fn pages() {
    let (a, c) = (object("a", 3, 3), object("c", 5, 5));
    let pages = |revision, second: &[_]| {
        story()
            .then(
                page(Consistent, Some(1), None),
                first_page(5, std::slice::from_ref(&a)),
            )
            .then(create("d", 9), written(6))
            .then(page(Consistent, Some(1), Some(6)), listed(revision, second))
    };
    pages(5, std::slice::from_ref(&c)).passes();
    pages(6, &[c, object("d", 6, 9)]).fails("PageSkew");
    pages(5, &[]).fails("WrongState");
    pages(5, std::slice::from_ref(&a)).fails("WrongState");
}

#[test]
fn session_went_back() {
    let at_2 = [object("a", 1, 1), object("b", 2, 2)];
    let at_3 = [object("a", 3, 3), object("b", 2, 2)];
    story()
        .then(list(Any), listed(3, &at_3))
        .then(list(Any), listed(2, &at_2))
        .fails("SessionWentBack");
    story()
        .then(list(Any), listed(3, &at_3))
        .then(get("a", Any), Outcome::Found(object("a", 1, 1)))
        .fails("SessionWentBack");
    let newer = || {
        story()
            .then(list(NotOlderThan(3)), listed(3, &at_3))
            .then(list(Any), listed(2, &at_2))
    };
    newer().fails("SessionWentBack");
    // Storage answers what a cache cannot show that it has.
    let mut without_progress = newer();
    without_progress.history.is_without_progress = true;
    without_progress.passes();
    let mut other_server = story()
        .then(list(Any), listed(3, &at_3))
        .then(list(Any), listed(2, &at_2));
    other_server.history.operations[6].server = 2;
    other_server.passes();
}

#[test]
fn stale_read() {
    let at_3 = [object("a", 3, 3), object("b", 2, 2)];
    story()
        .then(list(Consistent), listed(3, &at_3))
        .fails("StaleRead");
    story()
        .then(get("a", Consistent), Outcome::Found(object("a", 1, 1)))
        .fails("StaleRead");
    story()
        .then(get("c", Consistent), failed(Failure::NotFound))
        .fails("StaleRead");
    // The new state was read before, though its write has no response.
    Builder::default()
        .then(create("a", 1), written(1))
        .then(update("a", 3, None), Outcome::Unknown)
        .then(get("a", Consistent), Outcome::Found(object("a", 2, 3)))
        .then(get("a", Consistent), Outcome::Found(object("a", 1, 1)))
        .fails("StaleRead");
}

#[test]
fn unjustified_failure() {
    story()
        .then(create("b", 9), failed(Failure::AlreadyExists))
        .fails("UnjustifiedFailure");
    story()
        .then(update("a", 9, None), failed(Failure::NotFound))
        .fails("UnjustifiedFailure");
    story()
        .then(update("a", 9, Some(3)), failed(Failure::Conflict))
        .fails("UnjustifiedFailure");
    let expired = |is_legal| story().then(list(Exact(1)), failed(Failure::Expired { is_legal }));
    expired(false).fails("UnjustifiedExpiry");
    expired(true).passes();
}

#[test]
fn unknown_outcomes_explain_what_follows() {
    let lost = |request| story().then(request, Outcome::Unknown);
    lost(delete("a", None))
        .then(get("a", Consistent), failed(Failure::NotFound))
        .passes();
    lost(update("a", 9, None))
        .then(update("a", 11, Some(3)), failed(Failure::Conflict))
        .passes();
    lost(create("d", 9))
        .then(create("d", 11), failed(Failure::AlreadyExists))
        .passes();
    // A delete explains an absence only once.
    lost(delete("a", None))
        .then(get("a", Consistent), failed(Failure::NotFound))
        .then(create("a", 9), written(8))
        .then(get("a", Consistent), failed(Failure::NotFound))
        .fails("StaleRead");
    // It cannot happen before it began.
    story()
        .then(get("a", Consistent), failed(Failure::NotFound))
        .then(delete("a", None), Outcome::Unknown)
        .fails("StaleRead");
}

#[test]
fn a_watch_proves_that_a_write_did_not_happen() {
    let seen = [super::builder::bookmark(9)];
    let lost = story().then(delete("a", None), Outcome::Unknown);
    lost.then(get("a", Consistent), failed(Failure::NotFound))
        .then(create("d", 11), written(9))
        .watch(
            WatchStart::After(5),
            &[super::builder::added("d", 9, 11), seen[0].clone()],
        )
        .finally(
            9,
            &[object("a", 3, 3), object("c", 5, 5), object("d", 9, 11)],
        )
        .fails("StaleRead");
}

#[test]
fn transactions_happen_completely() {
    let change = |name: &str, value| Change {
        key: key(name),
        content: Some(content(value)),
    };
    let request = || Request::Transaction {
        changes: vec![change("x", 11), change("y", 13)],
    };
    let (x, y) = (object("x", 8, 11), object("y", 8, 13));
    let base = [object("a", 3, 3), object("c", 5, 5)];
    let read = |found: &[_]| {
        let found = [&base[..], found].concat();
        story()
            .then(request(), Outcome::Unknown)
            .then(list(Consistent), listed(8, &found))
    };
    read(&[x.clone(), y]).passes();
    read(&[x]).fails("WrongState");
}

#[test]
fn deletes_without_a_revision_are_ordered_by_events() {
    let deletes = |revision| {
        story()
            .then(delete("a", None), deleted(None))
            .then(create("a", 9), written(8))
            .watch(
                WatchStart::After(5),
                &[removed("a", revision, 3), super::builder::added("a", 8, 9)],
            )
    };
    deletes(7).passes();
    // The create with revision 8 began after the delete was acknowledged.
    deletes(9).fails("NeverWritten");
}
