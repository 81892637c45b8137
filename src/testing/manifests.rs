//! The initial objects of a test's server: YAML documents, applied through the API without a
//! connection. Objects of a new custom resource wait until its definition is served.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::header::CONTENT_TYPE;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use tokio::time::Instant;

use crate::api::{SYSTEM_MASTERS, UserInfo};

/// The time limit for a new definition to be served; it takes milliseconds.
const SERVED_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause between checks.
const SERVED_PAUSE: Duration = Duration::from_millis(2);

/// The user who creates the objects.
const USER: &str = "watchet-testing";

/// Why an initial object cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The manifest is not YAML.
    #[error("a manifest is not valid YAML: {0}")]
    Yaml(String),
    /// A field that identifies the object is missing.
    #[error("an object of the manifests has no {0}")]
    Incomplete(&'static str),
    /// Its kind is not served.
    #[error("{object}: the server does not serve this kind")]
    UnknownKind {
        /// Its apiVersion, kind and name.
        object: String,
    },
    /// The server rejects it.
    #[error("{object}: {code}: {message}")]
    Rejected {
        /// Its apiVersion, kind and name.
        object: String,
        /// The HTTP status.
        code: u16,
        /// The server's message.
        message: String,
    },
}

/// Returns the objects in the documents of `texts`; lists are expanded, empty documents skipped.
pub(super) fn parse(texts: &[String]) -> Result<Vec<Value>, ManifestError> {
    let mut objects = Vec::new();
    for text in texts {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text)
            .map_err(|error| ManifestError::Yaml(error.to_string()))?;
        for mut document in documents {
            match document.get_mut("items").map(Value::take) {
                Some(Value::Array(items)) => objects.extend(items),
                _ => objects.push(document),
            }
        }
    }
    Ok(objects)
}

/// Creates `objects`, one after the other.
pub(super) async fn load(router: Router, objects: Vec<Value>) -> Result<(), ManifestError> {
    let mut api = Api {
        service: TowerToHyperService::new(router),
        user: Arc::new(UserInfo::authenticated(
            USER.to_owned(),
            String::new(),
            vec![SYSTEM_MASTERS.to_owned()],
        )),
        defined: false,
    };
    for object in objects {
        api.write(&object).await?;
    }
    Ok(())
}

/// A client of the router.
struct Api {
    service: TowerToHyperService<Router>,
    user: Arc<UserInfo>,
    /// Whether a definition was created: its kinds may be served a little later.
    defined: bool,
}

impl Api {
    async fn write(&mut self, object: &Value) -> Result<(), ManifestError> {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str);
        let api_version = text("/apiVersion").ok_or(ManifestError::Incomplete("apiVersion"))?;
        let kind = text("/kind").ok_or(ManifestError::Incomplete("kind"))?;
        let name = text("/metadata/name").ok_or(ManifestError::Incomplete("metadata.name"))?;
        let described = format!("{api_version} {kind} {name:?}");
        let namespace = text("/metadata/namespace").unwrap_or("default");
        let Some(collection) = self.collection(api_version, kind, namespace).await else {
            return Err(ManifestError::UnknownKind { object: described });
        };
        let body = object.to_string();
        let (mut code, mut response) = self
            .send(Method::POST, &collection, "application/json", body.clone())
            .await;
        if code == StatusCode::CONFLICT && response["reason"] == "AlreadyExists" {
            let path = format!("{collection}/{name}");
            let merge = "application/merge-patch+json";
            (code, response) = self.send(Method::PATCH, &path, merge, body).await;
        }
        if !code.is_success() {
            return Err(ManifestError::Rejected {
                object: described,
                code: code.as_u16(),
                message: response["message"].as_str().unwrap_or_default().to_owned(),
            });
        }
        self.defined |= kind == "CustomResourceDefinition";
        Ok(())
    }

    /// Returns the path for creating objects of a kind.
    async fn collection(&self, version: &str, kind: &str, namespace: &str) -> Option<String> {
        let root = match version.contains('/') {
            true => format!("/apis/{version}"),
            false => format!("/api/{version}"),
        };
        let deadline = Instant::now() + SERVED_TIMEOUT;
        loop {
            let (_, list) = self.send(Method::GET, &root, "", String::new()).await;
            let mut resources = list["resources"].as_array().into_iter().flatten();
            let found = resources.find_map(|resource| {
                let plural = resource["name"].as_str()?;
                (resource["kind"] == kind && !plural.contains('/'))
                    .then(|| (plural, resource["namespaced"] == true))
            });
            match found {
                Some((plural, true)) => {
                    return Some(format!("{root}/namespaces/{namespace}/{plural}"));
                }
                Some((plural, false)) => return Some(format!("{root}/{plural}")),
                None if !self.defined || Instant::now() >= deadline => return None,
                None => tokio::time::sleep(SERVED_PAUSE).await,
            }
        }
    }

    /// Sends a request and returns the status code and the JSON of the response.
    async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: String,
    ) -> (StatusCode, Value) {
        let request = Request::builder().method(method).uri(path);
        let request = match content_type {
            "" => request,
            content_type => request.header(CONTENT_TYPE, content_type),
        };
        let request = request.extension(Arc::clone(&self.user));
        let unreadable = |problem: String| {
            let message = serde_json::json!({"message": problem});
            (StatusCode::BAD_REQUEST, message)
        };
        // A name may be invalid in a path.
        let request = match request.body(Body::from(body)) {
            Ok(request) => request,
            Err(error) => return unreadable(error.to_string()),
        };
        let (head, body) = match self.service.call(request).await {
            Ok(response) => response.into_parts(),
            Err(never) => match never {},
        };
        let read = body.collect().await.map_err(|error| error.to_string());
        let parsed = read.and_then(|body| {
            serde_json::from_slice(&body.to_bytes()).map_err(|error| error.to_string())
        });
        parsed.map_or_else(unreadable, |value| (head.status, value))
    }
}
