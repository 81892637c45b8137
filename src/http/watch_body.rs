//! The body of a watch (§8.2): what a watch says, as frames, everything that is ready
//! together in one write. It ends when the watcher ends; dropping it drops the watcher.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::{BufMut, Bytes, BytesMut};
use http_body::Frame;

use crate::api::{EventType, Object, ResourceVersion, Status};
use crate::registry::{Watch, WatchItem};

use super::accept::{Form, IncludeObject};
use super::chunks::{ChunkError, gzip_member};
use super::error::{WireError, watch_status};
use super::monitor::WatchMeter;
use super::render::Renderer;

/// A write is at most about this large: a batch of many events goes out in several, so that a slow
/// client never makes the server hold a whole initial state in encoded form.
pub(crate) const WRITE_BYTES_MAX: usize = 256 << 10;

/// Where a watch's items come from; the registry, or a script in tests.
pub(crate) trait WatchSource: Send + Unpin + 'static {
    /// As [`Watch::poll_next`].
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<WatchItem>>>;
}

impl WatchSource for Watch {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<WatchItem>>> {
        Self::poll_next(self, cx)
    }
}

/// Turns items into frames of one form.
#[derive(Debug)]
pub(crate) struct FrameEncoder {
    renderer: Renderer,
    /// The next Table must name its columns: only the first does.
    columns_due: bool,
    meter: WatchMeter,
}

impl FrameEncoder {
    /// Frames as `renderer` shows objects, counted by `meter`.
    pub(crate) fn new(renderer: Renderer, meter: WatchMeter) -> Self {
        let columns_due = matches!(renderer.form(), Form::Table(_));
        Self {
            renderer,
            columns_due,
            meter,
        }
    }

    /// The frame of one item. A usual event in its usual form is the cache's own bytes.
    fn frame(&mut self, item: &WatchItem) -> Result<Bytes, ChunkError> {
        match item {
            WatchItem::Initial(object) if self.renderer.is_verbatim() => {
                Ok(object.json_frame(EventType::Added))
            }
            WatchItem::Initial(object) => {
                let columns = std::mem::take(&mut self.columns_due);
                self.render(EventType::Added, object, columns)
            }
            WatchItem::Event(event) if self.renderer.is_verbatim() => Ok(event.json_frame()),
            WatchItem::Event(event) if self.columns_due => {
                self.columns_due = false;
                self.render(event.event_type(), event.object(), true)
            }
            WatchItem::Event(event) => {
                event.frame_as(format_number(&self.renderer), self.stamp(), || {
                    self.render(event.event_type(), event.object(), false)
                })
            }
            WatchItem::Bookmark {
                resource_version,
                initial_events_end,
            } => self.bookmark(*resource_version, *initial_events_end),
            WatchItem::Error(error) => self.error(&watch_status(error)),
        }
    }

    /// The frame of one item, which is to be sent.
    fn next(&mut self, item: &WatchItem) -> Result<Bytes, ChunkError> {
        let frame = self.frame(item)?;
        self.meter.sent(item, frame.len());
        Ok(frame)
    }

    /// Appends the frame of one item to others, to be sent.
    fn append(&mut self, item: &WatchItem, out: &mut BytesMut) -> Result<(), ChunkError> {
        let before = out.len();
        match item {
            WatchItem::Initial(object) if self.renderer.is_verbatim() => {
                object.write_json_frame(EventType::Added, out);
            }
            _ => out.put_slice(&self.frame(item)?),
        }
        self.meter.sent(item, out.len() - before);
        Ok(())
    }

    /// The frame of an error of our own, which is to be sent.
    fn failure(&self, status: &Status) -> Result<Bytes, ChunkError> {
        let frame = self.error(status)?;
        self.meter.metrics.sent(frame.len());
        Ok(frame)
    }

    /// What besides the object a shared frame depends on: Tables tell ages, to the second.
    fn stamp(&self) -> i64 {
        match self.renderer.form() {
            Form::Table(_) => jiff::Timestamp::now().as_second(),
            Form::Object | Form::Metadata => 0,
        }
    }

    fn render(
        &self,
        event_type: EventType,
        object: &Object,
        columns: bool,
    ) -> Result<Bytes, ChunkError> {
        self.frame_of(event_type.as_str(), |out| {
            self.renderer.write_object(object, columns, out)
        })
    }

