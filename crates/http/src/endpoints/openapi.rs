//! The OpenAPI endpoints: which documents exist, negotiation of their form, caching. `schema` builds their
//! content.
//!
//! A document is built on first request and cached compressed. Only one is built at a time, because
//! building a large one takes tens of megabytes. A document is identified by a hash of its inputs,
//! so that the index needs no documents.

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

use watchet_registry::Resource;
use watchet_schema::Types;
use watchet_schema::openapi::{self, Info, ResourceDescription, SubresourceDescription};
use watchet_tasks::Tasks;

use crate::endpoints::version::git_version;
use crate::error::HttpError;
use crate::request::accept::clauses;
use crate::response::document::response;
use crate::response::headers::{accepts_gzip, set_header};
use crate::response::ordered::{OPENAPI_V2, OPENAPI_V3, Ordered};

const JSON: &str = "application/json";
/// OpenAPI v2 in protobuf.
const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// The name that current clients send. It is not a valid media type, so it is never returned: Go's
/// clients fail to parse it.
const V2_PROTOBUF_OLD: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
/// OpenAPI v3 in protobuf.
const V3_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
/// The name that current clients send; see [`V2_PROTOBUF_OLD`].
const V3_PROTOBUF_OLD: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";

/// `Cache-Control` of a document whose URL contains its hash: one year.
const IMMUTABLE: &str = "public, immutable, max-age=31536000";

/// Identifies a document.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum DocumentId {
    /// v3 of a group and version, by its path below the index: `api/v1`, `apis/apps/v1`.
    V3(String),
    /// The same in protobuf.
    V3Protobuf(String),
    V2Json,
    V2Protobuf,
}

/// Builds and caches documents. The cache is bounded by the number of served groups: documents of
/// groups that are no longer served are dropped when the next one is built.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    cached: Mutex<HashMap<DocumentId, CachedDocument>>,
}

#[derive(Debug, Clone)]
struct CachedDocument {
    hash: String,
    gzip: Bytes,
}

/// A request for an OpenAPI document.
pub(crate) struct DocumentRequest<'a> {
    pub(crate) resources: &'a [Arc<Resource>],
    pub(crate) types: &'a Arc<Types>,
    pub(crate) tasks: &'a Tasks,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) accept: Option<&'a str>,
    /// The `hash` of the query.
    pub(crate) hash: Option<&'a str>,
}

/// Returns the document of `/openapi/v3`: the URL of each group's document.
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
    /// Responds to `/openapi/v3/<path>`.
    pub(crate) async fn v3(
        &self,
        request: DocumentRequest<'_>,
        path: &str,
    ) -> Result<Response, HttpError> {
        let resources = served(request.resources, Some(path));
        if resources.is_empty() {
            return Err(HttpError::NoSuchPath);
        }
        let form = clauses(request.accept).iter().find_map(|clause| {
            if clause.covers(JSON) {
                return Some((DocumentId::V3(path.to_owned()), JSON));
            }
            let protobuf = clause.covers(V3_PROTOBUF) || clause.covers(V3_PROTOBUF_OLD);
            protobuf.then_some((DocumentId::V3Protobuf(path.to_owned()), V3_PROTOBUF))
        });
        let Some((id, content_type)) = form else {
            return Err(HttpError::NotAcceptable {
                accepted: format!("{JSON}, {V3_PROTOBUF}"),
            });
        };
        let hash = hash_of(&resources);
        if let Some(other) = request.hash.filter(|given| *given != hash) {
            tracing::debug!(
                other,
                hash,
                path,
                "client requests an outdated OpenAPI document"
            );
            let mut moved = response(StatusCode::MOVED_PERMANENTLY, JSON, Body::empty());
            set_header(
                &mut moved,
                LOCATION,
                &format!("/openapi/v3/{path}?hash={hash}"),
            );
            return Ok(moved);
        }
        let cached = self.get(&request, id, hash, resources).await?;
        let mut response = respond(&request, &cached, content_type);
        if request.hash.is_some() {
            let immutable = HeaderValue::from_static(IMMUTABLE);
            response.headers_mut().insert(CACHE_CONTROL, immutable);
            set_header(&mut response, EXPIRES, &a_year_from_now());
        }
        Ok(response)
    }

    /// Responds to `/openapi/v2`.
    pub(crate) async fn v2(&self, request: DocumentRequest<'_>) -> Result<Response, HttpError> {
        let form = clauses(request.accept).iter().find_map(|clause| {
            if clause.covers(JSON) {
                return Some((DocumentId::V2Json, JSON));
            }
            let protobuf = clause.covers(V2_PROTOBUF) || clause.covers(V2_PROTOBUF_OLD);
            protobuf.then_some((DocumentId::V2Protobuf, V2_PROTOBUF))
        });
        let Some((id, content_type)) = form else {
            return Err(HttpError::NotAcceptable {
                accepted: format!("{JSON}, {V2_PROTOBUF}"),
            });
        };
        let resources = served(request.resources, None);
        let hash = hash_of(&resources);
        let cached = self.get(&request, id, hash, resources).await?;
        Ok(respond(&request, &cached, content_type))
    }

    /// Returns the document from the cache, or builds it. Cancel safe: a cancelled build is
    /// discarded.
    async fn get(
        &self,
        request: &DocumentRequest<'_>,
        id: DocumentId,
        hash: String,
        resources: Vec<ResourceDescription>,
    ) -> Result<CachedDocument, HttpError> {
        let mut cached = self.cached.lock().await;
        if let Some(found) = cached.get(&id).filter(|found| found.hash == hash) {
            return Ok(found.clone());
        }
        cached.retain(|id, _| match id {
            DocumentId::V3(path) | DocumentId::V3Protobuf(path) => {
                request.resources.iter().any(|r| path_of(r) == *path)
            }
            DocumentId::V2Json | DocumentId::V2Protobuf => true,
        });
        let types = request.types.clone();
        let making = id.clone();
        let built = request
            .tasks
            .spawn_blocking("openapi", move || build(&making, &types, &resources));
        let gzip = built
            .await
            .map_err(|error| HttpError::Internal(error.to_string()))?
            .map_err(|error| HttpError::Internal(error.to_string()))?;
        let built = CachedDocument { hash, gzip };
        cached.insert(id, built.clone());
        Ok(built)
    }
}

