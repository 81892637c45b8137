//! OpenAPI over HTTP: which documents there are, in which form a client gets one, and what is kept of
//! them. What is in them is told by `schema`.
//!
//! A document is made when somebody asks for it, by one task at a time because a large one takes tens of
//! megabytes while it is made, and kept compressed. It is told from later ones by a hash of what it is made
//! of, so that the index of all costs none.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, ETAG, EXPIRES, HeaderMap, IF_NONE_MATCH, LOCATION, VARY,
};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha512};
use tokio::sync::Mutex;

use crate::registry::Resource;
use crate::schema::Types;
use crate::schema::openapi::{self, About, Part, Served};
use crate::tasks::Tasks;

use super::accept::clauses;
use super::documents::git_version;
use super::error::WireError;
use super::ordered::{OPENAPI_V2, OPENAPI_V3, Ordered};
use super::response::{accepts_gzip, response, set};

const JSON: &str = "application/json";
/// OpenAPI v2 in protobuf.
const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// What clients in use call it. It is no valid media type, so it is never answered: Go's clients fail to
/// parse it.
const V2_PROTOBUF_OLD: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
/// OpenAPI v3 in protobuf.
const V3_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
/// What clients in use call it; as with v2.
const V3_PROTOBUF_OLD: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";

/// How long a document that is named by its hash may be kept by clients, in seconds: a year.
const IMMUTABLE: &str = "public, immutable, max-age=31536000";

/// One document.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Which {
    /// v3 of a group and version, by its path below the index: `api/v1`, `apis/apps/v1`.
    V3(String),
    /// The same in protobuf.
    V3Protobuf(String),
    V2Json,
    V2Protobuf,
}

/// The documents that were asked for. Bounded by the groups that are served: those of others go when the
/// next one is made.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    kept: Mutex<HashMap<Which, Kept>>,
}

#[derive(Debug, Clone)]
struct Kept {
    hash: String,
    gzip: Bytes,
}

/// A request for a document.
pub(crate) struct Asked<'a> {
    pub(crate) resources: &'a [Arc<Resource>],
    pub(crate) types: &'a Arc<Types>,
    pub(crate) tasks: &'a Tasks,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) accept: Option<&'a str>,
    /// Of the query.
    pub(crate) hash: Option<&'a str>,
}

