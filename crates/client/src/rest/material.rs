//! The TLS material of a client that may be rotated: the CA and the client certificate with its
//! key.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::config::RestConfig;
use super::pem::{ClientCertificate, Pem};

/// How long files are not read again. Certificates are rotated long before they expire.
const AGE_MAX: Duration = Duration::from_secs(60);

/// The trusted CA and the client identity, in PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Material {
    /// `None` for the system's CAs.
    pub(super) authority: Option<Vec<u8>>,
    /// The client certificate.
    pub(super) identity: Option<Identity>,
}

/// A client certificate with its key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) certificate: Vec<u8>,
    pub(super) key: Vec<u8>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity(..)")
    }
}

/// The sources of a client's material.
#[derive(Debug)]
pub(super) struct Sources {
    authority: Option<Pem>,
    certificate: Option<ClientCertificate>,
    /// When the files were last read; `None` to force a read.
    read: Mutex<Option<Instant>>,
}

impl Sources {
    /// Creates the sources of `config`.
    pub(super) fn of(config: &RestConfig) -> Self {
        Self {
            authority: config.certificate_authority.clone(),
            certificate: config.client_certificate.clone(),
            read: Mutex::default(),
        }
    }

    /// Reads everything at startup; blocks.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn read(&self) -> Result<Material, String> {
        let [authority, certificate, key] = self.parts();
        let read = |pem: Option<&Pem>| pem.map(Pem::read).transpose();
        *self.read.lock() = Some(Instant::now());
        Ok(Material::new(
            read(authority)?,
            read(certificate)?,
            read(key)?,
        ))
    }

    /// Reads everything again; `None` if that was done recently, or nothing is in a file.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) async fn read_again(&self) -> Option<Result<Material, String>> {
        let parts = self.parts();
        if !parts.iter().any(|pem| matches!(pem, Some(Pem::File(_)))) {
            return None;
        }
        {
            let mut read = self.read.lock();
            if read.is_some_and(|read| read.elapsed() < AGE_MAX) {
                return None;
            }
            // Set first, so that concurrent requests do not read too, nor retry immediately if this
            // fails.
            *read = Some(Instant::now());
        }
        let mut texts = [None, None, None];
        for (text, pem) in texts.iter_mut().zip(parts) {
            if let Some(pem) = pem {
                match pem.read_again().await {
                    Ok(read) => *text = Some(read),
                    Err(error) => return Some(Err(error)),
                }
            }
        }
        let [authority, certificate, key] = texts;
        Some(Ok(Material::new(authority, certificate, key)))
    }

    /// Forces the next read after a failure that old files may have caused.
    pub(super) fn force_read(&self) {
        *self.read.lock() = None;
    }

    fn parts(&self) -> [Option<&Pem>; 3] {
        let certificate = self.certificate.as_ref();
        [
            self.authority.as_ref(),
            certificate.map(|shown| &shown.certificate),
            certificate.map(|shown| &shown.key),
        ]
    }
}

impl Material {
    fn new(authority: Option<Vec<u8>>, certificate: Option<Vec<u8>>, key: Option<Vec<u8>>) -> Self {
        let identity = certificate.zip(key);
        Self {
            authority,
            identity: identity.map(|(certificate, key)| Identity { certificate, key }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn files_are_read_again_after_a_while_or_a_failure() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca");
        let sources = Sources::of(&RestConfig {
            certificate_authority: Some(Pem::File(path.clone())),
            ..RestConfig::new("https://a")
        });
        assert!(sources.read().unwrap_err().contains("/ca\": No such file"));
        std::fs::write(&path, "one").unwrap();
        assert_eq!(sources.read().unwrap().authority.unwrap(), b"one");
        std::fs::write(&path, "two").unwrap();
        assert_eq!(sources.read_again().await, None, "read recently");
        tokio::time::advance(AGE_MAX).await;
        let again = sources.read_again().await.unwrap().unwrap();
        assert_eq!(again.authority.unwrap(), b"two");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(sources.read_again().await, None);
        sources.force_read();
        assert!(sources.read_again().await.unwrap().is_err());
        assert_eq!(sources.read_again().await, None, "read just now");
    }

    #[tokio::test]
    async fn fixed_data_is_never_read_again() {
        let sources = Sources::of(&RestConfig {
            certificate_authority: Some(Pem::Text(b"one".to_vec())),
            ..RestConfig::new("https://a")
        });
        sources.force_read();
        assert_eq!(sources.read_again().await, None);
    }
}
