//! Tests of which files are reused and which are recreated.

use super::*;

fn names(address: &str, hostname: &str) -> ServingNames {
    ServingNames {
        address: address.parse().unwrap(),
        hostname: Some(hostname.to_owned()),
        extra: Vec::new(),
    }
}

fn now() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap()
}

fn start(dir: &Path) -> Pki {
    load_or_create(dir, &names("127.0.0.1", "host-1"), now()).unwrap()
}

fn created(pki: &Pki) -> Vec<String> {
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    pki.created.iter().map(name).collect()
}

#[test]
fn a_second_start_reuses_everything() {
    let dir = tempfile::tempdir().unwrap();
    let first = start(dir.path());
    assert_eq!(
        created(&first),
        [
            "ca.key",
            "ca.crt",
            "service-account.key",
            "apiserver.key",
            "apiserver.crt",
            "admin.key",
            "admin.crt"
        ]
    );
    let second = start(dir.path());
    assert!(second.created.is_empty(), "{:?}", second.created);
    assert_eq!(second.ca, first.ca);
    assert_eq!(second.service_account_key, first.service_account_key);
    assert_eq!(second.serving.certificate, first.serving.certificate);
    assert_eq!(second.admin.certificate, first.admin.certificate);
}

#[test]
fn certificates_have_names_and_usages() {
    let dir = tempfile::tempdir().unwrap();
    let pki = load_or_create(dir.path(), &names("10.1.2.3", "Host-1"), now()).unwrap();
    let der = CertificateDer::from_pem_slice(pki.serving.certificate.as_bytes()).unwrap();
    let (_, serving) = X509Certificate::from_der(&der).unwrap();
    let names = subject_names(&serving);
    for name in [
        "127.0.0.1",
        "::1",
        "10.1.2.3",
        "localhost",
        "host-1",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
    ] {
        assert!(names.iter().any(|have| have == name), "{name} in {names:?}");
    }
    let der = CertificateDer::from_pem_slice(pki.admin.certificate.as_bytes()).unwrap();
    let (_, admin) = X509Certificate::from_der(&der).unwrap();
    let subject = admin.subject().to_string();
    assert!(subject.contains("CN=kubernetes-admin"), "{subject}");
    assert!(subject.contains("O=system:masters"), "{subject}");
    let from = admin.validity().not_before.timestamp();
    assert!(from <= now().as_second(), "already valid");
}

#[test]
fn only_mismatching_certificates_are_recreated() {
    let dir = tempfile::tempdir().unwrap();
    start(dir.path());
    let moved = load_or_create(dir.path(), &names("10.9.9.9", "host-1"), now());
    assert_eq!(created(&moved.unwrap()), ["apiserver.key", "apiserver.crt"]);
    let renamed = load_or_create(dir.path(), &names("127.0.0.1", "host-2"), now());
    assert_eq!(
        created(&renamed.unwrap()),
        ["apiserver.key", "apiserver.crt"]
    );
    std::fs::write(dir.path().join("admin.crt"), "junk").unwrap();
    let healed = load_or_create(dir.path(), &names("127.0.0.1", "host-2"), now());
    assert_eq!(created(&healed.unwrap()), ["admin.key", "admin.crt"]);
    std::fs::remove_file(dir.path().join("admin.key")).unwrap();
    let healed = load_or_create(dir.path(), &names("127.0.0.1", "host-2"), now());
    assert_eq!(created(&healed.unwrap()), ["admin.key", "admin.crt"]);
}

#[test]
fn a_further_name_recreates_the_serving_certificate() {
    let dir = tempfile::tempdir().unwrap();
    start(dir.path());
    let more = ServingNames {
        extra: vec!["api.example.com".to_owned(), "192.0.2.7".to_owned()],
        ..names("127.0.0.1", "host-1")
    };
    let again = load_or_create(dir.path(), &more, now()).unwrap();
    assert_eq!(created(&again), ["apiserver.key", "apiserver.crt"]);
    let again = load_or_create(dir.path(), &more, now()).unwrap();
    assert!(again.created.is_empty());
    let der = CertificateDer::from_pem_slice(again.serving.certificate.as_bytes()).unwrap();
    let (_, serving) = X509Certificate::from_der(&der).unwrap();
    let all = subject_names(&serving);
    for name in &more.extra {
        assert!(all.contains(name), "{name} in {all:?}");
    }
}

#[test]
fn certificates_are_renewed_a_month_before_they_expire() {
    let dir = tempfile::tempdir().unwrap();
    start(dir.path());
    let day = 24 * 3600;
    let at = |days: i64| Timestamp::from_second(now().as_second() + days * day).unwrap();
    let later = |days| load_or_create(dir.path(), &names("127.0.0.1", "host-1"), at(days));
    assert!(later(698).unwrap().created.is_empty());
    assert_eq!(
        later(702).unwrap().created.len(),
        4,
        "both leaves, not the CA"
    );
    let expired = later(3660).unwrap_err().to_string();
    assert!(
        expired.contains("ca.crt") && expired.contains("has expired"),
        "{expired}"
    );
}

#[test]
fn a_new_ca_recreates_everything() {
    let dir = tempfile::tempdir().unwrap();
    start(dir.path());
    for name in ["ca.crt", "ca.key"] {
        std::fs::remove_file(dir.path().join(name)).unwrap();
    }
    assert_eq!(start(dir.path()).created.len(), 6);
}

#[test]
fn a_damaged_ca_is_never_replaced() {
    for (file, contents, problem) in [
        ("ca.crt", Some("junk"), "has no certificate"),
        ("ca.key", Some("junk"), "has no private key"),
        ("ca.key", None, "is missing"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        start(dir.path());
        let path = dir.path().join(file);
        match contents {
            Some(contents) => std::fs::write(&path, contents).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        let error = load_or_create(dir.path(), &names("127.0.0.1", ""), now()).unwrap_err();
        let error = error.to_string();
        assert!(error.contains(file) && error.contains(problem), "{error}");
        assert!(error.contains("ca.*"), "the error has the remedy: {error}");
    }
    let dir = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    start(dir.path());
    start(other.path());
    std::fs::copy(other.path().join("ca.key"), dir.path().join("ca.key")).unwrap();
    let error = load_or_create(dir.path(), &names("127.0.0.1", ""), now()).unwrap_err();
    assert!(
        error.to_string().contains("does not belong to ca.key"),
        "{error}"
    );
}

#[test]
fn an_interrupted_first_start_is_repeated() {
    let dir = tempfile::tempdir().unwrap();
    start(dir.path());
    std::fs::remove_file(dir.path().join("ca.crt")).unwrap();
    assert_eq!(start(dir.path()).created.len(), 6);
}
