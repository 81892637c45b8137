//! Encodings of objects besides their JSON, shared by all readers of an object and bounded in bytes for the whole server.
//!
//! An object holds its encoding itself, so that a reader needs no look-up and the encoding of a deleted object goes with
//! it. The cache counts the bytes and decides which encodings are dropped: those that were not read since the cache last
//! came to them (the CLOCK algorithm, an approximation of least recently used).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use parking_lot::Mutex;

use super::Object;

/// An object in an encoding other than JSON. Like its JSON, it is the frame of a watch event, of which the body and the
/// message are parts.
#[derive(Debug, Clone)]
pub struct EncodedObject {
    frame: Bytes,
    body_at: usize,
    message: Range<usize>,
}

impl EncodedObject {
    /// Creates the encoding: the frame of an event of [`Object::event_type`], the offset of the body, which ends with
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

/// The encodings of all objects of a server that were recently read in it.
#[derive(Debug)]
pub struct EncodingCache {
    bytes_max: usize,
    bytes: AtomicUsize,
    entries: AtomicUsize,
    /// The objects with an encoding, in the order in which they are examined. Objects that were dropped meanwhile are
    /// skipped, and removed when they are more than half.
    queue: Mutex<VecDeque<Weak<Object>>>,
    hits: AtomicU64,
    misses: AtomicU64,
    evictions: AtomicU64,
}

/// The counters of an [`EncodingCache`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodingCacheStats {
    /// The bytes of all encodings.
    pub bytes: usize,
    /// How many objects have an encoding.
    pub entries: usize,
    /// How often a reader found an encoding.
    pub hits: u64,
    /// How often an object was encoded.
    pub misses: u64,
    /// How many encodings were dropped for others.
    pub evictions: u64,
}

/// What an object retains of its encoding. A clone of the object begins without.
#[derive(Debug, Default)]
pub(super) struct EncodingSlot {
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
    cache: Arc<EncodingCache>,
}

/// Queue entries of dropped objects that are always tolerated.
const DEAD_ENTRIES: usize = 1024;

