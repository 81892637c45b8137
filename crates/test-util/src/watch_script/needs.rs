//! Finds what the steps of a script require of a driver.

use std::collections::{BTreeMap, BTreeSet};

use super::need::Need;
use super::object::ObjectName;
use super::script::{Action, Link, Write};

/// Finds the needs of the actions of a script, which are passed in order.
#[derive(Debug, Default)]
pub(super) struct NeedFinder<'a> {
    /// The nodes of the pods.
    nodes: BTreeMap<&'a ObjectName, &'a str>,
}

impl<'a> NeedFinder<'a> {
    /// Returns the needs of the next action.
    pub(super) fn needs(&mut self, action: &'a Action) -> BTreeSet<Need> {
        let need = match action {
            Action::Write { writes, .. } => return self.needs_of_writes(writes),
            Action::Cut(link) | Action::Disconnect(link) | Action::Reconnect(link) => match link {
                Link::Storage => Some(Need::Cut),
                Link::Informer(_) => Some(Need::Informer),
            },
            Action::Informer(..) | Action::Handler(..) => Some(Need::Informer),
            Action::Compact(_) => Some(Need::Storage),
            Action::Sleep(_) => Some(Need::Clock),
            Action::Watch(..)
            | Action::List(..)
            | Action::Pause(_)
            | Action::Resume(_)
            | Action::Close(_)
            | Action::Restart
            | Action::Expect(..) => None,
        };
        need.into_iter().collect()
    }

    fn needs_of_writes(&mut self, writes: &'a [Write]) -> BTreeSet<Need> {
        let mut needs = BTreeSet::new();
        if writes.len() > 1 {
            needs.insert(Need::Transactions);
        }
        for write in writes {
            let node = match write {
                Write::Put(_, content) => Some(&*content.node_name),
                Write::Delete(_) => None,
                Write::Corrupt(_) => {
                    needs.insert(Need::Storage);
                    None
                }
            };
            let previous = match node {
                Some(node) => self.nodes.insert(write.object(), node),
                None => self.nodes.remove(write.object()),
            };
            if node
                .zip(previous)
                .is_some_and(|(node, previous)| node != previous)
            {
                needs.insert(Need::Storage);
            }
        }
        needs
    }
}

/// Returns the needs of all actions of a script.
pub(super) fn needs<'a>(actions: impl IntoIterator<Item = &'a Action>) -> BTreeSet<Need> {
    let mut finder = NeedFinder::default();
    let needs = actions.into_iter().map(|action| finder.needs(action));
    needs.flatten().collect()
}
