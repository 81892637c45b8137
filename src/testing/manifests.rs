//! The objects that a test's server begins with: YAML documents, written through the API as its
//! admin would write them. It does without a connection, and waits for a definition to be served
//! before it makes what that defines.

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

/// How long a new definition may take until it is served; it takes milliseconds.
const SERVED_WITHIN: Duration = Duration::from_secs(10);

/// How long to wait before it is looked for again.
const SERVED_PAUSE: Duration = Duration::from_millis(2);

/// Who makes the objects.
const USER: &str = "watchet-testing";

/// An object that a server was to begin with cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It is no YAML.
    #[error("a manifest is not valid YAML: {0}")]
    Yaml(String),
    /// It lacks what tells what it is.
    #[error("an object of the manifests has no {0}")]
    Incomplete(&'static str),
    /// Its kind is not served.
    #[error("{object}: the server has no such kind")]
    UnknownKind {
        /// Its apiVersion, kind and name.
        object: String,
    },
    /// The server refuses it.
    #[error("{object}: {code}: {message}")]
    Refused {
        /// Its apiVersion, kind and name.
        object: String,
        /// The HTTP status.
        code: u16,
        /// The server's words.
        message: String,
    },
}

/// The objects in the documents of `texts`; lists are taken apart, empty documents left out.
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

/// Makes `objects`, one after the other.
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

/// The API as a manifest's writer sees it.
struct Api {
    service: TowerToHyperService<Router>,
    user: Arc<UserInfo>,
    /// Whether a definition was among what has been written: its kinds may be served a little later.
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
        let (mut code, mut answer) = self
            .ask(Method::POST, &collection, "application/json", body.clone())
            .await;
        if code == StatusCode::CONFLICT && answer["reason"] == "AlreadyExists" {
            let path = format!("{collection}/{name}");
            let merge = "application/merge-patch+json";
            (code, answer) = self.ask(Method::PATCH, &path, merge, body).await;
        }
        if !code.is_success() {
            return Err(ManifestError::Refused {
                object: described,
                code: code.as_u16(),
                message: answer["message"].as_str().unwrap_or_default().to_owned(),
            });
        }
        self.defined |= kind == "CustomResourceDefinition";
        Ok(())
    }

    /// The path under which objects of a kind are made.
    async fn collection(&self, version: &str, kind: &str, namespace: &str) -> Option<String> {
        let root = match version.contains('/') {
            true => format!("/apis/{version}"),
            false => format!("/api/{version}"),
        };
        let deadline = Instant::now() + SERVED_WITHIN;
        loop {
            let (_, list) = self.ask(Method::GET, &root, "", String::new()).await;
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

    /// The status and the JSON of an answer.
    async fn ask(
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
        // A name may be one that no path can have.
        let request = match request.body(Body::from(body)) {
            Ok(request) => request,
            Err(error) => return unreadable(error.to_string()),
        };
        let (head, body) = match self.service.call(request).await {
            Ok(answer) => answer.into_parts(),
            Err(never) => match never {},
        };
        let read = body.collect().await.map_err(|error| error.to_string());
        let parsed = read.and_then(|body| {
            serde_json::from_slice(&body.to_bytes()).map_err(|error| error.to_string())
        });
        parsed.map_or_else(unreadable, |value| (head.status, value))
    }
}