/// Builds a document and compresses it while writing: the text is never in memory as a whole.
fn build(
    id: &DocumentId,
    types: &Types,
    resources: &[ResourceDescription],
) -> std::io::Result<Bytes> {
    let info = Info {
        title: "Kubernetes".to_owned(),
        version: git_version(),
    };
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    match id {
        DocumentId::V3(_) => {
            let document = openapi::v3(&info, types, resources);
            serde_json::to_writer(&mut gzip, &Ordered::new(&document, &OPENAPI_V3))?;
        }
        DocumentId::V3Protobuf(_) => {
            let document = openapi::v3(&info, types, resources);
            gzip.write_all(&openapi::v3_protobuf(&document))?;
        }
        DocumentId::V2Json => {
            let document = openapi::v2(&info, types, resources);
            serde_json::to_writer(&mut gzip, &Ordered::new(&document, &OPENAPI_V2))?;
        }
        DocumentId::V2Protobuf => {
            let document = openapi::v2(&info, types, resources);
            gzip.write_all(&openapi::v2_protobuf(&document))?;
        }
    }
    gzip.finish().map(Bytes::from)
}

fn respond(
    request: &DocumentRequest<'_>,
    cached: &CachedDocument,
    content_type: &'static str,
) -> Response {
    let etag = format!("\"{}\"", cached.hash);
    let etags = request.headers.get_all(IF_NONE_MATCH).iter();
    let etags = etags.filter_map(|value| value.to_str().ok());
    let mut etags = etags.flat_map(|value| value.split(',').map(str::trim));
    let mut response = if etags.any(|tag| tag == etag || tag == "*") {
        response(StatusCode::NOT_MODIFIED, content_type, Body::empty())
    } else if accepts_gzip(request.headers) {
        let body = Body::from(cached.gzip.clone());
        let mut response = response(StatusCode::OK, content_type, body);
        set_header(&mut response, CONTENT_ENCODING, "gzip");
        response
    } else {
        let mut plain = Vec::new();
        match GzDecoder::new(&cached.gzip[..]).read_to_end(&mut plain) {
            Ok(_) => response(StatusCode::OK, content_type, Body::from(plain)),
            Err(error) => unreachable!("compressed by this process: {error}"),
        }
    };
    set_header(&mut response, ETAG, &etag);
    set_header(&mut response, VARY, "Accept, Accept-Encoding");
    response
}

fn a_year_from_now() -> String {
    let year = jiff::SignedDuration::from_hours(365 * 24);
    let then = jiff::Timestamp::now() + year;
    then.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// Returns the path of the document of a resource's group and version.
fn path_of(resource: &Resource) -> String {
    match resource.group.is_empty() {
        true => format!("api/{}", resource.version),
        false => format!("apis/{}/{}", resource.group, resource.version),
    }
}

/// Returns the resources of one group and version, or all.
fn served(resources: &[Arc<Resource>], path: Option<&str>) -> Vec<ResourceDescription> {
    let selected = resources.iter();
    let selected = selected.filter(|resource| path.is_none_or(|path| path_of(resource) == path));
    selected.map(|resource| describe(resource)).collect()
}

fn describe(resource: &Resource) -> ResourceDescription {
    let verbs = |all: &[&str]| all.iter().map(|verb| (*verb).to_owned()).collect();
    let parts = resource
        .subresources
        .iter()
        .map(|part| SubresourceDescription {
            name: part.name.to_owned(),
            verbs: verbs(part.verbs),
            body: part.body.map(|body| {
                let words = [body.group, body.version, body.kind].map(str::to_owned);
                words.into()
            }),
        });
    ResourceDescription {
        group: resource.group.clone(),
        version: resource.version.clone(),
        kind: resource.kind.clone(),
        plural: resource.plural.clone(),
        namespaced: resource.namespaced,
        verbs: verbs(&resource.offered()),
        parts: parts.collect(),
        schema: resource.open_api_schema().cloned(),
        selectable: match resource.is_builtin() {
            true => Vec::new(),
            false => selectable(resource),
        },
    }
}

/// Returns the selectable fields of a custom resource.
fn selectable(resource: &Resource) -> Vec<String> {
    let columns = resource.columns.fields().iter();
    let labels = columns.map(|column| column.label.to_string());
    labels.filter(|label| !label.is_empty()).collect()
}

/// Returns a hash of everything that a document of these resources is built from.
fn hash_of(resources: &[ResourceDescription]) -> String {
    let mut hash = Sha512::new();
    hash.update(git_version());
    for resource in resources {
        // The Debug output has every field; a schema is written with its members in order.
        hash.update(format!("{resource:?}"));
    }
    let digest = hash.finalize();
    digest.iter().map(|byte| format!("{byte:02X}")).collect()
}
