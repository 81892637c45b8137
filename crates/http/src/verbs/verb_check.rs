//! Checks whether a resource supports a verb at the requested path: a collection, an object or a
//! subresource, with or without a namespace.

use watchet_registry::Resource;

use crate::error::HttpError;
use crate::request::request_info::Verb;

/// Checks that `resource` supports `verb` at the path with these parts.
///
/// # Errors
/// 404 if the path does not exist for the resource, 405 if it supports other verbs only.
pub(crate) fn check_verb(
    resource: &Resource,
    verb: Option<Verb>,
    namespaced: bool,
    named: bool,
    subresource: Option<&str>,
) -> Result<(), HttpError> {
    let is_misplaced = match resource.namespaced {
        true => named && !namespaced,
        false => namespaced,
    };
    let found = subresource.map(|name| resource.subresource(name));
    if is_misplaced || found == Some(None) {
        return Err(HttpError::NoSuchPath);
    }
    let verb = verb.ok_or(HttpError::MethodNotAllowed)?;
    let is_served = match found.flatten() {
        Some(found) => found.verbs.contains(&verb.as_str()),
        None => resource.verbs.iter().any(|served| served == verb.as_str()),
    };
    let has_valid_scope = match verb {
        // A list across all namespaces is allowed; a write needs a namespace.
        Verb::Create if subresource.is_some() => named,
        Verb::Create | Verb::DeleteCollection => !named && namespaced == resource.namespaced,
        Verb::Update | Verb::Patch => named,
        Verb::Get | Verb::List | Verb::Watch | Verb::Delete => true,
    };
    match is_served && has_valid_scope {
        true => Ok(()),
        false => Err(HttpError::MethodNotAllowed),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use watchet_registry::Subresource;

    fn pods(namespaced: bool) -> Resource {
        Resource {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            plural: "pods".to_owned(),
            singular: "pod".to_owned(),
            short_names: vec![],
            categories: vec![],
            namespaced,
            subresources: vec![
                Subresource::STATUS,
                Subresource::FINALIZE,
                Subresource {
                    name: "eviction",
                    verbs: &["create"],
                    body: None,
                },
            ],
            verbs: ["create", "deletecollection", "get", "list", "update"]
                .map(str::to_owned)
                .to_vec(),
            storage_prefix: "pods".to_owned(),
            columns: Arc::default(),
            triggers: vec![],
            strategy: Arc::new(watchet_registry::Plain),
        }
    }

    /// `path` contains `n` if the path has a namespace, and `o` if it has the name of an object.
    fn check(resource: &Resource, verb: Verb, path: &str, subresource: Option<&str>, code: u16) {
        let (namespaced, named) = (path.contains('n'), path.contains('o'));
        let actual = check_verb(resource, Some(verb), namespaced, named, subresource);
        let actual = actual.map_or_else(|error| error.status().code, |()| 200);
        assert_eq!(actual, code, "{verb:?} {path:?} {subresource:?}");
    }

    #[test]
    fn verbs_are_allowed_by_scope_and_subresource() {
        let pods_ = pods(true);
        check(&pods_, Verb::Get, "no", None, 200);
        check(&pods_, Verb::Get, "o", None, 404);
        check(&pods_, Verb::List, "", None, 200);
        check(&pods_, Verb::List, "n", None, 200);
        check(&pods_, Verb::Create, "n", None, 200);
        check(&pods_, Verb::Create, "", None, 405);
        check(&pods_, Verb::Create, "no", None, 405);
        check(&pods_, Verb::Update, "n", None, 405);
        check(&pods_, Verb::DeleteCollection, "", None, 405);
        check(&pods_, Verb::DeleteCollection, "n", None, 200);
        check(&pods_, Verb::Patch, "no", None, 405);
        check(&pods_, Verb::Update, "no", Some("status"), 200);
        check(&pods_, Verb::Patch, "no", Some("status"), 200);
        check(&pods_, Verb::Delete, "no", Some("status"), 405);
        check(&pods_, Verb::Get, "no", Some("log"), 404);
        check(&pods_, Verb::Update, "no", Some("finalize"), 200);
        check(&pods_, Verb::Patch, "no", Some("finalize"), 405);
        check(&pods_, Verb::Get, "no", Some("finalize"), 405);
        check(&pods_, Verb::Create, "no", Some("eviction"), 200);
        check(&pods_, Verb::Get, "no", Some("eviction"), 405);
        check(&pods_, Verb::Create, "no", Some("status"), 405);
        let nodes = pods(false);
        check(&nodes, Verb::Get, "o", None, 200);
        check(&nodes, Verb::Get, "no", None, 404);
        check(&nodes, Verb::Create, "", None, 200);
        check(&nodes, Verb::DeleteCollection, "", None, 200);
        let actual = check_verb(&nodes, None, false, true, None);
        assert_eq!(actual.unwrap_err().status().code, 405);
    }
}
