//! A watch over a WebSocket (RFC 6455, HTTP/1.1): one event a message, text for JSON and binary for
//! protobuf, where an ordinary body has lines and lengths. It opens the socket and feeds it; what a
//! watch says comes from the same encoder as that of a body, and so do the shared frames.

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
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::tasks::Tasks;

use super::accept::Media;
use super::error::WireError;
use super::watch_body::{WRITE_BYTES_MAX, WatchFrames, WatchSource};

/// What a client may say in one message, in bytes. Nothing that it says is of interest.
const RECEIVED_BYTES_MAX: usize = 4 << 10;

/// What precedes each message of a protobuf body: its length, which a WebSocket tells by itself.
const LENGTH_BYTES: usize = 4;

/// How long a client may take to answer the end, and to read up to it when the server stops.
const CLOSED_WITHIN: Duration = Duration::from_secs(2);

/// Whether a client would talk WebSocket instead of HTTP.
pub fn is_asked_for(headers: &HeaderMap) -> bool {
    let has = |name, wanted: &str| {
        let values = headers.get_all(name).iter();
        let texts = values.filter_map(|value| value.to_str().ok());
        let mut words = texts.flat_map(|text| text.split(',')).map(str::trim);
        words.any(|word| word.eq_ignore_ascii_case(wanted))
    };
    has(CONNECTION, "upgrade") && has(UPGRADE, "websocket")
}

/// A WebSocket that can be opened.
#[derive(Debug)]
pub(crate) struct Opening(WebSocketUpgrade);

impl Opening {
    /// Checks that `parts` ask for a WebSocket as they should.
    ///
    /// # Errors
    /// 400: another version, no key, or a choice of subprotocols, where there is nothing to choose by.
    pub(crate) async fn of(parts: &Parts) -> Result<Self, WireError> {
        // What opens it takes the head apart, and others still read it.
        let mut parts = parts.clone();
        let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await;
        let mut upgrade = upgrade.map_err(|refused| WireError::BadRequest(refused.body_text()))?;
        let mut protocols = upgrade.requested_protocols().cloned();
        let (first, second) = (protocols.next(), protocols.next());
        drop(protocols);
        match (first, second) {
            // A watch speaks none; a client that names one insists on hearing it again.
            (Some(only), None) => upgrade.set_selected_protocol(only),
            (None, _) => {}
            (Some(_), Some(_)) => {
                let told = format!("{SEC_WEBSOCKET_PROTOCOL} must not name several for a watch");
                return Err(WireError::BadRequest(told));
            }
        }
        Ok(Self(upgrade.max_message_size(RECEIVED_BYTES_MAX)))
    }

    /// The answer that opens it; `frames` go out in a task of `tasks`. A client that has not taken
    /// everything by `taken_by`, or soon after the group is to stop, is hung up on.
    pub(crate) fn open<W: WatchSource>(
        self,
        frames: WatchFrames<W>,
        media: Media,
        tasks: &Tasks,
        taken_by: Instant,
    ) -> Response<Body> {
        // One socket, from the task that axum makes of the upgrade, which ends with that, to ours.
        let (opened, socket) = tokio::sync::oneshot::channel();
        let stop = tasks.token();
        tasks.spawn("websocket", async move {
            // Nothing comes when the client hangs up before it is open.
            if let Ok(socket) = socket.await {
                let feed = Feed {
                    socket,
                    frames,
                    media,
                    stop: stop.clone(),
                };
                within(feed.run(), taken_by, stop).await;
            }
        });
        let mut response = self.0.on_upgrade(async move |socket| {
            // The server has stopped meanwhile, if nobody takes it.
            drop(opened.send(socket));
        });
        let content_type = media.watch_content_type();
        let content_type = axum::http::HeaderValue::from_static(content_type);
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        response
    }
}

/// Runs `feed` as long as a client may take for it.
async fn within(feed: impl Future<Output = ()>, taken_by: Instant, stop: CancellationToken) {
    let stopped = async {
        stop.cancelled().await;
        tokio::time::sleep(CLOSED_WITHIN).await;
    };
    // The feed comes first: what it can finish now is in time.
    let in_time = tokio::select! {
        biased;
        fed = timeout_at(taken_by, feed) => fed.is_ok(),
        () = stopped => false,
    };
    if !in_time {
        tracing::debug!("a WebSocket is given up: what it is sent is not taken");
    }
}

/// An open socket and what it is fed.
struct Feed<W> {
    socket: WebSocket,
    frames: WatchFrames<W>,
    media: Media,
    stop: CancellationToken,
}

/// Who ended it.
enum End {
    /// The watch is over.
    Watch,
    /// The client closes, or has gone.
    Client,
}

impl<W: WatchSource> Feed<W> {
    /// Feeds until the watch ends or the client goes.
    async fn run(mut self) {
        let closed = match self.feed().await {
            Ok(End::Client) => Ok(()),
            Ok(End::Watch) => self.socket.send(self.close()).await,
            Err(error) => Err(error),
        };
        if let Err(error) = closed {
            return tracing::debug!(%error, "a WebSocket broke");
        }
        // A close is answered by reading on, and a client answers ours.
        let rest = async { while let Some(Ok(_)) = self.socket.recv().await {} };
        if timeout(CLOSED_WITHIN, rest).await.is_err() {
            tracing::debug!("a client does not close its WebSocket");
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

    /// Feeds until either side ends.
    async fn feed(&mut self) -> Result<End, axum::Error> {
        loop {
            // The client comes first: a close ends this, and pings are answered by reading them. It
            // is not read from while it is written to, which ends when it does not read.
            let frame = tokio::select! {
                biased;
                received = self.socket.recv() => match received {
                    Some(Ok(Message::Close(_))) | None => return Ok(End::Client),
                    Some(Ok(_)) => continue,
                    Some(Err(error)) => return Err(error),
                },
                frame = self.frames.next() => frame,
            };
            let Some(frame) = frame else {
                return Ok(End::Watch);
            };
            let mut written = frame.len();
            self.socket.feed(self.message(frame)?).await?;
            // What is ready goes out in one write, as that of a body.
            while written < WRITE_BYTES_MAX
                && let Some(frame) = self.frames.next_ready()
            {
                written += frame.len();
                self.socket.feed(self.message(frame)?).await?;
            }
            self.socket.flush().await?;
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
    fn who_asks_for_a_socket() {
        let asks = |headers: &[(&str, &str)]| {
            let mut request = axum::http::Request::builder();
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            is_asked_for(request.body(()).unwrap().headers())
        };
        assert!(asks(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket")
        ]));
        assert!(asks(&[
            ("connection", "close"),
            ("connection", "upgrade"),
            ("upgrade", "websocket")
        ]));
        assert!(!asks(&[("upgrade", "websocket")]));
        assert!(!asks(&[("connection", "upgrade"), ("upgrade", "SPDY/3.1")]));
        assert!(!asks(&[
            ("connection", "upgrades"),
            ("upgrade", "websocket")
        ]));
    }
}
