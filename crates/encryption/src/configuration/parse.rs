//! Reads a configuration from YAML or JSON. As upstream, unknown fields are errors.

use std::str::FromStr;

use super::document::{Document, Identity, InvalidConfiguration, Keys, Kms, Provider};
use super::validation::validate;
use super::{
    EncryptionConfiguration, GroupResource, Key, KmsConfiguration, ProviderConfiguration, Rule,
};

const API_VERSION: &str = "apiserver.config.k8s.io/v1";
const KIND: &str = "EncryptionConfiguration";

impl FromStr for EncryptionConfiguration {
    type Err = InvalidConfiguration;

    /// Reads a configuration.
    ///
    /// # Errors
    /// The text is not YAML, has another kind or an unknown field; or all problems of its fields.
    fn from_str(text: &str) -> Result<Self, InvalidConfiguration> {
        let options = serde_saphyr::options! { with_snippet: false };
        let document: Document = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| InvalidConfiguration(error.to_string()))?;
        if document.kind != KIND || document.api_version != API_VERSION {
            let (given, kind) = (&document.api_version, &document.kind);
            return Err(InvalidConfiguration(format!(
                "apiVersion is {given:?} and kind is {kind:?}: must be {API_VERSION:?} and {KIND:?}"
            )));
        }
        validate(&document)?;
        let rules = document.resources.iter().map(|rule| Rule {
            resources: rule
                .resources
                .iter()
                .map(|name| GroupResource::parse(name))
                .collect(),
            providers: rule.providers.iter().filter_map(Provider::valid).collect(),
        });
        Ok(Self {
            rules: rules.collect(),
        })
    }
}

impl Provider {
    /// Returns the provider, which has been validated.
    fn valid(&self) -> Option<ProviderConfiguration> {
        let given = (
            &self.aescbc,
            &self.aesgcm,
            &self.secretbox,
            &self.kms,
            &self.identity,
        );
        match given {
            (Some(keys), ..) => Some(ProviderConfiguration::AesCbc(keys.valid())),
            (_, Some(keys), ..) => Some(ProviderConfiguration::AesGcm(keys.valid())),
            (_, _, Some(keys), ..) => Some(ProviderConfiguration::Secretbox(keys.valid())),
            (_, _, _, Some(kms), _) => Some(ProviderConfiguration::Kms(kms.valid()?)),
            (_, _, _, _, Some(Identity {})) => Some(ProviderConfiguration::Identity),
            _ => None,
        }
    }
}

impl Keys {
    fn valid(&self) -> Vec<Key> {
        let keys = self.keys.iter().filter_map(|key| {
            Some(Key {
                name: key.name.clone(),
                secret: key.decoded()?,
            })
        });
        keys.collect()
    }
}

impl Kms {
    fn valid(&self) -> Option<KmsConfiguration> {
        Some(KmsConfiguration {
            name: self.name.clone(),
            socket: self.socket()?.to_owned(),
            timeout: self.timeout()?,
        })
    }
}
