//! Metrics of the cache of encoded objects.

use super::exposition::{Exposition, Kind};

/// The state of the cache of encoded objects at a scrape.
#[derive(Debug, Clone, Copy, Default)]
pub struct EncodingCacheSample {
    /// The bytes of all encodings.
    pub bytes: u64,
    /// How many objects have an encoding.
    pub objects: u64,
    /// How often a response found the encoding of an object.
    pub hits: u64,
    /// How often a response had to encode an object.
    pub misses: u64,
    /// How many encodings were dropped for others.
    pub evictions: u64,
}

impl EncodingCacheSample {
    pub(super) fn write(&self, out: &mut Exposition) {
        let mut sample = |name, kind, help, value| out.family(name, kind, help).value(&[], value);
        sample(
            "watchet_encoding_cache_bytes",
            Kind::Gauge,
            "Size of the cached encodings of objects in bytes.",
            self.bytes,
        );
        sample(
            "watchet_encoding_cache_evictions_total",
            Kind::Counter,
            "Number of encodings dropped for others.",
            self.evictions,
        );
        sample(
            "watchet_encoding_cache_hits_total",
            Kind::Counter,
            "Number of objects whose encoding was cached when a response needed it.",
            self.hits,
        );
        sample(
            "watchet_encoding_cache_misses_total",
            Kind::Counter,
            "Number of objects that were encoded for a response.",
            self.misses,
        );
        sample(
            "watchet_encoding_cache_objects",
            Kind::Gauge,
            "Number of objects with a cached encoding.",
            self.objects,
        );
    }
}
