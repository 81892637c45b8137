//! The body of a watch: encodes its items as frames and combines all that are ready into one write.
//! It ends when the watcher ends; dropping it drops the watcher.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use http_body::Frame;

use watchet_api::{EventType, Object, ResourceVersion, Status};
use watchet_registry::{ReceivedEvents, WatchItem};

use crate::error::{HttpError, watch_status};
use crate::request::accept::{Form, IncludeObject};
use crate::response::chunks::{ChunkError, gzip_member};
use crate::response::protobuf_renderer::ProtobufRenderer;
use crate::response::render::Renderer;
use crate::response::watch_meter::WatchMeter;

/// The approximate maximum size of a write: a large batch is sent in several writes, so that a slow
/// client does not make the server hold a whole initial state in encoded form.
pub(crate) const WRITE_BYTES_MAX: usize = 64 << 10;

/// The source of a watch's items: an authorized watch of the registry, or a script in tests.
pub(crate) trait WatchSource: Send + Unpin + 'static {
    /// As [`Watch::poll_next`](watchet_registry::Watch::poll_next).
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<WatchItem>>>;

    /// Returns the live events that [`Self::poll_next`] has returned since the last call; `None` if there are none.
    fn take_received(&mut self) -> Option<ReceivedEvents>;

    /// Returns the last event of a watch whose client has lost access, `None` while it has access. No other event is
    /// sent after it, and [`Self::poll_next`] has returned the end or wakes its task.
    fn denial(&self) -> Option<&Status>;
}

/// Encodes items as frames of one form.
#[derive(Debug)]
pub(crate) struct FrameEncoder {
    renderer: Renderer,
    /// Whether the next Table includes its column definitions: only the first does.
    columns_due: bool,
    meter: WatchMeter,
}

impl FrameEncoder {
    /// Creates an encoder that renders objects with `renderer` and counts frames with `meter`.
    pub(crate) fn new(renderer: Renderer, meter: WatchMeter) -> Self {
        let columns_due = matches!(renderer.form(), Form::Table(_));
        Self {
            renderer,
            columns_due,
            meter,
        }
    }

