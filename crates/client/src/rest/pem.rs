//! Certificates and keys in PEM, as data or as a file.

use std::path::PathBuf;

/// A client certificate with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate chain, leaf first.
    pub certificate: Pem,
    /// The private key.
    pub key: Pem,
}

/// Certificates or a key in PEM, or their file.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pem {
    /// Fixed PEM data.
    Text(Vec<u8>),
    /// A file that may be rotated: it is read again every minute and after a failed request.
    /// Existing connections continue for requests in progress; new requests use new connections.
    File(PathBuf),
}

impl Pem {
    /// Returns the PEM data.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::File(path) => std::fs::read(path).map_err(|error| format!("{path:?}: {error}")),
        }
    }

    /// Returns the PEM data, without blocking the thread.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(super) async fn read_again(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::File(path) => {
                let read = tokio::fs::read(path).await;
                read.map_err(|error| format!("{path:?}: {error}"))
            }
        }
    }
}

impl From<String> for Pem {
    fn from(text: String) -> Self {
        Self::Text(text.into_bytes())
    }
}

impl std::fmt::Debug for Pem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Text(..)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}
