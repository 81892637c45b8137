//! A page: the result of a list from any source, before it becomes an [`ObjectList`].

use std::sync::Arc;

use super::ObjectList;
use watchet_api::{ContinueToken, Object, ObjectKey, ResourceVersion, SelectionPredicate};
use watchet_metrics::ListCost;
/// The result of a list from any source.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) at: ResourceVersion,
    /// The cost of the list, except for the number of returned items.
    pub(super) cost: ListCost,
    pub(super) items: Vec<Arc<Object>>,
    /// The last examined key, if the limit was reached and objects in scope follow.
    pub(super) more_after: Option<ObjectKey>,
    /// The number of objects after it, if known.
    pub(super) remaining: Option<u64>,
}

impl Page {
    pub(super) fn whole(at: ResourceVersion, cost: ListCost, items: Vec<Arc<Object>>) -> Self {
        Self {
            at,
            cost,
            items,
            more_after: None,
            remaining: None,
        }
    }

    /// Returns the cost of the list.
    pub(super) fn cost(&self) -> ListCost {
        ListCost {
            returned: self.items.len(),
            ..self.cost
        }
    }

    /// Converts the page into a list with a continue token for the rest. The remaining count is set
    /// only if no selector restricts the list.
    pub(super) fn into_list(self, predicate: &SelectionPredicate) -> ObjectList {
        let remaining = self.remaining.filter(|_| predicate.selects_all());
        let prefix = predicate.scope.list_prefix();
        let token = |last: ObjectKey| ContinueToken {
            resource_version: Some(self.at),
            start: format!("{}\0", &last.as_str()[prefix.len()..]),
            remaining,
        };
        ObjectList {
            resource_version: self.at,
            items: self.items,
            remaining,
            continue_token: self.more_after.map(|last| token(last).encode()),
        }
    }
}
