//! Encryption at rest, as in kube-apiserver: encrypts values before they are stored, and decrypts them after they are
//! read. The formats are upstream's, so kube-apiserver decrypts what this crate encrypts, and the reverse.
//!
//! An [`EncryptionConfiguration`] has the encrypted resources and their providers: AES-CBC, AES-GCM, secretbox, or a
//! KMS plugin. [`Encryption`] is the configuration in effect, and [`EncryptedStorage`] a storage that encrypts with it:
//!
//! ```
//! use std::time::Duration;
//! use watchet_api::StorageKey;
//! use watchet_encryption::{EncryptedStorage, Encryption, EncryptionConfiguration};
//! use watchet_metrics::Metrics;
//! use watchet_storage::memory::Memory;
//! use watchet_storage::{Expect, Put, Storage};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let configuration: EncryptionConfiguration = "
//! apiVersion: apiserver.config.k8s.io/v1
//! kind: EncryptionConfiguration
//! resources:
//! - resources: [secrets]
//!   providers:
//!   - aesgcm: {keys: [{name: key1, secret: c2VjcmV0IGlzIHNlY3VyZQ==}]}
//! ".parse()?;
//! let encryption = Encryption::new(configuration, "/registry", Metrics::new()).await?;
//!
//! let store = Memory::new(Duration::from_secs(300))?;
//! let secrets = EncryptedStorage::new(encryption, "", "secrets", store.clone());
//! let key = StorageKey::new("/secrets/default/password")?;
//! secrets.put(Put { key: key.clone(), value: "{}".into(), expect: Expect::Absent, ttl: None }).await?;
//!
//! let (item, _) = secrets.get(&key).await?;
//! assert_eq!(item.expect("it is stored").value, "{}");
//! let (item, _) = store.get(&key).await?;
//! assert!(item.expect("it is stored").value.starts_with(b"k8s:enc:aesgcm:v1:key1:"));
//! # Ok(())
//! # }
//! ```

mod ciphers;
mod configuration;
mod encrypted_storage;
mod encryption;
#[cfg(feature = "kms")]
mod kms;
#[cfg(test)]
mod tests;
mod transformer;

pub use configuration::{EncryptionConfiguration, InvalidConfiguration};
pub use encrypted_storage::EncryptedStorage;
pub use encryption::{ActivationError, Encryption};
