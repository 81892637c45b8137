//! The server's own CA and the certificates it signs: created at the first start, stored in
//! `<data-dir>/pki`, recreated when they no longer match. Configured certificates are handled in
//! `tls`.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use jiff::{Span, Timestamp, Zoned, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData as _,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use crate::api::SYSTEM_MASTERS;
use crate::server::process::files::{self, FileError, PRIVATE, PUBLIC};
use crate::x509::CertificateAuthority;

/// The user of the admin credential, as in kubeadm.
pub(in crate::server) const ADMIN_USER: &str = "kubernetes-admin";
/// The file with the key that signs service account tokens.
const SERVICE_ACCOUNT_KEY: &str = "service-account.key";
/// The files of the certificates that are renewed.
pub(in crate::server) const LEAF_FILES: [&str; 4] =
    ["apiserver.crt", "apiserver.key", "admin.crt", "admin.key"];
/// The lifetime of a CA, as in kubeadm. It is never renewed: clients trust its certificate itself.
const CA_YEARS: i16 = 10;
/// The lifetime of leaf certificates: less than the 825 days that some platforms allow.
const LEAF_DAYS: i32 = 730;
/// Leaf certificates with less remaining are recreated.
const RENEWAL_DAYS: i32 = 30;
/// Names by which clients in or near a cluster reach the API server.
const SERVING_NAMES: [&str; 6] = [
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "watchet",
];

/// A certificate and its private key, both PEM.
#[derive(Clone)]
pub(in crate::server) struct CertificateAndKey {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

impl std::fmt::Debug for CertificateAndKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CertificateAndKey")
    }
}

/// The content of the data directory's `pki`.
#[derive(Debug)]
pub(in crate::server) struct Pki {
    /// The CA certificate, PEM.
    pub ca: String,
    /// The CA with its key.
    pub signer: CertificateAuthority,
    /// The serving certificate.
    pub serving: CertificateAndKey,
    /// The client certificate of the admin's kubeconfig.
    pub admin: CertificateAndKey,
    /// The private key that signs service account tokens, PEM.
    pub service_account_key: String,
    /// Files that were created at this start.
    pub created: Vec<PathBuf>,
}

