//! A KMS v2 plugin: a gRPC server on a Unix socket, whose keys exist as long as it runs.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use futures_util::FutureExt as _;
use futures_util::stream;
use parking_lot::{Mutex, MutexGuard};
use tokio::net::UnixListener;
use tokio::runtime::{Builder, Runtime};
use tonic::Status;
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic::transport::Server;
use tonic_prost::ProstCodec;

/// What `Status` reports while the plugin is healthy.
pub const HEALTHY: &str = "ok";
/// The annotation without which the plugin does not decrypt.
pub const ANNOTATION: &str = "key.kms.test.example";

#[derive(Clone, PartialEq, prost::Message)]
struct StatusRequest {}

#[derive(Clone, PartialEq, prost::Message)]
struct StatusResponse {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(string, tag = "2")]
    healthz: String,
    #[prost(string, tag = "3")]
    key_id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct DecryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    ciphertext: Vec<u8>,
    #[prost(string, tag = "2")]
    uid: String,
    #[prost(string, tag = "3")]
    key_id: String,
    #[prost(btree_map = "string, bytes", tag = "4")]
    annotations: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct DecryptResponse {
    #[prost(bytes = "vec", tag = "1")]
    plaintext: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct EncryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    plaintext: Vec<u8>,
    #[prost(string, tag = "2")]
    uid: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct EncryptResponse {
    #[prost(bytes = "vec", tag = "1")]
    ciphertext: Vec<u8>,
    #[prost(string, tag = "2")]
    key_id: String,
    #[prost(btree_map = "string, bytes", tag = "3")]
    annotations: BTreeMap<String, Vec<u8>>,
}

/// The keys of plugins. A plugin that is started with the keys of an earlier one decrypts what that one encrypted.
#[derive(Debug, Clone, Default)]
pub struct Keys(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    keys: Vec<[u8; 32]>,
    /// What `Status` reports; empty for [`HEALTHY`].
    healthz: String,
    calls: HashMap<&'static str, usize>,
    hangs: bool,
}

/// A running plugin. Dropping it ends it and deletes its socket.
#[derive(Debug)]
pub struct KmsPlugin {
    socket: PathBuf,
    keys: Keys,
    /// A runtime of its own, because the server's connections end with it only. `None` while it is dropped.
    runtime: Option<Runtime>,
}

impl Keys {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Adds a key, which encrypts from now on. Returns its ID.
    ///
    /// # Panics
    /// If the system has no random numbers.
    pub fn rotate(&self) -> String {
        let mut key = [0; 32];
        aws_lc_rs::rand::fill(&mut key).expect("the system has random numbers");
        let mut state = self.state();
        state.keys.push(key);
        key_id(state.keys.len())
    }

    /// Sets what `Status` reports; [`HEALTHY`] is healthy.
    pub fn set_health(&self, healthz: &str) {
        healthz.clone_into(&mut self.state().healthz);
    }

    /// Lets calls wait forever, or no longer those that come from now on.
    pub fn hang(&self, hangs: bool) {
        self.state().hangs = hangs;
    }

    /// Returns the number of calls of a method, such as `Decrypt`.
    pub fn calls(&self, method: &str) -> usize {
        self.state().calls.get(method).copied().unwrap_or_default()
    }
}

fn key_id(number: usize) -> String {
    format!("key-{number}")
}

impl KmsPlugin {
    /// Starts a plugin with a first key at `socket`.
    ///
    /// # Errors
    /// The socket cannot be created.
    pub fn start(socket: &Path) -> std::io::Result<Self> {
        let keys = Keys::default();
        keys.rotate();
        Self::with_keys(socket, keys)
    }

    /// Starts a plugin with the keys of an earlier one at `socket`.
    ///
    /// # Errors
    /// The socket cannot be created.
    pub fn with_keys(socket: &Path, keys: Keys) -> std::io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let listener = {
            let _entered = runtime.enter();
            UnixListener::bind(socket)?
        };
        let incoming = stream::unfold(listener, |listener| async {
            let accepted = listener.accept().await.map(|(connection, _)| connection);
            Some((accepted, listener))
        });
        let service = Service(keys.clone());
        let serve = Server::builder().serve_with_incoming(service, incoming);
        drop(runtime.spawn(serve.map(|ended| ended.expect("the plugin serves"))));
        Ok(Self {
            socket: socket.to_owned(),
            keys,
            runtime: Some(runtime),
        })
    }

    /// Returns the keys.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }
}

