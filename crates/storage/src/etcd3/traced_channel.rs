//! `TracedChannel`: starts a span for each call to etcd and adds the trace context to the call, as upstream.

use std::pin::Pin;
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::codegen::{Service, StdError};
use tonic::transport::Channel;
use watchet_telemetry::{ChildSpan, KeyValue, text_attribute};

/// A channel that traces its calls.
#[derive(Debug, Clone)]
pub(super) struct TracedChannel(Channel);

impl TracedChannel {
    /// Adds tracing to `channel`.
    pub(super) fn new(channel: Channel) -> Self {
        Self(channel)
    }
}

/// Starts the span of a call to the gRPC method at `path`, such as `/etcdserverpb.KV/Txn`.
fn span(path: &str) -> ChildSpan {
    ChildSpan::start_client(|| {
        let name = path.trim_start_matches('/');
        let (service, method) = name.split_once('/').unwrap_or((name, ""));
        let attributes = vec![
            KeyValue::new("rpc.system", "grpc"),
            text_attribute("rpc.service", service),
            text_attribute("rpc.method", method),
        ];
        (name.to_owned().into(), attributes)
    })
}

impl Service<Request<Body>> for TracedChannel {
    type Response = Response<Body>;
    type Error = StdError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, StdError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        self.0.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let span = span(request.uri().path());
        span.inject(request.headers_mut());
        let response = self.0.call(request);
        Box::pin(async move { Ok(span.run_fallible(response).await?) })
    }
}
