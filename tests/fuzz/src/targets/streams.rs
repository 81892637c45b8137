//! Responses of a server to the client library: lists and watches.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use watchet_api::ResourceVersion;
use watchet_client::{
    ApiResource, ByteStream, Dialer, DynamicObject, HttpListerWatcher, KubeObject,
    ListWatchOptions, RestClient, RestConfig,
};
use watchet_reflector::{Change, ListerWatcher};

use crate::mutate::split;

/// The limit of the virtual time of one input: responses end, so that requests do too.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// The maximum number of connections of one input.
const CONNECTIONS_MAX: usize = 32;

/// A connection that responds to the first request, and then ends.
struct Canned {
    response: io::Cursor<Vec<u8>>,
    is_requested: bool,
    reader: Option<Waker>,
}

impl AsyncRead for Canned {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.is_requested {
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Pin::new(&mut self.response).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Canned {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len())).map(|written| {
            self.is_requested = true;
            self.reader.take().into_iter().for_each(Waker::wake);
            written
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Responds to each connection with the next part of the input.
struct Responses(Mutex<VecDeque<Vec<u8>>>);

#[async_trait]
impl Dialer for Responses {
    async fn dial(&self, _host: &str, _port: u16) -> io::Result<Box<dyn ByteStream>> {
        let response = self.0.lock().pop_front();
        let response = response.ok_or(io::ErrorKind::ConnectionRefused)?;
        Ok(Box::new(Canned {
            response: io::Cursor::new(response),
            is_requested: false,
            reader: None,
        }))
    }
}

/// Returns a part as a response: as it is if it begins with a status line, otherwise as the body of a success.
fn response(part: &[u8]) -> Vec<u8> {
    if part.starts_with(b"HTTP/1.1 ") {
        let head_end = part
            .windows(2)
            .position(|two| two == b"\n\n")
            .unwrap_or(part.len());
        let (head, body) = part.split_at(head_end);
        let head = String::from_utf8_lossy(head).replace('\n', "\r\n");
        let body = body.get(2..).unwrap_or_default();
        return [head.as_bytes(), b"\r\n\r\n", body].concat();
    }
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        part.len()
    );
    [head.as_bytes(), part].concat()
}

/// The parts of an input are the responses to a list and to watches. The versions of a watch do not decrease, and each change has
/// an object with a name.
pub(super) fn watch_streams(input: &[u8]) {
    let responses: Vec<_> = split(input).take(CONNECTIONS_MAX).map(response).collect();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder
        .enable_all()
        .start_paused(true)
        .build()
        .expect("the process may have more files");
    runtime.block_on(async {
        let maps = || ApiResource::of::<ConfigMap>();
        follow::<ConfigMap>(&responses, maps(), false).await;
        follow::<DynamicObject>(&responses, maps(), true).await;
    });
}

async fn follow<T: KubeObject + DeserializeOwned>(
    responses: &[Vec<u8>],
    resource: ApiResource,
    watch_list: bool,
) {
    let dialer = Responses(Mutex::new(responses.to_vec().into()));
    let config = RestConfig {
        dialer: Some(Arc::new(dialer)),
        // Otherwise each client reads the certificates of the system.
        insecure_skip_tls_verify: true,
        ..RestConfig::new("http://localhost")
    };
    let client = RestClient::new(&config).expect("the configuration is valid");
    let options = ListWatchOptions {
        watch_list,
        page_size: Some(2),
        ..ListWatchOptions::default()
    };
    let mut source = HttpListerWatcher::new(client.resource::<T>(resource), options);
    let followed = tokio::time::timeout(TIME_MAX, async {
        let listed = source.list().await;
        let mut at = listed.map_or(ResourceVersion::new(1), |listing| listing.at);
        for _ in 0..4 {
            at = watch(&mut source, at).await;
        }
    });
    assert!(followed.await.is_ok(), "it does not end");
}

/// Reads a watch to its end; returns the version up to which it has led.
async fn watch<T: KubeObject + DeserializeOwned>(
    source: &mut HttpListerWatcher<T>,
    after: ResourceVersion,
) -> ResourceVersion {
    let Ok(mut changes) = source.watch(after).await else {
        return after;
    };
    let mut at = after;
    while let Some(Ok(batch)) = changes.next().await {
        for change in &batch.changes {
            let (Change::Added(object) | Change::Modified(object) | Change::Deleted(object)) =
                change;
            drop(object.metadata().name.clone());
        }
        at = batch.at;
    }
    at
}
