//! Tests of the validation of certificate requests and of their approval.

use serde_json::{Value, json};

use super::*;

fn texts_of(check: impl FnOnce(&mut Causes)) -> Vec<String> {
    let mut causes = Causes::default();
    check(&mut causes);
    let causes = causes.into_vec().into_iter();
    causes
        .map(|c| format!("{}: {}", c.field, c.message))
        .collect()
}

fn of_new(spec: Value) -> Vec<String> {
    let object = json!({ "spec": spec });
    texts_of(|causes| request(object.as_object().unwrap(), causes))
}

fn good() -> Value {
    let key = rcgen::KeyPair::generate().unwrap();
    let parameters = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    let request = parameters.serialize_request(&key).unwrap().pem().unwrap();
    json!({"request": STANDARD.encode(request), "usages": ["client auth"],
        "signerName": "example.com/signer"})
}

/// Requests with a key of 521 bits, and with some hash algorithms, were refused.
#[test]
fn a_request_is_signed_with_any_key_that_go_knows() {
    let with = |pem: &str| {
        let mut spec = good();
        spec["request"] = STANDARD.encode(pem).into();
        of_new(spec)
    };
    for algorithm in [
        &rcgen::PKCS_ECDSA_P256_SHA256,
        &rcgen::PKCS_ECDSA_P384_SHA384,
        &rcgen::PKCS_ECDSA_P521_SHA256,
        &rcgen::PKCS_ECDSA_P521_SHA384,
        &rcgen::PKCS_ECDSA_P521_SHA512,
        &rcgen::PKCS_ED25519,
    ] {
        let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
        let parameters = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        let request = parameters.serialize_request(&key).unwrap();
        assert_eq!(with(&request.pem().unwrap()), [""; 0], "{algorithm:?}");
        // The last bytes are part of the signature.
        let mut forged = request.der().to_vec();
        *forged.last_mut().unwrap() ^= 1;
        let forged = STANDARD.encode(forged);
        let forged = format!(
            "-----BEGIN CERTIFICATE REQUEST-----\n{forged}\n-----END CERTIFICATE REQUEST-----\n"
        );
        let problems = with(&forged);
        assert!(
            problems[0].contains("signature"),
            "{algorithm:?}: {problems:?}"
        );
    }
    for made_by_openssl in [RSA_1024, P256_SHA512, P384_SHA512] {
        assert_eq!(with(made_by_openssl), [""; 0]);
    }
}

const RSA_1024: &str = "\
-----BEGIN CERTIFICATE REQUEST-----
MIIBSzCBtQIBADAMMQowCAYDVQQDDAFhMIGfMA0GCSqGSIb3DQEBAQUAA4GNADCB
iQKBgQDOJ7k3UmNIVqKVsI7aMUpGBinjG3OhHSxwXwTXu6wouDsEA9Md6f9N6XFy
q/N+0PXAkPL/Op9c2WQlZLew8fp4Q66Q1ejQC+nL+Q9ukX0v6vX903zmDzb4FSll
tqtH0in9T7ziXZVUs+VrE0+RTg6iAhXXQxjGivENj/6W/t6ccwIDAQABoAAwDQYJ
KoZIhvcNAQELBQADgYEAs+k94N4YVCmoJR3PL2F69yr3LpyM2aa4ftPC7wDahFKF
RQVKhbKxD65qEWh6qL4NFkbBumsVcQYd27CLCQ52lrlv5pUcThAr07VBhXK4un2u
BAsU6Mh9dPkWj7SHyUQOFLQ/TdJPaEBOcOTJUBQryeORj4Xtz+bglaiIBYRnRys=
-----END CERTIFICATE REQUEST-----
";
const P256_SHA512: &str = "\
-----BEGIN CERTIFICATE REQUEST-----
MIHGMG4CAQAwDDEKMAgGA1UEAwwBYTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IA
BD0LNB60a5Lan7qkxBZbP1coN4TYPsdq/dGXop6I1oQmEhfUs38v+9rq62aLGzjr
mGf1KBkJxcejdjzpTtixvIugADAKBggqhkjOPQQDBANIADBFAiAuTfmFsEb807ya
9/OD6B8HW6CcDdx+pZL3R/4MlsO1SQIhANkvMCI2Pw4iGi0BlRXaoe5fWjI1TR+G
RQoxytTX0ein
-----END CERTIFICATE REQUEST-----
";
const P384_SHA512: &str = "\
-----BEGIN CERTIFICATE REQUEST-----
MIIBBDCBiwIBADAMMQowCAYDVQQDDAFhMHYwEAYHKoZIzj0CAQYFK4EEACIDYgAE
a5XG7wA0EUtbDDLUtqwdfCZa59w7R5I7tIba0U2yRVt0uMD9k8d02Atmq+q1WZZ1
5JenIPHON4MnA+Lzcrfy/yjIIC+u1m7jVQhvBv8aNrikYNlZadLXSWVKT+SfJTHl
oAAwCgYIKoZIzj0EAwQDaAAwZQIxANc/84ENoJAp/Fw4k6i3N9M+Pb1GuMQDDUF9
miCAIymTTqqxXvauW19QmLCUSw9DJQIwRmIJQ5m+KnVICYz525FNJhqXxSFazjFV
dLp6MBj99ujgopWAXLoY77ue5kHqrm1g
-----END CERTIFICATE REQUEST-----
";

