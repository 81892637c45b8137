//! `RequestInfo`: what a request line asks for (§8.1): verb, group, version, namespace, resource,
//! name, subresource. Pure parsing; whether such a resource or verb exists is decided by `verbs`.

use std::borrow::Cow;

use axum::http::Method;

use super::query::{Query, flag};
use crate::registry::path_segment_problems;

/// What is to be done, in the words of authorization rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// One object.
    Get,
    /// Many objects.
    List,
    /// Changes.
    Watch,
    /// A new object.
    Create,
    /// A replaced object.
    Update,
    /// A changed object.
    Patch,
    /// One object less.
    Delete,
    /// Many objects less.
    DeleteCollection,
}

impl Verb {
    /// The word, lower case.
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

    /// Whether it changes anything.
    pub const fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// What a request is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestInfo {
    /// Objects of a resource.
    Resource(ResourceRequest),
    /// Anything else: discovery, health, version. The path's decoded segments.
    NonResource(Vec<String>),
}

/// A request about objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceRequest {
    /// What to do; `None` for a method that no resource takes.
    pub verb: Option<Verb>,
    /// Empty for core.
    pub group: String,
    /// `v1`
    pub version: String,
    /// The namespace, of a namespaced request.
    pub namespace: Option<String>,
    /// Plural.
    pub resource: String,
    /// Which object.
    pub name: Option<String>,
    /// `status`, …
    pub subresource: Option<String>,
}

/// The path is not well-formed percent-encoding of UTF-8, or names nothing that could exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPath {
    /// 400
    #[error("invalid path segment {0:?}: it is not percent-encoded UTF-8")]
    Encoding(String),
    /// 404
    #[error("the server could not find the requested resource")]
    NoSuchPath,
    /// 400: it can be part of no key.
    #[error("{what} parameter invalid: {text:?}: {problem}")]
    Segment {
        /// `Name` or `Namespace`.
        what: &'static str,
        /// As it is meant.
        text: String,
        /// Why not.
        problem: String,
    },
}

/// Of a path to a subresource in a group and a namespace, which is as long as they get.
const SEGMENTS_USUAL: usize = 8;

/// Subresources of a namespace: `/namespaces/x/status` is no list of a resource named `status`.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

impl RequestInfo {
    /// Reads a method, a raw path and a raw query.
    ///
    /// # Errors
    /// [`InvalidPath`] when the path is badly encoded or has too many or empty segments, or a name or a
    /// namespace that cannot be part of a key.
    pub fn parse(method: &Method, path: &str, query: Option<&str>) -> Result<Self, InvalidPath> {
        let path = path.strip_prefix('/').unwrap_or(path);
        let path = path.strip_suffix('/').unwrap_or(path);
        let mut segments = Vec::with_capacity(SEGMENTS_USUAL);
        for segment in path.split('/') {
            segments.push(percent_decode(segment)?);
        }
        // An escaped slash is one, as upstream.
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
            // What is below is a path of whoever the request would be passed on to.
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
        }))
    }
}

fn verb(method: &Method, named: bool, legacy_watch: bool, query: Option<&str>) -> Option<Verb> {
    match *method {
        Method::GET | Method::HEAD if legacy_watch => Some(Verb::Watch),
        _ if legacy_watch => None,
        Method::GET | Method::HEAD if named => Some(Verb::Get),
        // A query that cannot be decoded is refused when the options are read.
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

/// One segment with its `%XX` decoded; `+` stands for itself, unlike in a query.
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

/// The bytes that `text` encodes; `None` when an escape is cut short or not hexadecimal.
pub(super) fn decode_bytes(text: &str, plus_is_space: bool) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let high = char::from(bytes.next()?).to_digit(16)?;
                let low = char::from(bytes.next()?).to_digit(16)?;
                (high * 16 + low) as u8
            }
            b'+' if plus_is_space => b' ',
            other => other,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `verb group/version namespace resource name subresource`, `-` for what is not there.
    fn check(method: &str, uri: &str, expect: &str) {
        let (path, query) = match uri.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (uri, None),
        };
        let method: Method = method.parse().unwrap();
        let told = match RequestInfo::parse(&method, path, query) {
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
        assert_eq!(told, expect, "{method} {uri}");
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
    fn a_namespace_is_a_resource_and_a_scope() {
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
    fn the_old_watch_paths() {
        check("GET", "/api/v1/watch/pods", "watch /v1 - pods - -");
        check(
            "GET",
            "/api/v1/watch/namespaces/ns/pods/a",
            "watch /v1 ns pods a -",
        );
        check("POST", "/api/v1/watch/pods", "- /v1 - pods - -");
    }

    #[test]
    fn other_paths_and_bad_ones() {
        check("GET", "/", "path ");
        check("GET", "/api", "path api");
        check("GET", "/apis/apps/v1", "path apis|apps|v1");
        check("GET", "/readyz/ping", "path readyz|ping");
        let gone = "the server could not find the requested resource";
        check("GET", "/api/v1/namespaces/ns/pods/a/log/x", gone);
        check("GET", "/api/v1//pods", gone);
        check("GET", "/apis//v1/pods", gone);
        check("DELETE", "/apis//v1/namespaces/ns/pods", gone);
        check("GET", "/apis/apps//deployments", gone);
        check("GET", "/api//pods", gone);
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
        // An escaped slash parts.
        check("GET", "/api/v1/namespaces/a%2Fpods", "list /v1 a pods - -");
        check(
            "GET",
            "/api/v1/nodes/a%2Fstatus",
            "get /v1 - nodes a status",
        );
        check("GET", "/api/v1/nodes/%2F", gone);
        let bad = r#"invalid path segment "%zz": it is not percent-encoded UTF-8"#;
        check("GET", "/api/v1/pods/%zz", bad);
        let bad = r#"invalid path segment "%ff": it is not percent-encoded UTF-8"#;
        check("GET", "/api/v1/pods/%ff", bad);
    }
}
