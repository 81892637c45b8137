//! `RequestInfo`: verb, group, version, namespace, resource, name and subresource of a request,
//! parsed from its method and URI. Existence of the resource is checked in `verbs`.

use std::borrow::Cow;

use axum::http::Method;

use crate::request::percent::decode_bytes;
use crate::request::query::{Query, flag};
use watchet_registry::path_segment_problems;

/// A verb as in authorization rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads many objects.
    List,
    /// Streams changes.
    Watch,
    /// Creates an object.
    Create,
    /// Replaces an object.
    Update,
    /// Changes an object.
    Patch,
    /// Deletes an object.
    Delete,
    /// Deletes many objects.
    DeleteCollection,
}

impl Verb {
    /// Returns the verb in lower case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// Returns true for verbs that change objects.
    pub const fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// The target of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestInfo {
    /// Objects of a resource.
    Resource(ResourceRequest),
    /// Any other path (discovery, health, version), as its decoded segments.
    NonResource(Vec<String>),
}

/// A request about objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceRequest {
    /// `None` for a method that no resource supports.
    pub verb: Option<Verb>,
    /// Empty for core.
    pub group: String,
    /// `v1`
    pub version: String,
    /// The namespace, if the path has one.
    pub namespace: Option<String>,
    /// Plural.
    pub resource: String,
    /// The name of the object, if the path has one.
    pub name: Option<String>,
    /// `status`, …
    pub subresource: Option<String>,
    /// True if the path has the deprecated prefix `watch`.
    pub is_watch_path: bool,
}

/// The path is not well-formed percent-encoded UTF-8, or cannot exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPath {
    /// 400
    #[error("invalid path segment {0:?}: it is not percent-encoded UTF-8")]
    Encoding(String),
    /// 404
    #[error("the server could not find the requested resource")]
    NoSuchPath,
    /// 400: the segment cannot be part of a key.
    #[error("{what} parameter invalid: {text:?}: {problem}")]
    Segment {
        /// `Name` or `Namespace`.
        what: &'static str,
        /// The decoded segment.
        text: String,
        /// Why it is invalid.
        problem: String,
    },
}

/// The number of segments of a path to a subresource in a named group and a namespace.
const SEGMENTS_TYPICAL: usize = 8;

/// Subresources of a namespace: `/namespaces/x/status` is not a list of a resource named `status`.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

impl RequestInfo {
    /// Parses a method, a raw path and a raw query.
    ///
    /// # Errors
    /// [`InvalidPath`] if the path is not percent-encoded UTF-8, has too many or empty segments, or
    /// has a name or namespace that cannot be part of a key.
    pub fn parse(method: &Method, path: &str, query: Option<&str>) -> Result<Self, InvalidPath> {
        let path = path.strip_prefix('/').unwrap_or(path);
        let path = path.strip_suffix('/').unwrap_or(path);
        let mut segments = Vec::with_capacity(SEGMENTS_TYPICAL);
        for segment in path.split('/') {
            segments.push(percent_decode(segment)?);
        }
        // An escaped slash separates segments, as upstream.
        let words = segments.iter().flat_map(|segment| segment.split('/'));
        let words: Vec<&str> = words.collect();
        let (group, version, rest) = match words[..] {
            ["api", version, _, ..] => ("", version, &words[2..]),
            ["apis", group, version, _, ..] => (group, version, &words[3..]),
            _ => {
                let words = words.into_iter().map(str::to_owned);
                return Ok(Self::NonResource(words.collect()));
            }
        };
        let (legacy_watch, rest) = match rest {
            ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
            _ => (false, rest),
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, below @ ..]
                if below
                    .first()
                    .is_some_and(|w| !NAMESPACE_SUBRESOURCES.contains(w)) =>
            {
                (Some(*namespace), below)
            }
            _ => (None, rest),
        };
        let (resource, name, subresource) = match rest {
            [resource] => (resource, None, None),
            [resource, name] => (resource, Some(*name), None),
            [resource, name, subresource] => (resource, Some(*name), Some(*subresource)),
            // The rest of the path belongs to the proxied server.
            [resource, name, subresource @ "proxy", ..] => {
                (resource, Some(*name), Some(*subresource))
            }
            _ => return Err(InvalidPath::NoSuchPath),
        };
        let empty = |word: Option<&str>| word.is_some_and(str::is_empty);
        // The core group has no name, but its paths begin with `/api/`.
        let nameless = version.is_empty() || (words[0] == "apis" && group.is_empty());
        if nameless || resource.is_empty() || empty(namespace) || empty(name) || empty(subresource)
        {
            return Err(InvalidPath::NoSuchPath);
        }
        for (what, text) in [("Name", name), ("Namespace", namespace)] {
            if let Some(text) = text {
                check_segment(what, text)?;
            }
        }
        Ok(Self::Resource(ResourceRequest {
            verb: verb(method, name.is_some(), legacy_watch, query),
            group: group.to_owned(),
            version: version.to_owned(),
            namespace: namespace.map(str::to_owned),
            resource: (*resource).to_owned(),
            name: name.map(str::to_owned),
            subresource: subresource.map(str::to_owned),
            is_watch_path: legacy_watch,
        }))
    }
}

