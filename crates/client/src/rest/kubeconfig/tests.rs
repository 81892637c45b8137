//! Tests of kubeconfig files: merging, references to files, unsupported features.

use super::super::config_sources::RestConfigError;
use super::*;

const FILE: &str = "
apiVersion: v1
kind: Config
preferences: {}
current-context: one
contexts:
- {name: one, context: {cluster: c, user: u, namespace: shop}}
- {name: two, context: {cluster: c, user: files}}
- {name: exec, context: {cluster: c, user: e}}
- {name: asking, context: {cluster: c, user: asking}}
- {name: old, context: {cluster: c, user: old}}
- {name: provider, context: {cluster: c, user: p}}
- {name: password, context: {cluster: c, user: w}}
- {name: half, context: {cluster: c, user: h}}
- {name: anonymous, context: {cluster: c, user: ''}}
- {name: as, context: {cluster: c, user: as}}
- {name: userless, context: {cluster: c, user: missing}}
clusters:
- name: c
  cluster: {server: 'https://10.0.0.1:6443/', certificate-authority-data: Q0E=, tls-server-name: w, proxy-url: 'socks5://p:1080'}
users:
- {name: u, user: {client-certificate-data: Qw==, client-key-data: Sw==, token: T}}
- {name: files, user: {tokenFile: token, client-certificate: crt, client-key: key}}
- {name: e, user: {exec: {command: bin/cloud, args: [get-token], env: [{name: A, value: b}], apiVersion: client.authentication.k8s.io/v1, provideClusterInfo: true, interactiveMode: IfAvailable}}}
- {name: asking, user: {exec: {command: cloud, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Always}}}
- {name: old, user: {exec: {command: cloud, apiVersion: client.authentication.k8s.io/v1alpha1}}}
- {name: p, user: {auth-provider: {name: gcp}}}
- {name: w, user: {username: u, password: p}}
- {name: h, user: {client-certificate-data: Qw==}}
- {name: as, user: {token: T, as: jane, as-groups: [dev], as-uid: '7', as-user-extra: {scope: [a, b]}}}
";

fn write(directory: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        std::fs::write(directory.join(name), text).unwrap();
    }
}

#[test]
fn a_context_resolves_its_data_and_files() {
    let directory = tempfile::tempdir().unwrap();
    write(
        directory.path(),
        &[
            ("config", FILE),
            ("crt", "C2"),
            ("key", "K2"),
            ("token", "T2"),
        ],
    );
    let kubeconfig = Kubeconfig::load(&[directory.path().join("config")]).unwrap();
    let config = RestConfig::from_kubeconfig(&kubeconfig, None).unwrap();
    assert_eq!(config.server, "https://10.0.0.1:6443");
    let text = |text: &[u8]| Pem::Text(text.to_vec());
    assert_eq!(config.certificate_authority, Some(text(b"CA")));
    assert_eq!(config.tls_server_name.as_deref(), Some("w"));
    assert_eq!(config.proxy_url.as_deref(), Some("socks5://p:1080"));
    assert_eq!(config.namespace, "shop");
    assert!(matches!(config.token, Some(Token::Fixed(token)) if token == "T"));
    let certificate = config.client_certificate.unwrap();
    assert_eq!(
        (certificate.certificate, certificate.key),
        (text(b"C"), text(b"K"))
    );

    let config = RestConfig::from_kubeconfig(&kubeconfig, Some("two")).unwrap();
    assert_eq!(config.namespace, "default");
    let token = directory.path().join("token");
    assert!(matches!(config.token, Some(Token::File(path)) if path == token));
    let certificate = config.client_certificate.unwrap();
    let file = |name: &str| Pem::File(directory.path().join(name));
    assert_eq!(
        (certificate.certificate, certificate.key),
        (file("crt"), file("key"))
    );

    let config = RestConfig::from_kubeconfig(&kubeconfig, Some("anonymous")).unwrap();
    assert!(config.token.is_none() && config.client_certificate.is_none());

    let config = RestConfig::from_kubeconfig(&kubeconfig, Some("exec")).unwrap();
    let Some(Token::Exec(plugin)) = config.token else {
        panic!("the token comes from a plugin");
    };
    assert_eq!(plugin.command, directory.path().join("bin/cloud"));
    assert_eq!(
        (&plugin.args[..], &plugin.env[..]),
        (&["get-token".into()][..], &[("A".into(), "b".into())][..])
    );
    let cluster = serde_json::json!({
        "server": "https://10.0.0.1:6443", "tls-server-name": "w", "insecure-skip-tls-verify": false,
        "certificate-authority-data": "Q0E=", "proxy-url": "socks5://p:1080",
    });
    assert_eq!(plugin.cluster, Some(cluster));

    let config = RestConfig::from_kubeconfig(&kubeconfig, Some("as")).unwrap();
    let expected = Impersonate {
        user: "jane".into(),
        uid: Some("7".into()),
        groups: vec!["dev".into()],
        extra: vec![("scope".into(), vec!["a".into(), "b".into()])],
    };
    assert_eq!(config.impersonate, Some(expected));
}

