//! The trusted certificates, and the verification for servers and clients: webpki verifies a chain first, and Go's
//! rules then verify a chain that webpki rejects.

use std::ops::RangeInclusive;
use std::sync::Arc;

use rustls::{CertificateError, Error, RootCertStore};
use rustls_pki_types::{CertificateDer, UnixTime};

use super::chain::{self, Anchors, Purpose};
use super::der::parse;

/// Trusted certificates.
#[derive(Debug)]
pub struct Trusted {
    /// The certificates that webpki parses.
    roots: Arc<RootCertStore>,
    /// The validity of each of `roots` in Unix seconds.
    validities: Vec<RangeInclusive<i64>>,
    anchors: Anchors,
    /// The number of certificates that cannot be parsed, and are not trusted.
    pub unusable: usize,
}

impl Trusted {
    fn none() -> Self {
        Self {
            roots: Arc::new(RootCertStore::empty()),
            validities: Vec::new(),
            anchors: Anchors::default(),
            unusable: 0,
        }
    }

    /// Trusts the `certificates` that can be parsed, as Go's certificate pools do.
    pub fn new(certificates: impl IntoIterator<Item = CertificateDer<'static>>) -> Self {
        let mut trusted = Self::none();
        for certificate in certificates {
            let (webpki, go) = trusted.add(certificate);
            trusted.unusable += usize::from(webpki.is_err() && go.is_err());
        }
        trusted
    }

    /// Trusts `certificates`.
    ///
    /// # Errors
    /// A certificate is unusable.
    pub(super) fn all(
        certificates: impl IntoIterator<Item = CertificateDer<'static>>,
    ) -> Result<Self, Error> {
        let mut trusted = Self::none();
        for certificate in certificates {
            let (webpki, go) = trusted.add(certificate);
            webpki?;
            go?;
        }
        Ok(trusted)
    }

    /// Trusts a certificate. Returns two results: whether webpki, and whether Go's rules can use it.
    fn add(
        &mut self,
        certificate: CertificateDer<'static>,
    ) -> (Result<(), Error>, Result<(), CertificateError>) {
        let validity = parse(&certificate).map(|parsed| {
            let validity = parsed.validity();
            validity.not_before.timestamp()..=validity.not_after.timestamp()
        });
        let webpki = Arc::make_mut(&mut self.roots).add(certificate.clone());
        if webpki.is_ok() {
            self.validities
                .push(validity.unwrap_or(i64::MIN..=i64::MAX));
        }
        (webpki, self.anchors.add(certificate))
    }

    /// Returns true if no certificate is trusted.
    pub fn is_empty(&self) -> bool {
        self.roots.is_empty() && self.anchors.is_empty()
    }

    /// Returns all certificates that webpki parses.
    pub(super) fn roots(&self) -> &Arc<RootCertStore> {
        &self.roots
    }

    /// Verifies that `leaf` is valid at `now` and that a chain leads from it to a trusted certificate. `webpki` runs
    /// the same verification in webpki, with the roots that it receives. Does not check names.
    ///
    /// # Errors
    /// The problem of the certificate.
    pub(super) fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        purpose: Purpose,
        now: UnixTime,
        webpki: impl FnOnce(Arc<RootCertStore>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Err(refused) = webpki(self.valid_roots(now)) else {
            return Ok(());
        };
        chain::verify(leaf, intermediates, &self.anchors, purpose, now)
            .map_err(|error| more_precise(refused, error))
    }

    /// Returns the roots that are valid at `now`. webpki does not check the validity of a root, Go does.
    fn valid_roots(&self, now: UnixTime) -> Arc<RootCertStore> {
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let is_valid = |validity: &RangeInclusive<i64>| validity.contains(&now);
        if self.validities.iter().all(is_valid) {
            return Arc::clone(&self.roots);
        }
        let roots = self.roots.roots.iter().zip(&self.validities);
        let valid = roots.filter(|(_, validity)| is_valid(validity));
        Arc::new(valid.map(|(root, _)| root.clone()).collect())
    }
}

/// Returns the error to report: that of webpki, which has more detail, unless Go does not have the rule, or the error
/// does not say why there is no chain.
fn more_precise(webpki: Error, go: CertificateError) -> Error {
    match webpki {
        Error::InvalidCertificate(CertificateError::Other(_) | CertificateError::UnknownIssuer) => {
            go.into()
        }
        webpki => webpki,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::CertificateParams;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::crypto::aws_lc_rs;
    use rustls::server::danger::ClientCertVerifier as _;
    use rustls_pki_types::ServerName;

    use super::super::testing::{self, Ca};
    use super::super::{ClientVerifier, ServerVerifier};
    use super::*;

    fn dated(mut params: CertificateParams, from: i32, until: i32) -> CertificateParams {
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        params
    }

    /// Returns the beginning of March of a year.
    fn in_year(year: u64) -> UnixTime {
        let days = (year - 1970) * 365 + (year - 1969) / 4 + 60;
        UnixTime::since_unix_epoch(Duration::from_secs(days * 24 * 3600))
    }

    /// Returns the results of both verifiers for a leaf of `ca` in a year.
    fn verdicts(roots: &[&Ca], ca: &Ca, year: u64) -> [Result<(), Error>; 2] {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let roots = || roots.iter().map(|root| root.der.clone());
        let mut params = dated(testing::named("leaf"), 2015, 2045);
        let name = rcgen::SanType::DnsName("a.example".try_into().unwrap());
        params.subject_alt_names = vec![name];
        let leaf = testing::leaf(&params, ca);
        let now = in_year(year);
        let clients = ClientVerifier::new(&provider, roots()).unwrap();
        let servers = ServerVerifier::new(Arc::new(Trusted::new(roots())), &provider);
        let name = ServerName::try_from("a.example").unwrap();
        [
            clients.verify_client_cert(&leaf, &[], now).map(drop),
            servers
                .verify_server_cert(&leaf, &[], &name, &[], now)
                .map(drop),
        ]
    }

    /// webpki ignores the validity of roots, so a chain to a root that has expired, or is not valid yet, was accepted.
    /// Go rejects it.
    #[test]
    fn a_root_that_is_not_valid_now_is_not_trusted() {
        let old = testing::root(dated(testing::authority("root"), 2020, 2030));
        let expired = || Err(CertificateError::Expired.into());
        let early = || Err(CertificateError::NotValidYet.into());
        assert_eq!(verdicts(&[&old], &old, 2025), [Ok(()), Ok(())]);
        assert_eq!(verdicts(&[&old], &old, 2031), [expired(), expired()]);
        assert_eq!(verdicts(&[&old], &old, 2019), [early(), early()]);
        // Another root that is valid is still trusted.
        let new = testing::root(dated(testing::authority("other"), 2028, 2040));
        assert_eq!(verdicts(&[&old, &new], &new, 2031), [Ok(()), Ok(())]);
        assert_eq!(verdicts(&[&old, &new], &old, 2031), [expired(), expired()]);
    }
}