fn verb(method: &Method, named: bool, legacy_watch: bool, query: Option<&str>) -> Option<Verb> {
    match *method {
        Method::GET | Method::HEAD if legacy_watch => Some(Verb::Watch),
        _ if legacy_watch => None,
        Method::GET | Method::HEAD if named => Some(Verb::Get),
        // A query that cannot be decoded is rejected when the options are decoded.
        Method::GET | Method::HEAD => {
            let watch = Query::parse(query.unwrap_or_default())
                .is_ok_and(|query| query.get("watch").is_some_and(flag));
            Some(if watch { Verb::Watch } else { Verb::List })
        }
        Method::POST => Some(Verb::Create),
        Method::PUT => Some(Verb::Update),
        Method::PATCH => Some(Verb::Patch),
        Method::DELETE if named => Some(Verb::Delete),
        Method::DELETE => Some(Verb::DeleteCollection),
        _ => None,
    }
}

fn check_segment(what: &'static str, text: &str) -> Result<(), InvalidPath> {
    let problems = path_segment_problems(text);
    if problems.is_empty() {
        return Ok(());
    }
    Err(InvalidPath::Segment {
        what,
        text: text.to_owned(),
        problem: problems.join(";"),
    })
}

/// Decodes the `%XX` escapes of a segment; `+` stands for itself, unlike in a query.
fn percent_decode(segment: &str) -> Result<Cow<'_, str>, InvalidPath> {
    if !segment.contains('%') {
        return Ok(segment.into());
    }
    let invalid = || InvalidPath::Encoding(segment.to_owned());
    decode_bytes(segment, false)
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .map(Cow::Owned)
        .ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares `verb group/version namespace resource name subresource`, with `-` for absent
    /// parts.
    fn check(method: &str, uri: &str, expect: &str) {
        let (path, query) = match uri.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (uri, None),
        };
        let method: Method = method.parse().unwrap();
        let actual = match RequestInfo::parse(&method, path, query) {
            Ok(RequestInfo::Resource(r)) => {
                let dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
                format!(
                    "{} {}/{} {} {} {} {}",
                    r.verb.map_or("-", Verb::as_str),
                    r.group,
                    r.version,
                    dash(r.namespace),
                    r.resource,
                    dash(r.name),
                    dash(r.subresource)
                )
            }
            Ok(RequestInfo::NonResource(segments)) => format!("path {}", segments.join("|")),
            Err(error) => error.to_string(),
        };
        assert_eq!(actual, expect, "{method} {uri}");
    }

    #[test]
    fn paths_of_resources() {
        check("GET", "/api/v1/pods", "list /v1 - pods - -");
        check("GET", "/api/v1/pods/", "list /v1 - pods - -");
        check("GET", "/api/v1/pods?watch=1", "watch /v1 - pods - -");
        check("GET", "/api/v1/pods?watch=true", "watch /v1 - pods - -");
        check("GET", "/api/v1/pods?watch=False", "list /v1 - pods - -");
        check("GET", "/api/v1/pods?watch=0", "list /v1 - pods - -");
        let pod = "/api/v1/namespaces/ns/pods/a";
        check("GET", pod, "get /v1 ns pods a -");
        check("HEAD", pod, "get /v1 ns pods a -");
        check("PUT", pod, "update /v1 ns pods a -");
        check("PATCH", pod, "patch /v1 ns pods a -");
        check("DELETE", pod, "delete /v1 ns pods a -");
        check("OPTIONS", pod, "- /v1 ns pods a -");
        let pods = "/api/v1/namespaces/ns/pods";
        check("POST", pods, "create /v1 ns pods - -");
        check("DELETE", pods, "deletecollection /v1 ns pods - -");
        let status = "/apis/apps/v1/namespaces/ns/deployments/d/status";
        check("PATCH", status, "patch apps/v1 ns deployments d status");
        let proxied = "/api/v1/namespaces/ns/services/https:s:443/proxy/x//y";
        check("POST", proxied, "create /v1 ns services https:s:443 proxy");
        check(
            "GET",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Aadmin",
            "get rbac.authorization.k8s.io/v1 - clusterroles system:admin -",
        );
    }

    #[test]
    fn namespace_paths() {
        check("GET", "/api/v1/namespaces", "list /v1 - namespaces - -");
        check("GET", "/api/v1/namespaces/a", "get /v1 - namespaces a -");
        check(
            "PUT",
            "/api/v1/namespaces/a/status",
            "update /v1 - namespaces a status",
        );
        check(
            "PUT",
            "/api/v1/namespaces/a/finalize",
            "update /v1 - namespaces a finalize",
        );
    }

    #[test]
    fn legacy_watch_paths() {
        check("GET", "/api/v1/watch/pods", "watch /v1 - pods - -");
        check(
            "GET",
            "/api/v1/watch/namespaces/ns/pods/a",
            "watch /v1 ns pods a -",
        );
        check("POST", "/api/v1/watch/pods", "- /v1 - pods - -");
    }

    #[test]
    fn non_resource_and_invalid_paths() {
        check("GET", "/", "path ");
        check("GET", "/api", "path api");
        check("GET", "/apis/apps/v1", "path apis|apps|v1");
        check("GET", "/readyz/ping", "path readyz|ping");
        let not_found = "the server could not find the requested resource";
        check("GET", "/api/v1/namespaces/ns/pods/a/log/x", not_found);
        check("GET", "/api/v1//pods", not_found);
        check("GET", "/apis//v1/pods", not_found);
        check("DELETE", "/apis//v1/namespaces/ns/pods", not_found);
        check("GET", "/apis/apps//deployments", not_found);
        check("GET", "/api//pods", not_found);
        for ns in ["..", "%2e%2E", "%2E."] {
            let path = format!("/api/v1/namespaces/{ns}/pods");
            let bad = r#"Namespace parameter invalid: "..": may not be '..'"#;
            check("GET", &path, bad);
            check("POST", &path, bad);
            check("GET", &format!("{path}?watch=1"), bad);
            check("DELETE", &format!("{path}/a"), bad);
        }
        let dot = r#"Name parameter invalid: ".": may not be '.'"#;
        check("GET", "/api/v1/namespaces/.", dot);
        check("PUT", "/api/v1/namespaces/ns/pods/.", dot);
        let percent = r#"Name parameter invalid: "a%b": may not contain '%'"#;
        check("GET", "/api/v1/namespaces/ns/pods/a%25b", percent);
        // An escaped slash separates segments.
        check("GET", "/api/v1/namespaces/a%2Fpods", "list /v1 a pods - -");
        check(
            "GET",
            "/api/v1/nodes/a%2Fstatus",
            "get /v1 - nodes a status",
        );
        check("GET", "/api/v1/nodes/%2F", not_found);
        let bad = r#"invalid path segment "%zz": it is not percent-encoded UTF-8"#;
        check("GET", "/api/v1/pods/%zz", bad);
        let bad = r#"invalid path segment "%ff": it is not percent-encoded UTF-8"#;
        check("GET", "/api/v1/pods/%ff", bad);
    }
}
