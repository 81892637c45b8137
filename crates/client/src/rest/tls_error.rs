//! Converts TLS errors to messages that say what to check.

use std::error::Error;
use std::io;

use rustls::{AlertDescription, CertificateError, Error as TlsError, InvalidMessage};

/// Returns a message for the TLS error that `error` is or wraps; `None` if it is another error.
pub(super) fn tls_error_message(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(tls) = error.downcast_ref::<TlsError>() {
        return Some(message_of(tls));
    }
    // `io::Error::source` returns the source of the wrapped error, not the wrapped error itself.
    let contained = error.downcast_ref::<io::Error>()?.get_ref()?;
    tls_error_message(contained)
}

/// Returns a message for an error of a connection. For a TLS error the message says what to check.
///
/// ```
/// let error = std::io::Error::other(rustls::Error::InvalidCertificate(
///     rustls::CertificateError::UnknownIssuer,
/// ));
/// let message = watchet_client::connection_error_message(&error);
/// assert!(message.starts_with("the certificate of the server is signed by an unknown authority"));
/// ```
pub fn connection_error_message(error: &io::Error) -> String {
    tls_error_message(error).unwrap_or_else(|| error.to_string())
}

fn message_of(error: &TlsError) -> String {
    match error {
        TlsError::InvalidCertificate(reason) => certificate_message(reason),
        TlsError::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the server does not use TLS: check the port, or use a URL with http://".to_owned()
        }
        TlsError::AlertReceived(alert) => alert_message(*alert),
        other => format!("TLS: {other}"),
    }
}

fn certificate_message(reason: &CertificateError) -> String {
    match reason {
        // `BadSignature` is the error if a trusted CA has the same name and another key, e.g. that of an earlier server.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the certificate of the server is signed by an unknown authority: check that the certificate-authority of the \
             kubeconfig is that of this server"
                .to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the certificate of the server has expired, or the clock of this machine is wrong".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the certificate of the server is not valid yet, or the clock of this machine is wrong".to_owned()
        }
        other => format!("the certificate of the server is not accepted: {other}"),
    }
}

fn alert_message(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => {
            "the server requires a client certificate, and the user of the kubeconfig has none"
                .to_owned()
        }
        AlertDescription::BadCertificate
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown
        | AlertDescription::DecryptError
        | AlertDescription::UnknownCA
        | AlertDescription::UnsupportedCertificate => {
            format!("the server rejected the client certificate of the kubeconfig ({alert:?})")
        }
        AlertDescription::UnrecognisedName => {
            "the server has no certificate for this host name".to_owned()
        }
        other => format!("the server ended the TLS handshake ({other:?})"),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use crate::{ApiResource, DynamicObject, RestClient, RestConfig, RestError};

    async fn get(config: &RestConfig) -> RestError {
        let namespaces = ApiResource::cluster("", "v1", "namespaces", "Namespace");
        let client = RestClient::new(config).unwrap();
        let namespaces = client.resource::<DynamicObject>(namespaces);
        namespaces.get("a").await.unwrap_err()
    }

    /// Returns the error of a request to a server that responds with `bytes`, with this scheme.
    async fn error(scheme: &str, bytes: &[u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let config = RestConfig::new(format!("{scheme}://{address}"));
        let respond = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _read = stream.read(&mut [0; 4096]).await.unwrap();
            stream.write_all(bytes).await.unwrap();
        };
        let (error, ()) = tokio::join!(get(&config), respond);
        error.to_string()
    }

    /// rustls and hyper report "received corrupt message of type InvalidContentType" and "invalid HTTP version parsed".
    #[tokio::test]
    async fn a_wrong_scheme_is_named() {
        let to_plain = error("https", b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        assert!(
            to_plain.contains("the server does not use TLS"),
            "{to_plain}"
        );
        // The response of a TLS server to a request in plain text: a fatal alert, protocol_version.
        let to_tls = error("http", &[0x15, 3, 1, 0, 2, 2, 70]).await;
        assert!(to_tls.contains("the response is not HTTP"), "{to_tls}");
    }
}
