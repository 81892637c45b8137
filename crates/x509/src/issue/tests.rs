//! Tests that signed certificates equal their requests and are valid.

use std::time::Duration;

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls_pki_types::UnixTime;
use x509_parser::extensions::GeneralName;

use super::super::testing;
use super::super::{Anchors, Purpose, verify};
use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn profile(usages: &[&str]) -> Profile {
    Profile {
        usages: Usages::parse(usages).unwrap(),
        not_before: at("2025-12-31T23:55:00Z"),
        not_after: at("2050-06-30T12:30:01Z"),
    }
}

fn request(subject: &[(DnType, &str)], names: &[&str]) -> CertificateRequest {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = DistinguishedName::new();
    for (kind, text) in subject {
        params.distinguished_name.push(kind.clone(), *text);
    }
    let key = KeyPair::generate().unwrap();
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    CertificateRequest::from_pem(pem.as_bytes()).unwrap()
}

#[test]
fn certificate_equals_its_request() {
    let ca = testing::root(testing::authority("root"));
    let authority = CertificateAuthority::new(ca.der.clone(), ca.issuer);
    let subject = [
        (DnType::OrganizationName, "dev"),
        (DnType::CommonName, "jane"),
    ];
    let request = request(&subject, &["a.example.com", "10.0.0.1"]);
    assert_eq!(request.common_names, ["jane"]);
    assert_eq!(request.organizations, ["dev"]);
    let profile = profile(&["client auth", "digital signature", "key encipherment"]);
    let der = authority.sign(&request, &profile).unwrap();
    let mut anchors = Anchors::default();
    anchors.add(ca.der).unwrap();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(1_767_225_600));
    verify(&der, &[], &anchors, Purpose::ClientAuth, now).unwrap();
    verify(&der, &[], &anchors, Purpose::ServerAuth, now).unwrap_err();

    let certificate = parse(&der).unwrap();
    assert_eq!(certificate.subject().to_string(), "O=dev, CN=jane");
    let validity = certificate.validity();
    assert_eq!(
        validity.not_before.timestamp(),
        profile.not_before.as_second()
    );
    assert_eq!(
        validity.not_after.timestamp(),
        profile.not_after.as_second()
    );
    assert_eq!(certificate.public_key().raw, request.key);
    assert!(!certificate.is_ca());
    let usage = certificate.key_usage().unwrap().unwrap();
    assert!(usage.critical && usage.value.digital_signature() && usage.value.key_encipherment());
    assert!(!usage.value.key_cert_sign());
    let names = certificate.subject_alternative_name().unwrap().unwrap();
    assert_eq!(
        names.value.general_names,
        [
            GeneralName::DNSName("a.example.com"),
            GeneralName::IPAddress(&[10, 0, 0, 1])
        ]
    );
    let other = authority.sign(&request, &profile).unwrap();
    assert_ne!(
        parse(&other).unwrap().raw_serial(),
        certificate.raw_serial()
    );
}

#[test]
fn usages_are_bits_and_object_identifiers() {
    let usages = Usages::parse(&["signing", "digital signature"]).unwrap();
    assert_eq!(usages.key_usage().unwrap(), [3, 2, 7, 0x80]);
    assert_eq!(usages.extended(), None);
    let usages = Usages::parse(&["decipher only", "cert sign"]).unwrap();
    assert_eq!(usages.key_usage().unwrap(), [3, 3, 7, 0x04, 0x80]);
    let usages = Usages::parse(&["s/mime", "any", "email protection"]).unwrap();
    assert_eq!(usages.key_usage(), None);
    assert_eq!(usages.extended().unwrap().len(), 2 + 6 + 10);
    assert_eq!(
        Usages::parse(&["signing", "everything"]),
        Err(r#"unrecognized usage values: ["everything"]"#.to_owned())
    );
}

#[test]
fn request_must_be_signed_by_its_key() {
    let pem = "-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n";
    assert!(CertificateRequest::from_pem(pem.as_bytes()).is_err());
    let error = CertificateRequest::from_pem(b"junk").unwrap_err();
    assert_eq!(error, "PEM block type must be CERTIFICATE REQUEST");
}
