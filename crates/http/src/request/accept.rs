//! Content negotiation: picks the media type and form of a response from the Accept header. The
//! form itself is produced in `render`.

use axum::http::HeaderValue;
use axum::http::header::ACCEPT;
use axum::http::request::Parts;

use crate::error::HttpError;
use crate::request::query::Query;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The encoding of a response body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Media {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
}

impl Media {
    /// Returns the short name of the encoding.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Yaml => "yaml",
            Self::Protobuf => "protobuf",
        }
    }

    /// Returns the Content-Type.
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => PROTOBUF,
        }
    }

    /// Returns the Content-Type of a watch.
    pub(crate) const fn watch_content_type(self) -> &'static str {
        match self {
            Self::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
            Self::Json | Self::Yaml => self.content_type(),
        }
    }
}

/// Which part of each object a Table row includes besides its cells (`includeObject`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    /// Nothing.
    None,
    /// Its metadata.
    Metadata,
    /// All of it.
    Object,
}

/// The form in which objects are returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The objects themselves.
    Object,
    /// `PartialObjectMetadata`, or a list of it.
    Metadata,
    /// `Table`
    Table(IncludeObject),
}

impl Form {
    /// Returns the name of the form.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Object => "Object",
            Self::Metadata => "Metadata",
            Self::Table(_) => "Table",
        }
    }
}

/// The kind of response being negotiated; not every form fits each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseKind {
    /// One object.
    Object,
    /// An object that is never stored, such as a review: it has no Table form.
    Unstored,
    /// A list.
    List,
    /// A stream of events.
    Watch,
}

/// The result of content negotiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Negotiated {
    /// The encoding.
    pub(crate) media: Media,
    /// The form.
    pub(crate) form: Form,
    /// Whether JSON is indented.
    pub(crate) pretty: bool,
}

/// One clause of an Accept header.
#[derive(Debug, PartialEq)]
pub(crate) struct Clause<'a> {
    /// `application/json`, `*/*`, …
    pub(crate) media: &'a str,
    params: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl<'a> Clause<'a> {
    /// Returns the value of a parameter, empty when it is not given.
    pub(crate) fn param(&self, name: &str) -> &'a str {
        self.params
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map_or("", |(_, value)| value)
    }

    /// Returns true if the clause's media range covers `media_type`.
    pub(crate) fn covers(&self, media_type: &str) -> bool {
        let family = media_type.split('/').next().unwrap_or_default();
        self.media == "*/*"
            || self.media.eq_ignore_ascii_case(media_type)
            || self.media.strip_suffix("/*") == Some(family)
    }
}

/// Returns the clauses of an Accept header by descending quality; without a header, one that
/// accepts everything.
pub(crate) fn clauses(accept: Option<&str>) -> Vec<Clause<'_>> {
    let accept = accept.filter(|text| !text.trim().is_empty());
    let mut clauses: Vec<Clause<'_>> = accept
        .unwrap_or("*/*")
        .split(',')
        .map(|text| {
            let mut parts = text.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let params: Vec<_> = parts
                .filter_map(|part| part.split_once('='))
                .map(|(name, value)| (name.trim(), value.trim().trim_matches('"')))
                .collect();
            let mut clause = Clause {
                media,
                params,
                quality: 1.0,
            };
            clause.quality = clause.param("q").parse().unwrap_or(1.0);
            clause
        })
        .filter(|clause| !clause.media.is_empty() && clause.quality > 0.0)
        .collect();
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses
}

/// Negotiates the media type and form of a response; the first acceptable clause wins. `protobuf`
/// returns whether the requested objects have a protobuf encoding; metadata always has one.
pub(crate) fn negotiate(
    accept: Option<&str>,
    kind: ResponseKind,
    query: &Query,
    user_agent: Option<&str>,
    protobuf: impl Fn() -> bool,
) -> Result<Negotiated, HttpError> {
    for clause in clauses(accept) {
        let Some(media) = media_of(&clause, kind) else {
            continue;
        };
        if let Some(form) = form_of(&clause, kind, query)? {
            let encodable = || form == Form::Metadata || form == Form::Object && protobuf();
            if media == Media::Protobuf && !encodable() {
                continue;
            }
            let requested = matches!(clause.param("pretty"), "1" | "true");
            return Ok(Negotiated {
                media,
                form,
                pretty: kind != ResponseKind::Watch
                    && (requested || wants_pretty(query, user_agent)),
            });
        }
    }
    let mut accepted = match kind {
        ResponseKind::Watch => "application/json, application/json;stream=watch".to_owned(),
        ResponseKind::Object | ResponseKind::Unstored | ResponseKind::List => {
            "application/json, application/yaml".to_owned()
        }
    };
    if protobuf() {
        accepted.push_str(", ");
        accepted.push_str(PROTOBUF);
    }
    Err(HttpError::NotAcceptable { accepted })
}