impl EncodingCache {
    /// Creates a cache for at most `bytes_max` bytes. With 0 it retains nothing.
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes_max,
            bytes: AtomicUsize::new(0),
            entries: AtomicUsize::new(0),
            queue: Mutex::new(VecDeque::new()),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        })
    }

    /// Returns the counters.
    pub fn stats(&self) -> EncodingCacheStats {
        EncodingCacheStats {
            bytes: self.bytes.load(Ordering::Relaxed),
            entries: self.entries.load(Ordering::Relaxed),
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
        }
    }

    /// Returns the encoding of an object, which `encode` makes if the object has none. All callers must encode alike.
    /// Concurrent callers may each call `encode`.
    ///
    /// # Errors
    /// Returns the error of `encode`; nothing is retained then.
    pub fn get_or_encode<E>(
        self: &Arc<Self>,
        object: &Arc<Object>,
        encode: impl FnOnce() -> Result<EncodedObject, E>,
    ) -> Result<EncodedObject, E> {
        if let Some(encoding) = object.encoding() {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return Ok(encoding);
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        let encoded = encode()?;
        self.insert(object, encoded.clone());
        Ok(encoded)
    }

    fn insert(self: &Arc<Self>, object: &Arc<Object>, encoded: EncodedObject) {
        let slot = object.encoding_slot();
        slot.remember_len(&encoded);
        let bytes = encoded.frame.len();
        if bytes > self.bytes_max {
            return;
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.entries.fetch_add(1, Ordering::Relaxed);
        let replaced = slot.encoding.swap(Some(Arc::new(CachedEncoding {
            object: encoded,
            is_used: AtomicBool::new(false),
            cache: Arc::clone(self),
        })));
        let mut queue = self.queue.lock();
        // An object that another thread encoded at the same time is in the queue already.
        if replaced.is_none() {
            queue.push_back(Arc::downgrade(object));
        }
        if queue.len() > 2 * self.entries.load(Ordering::Relaxed) + DEAD_ENTRIES {
            queue.retain(|object| object.strong_count() > 0);
        }
        self.evict(&mut queue);
    }

    /// Drops encodings until the rest fits. Each object is examined at most twice: the first time may only clear its mark.
    fn evict(&self, queue: &mut VecDeque<Weak<Object>>) {
        for _ in 0..2 * queue.len() {
            if self.bytes.load(Ordering::Relaxed) <= self.bytes_max {
                return;
            }
            let Some(next) = queue.pop_front() else {
                return;
            };
            let Some(object) = next.upgrade() else {
                continue;
            };
            let slot = object.encoding_slot();
            let is_used =
                |encoding: &Arc<CachedEncoding>| encoding.is_used.swap(false, Ordering::Relaxed);
            if slot.encoding.load().as_ref().is_some_and(is_used) {
                queue.push_back(next);
            } else if slot.encoding.swap(None).is_some() {
                self.evictions.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for CachedEncoding {
    fn drop(&mut self) {
        let bytes = self.object.frame.len();
        self.cache.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.cache.entries.fetch_sub(1, Ordering::Relaxed);
    }
}

impl EncodingSlot {
    /// Returns the encoding and marks it as read.
    pub(super) fn get(&self) -> Option<EncodedObject> {
        let encoding = self.encoding.load();
        let encoding = encoding.as_ref()?;
        if !encoding.is_used.load(Ordering::Relaxed) {
            encoding.is_used.store(true, Ordering::Relaxed);
        }
        Some(encoding.object.clone())
    }

    /// Returns the length of the message, if the object was encoded before.
    pub(super) fn message_len(&self) -> Option<usize> {
        match self.message_len.load(Ordering::Relaxed) {
            0 => None,
            len => Some(len as usize),
        }
    }

    fn remember_len(&self, encoded: &EncodedObject) {
        // A length that does not fit stays unknown.
        let len = u32::try_from(encoded.message.len()).unwrap_or(0);
        self.message_len.store(len, Ordering::Relaxed);
    }
}

impl Object {
    /// Returns the encoding that the object retains, if any.
    pub fn encoding(&self) -> Option<EncodedObject> {
        self.encoding_slot().get()
    }

    /// Returns the length of the message of the object's encoding, if it was encoded before.
    pub fn encoded_message_len(&self) -> Option<usize> {
        self.encoding_slot().message_len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ColumnSet, EventType, ObjectKey, ResourceVersion};

    fn object(name: &str) -> Arc<Object> {
        let decoded = Object::decode(
            ObjectKey::from(name),
            ResourceVersion::new(1),
            EventType::Added,
            br#"{"metadata":{}}"#,
            &ColumnSet::default(),
        );
        Arc::new(decoded.unwrap())
    }

    /// Returns an encoding of 100 bytes with a message of 80.
    fn encoded(byte: u8) -> EncodedObject {
        EncodedObject::new(vec![byte; 100].into(), 10, 16..96)
    }

    fn read(cache: &Arc<EncodingCache>, object: &Arc<Object>, byte: u8) -> u8 {
        let read = cache.get_or_encode(object, || Ok::<_, ()>(encoded(byte)));
        read.unwrap().message()[0]
    }

    #[test]
    fn an_object_is_encoded_once_and_its_bytes_are_counted() {
        let cache = EncodingCache::new(1_000);
        let a = object("a");
        assert_eq!(
            (a.encoding().is_none(), a.encoded_message_len()),
            (true, None)
        );
        assert_eq!(read(&cache, &a, 1), 1);
        assert_eq!(read(&cache, &a, 2), 1);
        assert_eq!(a.encoded_message_len(), Some(80));
        let encoding = a.encoding().unwrap();
        assert_eq!((encoding.frame().len(), encoding.body().len()), (100, 90));
        let stats = cache.stats();
        assert_eq!((stats.bytes, stats.entries), (100, 1));
        assert_eq!((stats.hits, stats.misses, stats.evictions), (1, 1, 0));
        // A clone may be changed, so that it must not have the encoding.
        assert!(Object::clone(&a).encoding().is_none());
        drop(a);
        assert_eq!((cache.stats().bytes, cache.stats().entries), (0, 0));
    }

    #[test]
    fn encodings_that_were_not_read_again_are_dropped_first() {
        let cache = EncodingCache::new(300);
        let objects = ["a", "b", "c"].map(object);
        for object in &objects {
            read(&cache, object, 1);
        }
        read(&cache, &objects[0], 1);
        let d = object("d");
        read(&cache, &d, 1);
        let retained = objects.each_ref().map(|object| object.encoding().is_some());
        assert_eq!(retained, [true, false, true]);
        // The length survives: a list needs it before it encodes the items.
        assert_eq!(objects[1].encoded_message_len(), Some(80));
        assert_eq!((cache.stats().bytes, cache.stats().evictions), (300, 1));
    }

    #[test]
    fn an_encoding_above_the_limit_is_not_retained() {
        let cache = EncodingCache::new(99);
        let a = object("a");
        assert_eq!((read(&cache, &a, 1), read(&cache, &a, 2)), (1, 2));
        assert_eq!((cache.stats().bytes, cache.stats().entries), (0, 0));
        assert_eq!(a.encoded_message_len(), Some(80));
    }

    /// Each change of an object makes a new one. The queue once grew with every change until the limit was reached.
    #[test]
    fn the_queue_does_not_grow_with_objects_that_are_gone() {
        let cache = EncodingCache::new(usize::MAX);
        for _ in 0..10 * DEAD_ENTRIES {
            read(&cache, &object("a"), 1);
        }
        let queued = cache.queue.lock().len();
        assert!(queued <= 2 * DEAD_ENTRIES, "{queued}");
        assert_eq!(cache.stats().entries, 0);
    }

    #[test]
    fn concurrent_readers_count_each_encoding_once() {
        let cache = EncodingCache::new(2_000);
        let objects: Vec<_> = (0..50).map(|n| object(&n.to_string())).collect();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (cache, objects) = (&cache, &objects);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(thread);
                    for _ in 0..10_000 {
                        read(cache, &objects[random.usize(..50)], 7);
                    }
                });
            }
        });
        let retained = objects.iter().filter(|object| object.encoding().is_some());
        let retained = retained.count();
        let stats = cache.stats();
        assert_eq!((stats.entries, stats.bytes), (retained, 100 * retained));
        assert!(stats.bytes <= 2_000, "{stats:?}");
        drop(objects);
        assert_eq!(cache.stats().bytes, 0);
    }
}
