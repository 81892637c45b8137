//! The states that reads return: each is the state of the model at its revision, new enough for the request, and not older than an
//! earlier read of the same session.

use std::collections::HashMap;

use super::history::{Failure, Object, Operation, Outcome, Page, ReadVersion, Request, Selector};
use super::model::{Key, Model, change_id};
use super::order::Order;
use super::violation::{Source, Violation};

/// A list of the keys between two bounds.
struct Listed<'a> {
    at: Source,
    selector: &'a Selector,
    revision: u64,
    objects: &'a [Object],
    /// The last key of the page before.
    after: Option<&'a str>,
    /// The last key that the page includes; none for all.
    last: Option<&'a str>,
    /// When the client received it.
    returned: u64,
}

/// Checks that the final state has every acknowledged write.
pub(super) fn check_final_state(model: &Model<'_>) -> Result<(), Violation> {
    let Some(state) = &model.history.final_state else {
        return Ok(());
    };
    for step in &model.steps {
        if state.snapshot.revision < step.revision {
            let (key, version) = step.changes[0];
            let version = &model.keys[key].versions[version];
            let write = model.origin(version);
            let change = change_id(&model.keys[key], step.revision);
            return match version.owner {
                Some(owner) if is_acknowledged_before(model.operation(owner), state.call) => {
                    let at = Source::Final;
                    Err(Violation::LostWrite { write, change, at })
                }
                _ => continue,
            };
        }
    }
    let everything = Selector::default();
    check_listed(
        model,
        &Listed {
            at: Source::Final,
            selector: &everything,
            revision: state.snapshot.revision,
            objects: &state.snapshot.objects,
            after: None,
            last: None,
            returned: state.returned,
        },
    )
}

fn is_acknowledged_before(operation: &Operation, time: u64) -> bool {
    operation.outcome != Outcome::Unknown
        && operation.returned.is_some_and(|returned| returned < time)
}

/// Checks all lists, and the gets from the cache.
pub(super) fn check_reads(model: &Model<'_>, order: &Order) -> Result<(), Violation> {
    let operations = &model.history.operations;
    let by_id = operations.iter().map(|operation| (operation.id, operation));
    let by_id: HashMap<u64, &Operation> = by_id.collect();
    for operation in operations {
        let at = Source::Operation(operation.id);
        match (&operation.request, &operation.outcome) {
            (_, Outcome::Failed(Failure::Expired { is_legal: false })) => {
                return Err(Violation::UnjustifiedExpiry { at });
            }
            (Request::List { .. }, Outcome::Listed(page)) => {
                check_page(model, &by_id, operation, page)?;
            }
            (
                Request::Get {
                    version: ReadVersion::NotOlderThan(minimum),
                    ..
                },
                _,
            ) if !is_since(model, order, operation, *minimum) => {
                let minimum = *minimum;
                return Err(Violation::TooOld { at, minimum });
            }
            (
                Request::Get {
                    key,
                    version: ReadVersion::Exact(revision),
                },
                Outcome::Found(object),
            ) => {
                let found = model.key(key).and_then(|key| key.present_at(*revision));
                if found.is_none_or(|(version, _)| version.revision != object.revision) {
                    return Err(Violation::WrongState {
                        at,
                        revision: *revision,
                        reason: format!("{key} is another"),
                    });
                }
            }
            _ => {}
        }
    }
    check_sessions(model, order)
}

fn check_page<'a>(
    model: &Model<'a>,
    by_id: &HashMap<u64, &'a Operation>,
    operation: &'a Operation,
    page: &'a Page,
) -> Result<(), Violation> {
    let Request::List {
        selector,
        version,
        limit,
        continues,
    } = &operation.request
    else {
        return Ok(());
    };
    let at = Source::Operation(operation.id);
    let mut after = None;
    let mut before = *continues;
    // The first page determines how new the state must be. A page may have no objects, but a continue token.
    let mut is_complete = true;
    while let Some(id) = before {
        let Some(previous) = by_id.get(&id) else {
            is_complete = false;
            break;
        };
        let (Request::List { continues, .. }, Outcome::Listed(first)) =
            (&previous.request, &previous.outcome)
        else {
            let reason = format!("operation {id} is no page that can be continued");
            return Err(Violation::Malformed { at, reason });
        };
        if first.revision != page.revision {
            let first = Source::Operation(id);
            return Err(Violation::PageSkew { first, second: at });
        }
        let last = first.objects.iter().map(|object| &*object.key).max();
        after = after.max(last);
        before = *continues;
    }
    if continues.is_none() {
        check_version(at, *version, page.revision)?;
    }
    if let Some(limit) = limit
        && *version != ReadVersion::Any
        && *limit < page.objects.len() as u64
    {
        return Err(wrong(
            at,
            page.revision,
            format!("it exceeds the limit of {limit}"),
        ));
    }
    if !is_complete {
        let first = page.objects.iter().map(|object| &*object.key).min();
        after = first.map(predecessor_of);
    }
    let last = page.objects.iter().map(|object| &*object.key).max();
    let listed = Listed {
        at,
        selector,
        revision: page.revision,
        objects: &page.objects,
        after,
        last: page.has_more.then(|| last.or(after).unwrap_or("")),
        returned: operation.returned.unwrap_or(u64::MAX),
    };
    if !is_complete && listed.objects.is_empty() {
        return Ok(());
    }
    check_listed(model, &listed)?;
    check_remaining(model, &listed, page)
}

