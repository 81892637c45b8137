//! `EncryptionConfiguration` (`apiserver.config.k8s.io/v1`): the encrypted resources and their providers.

mod document;
mod parse;
mod resources;
#[cfg(test)]
mod tests;
mod validation;

use std::fmt;
use std::time::Duration;

pub use document::InvalidConfiguration;
pub(crate) use resources::GroupResource;

/// A valid configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncryptionConfiguration {
    pub(crate) rules: Vec<Rule>,
}

impl EncryptionConfiguration {
    /// Returns the indices of the rules of a resource; none if the resource is not encrypted. As upstream, the
    /// resource's own rules come first, then those of `*.group`, then those of `*.*`: only the first of these that exist
    /// apply.
    pub(crate) fn rules_of(&self, group: &str, resource: &str) -> Vec<usize> {
        let of = |group: &str, resource: &str| -> Vec<usize> {
            let is_of = |rule: &Rule| rule.resources.iter().any(|one| one.is(group, resource));
            let rules = self.rules.iter().enumerate();
            let indices = rules.filter_map(|(index, rule)| is_of(rule).then_some(index));
            indices.collect()
        };
        let candidates = [(group, resource), (group, "*"), ("*", "*")];
        let mut rules = candidates
            .into_iter()
            .map(|(group, resource)| of(group, resource));
        rules.find(|of| !of.is_empty()).unwrap_or_default()
    }

    /// Returns the KMS providers of all rules; their names are unique.
    #[cfg(feature = "kms")]
    pub(crate) fn kms(&self) -> impl Iterator<Item = &KmsConfiguration> {
        let providers = self.rules.iter().flat_map(|rule| &rule.providers);
        providers.filter_map(|provider| match provider {
            ProviderConfiguration::Kms(kms) => Some(kms),
            _ => None,
        })
    }
}

/// An element of `resources`: providers of some resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) resources: Vec<GroupResource>,
    pub(crate) providers: Vec<ProviderConfiguration>,
}

/// A provider. The first one of a resource encrypts, all decrypt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProviderConfiguration {
    AesCbc(Vec<Key>),
    AesGcm(Vec<Key>),
    Secretbox(Vec<Key>),
    Kms(KmsConfiguration),
    /// Values are not encrypted.
    Identity,
}

/// A key. The first one of a provider encrypts, all decrypt.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Key {
    /// A part of the prefix of encrypted values.
    pub(crate) name: String,
    pub(crate) secret: Vec<u8>,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut key = f.debug_struct("Key");
        key.field("name", &self.name).finish_non_exhaustive()
    }
}

/// A KMS v2 plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KmsConfiguration {
    /// A part of the prefix of encrypted values.
    pub(crate) name: String,
    /// The path of the plugin's socket; `@name` is an abstract one.
    pub(crate) socket: String,
    /// The time limit of a call.
    pub(crate) timeout: Duration,
}
