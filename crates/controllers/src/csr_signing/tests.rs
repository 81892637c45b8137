//! Tests of which requests are signed, by which signer, and for how long.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, SanType,
};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::*;

/// Returns a CA whose certificate expires at the end of 2040.
fn authority() -> CertificateAuthority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_after = rcgen::date_time_ymd(2041, 1, 1);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    CertificateAuthority::new(certificate, Issuer::new(params, key))
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Returns the `spec.request` of a client.
fn requested(organization: &str, name: &str, names: Vec<SanType>) -> Value {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::OrganizationName, organization);
    params.distinguished_name.push(DnType::CommonName, name);
    params.subject_alt_names = names;
    let key = KeyPair::generate().unwrap();
    let request = params.serialize_request(&key).unwrap().pem().unwrap();
    STANDARD.encode(request).into()
}

fn try_sign(signer: &str, request: &Value, usages: &[&str]) -> Result<(), (&'static str, String)> {
    let signer = Signer::named(&format!("kubernetes.io/{signer}")).unwrap();
    let spec = json!({"request": request, "usages": usages});
    sign(&authority(), signer, &spec, at("2026-01-01T00:00:00Z")).map(drop)
}

fn check_rejected(signer: &str, request: &Value, usages: &[&str], why: &str) {
    let expected = ("SignerValidationFailure", why.to_owned());
    assert_eq!(try_sign(signer, request, usages), Err(expected));
}

fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().unwrap())
}

