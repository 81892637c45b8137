//! The built-in signers of Kubernetes and the requests that each accepts. See
//! <https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/#kubernetes-signers>.

use std::collections::BTreeSet;

use watchet_x509::{AlternativeName, CertificateRequest};

/// A built-in signer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signer {
    /// `kubernetes.io/kube-apiserver-client`.
    ApiServerClient,
    /// `kubernetes.io/kube-apiserver-client-kubelet`.
    KubeletClient,
    /// `kubernetes.io/kubelet-serving`.
    KubeletServing,
    /// `kubernetes.io/legacy-unknown`; `v1` does not accept new requests for it.
    LegacyUnknown,
}

/// The usages of a kubelet's certificate; the second is for RSA keys only.
const KUBELET_USAGES: [&str; 2] = ["digital signature", "key encipherment"];

impl Signer {
    /// Returns the signer of this `signerName`.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "kubernetes.io/kube-apiserver-client" => Self::ApiServerClient,
            "kubernetes.io/kube-apiserver-client-kubelet" => Self::KubeletClient,
            "kubernetes.io/kubelet-serving" => Self::KubeletServing,
            "kubernetes.io/legacy-unknown" => Self::LegacyUnknown,
            _ => return None,
        })
    }

    /// Checks that the signer accepts `request` with these usages.
    ///
    /// # Errors
    /// The reason, in upstream's words.
    pub(super) fn check(self, request: &CertificateRequest, usages: &[&str]) -> Result<(), String> {
        match self {
            Self::ApiServerClient => check_client_usages(usages),
            Self::KubeletClient => kubelet_client(request, usages),
            Self::KubeletServing => kubelet_serving(request, usages),
            Self::LegacyUnknown => Ok(()),
        }
    }
}

fn check_client_usages(usages: &[&str]) -> Result<(), String> {
    let allowed = |usage: &&&str| **usage == "client auth" || KUBELET_USAGES.contains(usage);
    if let Some(usage) = usages.iter().find(|usage| !allowed(usage)) {
        return Err(format!("invalid usage for client certificate: {usage}"));
    }
    match usages.contains(&"client auth") {
        true => Ok(()),
        false => Err("missing required usage for client certificate: client auth".to_owned()),
    }
}

fn kubelet_client(request: &CertificateRequest, usages: &[&str]) -> Result<(), String> {
    check_organization(request)?;
    type Is = fn(&AlternativeName) -> bool;
    let forbidden: [(&str, Is); 4] = [
        ("DNS", |name| matches!(name, AlternativeName::Dns(_))),
        ("Email", |name| matches!(name, AlternativeName::Email(_))),
        ("IP", |name| matches!(name, AlternativeName::Ip(_))),
        ("URI", |name| matches!(name, AlternativeName::Uri(_))),
    ];
    for (kind, is) in forbidden {
        if request.names.iter().any(is) {
            return Err(format!("{kind} subjectAltNames are not allowed"));
        }
    }
    check_common_name(request)?;
    check_kubelet_usages(usages, "client auth")
}

fn kubelet_serving(request: &CertificateRequest, usages: &[&str]) -> Result<(), String> {
    check_organization(request)?;
    let names = &request.names;
    let reachable =
        |name: &AlternativeName| matches!(name, AlternativeName::Dns(_) | AlternativeName::Ip(_));
    if !names.iter().any(reachable) {
        return Err("DNS or IP subjectAltName is required".to_owned());
    }
    if names
        .iter()
        .any(|name| matches!(name, AlternativeName::Email(_)))
    {
        return Err("Email subjectAltNames are not allowed".to_owned());
    }
    if names
        .iter()
        .any(|name| matches!(name, AlternativeName::Uri(_)))
    {
        return Err("URI subjectAltNames are not allowed".to_owned());
    }
    check_kubelet_usages(usages, "server auth")?;
    check_common_name(request)
}

fn check_organization(request: &CertificateRequest) -> Result<(), String> {
    match request.organizations == ["system:nodes"] {
        true => Ok(()),
        false => Err("subject organization is not system:nodes".to_owned()),
    }
}

/// Checks all common names, because Go uses the last one and other programs may use the first.
fn check_common_name(request: &CertificateRequest) -> Result<(), String> {
    let mut names = request.common_names.iter();
    match !request.common_names.is_empty() && names.all(|name| name.starts_with("system:node:")) {
        true => Ok(()),
        false => Err("subject common name does not begin with system:node:".to_owned()),
    }
}

fn check_kubelet_usages(usages: &[&str], purpose: &str) -> Result<(), String> {
    let requested: BTreeSet<&str> = usages.iter().copied().collect();
    let required = BTreeSet::from([KUBELET_USAGES[0], KUBELET_USAGES[1], purpose]);
    let without_rsa = BTreeSet::from([KUBELET_USAGES[0], purpose]);
    if requested == required || requested == without_rsa {
        return Ok(());
    }
    let required: Vec<&str> = required.into_iter().collect();
    Err(format!("usages did not match [{}]", required.join(" ")))
}
