//! `ListPlan`: the version, start key and limit of a list, derived from its options alone.

use super::ReadError;
use watchet_api::{
    ContinueToken, ListOptions, ResourceVersion, ResourceVersionMatch, SelectionPredicate,
};

/// The version at which to answer a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadVersion {
    /// Includes every write acknowledged before the list began.
    Latest,
    /// At least this version; zero means any.
    NotOlderThan(ResourceVersion),
    /// Exactly this version.
    Exact(ResourceVersion),
}

/// The plan of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListPlan {
    pub(super) at: ReadVersion,
    /// The first key, relative to the listed prefix; empty for the beginning.
    pub(super) start: String,
    /// 0 means no limit.
    pub(super) limit: usize,
    pub(super) continued: bool,
    /// The number of objects from `start` on, if the token has it.
    pub(super) remaining: Option<u64>,
}

impl ListPlan {
    /// Returns the plan of a list without limit.
    pub(super) const fn whole(at: ReadVersion) -> Self {
        Self {
            at,
            start: String::new(),
            limit: 0,
            continued: false,
            remaining: None,
        }
    }

    /// Returns the first key, relative to the resource.
    pub(super) fn first_key(&self, predicate: &SelectionPredicate) -> String {
        match self.start.as_str() {
            "" => String::new(),
            start => predicate.scope.list_prefix() + start,
        }
    }
}

/// Returns the plan of a list:
///
/// | match        | resourceVersion | limit | continue | state            |
/// |--------------|----------|-------|----------|------------------|
/// | -            | ""       | any   | -        | latest           |
/// | any but Exact| "0"      | ignored | -      | any              |
/// | -            | N        | 0     | -        | not older than N |
/// | -            | N        | > 0   | -        | exactly N        |
/// | NotOlderThan | N        | any   | -        | not older than N |
/// | Exact        | N        | any   | -        | exactly N        |
/// | -            | "", "0"  | any   | at N     | exactly N        |
/// | -            | "", "0"  | any   | at -1    | latest           |
/// | -            | N        | any   | any      | 400              |
///
/// A list of a `single` key (the predicate has a name) has no pages: it ignores limit and token.
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
            at: token
                .resource_version
                .map_or(ReadVersion::Latest, ReadVersion::Exact),
            start: token.start,
            limit,
            continued: true,
            // At another version the number differs, and a forged one may be out of range.
            remaining: token
                .remaining
                .filter(|n| token.resource_version.is_some() && i64::try_from(*n).is_ok()),
        });
    }
    let at = match (options.resource_version_match, version) {
        (_, None) => ReadVersion::Latest,
        (_, Some(version)) if any => ReadVersion::NotOlderThan(version),
        (None, Some(version)) if limit > 0 => ReadVersion::Exact(version),
        (None | Some(NotOlderThan), Some(version)) => ReadVersion::NotOlderThan(version),
        (Some(Exact), Some(version)) => ReadVersion::Exact(version),
    };
    Ok(ListPlan {
        limit,
        ..ListPlan::whole(at)
    })
}

#[cfg(test)]
mod tests;
