//! The provider `kms` with API version v2 (KEP-3299): values are encrypted with keys that derive from a seed. The seed
//! stays in memory; its encrypted form, which a plugin makes, is stored with each value.

mod data_key;
mod encrypted_object;
mod plugin;
mod provider;
#[cfg(test)]
mod tests;

pub(crate) use provider::KmsProvider;

/// Why a call of a plugin, or a value that needs it, failed.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum KmsError {
    /// The plugin cannot be reached or reports an error: a later attempt may succeed.
    #[error("KMS provider {provider}: {detail}")]
    Unavailable { provider: String, detail: String },
    /// The stored value is not what this provider writes.
    #[error("KMS provider {provider}: {detail}")]
    InvalidValue { provider: String, detail: String },
}
