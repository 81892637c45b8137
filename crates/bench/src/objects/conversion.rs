//! The conversion webhook of gadgets: an HTTPS server in the load generator's process, so its CPU
//! time is the generator's. The two versions have different names for one field of the spec.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use watchet_tasks::Tasks;

/// The field in version v1, the version that is stored.
pub(super) const V1_FIELD: &str = "payload";
/// The same field in version v2, the version that the loads use.
pub(super) const V2_FIELD: &str = "content";

/// Why there is no webhook.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WebhookError {
    #[error("cannot start the conversion webhook: {0}")]
    Listen(#[from] io::Error),
    #[error("cannot make the certificate of the conversion webhook: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot use the certificate of the conversion webhook: {0}")]
    Tls(#[from] rustls::Error),
}

/// The webhook, which ends when dropped.
pub(crate) struct Webhook {
    address: SocketAddr,
    /// Its certificate in PEM.
    certificate: String,
    converted: Arc<AtomicU64>,
    tasks: Tasks,
}

impl Webhook {
    /// Starts the webhook at a free port of 127.0.0.1, with a self-signed certificate.
    ///
    /// # Errors
    /// It cannot listen, or has no certificate.
    pub(crate) async fn start() -> Result<Self, WebhookError> {
        let key = KeyPair::generate()?;
        let certificate =
            CertificateParams::new(vec![Ipv4Addr::LOCALHOST.to_string()])?.self_signed(&key)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let webhook = Self {
            address: listener.local_addr()?,
            certificate: certificate.pem(),
            converted: Arc::default(),
            tasks: Tasks::new(),
        };
        let accept = accept(
            listener,
            TlsAcceptor::from(Arc::new(tls)),
            Arc::clone(&webhook.converted),
            webhook.tasks.clone(),
        );
        webhook.tasks.spawn("conversion-webhook", accept);
        Ok(webhook)
    }

    /// Returns the `clientConfig` of the webhook in a definition.
    pub(super) fn client_config(&self) -> Value {
        let bundle = STANDARD.encode(&self.certificate);
        json!({"url": format!("https://{}/convert", self.address), "caBundle": bundle})
    }

    /// Returns how many objects it has converted.
    pub(crate) fn converted(&self) -> u64 {
        self.converted.load(Ordering::Relaxed)
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    converted: Arc<AtomicU64>,
    tasks: Tasks,
) {
    let stop = tasks.token();
    // After a failure to accept, the server's requests fail, and the load with them.
    while let Some(Ok((stream, _))) = stop.run_until_cancelled(listener.accept()).await {
        let serve = serve(stream, acceptor.clone(), Arc::clone(&converted));
        let stop = stop.clone();
        tasks.spawn("conversion-connection", async move {
            stop.run_until_cancelled(serve).await;
        });
    }
}

/// Serves a connection until the server closes it; a failed one shows in the server's requests.
async fn serve(stream: TcpStream, acceptor: TlsAcceptor, converted: Arc<AtomicU64>) {
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let service = service_fn(move |request| respond(request, Arc::clone(&converted)));
    let http = hyper::server::conn::http1::Builder::new();
    drop(http.serve_connection(TokioIo::new(stream), service).await);
}

async fn respond(
    request: Request<Incoming>,
    converted: Arc<AtomicU64>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let body = request.into_body().collect().await?.to_bytes();
    let mut response = Response::new(Full::default());
    match convert_review(&body) {
        Ok((review, count)) => {
            converted.fetch_add(count, Ordering::Relaxed);
            *response.body_mut() = Full::new(review);
            let json = http::HeaderValue::from_static("application/json");
            response
                .headers_mut()
                .insert(http::header::CONTENT_TYPE, json);
        }
        Err(problem) => {
            *response.status_mut() = StatusCode::BAD_REQUEST;
            *response.body_mut() = Full::new(Bytes::from(problem));
        }
    }
    Ok(response)
}

/// Returns the response to a ConversionReview, and the number of its objects.
fn convert_review(body: &[u8]) -> Result<(Bytes, u64), String> {
    let mut review: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let mut request = review["request"].take();
    let version = request["desiredAPIVersion"].take();
    let Value::Array(mut objects) = request["objects"].take() else {
        return Err("the review has no objects".to_owned());
    };
    for object in &mut objects {
        convert(object, &version);
    }
    let count = objects.len() as u64;
    let review = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "response": {
            "uid": request["uid"],
            "convertedObjects": objects,
            "result": {"status": "Success"},
        },
    });
    Ok((review.to_string().into(), count))
}

/// Converts a gadget to `version`.
fn convert(object: &mut Value, version: &Value) {
    let (from, to) = match version.as_str() {
        Some("bench.watchet.dev/v2") => (V1_FIELD, V2_FIELD),
        _ => (V2_FIELD, V1_FIELD),
    };
    object["apiVersion"] = version.clone();
    if let Some(spec) = object["spec"].as_object_mut()
        && let Some(value) = spec.remove(from)
    {
        spec.insert(to.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_objects_of_a_review_are_converted() {
        let gadget = |version: &str, field: &str| json!({"apiVersion": format!("bench.watchet.dev/{version}"), "spec": {field: "x", "replicas": 3}});
        let review = |desired: &str, objects: Value| {
            let request = json!({
                "uid": "u",
                "desiredAPIVersion": format!("bench.watchet.dev/{desired}"),
                "objects": objects,
            });
            json!({"request": request}).to_string()
        };
        let (v1, v2) = (gadget("v1", V1_FIELD), gadget("v2", V2_FIELD));
        for (desired, given, expected) in [("v2", &v1, &v2), ("v1", &v2, &v1), ("v2", &v2, &v2)] {
            let body = review(desired, json!([given, given]));
            let (response, count) = convert_review(body.as_bytes()).unwrap();
            let response: Value = serde_json::from_slice(&response).unwrap();
            assert_eq!(count, 2);
            assert_eq!(response["response"]["uid"], "u");
            assert_eq!(
                response["response"]["convertedObjects"],
                json!([expected, expected])
            );
        }
        assert!(convert_review(b"{}").is_err());
        assert!(convert_review(b"x").is_err());
    }
}