    /// A frame around the JSON that `write` appends.
    fn frame_of(
        &self,
        event_type: &str,
        write: impl FnOnce(&mut BytesMut) -> Result<(), ChunkError>,
    ) -> Result<Bytes, ChunkError> {
        let mut out = BytesMut::new();
        if let Some(schema) = self.renderer.protobuf() {
            write(&mut out)?;
            return schema.encode_frame(event_type, &out);
        }
        out.put_slice(format!(r#"{{"type":"{event_type}","object":"#).as_bytes());
        write(&mut out)?;
        out.put_slice(b"}\n");
        Ok(out.freeze())
    }

    /// The last frame of a watch that failed.
    fn error(&self, status: &Status) -> Result<Bytes, ChunkError> {
        let status = serde_json::to_vec(status)?;
        self.frame_of("ERROR", |out| {
            out.put_slice(&status);
            Ok(())
        })
    }

    fn bookmark(&mut self, at: ResourceVersion, initial_end: bool) -> Result<Bytes, ChunkError> {
        let annotations = if initial_end {
            r#","annotations":{"k8s.io/initial-events-end":"true"}"#
        } else {
            ""
        };
        let metadata = format!(r#"{{"resourceVersion":"{at}"{annotations}}}"#);
        let columns = std::mem::take(&mut self.columns_due);
        self.frame_of("BOOKMARK", |out| {
            self.renderer.write_bookmark(&metadata, columns, out)
        })
    }
}

/// A number for each way to show an object, by which watchers share an event's frame. Resources that
/// share a cache share its events: of built-ins one at most converts, so that a bit tells them apart, and
/// the versions of a custom resource are numbered.
fn format_number(renderer: &Renderer) -> u32 {
    let form = match renderer.form() {
        Form::Object => 0,
        Form::Metadata => 1,
        Form::Table(IncludeObject::None) => 2,
        Form::Table(IncludeObject::Metadata) => 3,
        Form::Table(IncludeObject::Object) => 4,
    };
    let media = u32::from(renderer.protobuf().is_some());
    form | u32::from(renderer.converts()) << 3 | media << 4 | renderer.version_number() << 5
}

/// What a watcher says, as frames.
#[derive(Debug)]
pub(crate) struct WatchFrames<W> {
    watcher: W,
    encoder: FrameEncoder,
    /// Received and not yet sent.
    items: std::vec::IntoIter<WatchItem>,
    /// What could not be sent after the last write: it is told in the next, which is the last.
    failure: Option<ChunkError>,
    ended: bool,
}

impl<W: WatchSource> WatchFrames<W> {
    /// What `watcher` says, encoded by `encoder`.
    pub(crate) fn new(watcher: W, encoder: FrameEncoder) -> Self {
        Self {
            watcher,
            encoder,
            items: Vec::new().into_iter(),
            failure: None,
            ended: false,
        }
    }

    /// The next frame; `None` at the end. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.ended {
                return None;
            }
            if let Some(frame) = self.next_ready() {
                return Some(frame);
            }
            std::future::poll_fn(|cx| self.poll_items(cx)).await;
        }
    }

    /// The next frame, if one can be had without waiting.
    pub(crate) fn next_ready(&mut self) -> Option<Bytes> {
        let item = self.items.next()?;
        let frame = self.encoder.next(&item);
        Some(frame.unwrap_or_else(|error| self.fail(&error)))
    }

    /// Waits until there are items, or the end.
    fn poll_items(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.items.len() == 0 && self.failure.is_none() && !self.ended {
            match ready!(self.watcher.poll_next(cx)) {
                Some(items) => self.items = items.into_iter(),
                None => self.ended = true,
            }
        }
        Poll::Ready(())
    }

    /// The last frame: that an event cannot be sent.
    fn fail(&mut self, error: &ChunkError) -> Bytes {
        self.ended = true;
        self.items = Vec::new().into_iter();
        tracing::error!(%error, "a watch ends: an event cannot be sent");
        let status = WireError::Internal(error.to_string()).status();
        // Our own words can always be written.
        self.encoder.failure(&status).unwrap_or_default()
    }
}

struct WatchBody<W> {
    frames: WatchFrames<W>,
    gzip: bool,
}

/// The body of a watch. With `gzip` each write is a complete gzip member, so that a client can
/// decode what it has.
pub(crate) fn watch_body(frames: WatchFrames<impl WatchSource>, gzip: bool) -> Body {
    Body::new(WatchBody { frames, gzip })
}

impl<W: WatchSource> http_body::Body for WatchBody<W> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let write = ready!(self.poll_write(cx));
        Poll::Ready(write.map(|bytes| Ok(Frame::data(bytes))))
    }
}

impl<W: WatchSource> WatchBody<W> {
    /// The next write; `None` ends the body.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        ready!(self.frames.poll_items(cx));
        if self.frames.ended {
            return Poll::Ready(None);
        }
        let chunk = self.frames.take_write();
        if !self.gzip {
            return Poll::Ready(Some(chunk));
        }
        // The compressor writes to memory; should it fail, only the end is left to tell.
        let member = gzip_member(&chunk)
            .inspect_err(|error| tracing::error!(%error, "a watch ends: it cannot be compressed"));
        Poll::Ready(member.ok())
    }
}

impl<W: WatchSource> WatchFrames<W> {
    /// The frames of what is there, together, or what has kept the last from being sent.
    fn take_write(&mut self) -> Bytes {
        let taken = match self.failure.take() {
            Some(error) => Err(error),
            None => self.try_take_write(),
        };
        taken.unwrap_or_else(|error| self.fail(&error))
    }

    fn try_take_write(&mut self) -> Result<Bytes, ChunkError> {
        let Some(first) = self.items.next() else {
            return Ok(Bytes::new());
        };
        let first = self.encoder.next(&first)?;
        if self.items.len() == 0 || first.len() >= WRITE_BYTES_MAX {
            return Ok(first);
        }
        let capacity = first.len() * (1 + self.items.len());
        let mut out = BytesMut::with_capacity(capacity.min(WRITE_BYTES_MAX));
        out.put_slice(&first);
        while out.len() < WRITE_BYTES_MAX
            && let Some(item) = self.items.next()
        {
            if let Err(error) = self.encoder.append(&item, &mut out) {
                // What came before it is sent, and counted, all the same.
                self.failure = Some(error);
                break;
            }
        }
        Ok(out.freeze())
    }
}

#[cfg(test)]
mod tests;
