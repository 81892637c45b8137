//! Certificates for TLS to etcd. The files exist as long as their directory.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// A CA, and the certificates of a server and a client that it signed.
pub(crate) struct TlsFiles {
    pub(crate) ca: PathBuf,
    pub(crate) server_cert: PathBuf,
    pub(crate) server_key: PathBuf,
    pub(crate) client_cert: PathBuf,
    pub(crate) client_key: PathBuf,
    _directory: tempfile::TempDir,
}

impl TlsFiles {
    /// Creates a new CA and new certificates.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let write = |name: &str, pem: String| {
            let path = directory.path().join(name);
            std::fs::write(&path, pem).expect("a file");
            path
        };
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key).expect("a certificate");
        let issuer = Issuer::new(params, key);
        let sign = |names: Vec<String>| {
            let key = KeyPair::generate().expect("a key");
            let params = CertificateParams::new(names).expect("valid names");
            let cert = params.signed_by(&key, &issuer).expect("a certificate");
            (cert.pem(), key.serialize_pem())
        };
        // rcgen encodes an IP address as such.
        let (server_cert, server_key) = sign(vec!["127.0.0.1".into()]);
        let (client_cert, client_key) = sign(vec!["client".into()]);
        Self {
            ca: write("ca.pem", authority.pem()),
            server_cert: write("server.pem", server_cert),
            server_key: write("server-key.pem", server_key),
            client_cert: write("client.pem", client_cert),
            client_key: write("client-key.pem", client_key),
            _directory: directory,
        }
    }
}
