//! What an [`Object`](super::Object) retains besides its JSON: its encoding in another format, as long as the
//! [`EncodingCache`](crate::EncodingCache) has memory for it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use arc_swap::ArcSwapOption;
use bytes::Bytes;

/// An object in an encoding other than JSON. Like its JSON, it is the frame of a watch event, of which the body and the
/// message are parts.
#[derive(Debug, Clone)]
pub struct EncodedObject {
    frame: Bytes,
    body_at: usize,
    message: Range<usize>,
}

impl EncodedObject {
    /// Creates the encoding: the frame of an event of [`Object::event_type`](super::Object::event_type), the offset of the body, which ends with
    /// the frame, and the range of the message, which is the item of a list.
    ///
    /// # Panics
    /// Panics if the ranges are not inside the frame.
    pub fn new(frame: Bytes, body_at: usize, message: Range<usize>) -> Self {
        assert!(body_at <= message.start && message.start <= message.end);
        assert!(message.end <= frame.len());
        Self {
            frame,
            body_at,
            message,
        }
    }

    /// Returns the bytes that it takes.
    pub(crate) fn len(&self) -> usize {
        self.frame.len()
    }

    /// Returns the frame of a watch event.
    pub fn frame(&self) -> Bytes {
        self.frame.clone()
    }

    /// Returns the body of a response with this object.
    pub fn body(&self) -> Bytes {
        self.frame.slice(self.body_at..)
    }

    /// Returns the object as an item of a list.
    pub fn message(&self) -> &[u8] {
        &self.frame[self.message.clone()]
    }
}

/// The memory of encodings: those of a kind, or those of all kinds.
#[derive(Debug, Default)]
pub(crate) struct EncodingUsage {
    bytes: AtomicUsize,
    entries: AtomicUsize,
    /// What also counts the encodings of a kind: the usage of all kinds.
    total: Option<Arc<EncodingUsage>>,
}

/// What an object retains of its encoding. A clone of the object begins without.
#[derive(Debug, Default)]
pub(crate) struct EncodingSlot {
    encoding: ArcSwapOption<CachedEncoding>,
    /// The length of the message, known even after the encoding was dropped; 0 is unknown.
    message_len: AtomicU32,
}

impl Clone for EncodingSlot {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// An encoding that counts in its cache until it is dropped.
#[derive(Debug)]
struct CachedEncoding {
    object: EncodedObject,
    /// Whether it was read since the cache last examined it.
    is_used: AtomicBool,
    usage: Arc<EncodingUsage>,
}

impl EncodingUsage {
    /// Creates the usage of a kind, whose encodings count in `total` too.
    pub(crate) fn of_kind(total: &Arc<Self>) -> Self {
        Self {
            total: Some(Arc::clone(total)),
            ..Self::default()
        }
    }

    /// Returns the bytes of all encodings.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of encodings.
    pub(crate) fn entries(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.entries.fetch_add(1, Ordering::Relaxed);
        if let Some(total) = &self.total {
            total.add(bytes);
        }
    }

    fn subtract(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.entries.fetch_sub(1, Ordering::Relaxed);
        if let Some(total) = &self.total {
            total.subtract(bytes);
        }
    }
}

impl CachedEncoding {
    fn new(object: EncodedObject, usage: &Arc<EncodingUsage>) -> Self {
        usage.add(object.frame.len());
        Self {
            object,
            is_used: AtomicBool::new(false),
            usage: Arc::clone(usage),
        }
    }
}

impl Drop for CachedEncoding {
    fn drop(&mut self) {
        self.usage.subtract(self.object.frame.len());
    }
}

impl EncodingSlot {
    /// Returns the encoding and marks it as read.
    pub(crate) fn get(&self) -> Option<EncodedObject> {
        let encoding = self.encoding.load();
        let encoding = encoding.as_ref()?;
        if !encoding.is_used.load(Ordering::Relaxed) {
            encoding.is_used.store(true, Ordering::Relaxed);
        }
        Some(encoding.object.clone())
    }

    /// Returns the length of the message, if the object was encoded before.
    pub(crate) fn message_len(&self) -> Option<usize> {
        match self.message_len.load(Ordering::Relaxed) {
            0 => None,
            len => Some(len as usize),
        }
    }

    /// Stores an encoding, which counts in `usage`. Returns true if there was none.
    pub(crate) fn set(&self, encoded: EncodedObject, usage: &Arc<EncodingUsage>) -> bool {
        let cached = CachedEncoding::new(encoded, usage);
        self.encoding.swap(Some(Arc::new(cached))).is_none()
    }

    /// Returns true if the encoding was read since the last call.
    pub(crate) fn clear_used(&self) -> bool {
        let encoding = self.encoding.load();
        let used = encoding.as_ref().map(|encoding| &encoding.is_used);
        used.is_some_and(|used| used.swap(false, Ordering::Relaxed))
    }

    /// Drops the encoding. Returns true if there was one.
    pub(crate) fn clear(&self) -> bool {
        self.encoding.swap(None).is_some()
    }

    /// Stores the length of the message of an encoding.
    pub(crate) fn remember_len(&self, encoded: &EncodedObject) {
        // A length that does not fit stays unknown.
        let len = u32::try_from(encoded.message.len()).unwrap_or(0);
        self.message_len.store(len, Ordering::Relaxed);
    }
}