/// Why the certificates cannot be used or created.
#[derive(Debug, thiserror::Error)]
pub(in crate::server) enum PkiError {
    /// A file of the CA is unusable; replacing it would lock out every client.
    #[error(
        "{path:?} {problem}: restore it, or remove {} to get a new CA (clients then need the new \
         kubeconfig)", path.with_extension("*").display()
    )]
    Ca {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// The key that signs tokens is unusable.
    #[error(
        "{path:?} {problem}: restore it, or remove it to get a new one (tokens that it has signed are \
         then rejected)"
    )]
    ServiceAccountKey {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// A certificate could not be created.
    #[error("cannot create certificates: {0}")]
    Make(#[from] rcgen::Error),
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
}

impl PkiError {
    /// Creates the error about the service account key in `dir`.
    pub(in crate::server) fn service_account_key(dir: &Path, problem: String) -> Self {
        let path = dir.join(SERVICE_ACCOUNT_KEY);
        Self::ServiceAccountKey { path, problem }
    }
}

/// The requirements of a leaf certificate.
#[derive(Debug)]
struct Purpose {
    common_name: &'static str,
    organization: Option<&'static str>,
    usage: ExtendedKeyUsagePurpose,
    names: Vec<String>,
}

/// The names and addresses of a server, besides those that every server has.
#[derive(Debug, Clone)]
pub(in crate::server) struct ServingNames {
    /// The address on which it listens.
    pub address: IpAddr,
    /// The host's name.
    pub hostname: Option<String>,
    /// Further ones.
    pub extra: Vec<String>,
}

/// Loads the files in `dir`, and creates those that are missing, expire soon or lack one of `names`.
///
/// # Errors
/// The CA is damaged, or the directory cannot be written.
pub(in crate::server) fn load_or_create(
    dir: &Path,
    names: &ServingNames,
    now: Timestamp,
) -> Result<Pki, PkiError> {
    files::make_private_dir(dir)?;
    let mut created = Vec::new();
    let (ca, issuer) = load_or_create_ca(dir, now, &mut created)?;
    let serving = Purpose {
        common_name: "watchet",
        organization: None,
        usage: ExtendedKeyUsagePurpose::ServerAuth,
        names: names.all(),
    };
    let admin = Purpose {
        common_name: ADMIN_USER,
        organization: Some(SYSTEM_MASTERS),
        usage: ExtendedKeyUsagePurpose::ClientAuth,
        names: Vec::new(),
    };
    let service_account_key = load_or_create_service_account_key(dir, &mut created)?;
    let mut leaf =
        |name, purpose| load_or_create_leaf(dir, name, purpose, &ca, &issuer, now, &mut created);
    let serving = leaf("apiserver", &serving)?;
    let admin = leaf("admin", &admin)?;
    let der = CertificateDer::from_pem_slice(ca.as_bytes()).map_err(|error| PkiError::Ca {
        path: dir.join("ca.crt"),
        problem: format!("has no certificate ({error})"),
    })?;
    Ok(Pki {
        serving,
        admin,
        ca,
        signer: CertificateAuthority::new(der, issuer),
        service_account_key,
        created,
    })
}

/// Loads or creates the key. A damaged one is not replaced: that would invalidate every token.
fn load_or_create_service_account_key(
    dir: &Path,
    created: &mut Vec<PathBuf>,
) -> Result<String, PkiError> {
    let path = dir.join(SERVICE_ACCOUNT_KEY);
    if let Some(key) = files::read_if_exists(&path)? {
        return Ok(key);
    }
    let key = KeyPair::generate()?.serialize_pem();
    files::write_synced(&path, key.as_bytes(), PRIVATE)?;
    created.push(path);
    Ok(key)
}

impl ServingNames {
    /// Returns the names and addresses that a serving certificate must have.
    fn all(&self) -> Vec<String> {
        let mut names: Vec<String> = SERVING_NAMES.map(str::to_owned).to_vec();
        // A host name may be invalid in a certificate.
        let is_valid = |name: &&String| {
            !name.is_empty() && CertificateParams::new(vec![(*name).clone()]).is_ok()
        };
        let hostname = self.hostname.as_ref().filter(is_valid);
        names.extend(hostname.map(|name| name.to_lowercase()));
        names.extend(["127.0.0.1".to_owned(), "::1".to_owned()]);
        if !self.address.is_unspecified() {
            names.push(self.address.to_string());
        }
        names.extend(self.extra.iter().cloned());
        names.sort();
        names.dedup();
        names
    }
}

fn load_or_create_ca(
    dir: &Path,
    now: Timestamp,
    created: &mut Vec<PathBuf>,
) -> Result<(String, Issuer<'static, KeyPair>), PkiError> {
    let (certificate_path, key_path) = (dir.join("ca.crt"), dir.join("ca.key"));
    let certificate = files::read_if_exists(&certificate_path)?;
    let key = files::read_if_exists(&key_path)?;
    let damaged = |path: &Path, problem: String| PkiError::Ca {
        path: path.to_owned(),
        problem,
    };
    match (certificate, key) {
        (Some(certificate), Some(key)) => {
            let pair = KeyPair::from_pem(&key)
                .map_err(|error| damaged(&key_path, format!("has no private key ({error})")))?;
            let issuer = ca_issuer(&certificate, pair, now)
                .map_err(|problem| damaged(&certificate_path, problem))?;
            Ok((certificate, issuer))
        }
        // The key is written first: a key alone means that the first start was interrupted.
        (None, _) => {
            let (certificate, key, issuer) = create_ca(now)?;
            files::write_synced(&key_path, key.as_bytes(), PRIVATE)?;
            files::write_synced(&certificate_path, certificate.as_bytes(), PUBLIC)?;
            created.extend([key_path, certificate_path]);
            Ok((certificate, issuer))
        }
        (Some(_), None) => Err(damaged(&key_path, "is missing".to_owned())),
    }
}

/// Returns the CA as an issuer.
fn ca_issuer(
    certificate: &str,
    key: KeyPair,
    now: Timestamp,
) -> Result<Issuer<'static, KeyPair>, String> {
    let der = CertificateDer::from_pem_slice(certificate.as_bytes())
        .map_err(|error| format!("has no certificate ({error})"))?;
    let (_, parsed) =
        X509Certificate::from_der(&der).map_err(|error| format!("is damaged ({error})"))?;
    if parsed.public_key().subject_public_key.data != key.der_bytes() {
        return Err("does not belong to ca.key".to_owned());
    }
    if parsed.validity().not_after.timestamp() <= now.as_second() {
        return Err("has expired".to_owned());
    }
    Issuer::from_ca_cert_der(&der, key).map_err(|error| format!("cannot sign ({error})"))
}

fn create_ca(now: Timestamp) -> Result<(String, String, Issuer<'static, KeyPair>), PkiError> {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, "watchet-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
    ];
    set_validity(&mut params, now, Span::new().years(CA_YEARS));
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?.pem();
    let key_pem = key.serialize_pem();
    Ok((certificate, key_pem, Issuer::new(params, key)))
}

/// Creates a serving certificate for a server at `address`, signed by a CA that signs nothing else.
/// The file also has that CA's certificate, so that clients can trust the file.
///
/// # Errors
/// The certificate cannot be created.
pub(in crate::server) fn create_self_signed(
    address: IpAddr,
    now: Timestamp,
) -> Result<CertificateAndKey, PkiError> {
    let (ca, _, issuer) = create_ca(now)?;
    let names = ServingNames {
        address,
        hostname: None,
        extra: Vec::new(),
    };
    let purpose = Purpose {
        common_name: "watchet",
        organization: None,
        usage: ExtendedKeyUsagePurpose::ServerAuth,
        names: names.all(),
    };
    let leaf = create_leaf(&purpose, &issuer, now)?;
    Ok(CertificateAndKey {
        certificate: leaf.certificate + &ca,
        key: leaf.key,
    })
}

