//! The client of a KMS plugin: the gRPC service `v2.KeyManagementService` on a Unix socket
//! (`k8s.io/kms/apis/v2/api.proto`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use tokio::time::{Instant, timeout};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;
use watchet_metrics::{KmsMetrics, KmsOperation};

use super::KmsError;
use crate::configuration::KmsConfiguration;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct StatusRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct StatusResponse {
    /// `v2` or `v2beta1`.
    #[prost(string, tag = "1")]
    pub(super) version: String,
    /// `ok`, or the reason why the plugin is not healthy.
    #[prost(string, tag = "2")]
    pub(super) healthz: String,
    /// The ID of the key that encrypts.
    #[prost(string, tag = "3")]
    pub(super) key_id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DecryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) ciphertext: Vec<u8>,
    /// Identifies the call in logs.
    #[prost(string, tag = "2")]
    pub(super) uid: String,
    #[prost(string, tag = "3")]
    pub(super) key_id: String,
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub(super) annotations: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DecryptResponse {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) plaintext: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct EncryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) plaintext: Vec<u8>,
    /// Identifies the call in logs.
    #[prost(string, tag = "2")]
    pub(super) uid: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct EncryptResponse {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) ciphertext: Vec<u8>,
    #[prost(string, tag = "2")]
    pub(super) key_id: String,
    #[prost(btree_map = "string, bytes", tag = "3")]
    pub(super) annotations: BTreeMap<String, Vec<u8>>,
}

/// A connection to a plugin, opened at the first call and again after a failure.
#[derive(Debug)]
pub(super) struct Plugin {
    provider: String,
    channel: Channel,
    timeout: Duration,
    metrics: Arc<KmsMetrics>,
}

/// A call of a plugin, which is counted when it ends.
struct Call<'a> {
    plugin: &'a Plugin,
    method: &'a str,
    started: Instant,
    code: Code,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let operation = KmsOperation {
            provider: self.plugin.provider.clone(),
            method: self.method.to_owned(),
            code: code_name(self.code),
        };
        let elapsed = self.started.elapsed();
        self.plugin.metrics.observe_operation(operation, elapsed);
    }
}

/// Returns the name of a status code in Go, as upstream's metric has it.
fn code_name(code: Code) -> String {
    match code {
        Code::Ok => "OK".to_owned(),
        Code::Cancelled => "Canceled".to_owned(),
        other => format!("{other:?}"),
    }
}

impl Plugin {
    /// Must be called within a tokio runtime.
    pub(super) fn new(
        configuration: &KmsConfiguration,
        metrics: Arc<KmsMetrics>,
    ) -> Result<Self, KmsError> {
        let provider = configuration.name.clone();
        // Linux writes the name of an abstract socket with a zero byte in place of `@`.
        let socket = match configuration.socket.strip_prefix('@') {
            Some(name) => format!("\0{name}"),
            None => configuration.socket.clone(),
        };
        let endpoint = Endpoint::from_shared(format!("unix://{socket}"));
        let endpoint = endpoint.map_err(|error| KmsError::InvalidValue {
            provider: provider.clone(),
            detail: format!("invalid endpoint: {error}"),
        })?;
        Ok(Self {
            provider,
            channel: endpoint.connect_lazy(),
            timeout: configuration.timeout,
            metrics,
        })
    }

    pub(super) async fn status(&self) -> Result<StatusResponse, KmsError> {
        self.call("Status", StatusRequest {}).await
    }

    pub(super) async fn encrypt(
        &self,
        request: EncryptRequest,
    ) -> Result<EncryptResponse, KmsError> {
        self.call("Encrypt", request).await
    }

    pub(super) async fn decrypt(
        &self,
        request: DecryptRequest,
    ) -> Result<DecryptResponse, KmsError> {
        self.call("Decrypt", request).await
    }

    async fn call<Sent, Received>(
        &self,
        method: &'static str,
        message: Sent,
    ) -> Result<Received, KmsError>
    where
        Sent: prost::Message + Send + Sync + 'static,
        Received: prost::Message + Default + Send + Sync + 'static,
    {
        let unavailable = |detail| KmsError::Unavailable {
            provider: self.provider.clone(),
            detail,
        };
        let path = format!("/v2.KeyManagementService/{method}");
        let mut counted = Call {
            plugin: self,
            method: &path,
            started: Instant::now(),
            code: Code::Cancelled,
        };
        let call = async {
            let mut client = Grpc::new(self.channel.clone());
            client
                .ready()
                .await
                .map_err(|error| Status::unavailable(error.to_string()))?;
            let path = PathAndQuery::from_maybe_shared(path.clone());
            let path = path.map_err(|error| Status::internal(error.to_string()))?;
            let codec = ProstCodec::<Sent, Received>::default();
            client.unary(Request::new(message), path, codec).await
        };
        let called = timeout(self.timeout, call).await;
        counted.code = match &called {
            Ok(Ok(_)) => Code::Ok,
            Ok(Err(status)) => status.code(),
            Err(_) => Code::DeadlineExceeded,
        };
        match called {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(unavailable(format!(
                "{method} failed with {:?}: {}",
                status.code(),
                status.message()
            ))),
            Err(_) => Err(unavailable(format!(
                "{method} has no response after {:?}",
                self.timeout
            ))),
        }
    }
}
