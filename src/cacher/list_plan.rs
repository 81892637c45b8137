//! `ListPlan`: what a list asks for, decided from its options alone: at which version, from where, how
//! many. Who answers it is the delegator's decision.

use super::ReadError;
use crate::api::{
    ContinueToken, ListOptions, ResourceVersion, ResourceVersionMatch, SelectionPredicate,
};

/// Which state answers a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    /// Every write acknowledged before the list began is in it.
    Latest,
    /// At least this; zero is whatever the cache has.
    NotOlderThan(ResourceVersion),
    /// Exactly this.
    Exact(ResourceVersion),
}

/// A list, decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListPlan {
    pub(super) at: At,
    /// The first key, relative to the listed prefix; empty for the beginning.
    pub(super) start: String,
    /// 0 for no limit.
    pub(super) limit: usize,
    pub(super) continued: bool,
    /// How many objects come from `start` on, when the token says so.
    pub(super) remaining: Option<u64>,
}

impl ListPlan {
    /// All there is, in one answer.
    pub(super) const fn whole(at: At) -> Self {
        Self {
            at,
            start: String::new(),
            limit: 0,
            continued: false,
            remaining: None,
        }
    }

    /// The first key, relative to the resource.
    pub(super) fn first_key(&self, predicate: &SelectionPredicate) -> String {
        match self.start.as_str() {
            "" => String::new(),
            start => predicate.scope.list_prefix() + start,
        }
    }
}

/// The table of lists.
///
/// | match        | version  | limit | continue | state            |
/// |--------------|----------|-------|----------|------------------|
/// | -            | ""       | any   | -        | latest           |
/// | any but Exact| "0"      | void  | -        | any              |
/// | -            | N        | 0     | -        | not older than N |
/// | -            | N        | > 0   | -        | exactly N        |
/// | NotOlderThan | N        | any   | -        | not older than N |
/// | Exact        | N        | any   | -        | exactly N        |
/// | -            | "", "0"  | any   | at N     | exactly N        |
/// | -            | "", "0"  | any   | at -1    | latest           |
/// | -            | N        | any   | any      | 400              |
///
/// A list of a `single` key (a name is pinned) has no pages: its limit and its token mean nothing.
pub(super) fn plan(options: &ListOptions, single: bool) -> Result<ListPlan, ReadError> {
    use ResourceVersionMatch::{Exact, NotOlderThan};
    let version = options.resource_version;
    let any = version.is_some_and(ResourceVersion::is_zero);
    let limit = if any || single { 0 } else { options.limit };
    let token = options.continue_token.as_ref().filter(|_| !single);
    if let Some(token) = token {
        if !any && version.is_some() {
            return Err(ReadError::VersionWithContinue);
        }
        let token = ContinueToken::decode(token)?;
        return Ok(ListPlan {
            at: token.resource_version.map_or(At::Latest, At::Exact),
            start: token.start,
            limit,
            continued: true,
            // At another version it is another number, and a forged one may be none that clients read.
            remaining: token
                .remaining
                .filter(|n| token.resource_version.is_some() && i64::try_from(*n).is_ok()),
        });
    }
    let at = match (options.resource_version_match, version) {
        (_, None) => At::Latest,
        (_, Some(version)) if any => At::NotOlderThan(version),
        (None, Some(version)) if limit > 0 => At::Exact(version),
        (None | Some(NotOlderThan), Some(version)) => At::NotOlderThan(version),
        (Some(Exact), Some(version)) => At::Exact(version),
    };
    Ok(ListPlan {
        limit,
        ..ListPlan::whole(at)
    })
}

#[cfg(test)]
mod tests;