fn load_or_create_leaf(
    dir: &Path,
    name: &str,
    purpose: &Purpose,
    ca: &str,
    issuer: &Issuer<'_, KeyPair>,
    now: Timestamp,
    created: &mut Vec<PathBuf>,
) -> Result<CertificateAndKey, PkiError> {
    let certificate_path = dir.join(name).with_extension("crt");
    let key_path = dir.join(name).with_extension("key");
    let certificate = files::read_if_exists(&certificate_path)?;
    if let (Some(certificate), Some(key)) = (certificate, files::read_if_exists(&key_path)?) {
        match recreation_reason(&certificate, &key, purpose, ca, now) {
            None => return Ok(CertificateAndKey { certificate, key }),
            Some(why) => {
                tracing::info!(path = %certificate_path.display(), why, "certificate recreated")
            }
        }
    }
    let credential = create_leaf(purpose, issuer, now)?;
    files::write(&key_path, credential.key.as_bytes(), PRIVATE)?;
    files::write(&certificate_path, credential.certificate.as_bytes(), PUBLIC)?;
    created.extend([key_path, certificate_path]);
    Ok(credential)
}

fn create_leaf(
    purpose: &Purpose,
    issuer: &Issuer<'_, KeyPair>,
    now: Timestamp,
) -> Result<CertificateAndKey, PkiError> {
    let mut params = CertificateParams::new(purpose.names.clone())?;
    let subject = &mut params.distinguished_name;
    subject.push(DnType::CommonName, purpose.common_name);
    if let Some(organization) = purpose.organization {
        subject.push(DnType::OrganizationName, organization);
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose.usage.clone()];
    params.use_authority_key_identifier_extension = true;
    set_validity(&mut params, now, Span::new().days(LEAF_DAYS));
    let key = KeyPair::generate()?;
    Ok(CertificateAndKey {
        certificate: params.signed_by(&key, issuer)?.pem(),
        key: key.serialize_pem(),
    })
}

/// Sets the validity: from an hour ago, for clocks that are behind, in whole days, because a finer
/// granularity would need another dependency.
fn set_validity(params: &mut CertificateParams, now: Timestamp, span: Span) {
    let day = |at: Zoned| {
        let date = at.date();
        rcgen::date_time_ymd(
            date.year().into(),
            date.month().unsigned_abs(),
            date.day().unsigned_abs(),
        )
    };
    let now = now.to_zoned(TimeZone::UTC);
    params.not_before = day(now.saturating_sub(Span::new().hours(1)));
    params.not_after = day(now.saturating_add(span));
}

/// Returns why an existing certificate must be recreated, if so.
fn recreation_reason(
    certificate: &str,
    key: &str,
    purpose: &Purpose,
    ca: &str,
    now: Timestamp,
) -> Option<&'static str> {
    let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).ok();
    let (Some(certificate), Some(ca)) = (der(certificate), der(ca)) else {
        return Some("it is damaged");
    };
    let (Ok((_, certificate)), Ok((_, ca)), Ok(key)) = (
        X509Certificate::from_der(&certificate),
        X509Certificate::from_der(&ca),
        KeyPair::from_pem(key),
    ) else {
        return Some("it is damaged");
    };
    if certificate.public_key().subject_public_key.data != key.der_bytes() {
        return Some("its key belongs to another certificate");
    }
    if certificate.verify_signature(Some(ca.public_key())).is_err() {
        return Some("it is signed by another CA");
    }
    let renewal = now.as_second() + i64::from(RENEWAL_DAYS) * 24 * 3600;
    if certificate.validity().not_after.timestamp() < renewal {
        return Some("it expires soon");
    }
    let names = subject_names(&certificate);
    if !purpose.names.iter().all(|name| names.contains(name)) {
        return Some("it lacks a name or an address");
    }
    None
}

/// Returns the DNS names and IP addresses of a certificate.
pub(in crate::server) fn subject_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(extension)) = certificate.subject_alternative_name() else {
        return Vec::new();
    };
    let names = extension.value.general_names.iter();
    names
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_lowercase()),
            GeneralName::IPAddress(octets) => match octets.len() {
                4 => <[u8; 4]>::try_from(*octets)
                    .ok()
                    .map(|octets| IpAddr::from(octets).to_string()),
                16 => <[u8; 16]>::try_from(*octets)
                    .ok()
                    .map(|octets| IpAddr::from(octets).to_string()),
                _ => None,
            },
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests;
