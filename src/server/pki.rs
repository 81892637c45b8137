//! The server's own CA and the certificates it signs: made on the first start, kept in
//! `<data-dir>/pki`, made again when they no longer fit. Given certificates are `tls`'s matter, and
//! so is every handshake.

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

use super::files::{self, FileError, PRIVATE, PUBLIC};
use crate::api::SYSTEM_MASTERS;
use crate::x509::CertificateAuthority;

/// The admin credential's user, as kubeadm names it.
pub(super) const ADMIN_USER: &str = "kubernetes-admin";
/// What signs the tokens of service accounts.
const SERVICE_ACCOUNT_KEY: &str = "service-account.key";
/// How long a CA lives, as kubeadm's. Nobody renews it: clients trust it by value.
const CA_YEARS: i16 = 10;
/// How long what it signs lives: below the 825 days that some platforms accept at most.
const LEAF_DAYS: i32 = 730;
/// A certificate with less left is made again at start.
const RENEWAL_DAYS: i32 = 30;
/// Names that a client inside or beside a cluster uses for the API server.
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
pub(super) struct Credential {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credential")
    }
}

/// What the data directory's `pki` holds.
#[derive(Debug)]
pub(super) struct Pki {
    /// The CA's certificate, PEM.
    pub ca: String,
    /// The CA, which signs.
    pub signer: CertificateAuthority,
    /// For the server.
    pub serving: Credential,
    /// For the admin's kubeconfig.
    pub admin: Credential,
    /// The private key that signs tokens of service accounts, PEM.
    pub service_account_key: String,
    /// Files that were made by this start.
    pub made: Vec<PathBuf>,
}

/// The certificates cannot be used or made.
#[derive(Debug, thiserror::Error)]
pub(super) enum PkiError {
    /// A file is there that cannot be used, and making it again would cut off every client.
    #[error(
        "{path:?} {problem}: restore it, or remove {} to get a new CA (clients then need the new \
         kubeconfig)", path.with_extension("*").display()
    )]
    Ca {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The same of the key that signs tokens.
    #[error(
        "{path:?} {problem}: restore it, or remove it to get a new one (tokens that it has signed are \
         then refused)"
    )]
    ServiceAccountKey {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A certificate could not be made.
    #[error("cannot make certificates: {0}")]
    Make(#[from] rcgen::Error),
    /// A file failed.
    #[error(transparent)]
    File(#[from] FileError),
}

impl PkiError {
    /// One about the key of service accounts in `dir`.
    pub(super) fn service_account_key(dir: &Path, problem: String) -> Self {
        let path = dir.join(SERVICE_ACCOUNT_KEY);
        Self::ServiceAccountKey { path, problem }
    }
}

/// What a certificate must be good for.
#[derive(Debug)]
struct Purpose {
    common_name: &'static str,
    organization: Option<&'static str>,
    usage: ExtendedKeyUsagePurpose,
    names: Vec<String>,
}

/// Loads what is in `dir`, and makes what is missing or no longer fits a server at `address`.
///
/// # Errors
/// The CA is damaged, or the directory cannot be written.
pub(super) fn load_or_make(
    dir: &Path,
    address: IpAddr,
    hostname: Option<&str>,
    now: Timestamp,
) -> Result<Pki, PkiError> {
    files::make_private_dir(dir)?;
    let mut made = Vec::new();
    let (ca, issuer) = load_or_make_ca(dir, now, &mut made)?;
    let serving = Purpose {
        common_name: "watchet",
        organization: None,
        usage: ExtendedKeyUsagePurpose::ServerAuth,
        names: serving_names(address, hostname),
    };
    let admin = Purpose {
        common_name: ADMIN_USER,
        organization: Some(SYSTEM_MASTERS),
        usage: ExtendedKeyUsagePurpose::ClientAuth,
        names: Vec::new(),
    };
    let service_account_key = load_or_make_service_account_key(dir, &mut made)?;
    let mut leaf =
        |name, purpose| load_or_make_leaf(dir, name, purpose, &ca, &issuer, now, &mut made);
    let serving = leaf("apiserver", &serving)?;
    let admin = leaf("admin", &admin)?;
    let der = CertificateDer::from_pem_slice(ca.as_bytes()).map_err(|error| PkiError::Ca {
        path: dir.join("ca.crt"),
        problem: format!("holds no certificate ({error})"),
    })?;
    Ok(Pki {
        serving,
        admin,
        ca,
        signer: CertificateAuthority::new(der, issuer),
        service_account_key,
        made,
    })
}

/// The key is not made again by itself: that would end every token.
fn load_or_make_service_account_key(
    dir: &Path,
    made: &mut Vec<PathBuf>,
) -> Result<String, PkiError> {
    let path = dir.join(SERVICE_ACCOUNT_KEY);
    if let Some(key) = files::read_if_exists(&path)? {
        return Ok(key);
    }
    let key = KeyPair::generate()?.serialize_pem();
    files::write_synced(&path, key.as_bytes(), PRIVATE)?;
    made.push(path);
    Ok(key)
}

/// The names and addresses a serving certificate must have.
fn serving_names(address: IpAddr, hostname: Option<&str>) -> Vec<String> {
    let mut names: Vec<String> = SERVING_NAMES.map(str::to_owned).to_vec();
    // A host may be called what no certificate can say.
    let sayable =
        |name: &&str| !name.is_empty() && CertificateParams::new(vec![(*name).to_owned()]).is_ok();
    names.extend(hostname.filter(sayable).map(str::to_lowercase));
    names.extend(["127.0.0.1".to_owned(), "::1".to_owned()]);
    if !address.is_unspecified() {
        names.push(address.to_string());
    }
    names.sort();
    names.dedup();
    names
}

fn load_or_make_ca(
    dir: &Path,
    now: Timestamp,
    made: &mut Vec<PathBuf>,
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
                .map_err(|error| damaged(&key_path, format!("holds no private key ({error})")))?;
            let issuer = ca_issuer(&certificate, pair, now)
                .map_err(|problem| damaged(&certificate_path, problem))?;
            Ok((certificate, issuer))
        }
        // The key is written first: alone it means that a first start was cut off.
        (None, _) => {
            let (certificate, key, issuer) = make_ca(now)?;
            files::write_synced(&key_path, key.as_bytes(), PRIVATE)?;
            files::write_synced(&certificate_path, certificate.as_bytes(), PUBLIC)?;
            made.extend([key_path, certificate_path]);
            Ok((certificate, issuer))
        }
        (Some(_), None) => Err(damaged(&key_path, "is missing".to_owned())),
    }
}

