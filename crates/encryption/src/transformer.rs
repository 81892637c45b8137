//! `Transformer`: the providers of one resource, as upstream's transformers of stored values.

use std::fmt;
use std::sync::Arc;

use watchet_storage::encryption_prefix;

use crate::ciphers::{AesCbc, AesGcm, Cipher, CipherError, Secretbox};
use crate::configuration::{Key, ProviderConfiguration};
#[cfg(feature = "kms")]
use crate::kms::{KmsError, KmsProvider};

/// Encrypts and decrypts with one key, or with a KMS provider.
pub(crate) struct Provider {
    /// The prefix of the values that it encrypts.
    prefix: Vec<u8>,
    /// The prefix without the name of a key, for metrics.
    label: Arc<str>,
    kind: Kind,
}

enum Kind {
    Key(Box<dyn Cipher>),
    #[cfg(feature = "kms")]
    Kms(Arc<KmsProvider>),
    Identity,
}

/// The providers of a resource: the first one encrypts, all decrypt.
pub(crate) struct Transformer(pub(crate) Vec<Arc<Provider>>);

/// A value in the form in which the registry reads it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Decrypted {
    /// `None` if the stored value is not encrypted.
    pub(crate) value: Option<Vec<u8>>,
    /// True if another provider or key encrypts values now.
    pub(crate) is_stale: bool,
    /// The provider, for metrics.
    pub(crate) provider: Arc<str>,
}

/// A value in its stored form.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Encrypted {
    pub(crate) value: Vec<u8>,
    /// The provider, for metrics.
    pub(crate) provider: Arc<str>,
}

/// The error of a value that cannot be encrypted or decrypted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransformError {
    #[error("it is encrypted, and no provider of the EncryptionConfiguration has its prefix {0:?}")]
    NoProvider(String),
    #[error(
        "it is not encrypted, and the EncryptionConfiguration has no provider identity for its resource"
    )]
    NotEncrypted,
    #[error(transparent)]
    Cipher(#[from] CipherError),
    #[cfg(feature = "kms")]
    #[error(transparent)]
    Kms(#[from] KmsError),
}

impl TransformError {
    /// Returns true if a later attempt may succeed although neither the configuration nor the value changes.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            #[cfg(feature = "kms")]
            Self::Kms(error) => matches!(error, KmsError::Unavailable { .. }),
            _ => false,
        }
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = String::from_utf8_lossy(&self.prefix);
        f.debug_tuple("Provider").field(&prefix).finish()
    }
}

/// Returns the providers of a configured provider: one for each key.
pub(crate) fn providers(
    configuration: &ProviderConfiguration,
    #[cfg(feature = "kms")] kms: impl Fn(&str) -> Option<Arc<KmsProvider>>,
) -> Result<Vec<Arc<Provider>>, CipherError> {
    fn of_keys<C: Cipher + 'static>(
        name: &str,
        keys: &[Key],
        cipher: impl Fn(&[u8]) -> Result<C, CipherError>,
    ) -> Result<Vec<Arc<Provider>>, CipherError> {
        let label: Arc<str> = format!("k8s:enc:{name}:v1:").into();
        let of_key = |key: &Key| {
            Ok(Arc::new(Provider {
                prefix: format!("{label}{}:", key.name).into_bytes(),
                label: Arc::clone(&label),
                kind: Kind::Key(Box::new(cipher(&key.secret)?)),
            }))
        };
        keys.iter().map(of_key).collect()
    }
    match configuration {
        ProviderConfiguration::AesCbc(keys) => of_keys("aescbc", keys, AesCbc::new),
        ProviderConfiguration::AesGcm(keys) => of_keys("aesgcm", keys, AesGcm::new),
        ProviderConfiguration::Secretbox(keys) => of_keys("secretbox", keys, Secretbox::new),
        #[cfg(feature = "kms")]
        ProviderConfiguration::Kms(configuration) => {
            let provider = kms(&configuration.name).map(|provider| {
                let prefix = format!("k8s:enc:kms:v2:{}:", provider.name());
                Arc::new(Provider {
                    label: prefix.as_str().into(),
                    prefix: prefix.into_bytes(),
                    kind: Kind::Kms(provider),
                })
            });
            Ok(provider.into_iter().collect())
        }
        // The validation of the configuration rejects this.
        #[cfg(not(feature = "kms"))]
        ProviderConfiguration::Kms(_) => Ok(Vec::new()),
        ProviderConfiguration::Identity => Ok(vec![Arc::new(Provider {
            prefix: Vec::new(),
            label: "identity".into(),
            kind: Kind::Identity,
        })]),
    }
}

impl Provider {
    /// Returns the value without the prefix; `None` if this provider has not encrypted it.
    fn strip_prefix<'a>(&self, stored: &'a [u8]) -> Option<&'a [u8]> {
        match self.kind {
            Kind::Identity => encryption_prefix(stored).is_none().then_some(stored),
            _ => stored.strip_prefix(&self.prefix[..]),
        }
    }
}

impl Transformer {
    /// Encrypts a value for the storage key `context`; `None` if values are not encrypted.
    pub(crate) fn encrypt(
        &self,
        value: &[u8],
        context: &[u8],
    ) -> Result<Option<Encrypted>, TransformError> {
        let Some(provider) = self.0.first() else {
            return Ok(None);
        };
        let encrypted = match &provider.kind {
            Kind::Identity => return Ok(None),
            Kind::Key(cipher) => cipher.encrypt(value, context)?,
            #[cfg(feature = "kms")]
            Kind::Kms(kms) => kms.encrypt(value, context)?,
        };
        Ok(Some(Encrypted {
            value: [&provider.prefix[..], &encrypted].concat(),
            provider: Arc::clone(&provider.label),
        }))
    }

    /// Decrypts a stored value of the storage key `context`.
    ///
    /// # Errors
    /// No provider can decrypt it. As upstream, all providers with its prefix are tried: several keys can have the same
    /// name.
    pub(crate) async fn decrypt(
        &self,
        stored: &[u8],
        context: &[u8],
    ) -> Result<Decrypted, TransformError> {
        let mut first_error = None;
        for (index, provider) in self.0.iter().enumerate() {
            let Some(text) = provider.strip_prefix(stored) else {
                continue;
            };
            let is_other = index > 0;
            let decrypted = match &provider.kind {
                Kind::Identity => Ok((None, is_other)),
                Kind::Key(cipher) => match cipher.decrypt(text, context) {
                    Ok(value) => Ok((Some(value), is_other)),
                    Err(error) => Err(error.into()),
                },
                #[cfg(feature = "kms")]
                Kind::Kms(kms) => match kms.decrypt(text, context).await {
                    Ok(decrypted) => Ok((Some(decrypted.value), is_other || decrypted.is_stale)),
                    Err(error) => Err(error.into()),
                },
            };
            match decrypted {
                Ok((value, is_stale)) => {
                    return Ok(Decrypted {
                        value,
                        is_stale,
                        provider: Arc::clone(&provider.label),
                    });
                }
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        Err(
            first_error.unwrap_or_else(|| match encryption_prefix(stored) {
                Some(prefix) => TransformError::NoProvider(prefix),
                None => TransformError::NotEncrypted,
            }),
        )
    }
}