/// Returns the encoding of a `Status` for an Accept header: that of the first clause without an
/// `as` parameter, else JSON.
pub(crate) fn status_media(accept: Option<&str>) -> Media {
    let plain = clauses(accept)
        .into_iter()
        .filter(|clause| clause.param("as").is_empty());
    let media = |clause: Clause<'_>| match clause.param("stream") {
        "" => media_of(&clause, ResponseKind::Object),
        _ => media_of(&clause, ResponseKind::Watch),
    };
    plain.filter_map(media).next().unwrap_or(Media::Json)
}

fn media_of(clause: &Clause<'_>, kind: ResponseKind) -> Option<Media> {
    match clause.param("stream") {
        "" => {}
        "watch" if kind == ResponseKind::Watch => {}
        _ => return None,
    }
    if clause.covers("application/json") {
        Some(Media::Json)
    } else if clause.covers("application/yaml") && kind != ResponseKind::Watch {
        Some(Media::Yaml)
    } else if clause.covers(PROTOBUF) {
        Some(Media::Protobuf)
    } else {
        None
    }
}

/// Returns the form that a clause requests; `None` if this kind of response does not have it.
fn form_of(
    clause: &Clause<'_>,
    kind: ResponseKind,
    query: &Query,
) -> Result<Option<Form>, HttpError> {
    let form = clause.param("as");
    if form.is_empty() {
        return Ok(Some(Form::Object));
    }
    if clause.param("g") != "meta.k8s.io" {
        return Ok(None);
    }
    // Old kubectls offer v1beta1 as their second choice; the two differ only in apiVersion, and the
    // response is always v1.
    let version = matches!(clause.param("v"), "v1" | "v1beta1");
    Ok(match (form, kind) {
        _ if !version => None,
        ("Table", ResponseKind::Unstored) => None,
        ("Table", _) => Some(Form::Table(include_object(query)?)),
        (
            "PartialObjectMetadata",
            ResponseKind::Object | ResponseKind::Unstored | ResponseKind::Watch,
        )
        | ("PartialObjectMetadataList", ResponseKind::List) => Some(Form::Metadata),
        _ => None,
    })
}

fn include_object(query: &Query) -> Result<IncludeObject, HttpError> {
    match query.text("includeObject") {
        None | Some("Metadata") => Ok(IncludeObject::Metadata),
        Some("None") => Ok(IncludeObject::None),
        Some("Object") => Ok(IncludeObject::Object),
        Some(other) => Err(HttpError::BadRequest(format!(
            "invalid value {other:?} of query parameter \"includeObject\": it must be None, \
             Metadata or Object"
        ))),
    }
}

/// Returns true if JSON should be indented: the client requests it, or its user agent is
/// interactive.
fn wants_pretty(query: &Query, user_agent: Option<&str>) -> bool {
    match query.text("pretty") {
        Some(value) => matches!(value, "1" | "t" | "T" | "true" | "True" | "TRUE"),
        None => user_agent.is_some_and(|agent| {
            ["curl", "Wget", "Mozilla/5.0"]
                .iter()
                .any(|reader| agent.starts_with(reader))
        }),
    }
}

/// Returns the Accept header of a request; several are joined.
pub(crate) fn accept_header(parts: &Parts) -> Result<Option<String>, HttpError> {
    let mut all: Option<String> = None;
    for value in parts.headers.get_all(ACCEPT) {
        let text = value.to_str().map_err(|_| {
            HttpError::BadRequest("the Accept header is not visible ASCII".to_owned())
        })?;
        match &mut all {
            Some(all) => {
                all.push(',');
                all.push_str(text);
            }
            None => all = Some(text.to_owned()),
        }
    }
    Ok(all)
}