/// The CA as an issuer, if it can be one.
fn ca_issuer(
    certificate: &str,
    key: KeyPair,
    now: Timestamp,
) -> Result<Issuer<'static, KeyPair>, String> {
    let der = CertificateDer::from_pem_slice(certificate.as_bytes())
        .map_err(|error| format!("holds no certificate ({error})"))?;
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

fn make_ca(now: Timestamp) -> Result<(String, String, Issuer<'static, KeyPair>), PkiError> {
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

/// Makes a serving certificate for a server at `address`, signed by a CA that signs nothing else. Its file
/// has that CA's certificate too, so that clients can trust the file.
///
/// # Errors
/// The certificate cannot be made.
pub(super) fn make_self_signed(address: IpAddr, now: Timestamp) -> Result<Credential, PkiError> {
    let (ca, _, issuer) = make_ca(now)?;
    let purpose = Purpose {
        common_name: "watchet",
        organization: None,
        usage: ExtendedKeyUsagePurpose::ServerAuth,
        names: serving_names(address, None),
    };
    let leaf = make_leaf(&purpose, &issuer, now)?;
    Ok(Credential {
        certificate: leaf.certificate + &ca,
        key: leaf.key,
    })
}

fn load_or_make_leaf(
    dir: &Path,
    name: &str,
    purpose: &Purpose,
    ca: &str,
    issuer: &Issuer<'_, KeyPair>,
    now: Timestamp,
    made: &mut Vec<PathBuf>,
) -> Result<Credential, PkiError> {
    let certificate_path = dir.join(name).with_extension("crt");
    let key_path = dir.join(name).with_extension("key");
    let certificate = files::read_if_exists(&certificate_path)?;
    if let (Some(certificate), Some(key)) = (certificate, files::read_if_exists(&key_path)?) {
        match misfit(&certificate, &key, purpose, ca, now) {
            None => return Ok(Credential { certificate, key }),
            Some(why) => {
                tracing::info!(path = %certificate_path.display(), why, "certificate is made again")
            }
        }
    }
    let credential = make_leaf(purpose, issuer, now)?;
    files::write(&key_path, credential.key.as_bytes(), PRIVATE)?;
    files::write(&certificate_path, credential.certificate.as_bytes(), PUBLIC)?;
    made.extend([key_path, certificate_path]);
    Ok(credential)
}

fn make_leaf(
    purpose: &Purpose,
    issuer: &Issuer<'_, KeyPair>,
    now: Timestamp,
) -> Result<Credential, PkiError> {
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
    Ok(Credential {
        certificate: params.signed_by(&key, issuer)?.pem(),
        key: key.serialize_pem(),
    })
}

/// From an hour ago, for clocks that are behind, for so long. Whole days: finer than that rcgen's
/// dates are of a crate that is no dependency otherwise.
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

/// Why a kept certificate is of no use any more, if so.
fn misfit(
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
        return Some("its key is another's");
    }
    if certificate.verify_signature(Some(ca.public_key())).is_err() {
        return Some("another CA signed it");
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

/// The DNS names and IP addresses that a certificate is for.
pub(super) fn subject_names(certificate: &X509Certificate<'_>) -> Vec<String> {
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
