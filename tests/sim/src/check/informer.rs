//! Informers: what handlers are notified of fits together, and the store converges to the final state.

use std::collections::BTreeMap;

use super::history::{InformerLog, NotificationKind, Object};
use super::model::Model;
use super::violation::{ChangeId, Source, Violation};

/// What a handler knows of a key.
struct Last {
    revision: u64,
    is_present: bool,
    index: usize,
}

/// Checks one informer. That each notified state existed is checked when the model is built.
pub(super) fn check_informer(model: &Model<'_>, log: &InformerLog) -> Result<(), Violation> {
    let mut known: BTreeMap<&str, Last> = BTreeMap::new();
    for (index, notification) in log.notifications.iter().enumerate() {
        let at = |index: usize| Source::Notification {
            informer: log.id,
            index,
        };
        let kind = &notification.kind;
        let object = kind.object();
        check_object(model, log, kind, at(index))?;
        let last = known.get(&*object.key);
        let is_present = last.is_some_and(|last| last.is_present);
        let (found, is_added, is_deleted) = match kind {
            NotificationKind::Added(_) => ("OnAdd", true, false),
            NotificationKind::Updated(_) => ("OnUpdate", false, false),
            NotificationKind::Deleted { .. } => ("OnDelete", false, true),
        };
        if is_added == is_present {
            let reason = if is_present { "knows" } else { "does not know" };
            return Err(Violation::InformerType {
                notification: at(index),
                found: found.to_owned(),
                reason: format!("{reason} {}", object.key),
            });
        }
        if let Some(last) = last.filter(|last| object.revision < last.revision) {
            return Err(Violation::InformerWentBack {
                notification: at(index),
                before: at(last.index),
            });
        }
        let last = Last {
            revision: object.revision,
            is_present: !is_deleted,
            index,
        };
        known.insert(&object.key, last);
    }
    check_store(model, log)
}

/// A deletion has the state before it; the final state that is unknown is one that existed.
fn check_object(
    model: &Model<'_>,
    log: &InformerLog,
    kind: &NotificationKind,
    at: Source,
) -> Result<(), Violation> {
    let object = kind.object();
    let change = ChangeId {
        key: object.key.clone(),
        revision: object.revision,
    };
    let NotificationKind::Deleted {
        is_final_state_unknown,
        ..
    } = kind
    else {
        return if log.selector.matches(&object.key, &object.content) {
            Ok(())
        } else {
            Err(Violation::Filter { event: at, change })
        };
    };
    let Some(key) = model.key(&object.key) else {
        return Err(Violation::NeverWritten { at, change });
    };
    let state = key
        .version(object.revision)
        .and_then(|version| version.content);
    if *is_final_state_unknown && state == Some(&object.content) {
        return Ok(());
    }
    let before = object.revision.saturating_sub(1);
    let previous = key.present_at(before).map(|(_, content)| content);
    let is_certain = !model.may_hide(key, 0, object.revision);
    if is_certain && key.version(object.revision).is_none() {
        return Err(Violation::NeverWritten { at, change });
    }
    if is_certain && previous != Some(&object.content) {
        return Err(Violation::PrevKV { event: at, change });
    }
    Ok(())
}

fn check_store(model: &Model<'_>, log: &InformerLog) -> Result<(), Violation> {
    let (Some(store), Some(state)) = (&log.store, &model.history.final_state) else {
        return Ok(());
    };
    let selected = |object: &&Object| log.selector.matches(&object.key, &object.content);
    let by_key = |object: &&Object| (object.key.clone(), object.revision);
    let expected = state.snapshot.objects.iter().filter(selected);
    let expected: BTreeMap<String, u64> = expected.map(|object| by_key(&object)).collect();
    let found: BTreeMap<String, u64> = store.iter().map(|object| by_key(&object)).collect();
    let store = Source::Store(log.id);
    for (key, revision) in &expected {
        let reason = match found.get(key) {
            Some(found) if found == revision => continue,
            Some(found) => format!("{key} has revision {found} instead of {revision}"),
            None => format!("{key} with revision {revision} is missing"),
        };
        return Err(Violation::InformerDiverged { store, reason });
    }
    match found.keys().find(|key| !expected.contains_key(*key)) {
        Some(key) => Err(Violation::InformerDiverged {
            store,
            reason: format!("{key} is not in the final state"),
        }),
        None => Ok(()),
    }
}