/// `/openapi/v3`: where each group's document is.
pub(crate) fn index(resources: &[Arc<Resource>]) -> Value {
    let mut paths = Map::new();
    for resource in resources {
        let path = path_of(resource);
        if !paths.contains_key(&path) {
            let hash = hash_of(&served(resources, Some(&path)));
            let url = format!("/openapi/v3/{path}?hash={hash}");
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

impl Documents {
    /// `/openapi/v3/<path>`
    pub(crate) async fn v3(&self, asked: Asked<'_>, path: &str) -> Result<Response, WireError> {
        let resources = served(asked.resources, Some(path));
        if resources.is_empty() {
            return Err(WireError::NoSuchPath);
        }
        let form = clauses(asked.accept).iter().find_map(|clause| {
            if clause.covers(JSON) {
                return Some((Which::V3(path.to_owned()), JSON));
            }
            let protobuf = clause.covers(V3_PROTOBUF) || clause.covers(V3_PROTOBUF_OLD);
            protobuf.then_some((Which::V3Protobuf(path.to_owned()), V3_PROTOBUF))
        });
        let Some((which, content_type)) = form else {
            return Err(WireError::NotAcceptable {
                accepted: format!("{JSON}, {V3_PROTOBUF}"),
            });
        };
        let hash = hash_of(&resources);
        if let Some(other) = asked.hash.filter(|given| *given != hash) {
            tracing::debug!(other, hash, path, "a client asks for an older document");
            let mut moved = response(StatusCode::MOVED_PERMANENTLY, JSON, Body::empty());
            set(
                &mut moved,
                LOCATION,
                &format!("/openapi/v3/{path}?hash={hash}"),
            );
            return Ok(moved);
        }
        let kept = self.get(&asked, which, hash, resources).await?;
        let mut answer = answer(&asked, &kept, content_type);
        if asked.hash.is_some() {
            let immutable = HeaderValue::from_static(IMMUTABLE);
            answer.headers_mut().insert(CACHE_CONTROL, immutable);
            set(&mut answer, EXPIRES, &a_year_from_now());
        }
        Ok(answer)
    }

    /// `/openapi/v2`
    pub(crate) async fn v2(&self, asked: Asked<'_>) -> Result<Response, WireError> {
        let form = clauses(asked.accept).iter().find_map(|clause| {
            if clause.covers(JSON) {
                return Some((Which::V2Json, JSON));
            }
            let protobuf = clause.covers(V2_PROTOBUF) || clause.covers(V2_PROTOBUF_OLD);
            protobuf.then_some((Which::V2Protobuf, V2_PROTOBUF))
        });
        let Some((which, content_type)) = form else {
            return Err(WireError::NotAcceptable {
                accepted: format!("{JSON}, {V2_PROTOBUF}"),
            });
        };
        let resources = served(asked.resources, None);
        let hash = hash_of(&resources);
        let kept = self.get(&asked, which, hash, resources).await?;
        Ok(answer(&asked, &kept, content_type))
    }

    /// The document as it is kept, made if it is not. Cancel safe: what is being made is then lost.
    async fn get(
        &self,
        asked: &Asked<'_>,
        which: Which,
        hash: String,
        resources: Vec<Served>,
    ) -> Result<Kept, WireError> {
        let mut kept = self.kept.lock().await;
        if let Some(found) = kept.get(&which).filter(|found| found.hash == hash) {
            return Ok(found.clone());
        }
        kept.retain(|which, _| match which {
            Which::V3(path) | Which::V3Protobuf(path) => {
                asked.resources.iter().any(|r| path_of(r) == *path)
            }
            Which::V2Json | Which::V2Protobuf => true,
        });
        let types = asked.types.clone();
        let making = which.clone();
        let made = asked
            .tasks
            .spawn_blocking("openapi", move || make(&making, &types, &resources));
        let gzip = made
            .await
            .map_err(|error| WireError::Internal(error.to_string()))?
            .map_err(|error| WireError::Internal(error.to_string()))?;
        let made = Kept { hash, gzip };
        kept.insert(which, made.clone());
        Ok(made)
    }
}

/// Makes a document, compressed as it is written: its text is never whole in memory.
fn make(which: &Which, types: &Types, resources: &[Served]) -> std::io::Result<Bytes> {
    let about = About {
        title: "Kubernetes".to_owned(),
        version: git_version(),
    };
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    match which {
        Which::V3(_) => {
            let document = openapi::v3(&about, types, resources);
            serde_json::to_writer(&mut gzip, &Ordered::new(&document, &OPENAPI_V3))?;
        }
        Which::V3Protobuf(_) => {
            let document = openapi::v3(&about, types, resources);
            gzip.write_all(&openapi::v3_protobuf(&document))?;
        }
        Which::V2Json => {
            let document = openapi::v2(&about, types, resources);
            serde_json::to_writer(&mut gzip, &Ordered::new(&document, &OPENAPI_V2))?;
        }
        Which::V2Protobuf => {
            let document = openapi::v2(&about, types, resources);
            gzip.write_all(&openapi::v2_protobuf(&document))?;
        }
    }
    gzip.finish().map(Bytes::from)
}

fn answer(asked: &Asked<'_>, kept: &Kept, content_type: &'static str) -> Response {
    let etag = format!("\"{}\"", kept.hash);
    let known = asked.headers.get_all(IF_NONE_MATCH).iter();
    let known = known.filter_map(|value| value.to_str().ok());
    let mut known = known.flat_map(|value| value.split(',').map(str::trim));
    let mut answer = if known.any(|tag| tag == etag || tag == "*") {
        response(StatusCode::NOT_MODIFIED, content_type, Body::empty())
    } else if accepts_gzip(asked.headers) {
        let body = Body::from(kept.gzip.clone());
        let mut answer = response(StatusCode::OK, content_type, body);
        set(&mut answer, CONTENT_ENCODING, "gzip");
        answer
    } else {
        let mut plain = Vec::new();
        match GzDecoder::new(&kept.gzip[..]).read_to_end(&mut plain) {
            Ok(_) => response(StatusCode::OK, content_type, Body::from(plain)),
            Err(error) => unreachable!("it was compressed here: {error}"),
        }
    };
    set(&mut answer, ETAG, &etag);
    set(&mut answer, VARY, "Accept, Accept-Encoding");
    answer
}

fn a_year_from_now() -> String {
    let year = jiff::SignedDuration::from_hours(365 * 24);
    let then = jiff::Timestamp::now() + year;
    then.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// Where the document of a resource's group and version is.
fn path_of(resource: &Resource) -> String {
    match resource.group.is_empty() {
        true => format!("api/{}", resource.version),
        false => format!("apis/{}/{}", resource.group, resource.version),
    }
}

/// The resources of one group and version, or all.
fn served(resources: &[Arc<Resource>], path: Option<&str>) -> Vec<Served> {
    let wanted = resources.iter();
    let wanted = wanted.filter(|resource| path.is_none_or(|path| path_of(resource) == path));
    wanted.map(|resource| describe(resource)).collect()
}

fn describe(resource: &Resource) -> Served {
    let verbs = |all: &[&str]| all.iter().map(|verb| (*verb).to_owned()).collect();
    let parts = resource.subresources.iter().map(|part| Part {
        name: part.name.to_owned(),
        verbs: verbs(part.verbs),
        body: part.body.map(|body| {
            let words = [body.group, body.version, body.kind].map(str::to_owned);
            words.into()
        }),
    });
    Served {
        group: resource.group.clone(),
        version: resource.version.clone(),
        kind: resource.kind.clone(),
        plural: resource.plural.clone(),
        namespaced: resource.namespaced,
        verbs: verbs(&resource.offered()),
        parts: parts.collect(),
        schema: resource.custom.as_ref().map(|custom| custom.schema.clone()),
        selectable: resource
            .custom
            .iter()
            .flat_map(|_| selectable(resource))
            .collect(),
    }
}

/// The fields that a custom resource's definition makes selectable.
fn selectable(resource: &Resource) -> Vec<String> {
    let columns = resource.columns.fields().iter();
    let labels = columns.map(|column| column.label.to_string());
    labels.filter(|label| !label.is_empty()).collect()
}

/// What tells documents about these resources apart: all that they are made of.
fn hash_of(resources: &[Served]) -> String {
    let mut hash = Sha512::new();
    hash.update(git_version());
    for resource in resources {
        // What is shown of it has every field; a schema is written with its members in order.
        hash.update(format!("{resource:?}"));
    }
    let digest = hash.finalize();
    digest.iter().map(|byte| format!("{byte:02X}")).collect()
}
