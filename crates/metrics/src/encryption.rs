//! Metrics of encryption at rest.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::exposition::{Exposition, Kind};
use super::kms::KmsMetrics;
use super::value::Counter;

/// The metrics of encryption at rest. They have no samples while no value is encrypted.
#[derive(Debug, Default)]
pub struct EncryptionMetrics {
    transformations: Mutex<BTreeMap<Transformation, u64>>,
    /// Changes of the configuration that took effect.
    pub reloads: Counter,
    /// Changes of the configuration that were rejected.
    pub failed_reloads: Counter,
    /// The KMS plugins.
    pub kms: Arc<KmsMetrics>,
}

/// The labels of encryptions and decryptions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Transformation {
    /// The plural name and the group of the resource, such as `deployments.apps`.
    pub resource: Arc<str>,
    /// True for encryptions.
    pub is_encryption: bool,
    /// The prefix of the values of the provider, without a key's name; `identity`; `unknown` if no provider matched.
    pub provider: Arc<str>,
    /// True if it succeeded.
    pub is_success: bool,
}

impl EncryptionMetrics {
    /// Counts an encryption or a decryption.
    pub fn transformed(&self, transformation: Transformation) {
        *self
            .transformations
            .lock()
            .entry(transformation)
            .or_default() += 1;
    }

    /// Writes all metrics.
    pub(super) fn write(&self, out: &mut Exposition) {
        self.kms.write(out);
        let transformations = self.transformations.lock();
        let help = "Number of encryptions and decryptions of stored values.";
        let mut family = out.family(
            "apiserver_storage_transformation_operations_total",
            Kind::Counter,
            help,
        );
        for (labels, count) in &*transformations {
            let direction = match labels.is_encryption {
                true => "to_storage",
                false => "from_storage",
            };
            let status = match labels.is_success {
                true => "OK",
                false => "Unknown",
            };
            let labels = [
                ("resource", &*labels.resource),
                ("status", status),
                ("transformation_type", direction),
                ("transformer_prefix", &*labels.provider),
            ];
            family.value(&[&labels], *count);
        }
        let help = "Number of changes of the encryption configuration, by status.";
        let name = "apiserver_encryption_config_controller_automatic_reloads_total";
        let mut family = out.family(name, Kind::Counter, help);
        for (status, count) in [
            ("success", &self.reloads),
            ("failure", &self.failed_reloads),
        ] {
            if count.get() > 0 {
                family.value(&[&[("status", status)]], count.get());
            }
        }
    }
}
