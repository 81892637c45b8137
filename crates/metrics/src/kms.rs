//! Metrics of KMS plugins, as in upstream's `staging/src/k8s.io/apiserver/pkg/storage/value/encrypt/envelope/metrics`.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use super::exposition::{Exposition, Kind, Label};
use super::value::Histogram;

/// Bucket bounds of the duration of calls in seconds: from 0.1 ms, each twice the one before, as upstream.
const OPERATION_SECONDS: &[f64] = &[
    0.0001, 0.0002, 0.0004, 0.0008, 0.0016, 0.0032, 0.0064, 0.0128, 0.0256, 0.0512, 0.1024, 0.2048,
    0.4096, 0.8192, 1.6384, 3.2768, 6.5536, 13.1072, 26.2144, 52.4288,
];

/// The maximum number of keys with series, as upstream: those used last.
const KEYS_MAX: usize = 10;

/// The metrics of KMS plugins.
#[derive(Debug, Default)]
pub struct KmsMetrics {
    operations: Mutex<BTreeMap<KmsOperation, Histogram>>,
    used_keys: Mutex<Keys>,
    reported_keys: Mutex<Keys>,
    invalid_key_ids: Mutex<BTreeMap<(String, &'static str), u64>>,
    cached_data_keys: Mutex<BTreeMap<String, usize>>,
}

/// The labels of calls of a plugin.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KmsOperation {
    /// The name of the provider in the configuration.
    pub provider: String,
    /// The gRPC method, such as `/v2.KeyManagementService/Status`.
    pub method: String,
    /// The gRPC status code under its name in Go, such as `OK` or `DeadlineExceeded`.
    pub code: String,
}

/// A key of a plugin.
#[derive(Debug, Clone, Copy)]
pub struct KmsKey<'a> {
    /// The name of the provider in the configuration.
    pub provider: &'a str,
    /// The ID that the plugin has given the key.
    pub id: &'a str,
    /// Returns the digest of an ID, which is a label in its place.
    pub digest: fn(&str) -> String,
}

/// The keys that were recorded last.
#[derive(Debug, Default)]
struct Keys(Vec<Key>);

#[derive(Debug)]
struct Key {
    provider: String,
    id: String,
    digest: String,
    /// `to_storage` or `from_storage`; empty for a key that a status reports.
    transformation: &'static str,
    count: u64,
    last: SystemTime,
}

impl Keys {
    fn record(&mut self, key: KmsKey<'_>, transformation: &'static str) {
        let last = SystemTime::now();
        let is_same = |known: &&mut Key| {
            known.transformation == transformation
                && known.id == key.id
                && known.provider == key.provider
        };
        if let Some(known) = self.0.iter_mut().find(is_same) {
            known.count += 1;
            known.last = last;
            return;
        }
        if self.0.len() == KEYS_MAX {
            let oldest = self.0.iter().enumerate().min_by_key(|(_, key)| key.last);
            if let Some((oldest, _)) = oldest {
                self.0.swap_remove(oldest);
            }
        }
        self.0.push(Key {
            provider: key.provider.to_owned(),
            id: key.id.to_owned(),
            digest: (key.digest)(key.id),
            transformation,
            count: 1,
            last,
        });
    }
}

impl Key {
    /// Returns when the key was recorded last, in Unix seconds.
    fn last(&self) -> f64 {
        let since = self.last.duration_since(UNIX_EPOCH);
        since.unwrap_or_default().as_secs_f64()
    }

    fn labels(&self) -> [Label<'_>; 3] {
        [
            ("key_id_hash", &self.digest),
            ("provider_name", &self.provider),
            ("transformation_type", self.transformation),
        ]
    }
}

impl KmsMetrics {
    /// Adds a call of a plugin.
    pub fn observe_operation(&self, operation: KmsOperation, elapsed: Duration) {
        self.operations
            .lock()
            .entry(operation)
            .or_insert_with(|| Histogram::new(OPERATION_SECONDS))
            .observe_duration(elapsed);
    }

    /// Counts an encryption, or else a decryption, of a value with a data encryption key that `key` has encrypted.
    pub fn key_used(&self, key: KmsKey<'_>, is_encryption: bool) {
        let transformation = match is_encryption {
            true => "to_storage",
            false => "from_storage",
        };
        self.used_keys.lock().record(key, transformation);
    }