    /// Returns the frame of one item. An event in the most common form is the very bytes in the
    /// cache.
    fn frame(&mut self, item: &WatchItem) -> Result<Bytes, ChunkError> {
        match item {
            WatchItem::Initial(object) if self.renderer.is_verbatim() => {
                Ok(object.json_frame(EventType::Added))
            }
            WatchItem::Initial(object) if self.renderer.protobuf().is_some() => {
                self.render(EventType::Added, object, false)
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
            // The object shares this frame with other responses.
            WatchItem::Event(event)
                if self.renderer.protobuf().is_some() && self.renderer.is_stored_form() =>
            {
                self.render(event.event_type(), event.object(), false)
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
            WatchItem::Error(error) => {
                if let Some(record) = &self.meter.record {
                    record.fail(error);
                }
                self.error(&watch_status(error))
            }
        }
    }

    /// Returns the frame of one item and counts it as sent.
    fn next(&mut self, item: &WatchItem) -> Result<Bytes, ChunkError> {
        let frame = self.frame(item)?;
        self.meter.count(item, frame.len());
        Ok(frame)
    }

    /// Appends the frame of one item to `out` and counts it as sent.
    fn append(&mut self, item: &WatchItem, out: &mut BytesMut) -> Result<(), ChunkError> {
        let before = out.len();
        match item {
            WatchItem::Initial(object) if self.renderer.is_verbatim() => {
                object.write_json_frame(EventType::Added, out);
            }
            _ => out.put_slice(&self.frame(item)?),
        }
        self.meter.count(item, out.len() - before);
        Ok(())
    }

    /// Returns the frame of an error of this server and counts it as sent.
    fn failure(&self, status: &Status) -> Result<Bytes, ChunkError> {
        let frame = self.error(status)?;
        self.meter.metrics.sent(frame.len());
        Ok(frame)
    }

    /// Returns what a shared frame depends on besides the object: Tables contain ages, in seconds.
    fn stamp(&self) -> i64 {
        match self.renderer.form() {
            Form::Table(_) => jiff::Timestamp::now().as_second(),
            Form::Object | Form::Metadata => 0,
        }
    }

    fn render(
        &self,
        event_type: EventType,
        object: &Arc<Object>,
        columns: bool,
    ) -> Result<Bytes, ChunkError> {
        if let Some(protobuf) = ProtobufRenderer::of(&self.renderer) {
            return protobuf.frame(event_type, object);
        }
        json_frame(event_type.as_str(), |out| {
            self.renderer.write_object(object, columns, out)
        })
    }

    /// Returns the last frame of a watch that failed.
    fn error(&self, status: &Status) -> Result<Bytes, ChunkError> {
        let status = serde_json::to_vec(status)?;
        match ProtobufRenderer::of(&self.renderer) {
            Some(protobuf) => protobuf.frame_of_status("ERROR", &status),
            None => json_frame("ERROR", |out| {
                out.put_slice(&status);
                Ok(())
            }),
        }
    }

    fn bookmark(&mut self, at: ResourceVersion, initial_end: bool) -> Result<Bytes, ChunkError> {
        let annotations = if initial_end {
            r#","annotations":{"k8s.io/initial-events-end":"true"}"#
        } else {
            ""
        };
        let metadata = format!(r#"{{"resourceVersion":"{at}"{annotations}}}"#);
        let columns = std::mem::take(&mut self.columns_due);
        let mut object = BytesMut::new();
        self.renderer
            .write_bookmark(&metadata, columns, &mut object)?;
        match ProtobufRenderer::of(&self.renderer) {
            Some(protobuf) => protobuf.frame_of_json("BOOKMARK", &object),
            None => json_frame("BOOKMARK", |out| {
                out.put_slice(&object);
                Ok(())
            }),
        }
    }
}

/// Returns a frame around the JSON that `write` appends.
fn json_frame(
    event_type: &str,
    write: impl FnOnce(&mut BytesMut) -> Result<(), ChunkError>,
) -> Result<Bytes, ChunkError> {
    let mut out = BytesMut::new();
    out.put_slice(format!(r#"{{"type":"{event_type}","object":"#).as_bytes());
    write(&mut out)?;
    out.put_slice(b"}\n");
    Ok(out.freeze())
}

/// Returns a number for each rendering of an object; watchers with the same number share an event's
/// frame. Resources that share a cache share its events: at most one built-in of them converts, so
/// one bit distinguishes them, and the versions of a custom resource are numbered.
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

/// The frames of a watcher's items.
#[derive(Debug)]
pub(crate) struct WatchFrames<W> {
    watcher: W,
    encoder: FrameEncoder,
    /// Items received and not yet sent.
    items: std::vec::IntoIter<WatchItem>,
    /// The error whose frame is the next and last write. Boxed, because an idle watch has none.
    failure: Option<Box<Status>>,
    ended: bool,
}

impl<W: WatchSource> WatchFrames<W> {
    /// Creates the frames of `watcher`'s items, encoded by `encoder`.
    pub(crate) fn new(watcher: W, encoder: FrameEncoder) -> Self {
        Self {
            watcher,
            encoder,
            items: Vec::new().into_iter(),
            failure: None,
            ended: false,
        }
    }

    /// Returns the next frame; `None` at the end. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.ended {
                return None;
            }
            std::future::poll_fn(|cx| self.poll_items(cx)).await;
            if let Some(frame) = self.next_ready() {
                return Some(frame);
            }
        }
    }

    /// Returns the next frame if it is available without waiting.
    pub(crate) fn next_ready(&mut self) -> Option<Bytes> {
        if let Some(failure) = self.failure.take() {
            return Some(self.fail(&failure));
        }
        let item = self.items.next()?;
        let frame = self.encoder.next(&item);
        self.record_unsent();
        Some(frame.unwrap_or_else(|error| self.fail(&encoding_failure(&error))))
    }

    /// After the last item has been encoded, records that the connection writes the live events next.
    fn record_unsent(&mut self) {
        if self.items.len() == 0
            && let Some(received) = self.watcher.take_received()
        {
            self.encoder.meter.record_unsent(received);
        }
    }

    /// Waits until there are items, an error, or the end.
    fn poll_items(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.failure.is_some() || self.ended {
            return Poll::Ready(());
        }
        if self.items.len() == 0 {
            match ready!(self.watcher.poll_next(cx)) {
                Some(items) => self.items = items.into_iter(),
                None => self.ended = true,
            }
        }
        // Items that were received before are not sent either.
        if let Some(denial) = self.watcher.denial() {
            self.failure = Some(Box::new(denial.clone()));
            self.ended = false;
        }
        Poll::Ready(())
    }

    /// Returns the last frame: an ERROR event with `status`.
    fn fail(&mut self, status: &Status) -> Bytes {
        self.ended = true;
        self.items = Vec::new().into_iter();
        // A status can always be encoded.
        self.encoder.failure(status).unwrap_or_default()
    }
}

fn encoding_failure(error: &ChunkError) -> Status {
    tracing::error!(%error, "watch ends: cannot encode an event");
    HttpError::Internal(error.to_string()).status()
}

pub(crate) struct WatchBody<W> {
    frames: WatchFrames<W>,
    gzip: bool,
}

/// Returns the body of a watch. With `gzip` each write is a complete gzip member, so that a client
/// can decode everything it has received.
pub(crate) fn watch_body<W: WatchSource>(frames: WatchFrames<W>, gzip: bool) -> WatchBody<W> {
    WatchBody { frames, gzip }
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
    /// Returns the next write; `None` ends the body.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        ready!(self.frames.poll_items(cx));
        if self.frames.ended {
            return Poll::Ready(None);
        }
        let chunk = self.frames.take_write();
        if !self.gzip {
            return Poll::Ready(Some(chunk));
        }
        // Writing to the in-memory compressor does not fail; if it did, the body would just end.
        let member = gzip_member(&chunk)
            .inspect_err(|error| tracing::error!(%error, "watch ends: cannot compress a write"));
        Poll::Ready(member.ok())
    }
}

impl<W: WatchSource> WatchFrames<W> {
    /// Returns the frames of all available items together, or the error that the last write left.
    fn take_write(&mut self) -> Bytes {
        if let Some(failure) = self.failure.take() {
            return self.fail(&failure);
        }
        let taken = self.try_take_write();
        self.record_unsent();
        taken.unwrap_or_else(|error| self.fail(&encoding_failure(&error)))
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
                // The frames before it are sent and counted first.
                self.failure = Some(Box::new(encoding_failure(&error)));
                break;
            }
        }
        Ok(out.freeze())
    }
}

#[cfg(test)]
mod tests;
