//! The provider `kms` with API version v2 (KEP-3299): values are encrypted with keys that derive from a seed. The seed
//! stays in memory; each stored value contains the seed as the plugin has encrypted it.

mod data_key;
mod encrypted_object;
mod plugin;
mod provider;
#[cfg(test)]
mod tests;

pub(crate) use provider::KmsProvider;

/// The error of a call of a plugin, or of a value of its provider.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum KmsError {
    /// The plugin cannot be reached or reports an error: a later attempt may succeed.
    #[error("KMS provider {provider}: {detail}")]
    Unavailable { provider: String, detail: String },
    /// The stored value does not have the format of this provider.
    #[error("KMS provider {provider}: {detail}")]
    InvalidValue { provider: String, detail: String },
}