#[test]
fn unsupported_features_are_errors() {
    let kubeconfig: Kubeconfig = FILE.parse().unwrap();
    for (context, message) in [
        (
            "asking",
            r#"user "asking" of the kubeconfig gets its credentials from the program "cloud", which is interactive"#,
        ),
        (
            "old",
            r#"the version "client.authentication.k8s.io/v1alpha1", which is not supported"#,
        ),
        ("provider", r#"the auth provider "gcp""#),
        ("password", r#"user "w" of the kubeconfig has a password"#),
        ("half", "client-certificate has no client-key"),
        (
            "userless",
            r#"has no user "missing": it has as, asking, e, files"#,
        ),
        ("three", r#"has no context "three": it has anonymous, as"#),
        ("two", r#""crt": No such file"#),
    ] {
        let error = RestConfig::from_kubeconfig(&kubeconfig, Some(context)).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
        assert!(matches!(error, RestConfigError::Kubeconfig(_)));
    }
    let error = "clusters: 7".parse::<Kubeconfig>().unwrap_err();
    assert!(matches!(error, KubeconfigError::Syntax { .. }), "{error}");
    let error = Kubeconfig::load(&["/nowhere/config"]).unwrap_err();
    assert!(
        error.to_string().starts_with("\"/nowhere/config\": "),
        "{error}"
    );
}

/// kubectl's rule: the first file with an entry provides all of it, and relative paths are relative
/// to their file.
#[test]
fn the_first_file_takes_precedence() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(
        one.path(),
        &[(
            "config",
            "users: [{name: u, user: {token: first}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]",
        )],
    );
    write(
        two.path(),
        &[
            (
                "config",
                "current-context: x\n\
                 users: [{name: u, user: {token: second, tokenFile: t}}, {name: v, user: {}}]\n\
                 contexts: [{name: x, context: {cluster: d, user: v, namespace: n}}]\n\
                 clusters: [{name: c, cluster: {server: 'https://c', certificate-authority: ca}}]",
            ),
            ("ca", "two's"),
        ],
    );
    let paths = [one.path().join("config"), two.path().join("config")];
    let merged = Kubeconfig::load(&paths).unwrap();
    assert_eq!(merged.current_context(), "x");
    assert_eq!(merged.contexts().collect::<Vec<_>>(), ["x"]);
    let config = RestConfig::from_kubeconfig(&merged, None).unwrap();
    assert_eq!(config.server, "https://c");
    assert_eq!(
        config.namespace, "default",
        "context x of the second file is ignored completely"
    );
    assert!(matches!(config.token, Some(Token::Fixed(token)) if token == "first"));
    let authority = Pem::File(two.path().join("ca"));
    assert_eq!(config.certificate_authority, Some(authority));
    assert!(Kubeconfig::load(&[] as &[&Path]).unwrap().is_empty());
}

/// A missing file of KUBECONFIG was reported as if KUBECONFIG had not been set.
#[test]
fn missing_files_of_the_variable_are_named() {
    let missing = || vec!["/nowhere/a".into(), "/nowhere/b".into()];
    let error = Kubeconfig::load_existing(missing(), true).unwrap_err();
    assert_eq!(
        error.to_string(),
        "KUBECONFIG names \"/nowhere/a\" and \"/nowhere/b\", which does not exist: correct the variable, or unset \
         it to use ~/.kube/config"
    );
    assert!(
        Kubeconfig::load_existing(missing(), false)
            .unwrap()
            .is_empty()
    );
}