/// Returns true if a document or an error is to be indented. A query that cannot be decoded is rejected elsewhere.
pub(crate) fn is_pretty(query: Option<&str>, user_agent: Option<&HeaderValue>) -> bool {
    let query = Query::parse(query.unwrap_or_default()).unwrap_or_default();
    wants_pretty(&query, user_agent.and_then(|v| v.to_str().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA_TABLE: Form = Form::Table(IncludeObject::Metadata);

    fn check(accept: Option<&str>, kind: ResponseKind, expect: Result<(Media, Form), &str>) {
        let actual = negotiate(accept, kind, &Query::default(), None, || false);
        match (actual, expect) {
            (Ok(actual), Ok(expect)) => {
                assert_eq!((actual.media, actual.form), expect, "{accept:?}")
            }
            (Err(actual), Err(expect)) => {
                let status = actual.status();
                assert_eq!(status.code, 406);
                assert!(status.message.ends_with(expect), "{}", status.message);
            }
            (actual, expect) => panic!("{accept:?}: {actual:?} and not {expect:?}"),
        }
    }

    #[test]
    fn accept_header_selects_the_media_type() {
        use ResponseKind::{List, Watch};
        let json = Ok((Media::Json, Form::Object));
        let yaml = Ok((Media::Yaml, Form::Object));
        for any in [
            None,
            Some(""),
            Some("*/*"),
            Some("application/*"),
            Some("text/html, application/json;charset=utf-8"),
            Some("application/vnd.kubernetes.protobuf,application/json"),
            Some("application/yaml;q=0.5,application/json"),
        ] {
            check(any, List, json);
        }
        check(Some("application/yaml"), List, yaml);
        check(Some("application/json;q=0.5,application/yaml"), List, yaml);
        check(
            Some("application/yaml"),
            Watch,
            Err(": application/json, application/json;stream=watch"),
        );
        check(Some("application/json;stream=watch"), Watch, json);
        let both = Err(": application/json, application/yaml");
        check(Some("application/json;stream=watch"), List, both);
        check(Some("application/json;q=0"), List, both);
        check(Some("application/vnd.kubernetes.protobuf"), List, both);
    }

    #[test]
    fn protobuf_needs_an_explicit_clause_and_a_known_kind() {
        let agree = |accept: &str, kind, protobuf| {
            let actual = negotiate(Some(accept), kind, &Query::default(), None, || protobuf);
            actual.ok().map(|actual| (actual.media, actual.form))
        };
        for kind in [
            ResponseKind::Object,
            ResponseKind::List,
            ResponseKind::Watch,
        ] {
            let protobuf = Some((Media::Protobuf, Form::Object));
            let json = Some((Media::Json, Form::Object));
            assert_eq!(agree(PROTOBUF, kind, true), protobuf);
            assert_eq!(agree(PROTOBUF, kind, false), None);
            let either = format!("{PROTOBUF},application/json");
            assert_eq!(agree(&either, kind, true), protobuf);
            assert_eq!(agree(&either, kind, false), json);
            assert_eq!(agree("*/*", kind, true), json);
        }
        let stream = format!("{PROTOBUF};stream=watch");
        let watched = agree(&stream, ResponseKind::Watch, true);
        assert_eq!(watched, Some((Media::Protobuf, Form::Object)));
        let metadata = format!("{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
        let actual = agree(&metadata, ResponseKind::Object, false);
        assert_eq!(actual, Some((Media::Protobuf, Form::Metadata)));
        let table = format!("{PROTOBUF};as=Table;g=meta.k8s.io;v=v1");
        assert_eq!(agree(&table, ResponseKind::List, true), None);
    }

    #[test]
    fn a_status_uses_the_encoding_of_objects() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        for (accept, media) in [
            ("", Media::Json),
            ("text/html", Media::Json),
            ("application/yaml", Media::Yaml),
            (PROTOBUF, Media::Protobuf),
            (table, Media::Json),
            ("application/json;as=Table,application/yaml", Media::Yaml),
            (
                "application/json,application/vnd.kubernetes.protobuf",
                Media::Json,
            ),
            (
                "application/vnd.kubernetes.protobuf;stream=watch",
                Media::Protobuf,
            ),
        ] {
            assert_eq!(status_media(Some(accept)), media, "{accept}");
        }
    }

    #[test]
    fn accept_header_selects_table_and_partial_metadata() {
        use ResponseKind::{List, Object, Watch};
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        for kind in [Object, List, Watch] {
            check(Some(kubectl), kind, Ok((Media::Json, METADATA_TABLE)));
        }
        // A review, a binding, an eviction or a token has no row, so kubectl's second choice
        // applies.
        let unstored = ResponseKind::Unstored;
        check(Some(kubectl), unstored, Ok((Media::Json, Form::Object)));
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let refused = Err("application/json, application/yaml");
        check(Some(table), unstored, refused);
        let beta = "application/json;as=Table;v=v1beta1;g=meta.k8s.io";
        check(Some(beta), List, Ok((Media::Json, METADATA_TABLE)));
        let next = "application/json;as=Table;v=v9;g=meta.k8s.io,application/json";
        check(Some(next), List, Ok((Media::Json, Form::Object)));
        let one = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        let list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let metadata = Ok((Media::Json, Form::Metadata));
        check(Some(one), unstored, metadata);
        check(Some(one), Object, metadata);
        check(Some(one), Watch, metadata);
        check(Some(list), List, metadata);
        check(Some(one), List, refused);
        check(Some(list), Object, refused);
        check(
            Some("application/json;as=Sofa;g=meta.k8s.io;v=v1"),
            Object,
            refused,
        );
    }

    #[test]
    fn include_object_and_pretty() {
        let table = Some("application/json;as=Table;v=v1;g=meta.k8s.io");
        let negotiated = |raw: &str, agent| {
            let query = Query::parse(raw).unwrap();
            negotiate(table, ResponseKind::List, &query, agent, || false)
        };
        let actual = negotiated("includeObject=Object", None).unwrap();
        assert_eq!(actual.form, Form::Table(IncludeObject::Object));
        assert!(!actual.pretty);
        assert!(negotiated("includeObject=Some", None).is_err());
        assert!(negotiated("pretty=true", None).unwrap().pretty);
        assert!(negotiated("", Some("curl/8.5")).unwrap().pretty);
        assert!(!negotiated("pretty=false", Some("curl/8.5")).unwrap().pretty);
        assert!(!negotiated("", Some("kubectl/v1.32")).unwrap().pretty);
    }
}
