//! A watch over a WebSocket (RFC 6455, HTTP/1.1): one event per message, text for JSON and binary
//! for protobuf. The frames come from the same encoder as those of a response body and are shared
//! with them.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::extract::FromRequestParts as _;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::http::HeaderMap;
use axum::http::header::{CONNECTION, CONTENT_TYPE, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use axum::http::request::Parts;
use axum::response::Response;
use bytes::Bytes;
use futures_util::SinkExt as _;
use tokio::time::{timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use watchet_tasks::Tasks;

use crate::error::HttpError;
use crate::request::accept::Media;
use crate::response::guarded_body::UpgradeGuards;
use crate::response::response_tracker::TrackedResponseGuard;
use crate::response::send_deadline::SendDeadline;
use crate::response::watch_body::{WRITE_BYTES_MAX, WatchFrames, WatchSource};

/// The maximum size of a message from the client, in bytes. Its content is ignored.
const RECEIVED_BYTES_MAX: usize = 4 << 10;

/// The size of the buffers of a WebSocket in bytes. The default is 128 KiB each, which every watch would take.
const BUFFER_BYTES: usize = 4 << 10;

/// The size of the length prefix of a protobuf frame, which a WebSocket message does not need.
const LENGTH_BYTES: usize = 4;

/// How long a client may take to answer a close, and to receive the rest when the server stops.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns true if a request with these headers is an upgrade to WebSocket.
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    let has = |name, token: &str| {
        let values = headers.get_all(name).iter();
        let texts = values.filter_map(|value| value.to_str().ok());
        let mut words = texts.flat_map(|text| text.split(',')).map(str::trim);
        words.any(|word| word.eq_ignore_ascii_case(token))
    };
    has(CONNECTION, "upgrade") && has(UPGRADE, "websocket")
}

/// A valid request to upgrade a watch to a WebSocket.
#[derive(Debug)]
pub(crate) struct WatchUpgrade(WebSocketUpgrade);

impl WatchUpgrade {
    /// Validates the upgrade request in `parts`.
    ///
    /// # Errors
    /// 400: another WebSocket version, no key, or more than one subprotocol.
    pub(crate) async fn from_parts(parts: &Parts) -> Result<Self, HttpError> {
        // The extractor consumes the parts, which are still needed.
        let mut parts = parts.clone();
        let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await;
        let mut upgrade =
            upgrade.map_err(|rejection| HttpError::BadRequest(rejection.body_text()))?;
        let mut protocols = upgrade.requested_protocols().cloned();
        let (first, second) = (protocols.next(), protocols.next());
        drop(protocols);
        match (first, second) {
            // A watch has no subprotocols; a client that offers one requires it in the response.
            (Some(only), None) => upgrade.set_selected_protocol(only),
            (None, _) => {}
            (Some(_), Some(_)) => {
                let message = format!("{SEC_WEBSOCKET_PROTOCOL} must not name several for a watch");
                return Err(HttpError::BadRequest(message));
            }
        }
        let upgrade = upgrade
            .max_message_size(RECEIVED_BYTES_MAX)
            .read_buffer_size(BUFFER_BYTES)
            .write_buffer_size(BUFFER_BYTES);
        Ok(Self(upgrade))
    }

    /// Returns the response that opens the WebSocket and spawns a task in `tasks` that sends
    /// `frames`, and records in `tracked` whether the client reads. The connection is dropped if the client has not received
    /// everything by `deadline`, whose `end` is a child of the token of `tasks`.
    pub(crate) fn open<W: WatchSource>(
        self,
        frames: WatchFrames<W>,
        media: Media,
        tasks: &Tasks,
        deadline: SendDeadline,
        tracked: TrackedResponseGuard,
    ) -> Response<Body> {
        // Passes the socket from axum's upgrade task to the task of the watch.
        let (opened, socket) = tokio::sync::oneshot::channel();
        let stop = tasks.token();
        let guards = UpgradeGuards::default();
        let guards_until_end = guards.clone();
        tasks.spawn("websocket", async move {
            let _guards = guards_until_end;
            // The sender is dropped if the client disconnects before the upgrade completes.
            if let Ok(socket) = socket.await {
                let feed = Feed {
                    socket,
                    frames,
                    media,
                    stop,
                    tracked,
                };
                run_until(feed.run(), deadline).await;
            }
        });
        let mut response = self.0.on_upgrade(async move |socket| {
            // The receiver was dropped if the server has stopped.
            drop(opened.send(socket));
        });
        let content_type = media.watch_content_type();
        let content_type = axum::http::HeaderValue::from_static(content_type);
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        response.extensions_mut().insert(guards);
        response
    }
}

/// Runs `feed` until its deadline, until shortly after its end, or until it is aborted.
async fn run_until(feed: impl Future<Output = ()>, deadline: SendDeadline) {
    let SendDeadline {
        deadline,
        end,
        abort,
    } = deadline;
    let end = end.unwrap_or_default();
    let aborted = poll_fn(|cx| match &abort {
        Some(abort) => abort.poll_aborted(cx),
        None => Poll::Pending,
    });
    let stopped = async {
        end.cancelled().await;
        tokio::time::sleep(CLOSE_TIMEOUT).await;
    };
    // The feed is polled first, so that it completes if it can.
    let in_time = tokio::select! {
        biased;
        fed = timeout_at(deadline, feed) => fed.is_ok(),
        () = aborted => false,
        () = stopped => false,
    };
    if !in_time {
        tracing::debug!("WebSocket dropped: the client does not read");
    }
}

/// An open WebSocket and its frames.
struct Feed<W> {
    socket: WebSocket,
    frames: WatchFrames<W>,
    media: Media,
    stop: CancellationToken,
    tracked: TrackedResponseGuard,
}

/// Which side ended the WebSocket.
enum End {
    /// The watch has ended.
    Watch,
    /// The client closes, or has disconnected.
    Client,
}

impl<W: WatchSource> Feed<W> {
    /// Sends frames until the watch ends or the client closes.
    async fn run(mut self) {
        let closed = match self.feed().await {
            Ok(End::Client) => Ok(()),
            Ok(End::Watch) => self.socket.send(self.close()).await,
            Err(error) => Err(error),
        };
        if let Err(error) = closed {
            return tracing::debug!(%error, "WebSocket failed");
        }
        // Reading answers the client's close frame, or waits for the answer to the one that was sent.
        let rest = async {
            while let Some(Ok(message)) = self.socket.recv().await {
                if self.send_reply(&message).await.is_err() {
                    return;
                }
            }
        };
        if timeout(CLOSE_TIMEOUT, rest).await.is_err() {
            tracing::debug!("client does not close its WebSocket");
        }
    }

    fn close(&self) -> Message {
        let code = match self.stop.is_cancelled() {
            true => close_code::AWAY,
            false => close_code::NORMAL,
        };
        let reason = Utf8Bytes::from_static("");
        Message::Close(Some(CloseFrame { code, reason }))
    }

    /// Sends frames until either side ends.
    async fn feed(&mut self) -> Result<End, axum::Error> {
        loop {
            // The client comes first: a close ends the loop. Nothing is read during a write; a write to a client that
            // does not read ends at the deadline.
            let frame = tokio::select! {
                biased;
                received = self.socket.recv() => match received.transpose()? {
                    Some(Message::Close(_)) | None => return Ok(End::Client),
                    Some(message) => {
                        self.send_reply(&message).await?;
                        continue;
                    }
                },
                frame = async {
                    self.tracked.memory_wait().await;
                    self.frames.next().await
                } => frame,
            };
            let Some(frame) = frame else {
                return Ok(End::Watch);
            };
            let mut written = frame.len();
            self.tracked.set_unread(written);
            self.socket.feed(self.message(frame)?).await?;
            // All available frames go into one write, as in a body.
            while written < WRITE_BYTES_MAX
                && let Some(frame) = self.frames.next_ready()
            {
                written += frame.len();
                self.socket.feed(self.message(frame)?).await?;
            }
            self.tracked.set_unread(written);
            self.socket.flush().await?;
            self.tracked.set_read();
        }
    }

    /// Sends the reply to `message`, which `recv` has put into the buffer, before the next message is read: the replies to
    /// a client that sends pings and does not read would fill the memory.
    async fn send_reply(&mut self, message: &Message) -> Result<(), axum::Error> {
        match message {
            Message::Ping(_) => self.socket.flush().await,
            _ => Ok(()),
        }
    }

    fn message(&self, frame: Bytes) -> Result<Message, axum::Error> {
        match self.media {
            Media::Protobuf => Ok(Message::Binary(
                frame.slice(LENGTH_BYTES.min(frame.len())..),
            )),
            Media::Json | Media::Yaml => {
                let text = Utf8Bytes::try_from(frame).map_err(axum::Error::new)?;
                Ok(Message::Text(text))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_upgrade_requests_are_accepted() {
        let is_upgrade_request = |headers: &[(&str, &str)]| {
            let mut request = axum::http::Request::builder();
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            is_upgrade(request.body(()).unwrap().headers())
        };
        assert!(is_upgrade_request(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket")
        ]));
        assert!(is_upgrade_request(&[
            ("connection", "close"),
            ("connection", "upgrade"),
            ("upgrade", "websocket")
        ]));
        assert!(!is_upgrade_request(&[("upgrade", "websocket")]));
        assert!(!is_upgrade_request(&[
            ("connection", "upgrade"),
            ("upgrade", "SPDY/3.1")
        ]));
        assert!(!is_upgrade_request(&[
            ("connection", "upgrades"),
            ("upgrade", "websocket")
        ]));
    }
}