impl Drop for KmsPlugin {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        // Someone else may have deleted the directory.
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// The methods of `v2.KeyManagementService`.
#[derive(Clone)]
struct Service(Keys);

type Reply<T> = Pin<Box<dyn Future<Output = Result<T, Infallible>> + Send>>;

impl tower_service::Service<http::Request<Body>> for Service {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Reply<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        fn unary<Received, Sent>(
            keys: Keys,
            method: &'static str,
            answer: fn(&Keys, Received) -> Result<Sent, Status>,
            request: http::Request<Body>,
        ) -> Reply<http::Response<Body>>
        where
            Received: prost::Message + Default + 'static,
            Sent: prost::Message + Default + 'static,
        {
            let method = Method {
                keys,
                method,
                answer,
            };
            async move {
                let codec = ProstCodec::<Sent, Received>::default();
                Ok(Grpc::new(codec).unary(method, request).await)
            }
            .boxed()
        }
        let keys = self.0.clone();
        match request.uri().path() {
            "/v2.KeyManagementService/Status" => unary(keys, "Status", status, request),
            "/v2.KeyManagementService/Encrypt" => unary(keys, "Encrypt", encrypt, request),
            "/v2.KeyManagementService/Decrypt" => unary(keys, "Decrypt", decrypt, request),
            other => {
                let status = Status::unimplemented(format!("there is no method {other}"));
                async move { Ok(status.into_http()) }.boxed()
            }
        }
    }
}

struct Method<Received, Sent> {
    keys: Keys,
    method: &'static str,
    answer: fn(&Keys, Received) -> Result<Sent, Status>,
}

impl<Received: Send + 'static, Sent: Send + 'static> UnaryService<Received>
    for Method<Received, Sent>
{
    type Response = Sent;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<Sent>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<Received>) -> Self::Future {
        let hangs = {
            let mut state = self.keys.state();
            *state.calls.entry(self.method).or_default() += 1;
            state.hangs
        };
        if hangs {
            return std::future::pending().boxed();
        }
        let response = (self.answer)(&self.keys, request.into_inner());
        async move { response.map(tonic::Response::new) }.boxed()
    }
}

fn status(keys: &Keys, _: StatusRequest) -> Result<StatusResponse, Status> {
    let state = keys.state();
    Ok(StatusResponse {
        version: "v2".to_owned(),
        healthz: match state.healthz.as_str() {
            "" => HEALTHY.to_owned(),
            healthz => healthz.to_owned(),
        },
        key_id: key_id(state.keys.len()),
    })
}

fn cipher(key: &[u8; 32]) -> LessSafeKey {
    let key = UnboundKey::new(&AES_256_GCM, key).expect("a key of AES-256 has 32 bytes");
    LessSafeKey::new(key)
}

fn encrypt(keys: &Keys, request: EncryptRequest) -> Result<EncryptResponse, Status> {
    let state = keys.state();
    let key_id = key_id(state.keys.len());
    let key = state
        .keys
        .last()
        .ok_or_else(|| Status::internal("there is no key"))?;
    let mut nonce = [0; NONCE_LEN];
    aws_lc_rs::rand::fill(&mut nonce).expect("the system has random numbers");
    let mut text = request.plaintext;
    cipher(key)
        .seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(key_id.as_bytes()),
            &mut text,
        )
        .map_err(|_| Status::internal("cannot encrypt"))?;
    Ok(EncryptResponse {
        ciphertext: [&nonce[..], &text].concat(),
        annotations: BTreeMap::from([(ANNOTATION.to_owned(), key_id.clone().into_bytes())]),
        key_id,
    })
}

fn decrypt(keys: &Keys, request: DecryptRequest) -> Result<DecryptResponse, Status> {
    if request.annotations.get(ANNOTATION).map(Vec::as_slice) != Some(request.key_id.as_bytes()) {
        return Err(Status::invalid_argument("the annotation is missing"));
    }
    let number = request.key_id.strip_prefix("key-").unwrap_or_default();
    let number: usize = number.parse().unwrap_or_default();
    let state = keys.state();
    let key = number
        .checked_sub(1)
        .and_then(|index| state.keys.get(index));
    let key = key.ok_or_else(|| Status::not_found(format!("no key {}", request.key_id)))?;
    let damaged = || Status::invalid_argument("cannot decrypt");
    let (nonce, text) = request.ciphertext.split_first_chunk().ok_or_else(damaged)?;
    let mut text = text.to_vec();
    let plaintext = cipher(key)
        .open_in_place(
            Nonce::assume_unique_for_key(*nonce),
            Aad::from(request.key_id.as_bytes()),
            &mut text,
        )
        .map_err(|_| damaged())?;
    Ok(DecryptResponse {
        plaintext: plaintext.to_vec(),
    })
}
