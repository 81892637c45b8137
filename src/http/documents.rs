//! Documents about the server itself: its version, and OpenAPI as far as it can truthfully be told,
//! which is that there is an API and nothing yet about its schemas. Clients that validate before
//! they write (kubectl) then find nothing to object to.

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use prost::Message;
use serde_json::{Value, json};

use super::accept::clauses;
use super::error::WireError;
use super::response::{json_response, response};

/// The Kubernetes version whose API this is.
const KUBERNETES_MAJOR: u32 = 1;
const KUBERNETES_MINOR: u32 = 35;

const TITLE: &str = "watchet";

/// OpenAPI v2 in protobuf.
const OPENAPI_V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// What clients in use call it. It is no valid media type, so it is never answered: Go's clients
/// fail to parse it.
const OPENAPI_V2_PROTOBUF_OLD: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// `v1.35.0+watchet-0.1.0`: a version that clients compare, and a name that people see.
pub(crate) fn git_version() -> String {
    let own = env!("CARGO_PKG_VERSION");
    format!("v{KUBERNETES_MAJOR}.{KUBERNETES_MINOR}.0+watchet-{own}")
}

/// `/version`. What a build does not record (commit, date) is empty; the fields about Go say which
/// Rust it takes.
pub(crate) fn version() -> Value {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({
        "major": KUBERNETES_MAJOR.to_string(),
        "minor": KUBERNETES_MINOR.to_string(),
        "gitVersion": git_version(),
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": concat!("rust", env!("CARGO_PKG_RUST_VERSION")),
        "compiler": "rustc",
        "platform": format!("{}/{arch}", std::env::consts::OS),
    })
}

/// `/openapi/v3`: the index of documents, of which there are none yet.
pub(crate) fn openapi_v3_index() -> Value {
    json!({"paths": {}})
}

/// `/openapi/v2` in the form that the client takes.
pub(crate) fn openapi_v2(accept: Option<&str>) -> Result<Response, WireError> {
    for clause in clauses(accept) {
        if clause.covers("application/json") {
            return Ok(json_response(StatusCode::OK, &openapi_v2_json()));
        }
        if clause.covers(OPENAPI_V2_PROTOBUF) || clause.covers(OPENAPI_V2_PROTOBUF_OLD) {
            let body = Body::from(OpenApiV2::current().encode_to_vec());
            return Ok(response(StatusCode::OK, OPENAPI_V2_PROTOBUF, body));
        }
    }
    Err(WireError::NotAcceptable {
        accepted: format!("application/json, {OPENAPI_V2_PROTOBUF}"),
    })
}

fn openapi_v2_json() -> Value {
    json!({
        "swagger": "2.0",
        "info": {"title": TITLE, "version": git_version()},
        "paths": {},
        "definitions": {},
    })
}

/// `openapi.v2.Document` of gnostic, as far as it is used here.
#[derive(Clone, PartialEq, Message)]
struct OpenApiV2 {
    #[prost(string, tag = "1")]
    swagger: String,
    #[prost(message, optional, tag = "2")]
    info: Option<OpenApiInfo>,
    #[prost(message, optional, tag = "8")]
    paths: Option<OpenApiEmpty>,
    #[prost(message, optional, tag = "9")]
    definitions: Option<OpenApiEmpty>,
}

/// `openapi.v2.Info`
#[derive(Clone, PartialEq, Message)]
struct OpenApiInfo {
    #[prost(string, tag = "1")]
    title: String,
    #[prost(string, tag = "2")]
    version: String,
}

/// `Paths` or `Definitions` without any.
#[derive(Clone, Copy, PartialEq, Message)]
struct OpenApiEmpty {}

impl OpenApiV2 {
    fn current() -> Self {
        Self {
            swagger: "2.0".to_owned(),
            info: Some(OpenApiInfo {
                title: TITLE.to_owned(),
                version: git_version(),
            }),
            paths: Some(OpenApiEmpty {}),
            definitions: Some(OpenApiEmpty {}),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[test]
    fn the_version_reads_as_semver_with_our_name() {
        let version = version();
        let text = version["gitVersion"].as_str().unwrap();
        assert!(text.starts_with("v1.35.0+watchet-"), "{text}");
        assert_eq!(version["minor"], "35");
        assert!(version["platform"].as_str().unwrap().contains('/'));
    }

    #[tokio::test]
    async fn openapi_v2_in_both_forms() {
        let answer = openapi_v2(None).unwrap();
        assert_eq!(answer.headers()["content-type"], "application/json");
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let json: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(json["swagger"], "2.0");

        let answer = openapi_v2(Some(OPENAPI_V2_PROTOBUF_OLD)).unwrap();
        assert_eq!(answer.headers()["content-type"], OPENAPI_V2_PROTOBUF);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        // Field 1, length-delimited, three bytes.
        assert_eq!(&body[..5], b"\x0a\x032.0");
        assert_eq!(OpenApiV2::decode(body).unwrap(), OpenApiV2::current());
        assert_eq!(
            openapi_v2(Some("text/html")).unwrap_err().status().code,
            406
        );
    }
}