    /// Records that the status of a plugin has the ID of `key`.
    pub fn key_reported(&self, key: KmsKey<'_>) {
        self.reported_keys.lock().record(key, "");
    }

    /// Counts a status of a plugin whose key ID is invalid: `empty` or `too_long`.
    pub fn invalid_key_id_reported(&self, provider: &str, error: &'static str) {
        let mut invalid = self.invalid_key_ids.lock();
        *invalid.entry((provider.to_owned(), error)).or_default() += 1;
    }

    /// Sets the number of decrypted data encryption keys in the cache of a provider.
    pub fn set_cached_data_keys(&self, provider: &str, count: usize) {
        let mut cached = self.cached_data_keys.lock();
        match cached.get_mut(provider) {
            Some(known) => *known = count,
            None => drop(cached.insert(provider.to_owned(), count)),
        }
    }

    /// Writes all metrics.
    pub(super) fn write(&self, out: &mut Exposition) {
        let name = "apiserver_envelope_encryption_dek_source_cache_size";
        let help = "Number of decrypted data encryption keys in the cache.";
        let mut family = out.family(name, Kind::Gauge, help);
        for (provider, count) in &*self.cached_data_keys.lock() {
            family.value(&[&[("provider_name", provider)]], *count);
        }
        let name = "apiserver_envelope_encryption_invalid_key_id_from_status_total";
        let help = "Number of status responses of KMS plugins with an invalid key ID.";
        let mut family = out.family(name, Kind::Counter, help);
        for ((provider, error), count) in &*self.invalid_key_ids.lock() {
            family.value(&[&[("error", error), ("provider_name", provider)]], *count);
        }
        self.write_used_keys(out);
        let name = "apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds";
        let help = "Last time a status response of a KMS plugin had the key ID, in Unix seconds.";
        let mut family = out.family(name, Kind::Gauge, help);
        for key in &self.reported_keys.lock().0 {
            let labels = [
                ("key_id_hash", &*key.digest),
                ("provider_name", &*key.provider),
            ];
            family.value(&[&labels], key.last());
        }
        let name = "apiserver_envelope_encryption_kms_operations_latency_seconds";
        let help = "Duration of calls of KMS plugins in seconds.";
        let mut family = out.family(name, Kind::Histogram, help);
        for (operation, durations) in &*self.operations.lock() {
            let labels = [
                ("grpc_status_code", &*operation.code),
                ("method_name", &*operation.method),
                ("provider_name", &*operation.provider),
            ];
            family.histogram(&[&labels], durations);
        }
    }

    fn write_used_keys(&self, out: &mut Exposition) {
        let keys = self.used_keys.lock();
        let name = "apiserver_envelope_encryption_key_id_hash_last_timestamp_seconds";
        let help = "Last encryption or decryption of a value with the key ID, in Unix seconds.";
        let mut family = out.family(name, Kind::Gauge, help);
        for key in &keys.0 {
            family.value(&[&key.labels()], key.last());
        }
        let name = "apiserver_envelope_encryption_key_id_hash_total";
        let help = "Number of encryptions and decryptions of values by key ID.";
        let mut family = out.family(name, Kind::Counter, help);
        for key in &keys.0 {
            family.value(&[&key.labels()], key.count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: &str) -> KmsKey<'_> {
        KmsKey {
            provider: "p",
            id,
            digest: str::to_uppercase,
        }
    }

    #[test]
    fn only_the_keys_used_last_have_series() {
        let metrics = KmsMetrics::default();
        metrics.key_used(key("first"), true);
        for number in 0..KEYS_MAX {
            metrics.key_used(key(&format!("k{number}")), false);
            metrics.key_used(key("k0"), false);
        }
        let keys = metrics.used_keys.lock();
        let mut digests: Vec<_> = keys.0.iter().map(|key| (&*key.digest, key.count)).collect();
        digests.sort_unstable();
        let mut expected = vec![("K0", 11)];
        let others = ["K1", "K2", "K3", "K4", "K5", "K6", "K7", "K8", "K9"];
        expected.extend(others.map(|digest| (digest, 1)));
        assert_eq!(digests, expected);
        let last = keys.0.iter().find(|key| key.id == "k0").unwrap().last();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        assert!((now.as_secs_f64() - last).abs() < 60.0, "{last}");
    }
}