#[test]
fn request_usages_signer_and_expiration_are_validated() {
    assert_eq!(of_new(good()), [""; 0]);
    let all = of_new(json!({"request": "bm9uZQ=="}));
    assert_eq!(
        all,
        [
            "spec.request: Invalid value: \"bm9uZQ==\": PEM block type must be CERTIFICATE REQUEST",
            "spec.usages: Required value",
            "spec.signerName: Required value",
        ]
    );
    let mut other = good();
    other["usages"] = json!(["signing", "signing"]);
    other["expirationSeconds"] = json!(599);
    other["signerName"] = json!("kubernetes.io/legacy-unknown");
    assert_eq!(
        of_new(other),
        [
            "spec.usages[1]: Duplicate value: \"signing\"",
            "spec.signerName: Invalid value: \"kubernetes.io/legacy-unknown\": the legacy \
             signerName is not allowed via this API version",
            "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than \
             600 seconds (10 minutes)",
        ]
    );
    for (name, problem) in [
        ("example.com", "must be a fully qualified domain and path"),
        ("a.b/c/d", "must be a fully qualified domain and path"),
        ("example/x", "should be a domain with at least two segments"),
        ("A.b/x", "validating label \"A\""),
        ("a.b/X", "validating label \"X\""),
    ] {
        let mut other = good();
        other["signerName"] = name.into();
        let all = of_new(other);
        assert!(all[0].contains(problem), "{name}: {all:?}");
    }
}

fn of_update(part: Option<&str>, old: Value, new: Value) -> Vec<String> {
    let wrap = |status| json!({ "status": status });
    let (old, new) = (wrap(old), wrap(new));
    texts_of(|causes| {
        update(
            part,
            old.as_object().unwrap(),
            new.as_object().unwrap(),
            causes,
        )
    })
}

#[test]
fn approval_conditions_are_immutable_and_need_the_approval_subresource() {
    let with = |kinds: &[&str]| {
        let all = kinds
            .iter()
            .map(|kind| json!({"type": kind, "status": "True"}));
        json!({"conditions": all.collect::<Vec<_>>()})
    };
    let approval = Some("approval");
    assert_eq!(of_update(approval, json!({}), with(&["Approved"])), [""; 0]);
    assert_eq!(
        of_update(approval, with(&["Approved"]), with(&["Approved", "Denied"])),
        [
            "status.conditions[1].type: Invalid value: \"Denied\": Approved and Denied conditions \
          are mutually exclusive"
        ]
    );
    assert_eq!(
        of_update(approval, with(&["Approved"]), json!({})),
        ["status.conditions: Forbidden: updates may not remove a condition of type \"Approved\""]
    );
    assert_eq!(
        of_update(Some("status"), json!({}), with(&["Denied"])),
        ["status.conditions: Forbidden: updates may not add a condition of type \"Denied\""]
    );
    assert_eq!(
        of_update(Some("status"), json!({}), with(&["Failed"])),
        [""; 0]
    );
    assert_eq!(
        of_update(
            Some("status"),
            json!({}),
            json!({"conditions": [{"type": "Failed", "status": "False"}]})
        ),
        ["status.conditions[0].status: Unsupported value: \"False\": supported values: \"True\""]
    );
}

#[test]
fn issued_certificate_is_pem_and_immutable() {
    let key = rcgen::KeyPair::generate().unwrap();
    let parameters = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    let pem = parameters.self_signed(&key).unwrap().pem();
    let given = |text: &str| json!({"certificate": STANDARD.encode(text)});
    let status = Some("status");
    assert_eq!(of_update(status, json!({}), given(&pem)), [""; 0]);
    for (part, old, new, problem) in [
        (
            None,
            json!({}),
            given(&pem),
            "may not set certificate content",
        ),
        (
            status,
            given("a"),
            given(&pem),
            "may not modify existing certificate content",
        ),
        (
            status,
            json!({}),
            given("a"),
            "must contain one or more CERTIFICATE PEM blocks",
        ),
        (
            status,
            json!({}),
            given(&key.serialize_pem()),
            "only CERTIFICATE PEM blocks are allowed",
        ),
    ] {
        let all = of_update(part, old, new);
        assert!(all.len() == 1 && all[0].contains(problem), "{all:?}");
    }
}