/// Returns a text that precedes a key, and no other key that follows it in a history: all but its last character.
fn predecessor_of(key: &str) -> &str {
    let last = key.char_indices().last().map_or(0, |(index, _)| index);
    &key[..last]
}

fn check_version(at: Source, version: ReadVersion, revision: u64) -> Result<(), Violation> {
    match version {
        ReadVersion::Exact(exact) if exact != revision => Err(Violation::WrongRevision {
            at,
            revision,
            reason: format!("exactly {exact} was requested"),
        }),
        ReadVersion::NotOlderThan(minimum) if revision < minimum => {
            Err(Violation::TooOld { at, minimum })
        }
        _ => Ok(()),
    }
}

fn wrong(at: Source, revision: u64, reason: String) -> Violation {
    Violation::WrongState {
        at,
        revision,
        reason,
    }
}

/// Checks that a list is the state at its revision.
fn check_listed(model: &Model<'_>, listed: &Listed<'_>) -> Result<(), Violation> {
    let failed = |reason: String| wrong(listed.at, listed.revision, reason);
    let mut objects: Vec<&Object> = listed.objects.iter().collect();
    objects.sort_by_key(|object| &object.key);
    let mut objects = objects.into_iter().peekable();
    let keys = model.keys_of(listed.selector);
    let keys = keys
        .skip_while(|key| listed.after.is_some_and(|after| key.name <= after))
        .take_while(|key| listed.last.is_none_or(|last| key.name <= last));
    for key in keys {
        if let Some(object) = objects.next_if(|object| &*object.key < key.name) {
            return Err(failed(format!(
                "{} is out of scope, or is repeated",
                object.key
            )));
        }
        let found = objects.next_if(|object| object.key == key.name);
        let expected = key.present_at(listed.revision);
        let expected = expected.filter(|(_, content)| listed.selector.matches(key.name, content));
        let revision = found.map(|object| object.revision);
        if revision == expected.map(|(version, _)| version.revision) {
            continue;
        }
        let Some((version, _)) = expected else {
            return Err(failed(format!("{} must not be in it", key.name)));
        };
        if found.is_none() && may_be_absent(model, key, version.revision, listed) {
            continue;
        }
        let write = version.owner.map(|owner| model.operation(owner));
        let is_lost = write.is_some_and(|write| write.outcome != Outcome::Unknown);
        if is_lost && listed.at == Source::Final {
            return Err(Violation::LostWrite {
                write: model.origin(version),
                change: change_id(key, version.revision),
                at: listed.at,
            });
        }
        let name = key.name;
        let expected = version.revision;
        return Err(failed(match revision {
            Some(revision) => format!("{name} must have revision {expected}, not {revision}"),
            None => format!("{name} with revision {expected} is missing"),
        }));
    }
    match objects.next() {
        Some(object) => Err(failed(format!(
            "{} is out of scope, or is repeated",
            object.key
        ))),
        None => Ok(()),
    }
}

/// Returns true if a write that is not decided may have deleted an object before a list, or changed its labels.
fn may_be_absent(model: &Model<'_>, key: &Key<'_>, since: u64, listed: &Listed<'_>) -> bool {
    key.undecided.iter().any(|index| {
        let operation = model.operation(*index);
        let is_unseen =
            operation.outcome != Outcome::Unknown || !key.is_covered(since, listed.revision);
        let change = super::model::change_of(&operation.request, key.name).flatten();
        let hides = change.is_none_or(|content| !listed.selector.matches(key.name, content));
        operation.call <= listed.returned && is_unseen && hides
    })
}

