//! Encodings of objects besides their JSON, shared by all readers of an object and bounded in bytes for the whole server.
//!
//! An object holds its encoding itself, so that a reader needs no look-up and the encoding of a deleted object goes with
//! it. The cache counts the bytes and decides which encodings are dropped: those that were not read since the cache last
//! came to them (the CLOCK algorithm, an approximation of least recently used).

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::object::{EncodedObject, EncodingUsage, Object};

/// The encodings of all objects of a server that were recently read in it.
#[derive(Debug)]
pub struct EncodingCache {
    /// The configured limit.
    bytes_max: usize,
    /// The present limit, at most the configured one.
    bytes_now: AtomicUsize,
    /// The memory of all encodings.
    usage: Arc<EncodingUsage>,
    /// The memory of the encodings of each `apiVersion` and kind that has been encoded.
    kinds: Mutex<BTreeMap<(String, String), Arc<EncodingUsage>>>,
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

/// The encodings of one kind in an [`EncodingCache`].
#[derive(Debug, Clone)]
pub struct KindEncodings {
    cache: Arc<EncodingCache>,
    usage: Arc<EncodingUsage>,
}

/// The memory of encodings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EncodingsSize {
    /// How many objects have an encoding.
    pub objects: usize,
    /// The bytes of their encodings.
    pub bytes: usize,
}

/// Queue entries of dropped objects that are always tolerated.
const DEAD_ENTRIES: usize = 1024;

impl EncodingCache {
    /// Creates a cache for at most `bytes_max` bytes. With 0 it retains nothing.
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes_max,
            bytes_now: AtomicUsize::new(bytes_max),
            usage: Arc::default(),
            kinds: Mutex::default(),
            queue: Mutex::new(VecDeque::new()),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        })
    }

    /// Limits the cache to `bytes` if that is less than the configured limit, until the next call, and drops encodings until
    /// the rest fits.
    pub fn restrict(&self, bytes: usize) {
        let bytes = bytes.min(self.bytes_max);
        self.bytes_now.store(bytes, Ordering::Relaxed);
        self.evict(&mut self.queue.lock());
    }

    /// Returns the counters.
    pub fn stats(&self) -> EncodingCacheStats {
        EncodingCacheStats {
            bytes: self.usage.bytes(),
            entries: self.usage.entries(),
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
        }
    }

    /// Returns the encodings of the objects with this `apiVersion` (`apps/v1`) and kind.
    pub fn of_kind(self: &Arc<Self>, api_version: &str, kind: &str) -> KindEncodings {
        let name = (api_version.to_owned(), kind.to_owned());
        let mut kinds = self.kinds.lock();
        let usage = kinds
            .entry(name)
            .or_insert_with(|| Arc::new(EncodingUsage::of_kind(&self.usage)));
        KindEncodings {
            cache: Arc::clone(self),
            usage: Arc::clone(usage),
        }
    }

    /// Returns the memory of the encodings of a kind.
    pub fn size_of_kind(&self, api_version: &str, kind: &str) -> EncodingsSize {
        let name = (api_version.to_owned(), kind.to_owned());
        let kinds = self.kinds.lock();
        let usage = kinds.get(&name).map(|usage| EncodingsSize {
            objects: usage.entries(),
            bytes: usage.bytes(),
        });
        usage.unwrap_or_default()
    }

    fn insert(&self, object: &Arc<Object>, encoded: EncodedObject, usage: &Arc<EncodingUsage>) {
        let slot = object.encoding_slot();
        slot.remember_len(&encoded);
        if encoded.len() > self.bytes_now.load(Ordering::Relaxed) {
            return;
        }
        let is_new = slot.set(encoded, usage);
        let mut queue = self.queue.lock();
        // An object that another thread encoded at the same time is in the queue already.
        if is_new {
            queue.push_back(Arc::downgrade(object));
        }
        if queue.len() > 2 * self.usage.entries() + DEAD_ENTRIES {
            queue.retain(|object| object.strong_count() > 0);
        }
        self.evict(&mut queue);
    }

    /// Drops encodings until the rest fits. Each object is examined at most twice: the first time may only clear its mark.
    fn evict(&self, queue: &mut VecDeque<Weak<Object>>) {
        let bytes_max = self.bytes_now.load(Ordering::Relaxed);
        for _ in 0..2 * queue.len() {
            if self.usage.bytes() <= bytes_max {
                return;
            }
            let Some(next) = queue.pop_front() else {
                return;
            };
            let Some(object) = next.upgrade() else {
                continue;
            };
            let slot = object.encoding_slot();
            if slot.clear_used() {
                queue.push_back(next);
            } else if slot.clear() {
                self.evictions.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl KindEncodings {
    /// Returns the encoding of an object of this kind, which `encode` makes if the object has none. All callers must encode
    /// alike. Concurrent callers may each call `encode`.
    ///
    /// # Errors
    /// Returns the error of `encode`; nothing is retained then.
    pub fn get_or_encode<E>(
        &self,
        object: &Arc<Object>,
        encode: impl FnOnce() -> Result<EncodedObject, E>,
    ) -> Result<EncodedObject, E> {
        let cache = &*self.cache;
        if let Some(encoding) = object.encoding() {
            cache.hits.fetch_add(1, Ordering::Relaxed);
            return Ok(encoding);
        }
        cache.misses.fetch_add(1, Ordering::Relaxed);
        let encoded = encode()?;
        cache.insert(object, encoded.clone(), &self.usage);
        Ok(encoded)
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
        let pods = cache.of_kind("v1", "Pod");
        let read = pods.get_or_encode(object, || Ok::<_, ()>(encoded(byte)));
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

    #[test]
    fn a_restricted_cache_drops_encodings_until_the_restriction_ends() {
        let cache = EncodingCache::new(1_000);
        let objects: Vec<_> = (0..10).map(|n| object(&n.to_string())).collect();
        let read_all = || {
            for object in &objects {
                assert_eq!(read(&cache, object, 1), 1);
            }
        };
        read_all();
        assert_eq!(cache.stats().bytes, 1_000);
        cache.restrict(250);
        assert_eq!(cache.stats().bytes, 200);
        read_all();
        assert_eq!(cache.stats().bytes, 200);
        cache.restrict(0);
        assert_eq!((cache.stats().bytes, cache.stats().entries), (0, 0));
        cache.restrict(usize::MAX);
        read_all();
        assert_eq!(cache.stats().bytes, 1_000, "the configured limit");
        read(&cache, &object("eleventh"), 1);
        assert!(cache.stats().bytes <= 1_000);
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
    fn the_encodings_of_each_kind_are_counted() {
        let cache = EncodingCache::new(300);
        let size = |kind: &str| {
            let size = cache.size_of_kind("v1", kind);
            (size.objects, size.bytes)
        };
        let pods = ["a", "b"].map(object);
        for pod in &pods {
            read(&cache, pod, 1);
        }
        let nodes = ["c", "d"].map(object);
        let encode = || Ok::<_, ()>(encoded(1));
        let encodings = cache.of_kind("v1", "Node");
        encodings.get_or_encode(&nodes[0], encode).unwrap();
        assert_eq!((size("Pod"), size("Node")), ((2, 200), (1, 100)));
        // An encoding that is dropped for that of another kind counts in its own.
        encodings.get_or_encode(&nodes[1], encode).unwrap();
        assert_eq!((size("Pod"), size("Node")), ((1, 100), (2, 200)));
        drop(nodes);
        assert_eq!((size("Node"), size("Secret")), ((0, 0), (0, 0)));
        assert_eq!((cache.stats().entries, cache.stats().bytes), (1, 100));
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