#[test]
fn api_server_client_requests_are_checked() {
    let jane = requested("dev", "jane", vec![dns("a.example.com")]);
    let signer = "kube-apiserver-client";
    let all = ["digital signature", "key encipherment", "client auth"];
    assert_eq!(try_sign(signer, &jane, &all), Ok(()));
    assert_eq!(try_sign(signer, &jane, &all[2..]), Ok(()));
    let why = "missing required usage for client certificate: client auth";
    check_rejected(signer, &jane, &all[..2], why);
    let why = "invalid usage for client certificate: server auth";
    check_rejected(signer, &jane, &["client auth", "server auth"], why);
    check_rejected(
        signer,
        &json!("anVuaw=="),
        &all,
        "unable to parse csr: PEM block type must be CERTIFICATE REQUEST",
    );
    assert_eq!(try_sign("legacy-unknown", &jane, &["code signing"]), Ok(()));
    let (reason, why) = try_sign("legacy-unknown", &jane, &["all"]).unwrap_err();
    assert_eq!(reason, "SigningFailure");
    assert_eq!(why, r#"unrecognized usage values: ["all"]"#);
}

#[test]
fn kubelet_requests_are_checked() {
    let client = ["digital signature", "client auth"];
    let serving = ["key encipherment", "digital signature", "server auth"];
    let node = requested("system:nodes", "system:node:a", Vec::new());
    let named = requested("system:nodes", "system:node:a", vec![dns("a")]);
    let addressed = vec![SanType::IpAddress([10, 0, 0, 1].into())];
    let addressed = requested("system:nodes", "system:node:a", addressed);
    let mailed = vec![
        dns("a"),
        SanType::Rfc822Name("a@example.com".try_into().unwrap()),
    ];
    let mailed = requested("system:nodes", "system:node:a", mailed);
    let linked = vec![dns("a"), SanType::URI("urn:a".try_into().unwrap())];
    let linked = requested("system:nodes", "system:node:a", linked);
    let foreign = requested("dev", "system:node:a", vec![dns("a")]);
    let jane = requested("system:nodes", "jane", Vec::new());
    let jane_named = requested("system:nodes", "jane", vec![dns("a")]);

    let signer = "kube-apiserver-client-kubelet";
    assert_eq!(try_sign(signer, &node, &client), Ok(()));
    for (request, why) in [
        (&foreign, "subject organization is not system:nodes"),
        (&named, "DNS subjectAltNames are not allowed"),
        (&addressed, "IP subjectAltNames are not allowed"),
        (
            &jane,
            "subject common name does not begin with system:node:",
        ),
    ] {
        check_rejected(signer, request, &client, why);
    }
    let why = "usages did not match [client auth digital signature key encipherment]";
    check_rejected(signer, &node, &serving, why);

    let signer = "kubelet-serving";
    assert_eq!(try_sign(signer, &named, &serving), Ok(()));
    assert_eq!(try_sign(signer, &addressed, &serving[1..]), Ok(()));
    for (request, why) in [
        (&foreign, "subject organization is not system:nodes"),
        (&node, "DNS or IP subjectAltName is required"),
        (&mailed, "Email subjectAltNames are not allowed"),
        (&linked, "URI subjectAltNames are not allowed"),
        (
            &jane_named,
            "subject common name does not begin with system:node:",
        ),
    ] {
        check_rejected(signer, request, &serving, why);
    }
    let why = "usages did not match [digital signature key encipherment server auth]";
    check_rejected(signer, &named, &client, why);
}

#[test]
fn lifetime_is_as_requested_but_within_the_cas() {
    let now = at("2026-01-01T00:00:00Z");
    let authority = authority();
    for (seconds, until) in [
        (None, "2026-12-31T23:55:00Z"),
        (Some(86_400), "2026-01-01T23:55:00Z"),
        (Some(3_600), "2026-01-01T01:00:00Z"),
        (Some(1), "2026-01-01T00:10:00Z"),
        (Some(100 * 365 * 86_400), "2026-12-31T23:55:00Z"),
    ] {
        let (from, last) = validity(seconds, &authority, now).unwrap();
        assert_eq!(
            (from, last),
            (at("2025-12-31T23:55:00Z"), at(until)),
            "{seconds:?}"
        );
    }
    let late = validity(None, &authority, at("2040-12-01T00:00:00Z")).unwrap();
    assert_eq!(late.1, at("2041-01-01T00:00:00Z"));
    let error = validity(None, &authority, at("2041-01-01T00:00:00Z")).unwrap_err();
    assert!(
        error.starts_with("refusing to sign a certificate"),
        "{error}"
    );
}

#[test]
fn approved_unsigned_requests_are_due() {
    let request = |status: Value| {
        let spec = json!({"signerName": "kubernetes.io/kubelet-serving"});
        json!({"spec": spec, "status": status})
    };
    let conditions = |kinds: &[&str]| {
        let one = |kind: &&str| json!({"type": kind, "status": "True"});
        json!({"conditions": kinds.iter().map(one).collect::<Vec<_>>()})
    };
    let approved = conditions(&["Approved"]);
    assert_eq!(
        signer_if_due(&request(approved.clone())),
        Some(Signer::KubeletServing)
    );
    let mut signed = approved.clone();
    signed["certificate"] = "x".into();
    for status in [
        json!({}),
        conditions(&["Denied"]),
        conditions(&["Approved", "Failed"]),
        signed,
    ] {
        assert_eq!(signer_if_due(&request(status.clone())), None, "{status}");
    }
    let mut foreign = request(approved);
    foreign["spec"]["signerName"] = "example.com/signer".into();
    assert_eq!(signer_if_due(&foreign), None);
}

#[test]
fn certificates_are_pem() {
    let jane = requested("dev", "jane", Vec::new());
    let spec = json!({"request": jane, "usages": ["client auth"]});
    let now = at("2026-01-01T00:00:00Z");
    let der = sign(&authority(), Signer::ApiServerClient, &spec, now).unwrap();
    let pem = to_pem(&der);
    let block = x509_parser::pem::Pem::iter_from_buffer(pem.as_bytes())
        .next()
        .unwrap()
        .unwrap();
    assert_eq!(
        (&*block.label, &*block.contents),
        ("CERTIFICATE", der.as_ref())
    );
    assert!(pem.lines().all(|line| line.len() <= 64));
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    assert_eq!(certificate.subject().to_string(), "O=dev, CN=jane");
}