fn check_remaining(model: &Model<'_>, listed: &Listed<'_>, page: &Page) -> Result<(), Violation> {
    let Some(remaining) = page.remaining.filter(|_| listed.selector.labels.is_empty()) else {
        return Ok(());
    };
    let mut count = 0;
    for key in model.keys_of(listed.selector) {
        if listed.last.is_none_or(|last| key.name <= last) {
            continue;
        }
        if !key.undecided.is_empty() {
            return Ok(());
        }
        count += u64::from(key.present_at(listed.revision).is_some());
    }
    if count == remaining {
        return Ok(());
    }
    let reason = format!("remainingItemCount must be {count}, not {remaining}");
    Err(wrong(listed.at, listed.revision, reason))
}

/// Returns true if the response of a list or a get can be that of a state at `minimum` or later.
fn is_since(model: &Model<'_>, order: &Order, operation: &Operation, minimum: u64) -> bool {
    let Request::Get { key, .. } = &operation.request else {
        return match &operation.outcome {
            Outcome::Listed(page) => minimum <= page.revision,
            _ => true,
        };
    };
    let Some(key) = model.key(key) else {
        return true;
    };
    match &operation.outcome {
        Outcome::Found(object) => {
            let next = key.next_after(object.revision);
            next.is_none_or(|next| minimum < next.revision)
        }
        Outcome::Failed(Failure::NotFound) => {
            let returned = operation.returned.unwrap_or(u64::MAX);
            let possible = order.steps_possible_at(returned).checked_sub(1);
            let last = possible.map_or(minimum, |step| model.steps[step].revision.max(minimum));
            let mut later = key.versions.iter();
            let is_deleted_later = later.any(|version| {
                (minimum + 1..=last).contains(&version.revision) && version.content.is_none()
            });
            key.present_at(minimum).is_none() || is_deleted_later || !key.undecided.is_empty()
        }
        _ => true,
    }
}

/// Returns the resource of a key or of a selector.
fn resource(text: &str) -> &str {
    text.split('/').next().unwrap_or(text)
}

/// Checks that reads from the cache of one server, by one client, do not go back.
fn check_sessions(model: &Model<'_>, order: &Order) -> Result<(), Violation> {
    let mut sessions: HashMap<(u32, u32, &str), Vec<&Operation>> = HashMap::new();
    for operation in &model.history.operations {
        let (text, version) = match &operation.request {
            Request::Get { key, version } => (key, version),
            Request::List {
                selector,
                version,
                continues: None,
                ..
            } => (&selector.prefix, version),
            _ => continue,
        };
        if matches!(version, ReadVersion::Any | ReadVersion::NotOlderThan(_)) {
            let session = (operation.client, operation.server, resource(text));
            sessions.entry(session).or_default().push(operation);
        }
    }
    for reads in sessions.values_mut() {
        check_session(model, order, reads)?;
    }
    Ok(())
}

fn check_session(
    model: &Model<'_>,
    order: &Order,
    reads: &mut [&Operation],
) -> Result<(), Violation> {
    let is_without_progress = model.history.is_without_progress;
    let lists = reads
        .iter()
        .filter_map(|read| cached(read, is_without_progress));
    let mut lists: Vec<(u64, u64, Source)> = lists.collect();
    lists.sort_by_key(|(returned, ..)| *returned);
    reads.sort_by_key(|read| read.call);
    let mut lists = lists.into_iter().peekable();
    let mut floor = (0, Source::Initial);
    for read in reads {
        while let Some((_, revision, source)) =
            lists.next_if(|(returned, ..)| *returned < read.call)
        {
            floor = floor.max((revision, source));
        }
        if !is_since(model, order, read, floor.0) {
            return Err(Violation::SessionWentBack {
                earlier: floor.1,
                later: Source::Operation(read.id),
            });
        }
    }
    Ok(())
}

/// Returns the end and the revision of a list that comes from the cache in any case: others come from storage while the cache has
/// no state or is behind, and may be newer than the next state of the cache.
fn cached(operation: &Operation, is_without_progress: bool) -> Option<(u64, u64, Source)> {
    let (
        Request::List {
            limit: None,
            version,
            ..
        },
        Outcome::Listed(page),
    ) = (&operation.request, &operation.outcome)
    else {
        return None;
    };
    if is_without_progress && *version != ReadVersion::Any {
        return None;
    }
    let source = Source::Operation(operation.id);
    Some((operation.returned?, page.revision, source))
}
