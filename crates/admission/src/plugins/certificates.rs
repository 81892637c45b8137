//! CertificateApproval, CertificateSigning and CertificateSubjectRestriction: which users may approve and sign
//! certificate signing requests, and which subjects are forbidden.

use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer as _, X509CertificationRequest};
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use super::super::cluster::Cluster;
use super::super::error::AdmissionError;
use super::super::request::{AdmissionRequest, Operation, Request};
use super::plugin::AdmissionPlugin;
use watchet_api::SYSTEM_MASTERS;
use watchet_auth::Attributes;

const GROUP: &str = "certificates.k8s.io";
const PLURAL: &str = "certificatesigningrequests";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// The CertificateApproval admission plugin: a user may approve a request only with permission to approve for its
/// signer.
#[derive(Debug)]
pub(super) struct CertificateApproval;

#[async_trait]
impl AdmissionPlugin for CertificateApproval {
    fn name(&self) -> &'static str {
        "CertificateApproval"
    }

    fn validates(&self, request: Request<'_>) -> bool {
        updates(request, "approval")
    }

    async fn validate(
        &self,
        cluster: &dyn Cluster,
        attributes: &AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        check_permission(cluster, attributes, "approve").await
    }
}

/// The CertificateSigning admission plugin: a user may issue a certificate only with permission to sign for the signer
/// of the request.
#[derive(Debug)]
pub(super) struct CertificateSigning;

#[async_trait]
impl AdmissionPlugin for CertificateSigning {
    fn name(&self) -> &'static str {
        "CertificateSigning"
    }

    fn validates(&self, request: Request<'_>) -> bool {
        updates(request, "status")
    }

    async fn validate(
        &self,
        cluster: &dyn Cluster,
        attributes: &AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        let (old, new) = (&attributes.old_object, &attributes.object);
        let is_same = |member: &str| old["status"][member] == new["status"][member];
        if is_same("certificate") && is_same("conditions") {
            return Ok(());
        }
        check_permission(cluster, attributes, "sign").await
    }
}

fn updates(request: Request<'_>, subresource: &str) -> bool {
    request.operation == Operation::Update && request.is_of_subresource(GROUP, PLURAL, subresource)
}

/// Checks that the user may `verb` the signer of the stored object, or all signers of the signer's domain.
async fn check_permission(
    cluster: &dyn Cluster,
    request: &AdmissionRequest<'_>,
    verb: &str,
) -> Result<(), AdmissionError> {
    let signer = request.old_object["spec"]["signerName"].as_str();
    let signer = signer.unwrap_or_default();
    let domain = signer.split('/').next().unwrap_or_default();
    let authorizer = cluster.authorizer();
    for name in [signer.to_owned(), format!("{domain}/*")] {
        let attributes = Attributes {
            user: Arc::new(request.user.clone()),
            verb: verb.to_owned(),
            is_resource_request: true,
            api_group: GROUP.to_owned(),
            api_version: "*".to_owned(),
            resource: "signers".to_owned(),
            name,
            ..Attributes::default()
        };
        if authorizer.authorize(&attributes).await.is_allowed() {
            return Ok(());
        }
    }
    Err(request.forbidden(format!(
        "user not permitted to {verb} requests with signerName {signer:?}"
    )))
}

/// The CertificateSubjectRestriction admission plugin: rejects requests for client certificates of the group
/// `system:masters`, which is allowed everything.
#[derive(Debug)]
pub(super) struct CertificateSubjectRestriction;

#[async_trait]
impl AdmissionPlugin for CertificateSubjectRestriction {
    fn name(&self) -> &'static str {
        "CertificateSubjectRestriction"
    }

    fn validates(&self, request: Request<'_>) -> bool {
        request.creates(GROUP, PLURAL)
    }

    async fn validate(
        &self,
        _cluster: &dyn Cluster,
        attributes: &AdmissionRequest<'_>,
    ) -> Result<(), AdmissionError> {
        let spec = &attributes.object["spec"];
        if spec["signerName"] != CLIENT_SIGNER {
            return Ok(());
        }
        let organizations = organizations(&spec["request"])
            .map_err(|why| attributes.forbidden(format!("failed to parse CSR: {why}")))?;
        match organizations.iter().any(|group| group == SYSTEM_MASTERS) {
            false => Ok(()),
            true => Err(attributes.forbidden(format!(
                "use of {CLIENT_SIGNER} signer with system:masters group is not allowed"
            ))),
        }
    }
}

/// Returns the organizations in the subject of a certificate signing request, which is PEM in base64.
fn organizations(request: &Value) -> Result<Vec<String>, String> {
    with_subject(request, |subject| {
        subject.iter_organization().map(text).collect()
    })
}

/// Returns the common name in the subject of a certificate signing request, which is PEM in base64; empty if it has none. Of
/// several it is the last one, as in Go, because that is the user name of the certificate's owner.
///
/// # Errors
/// It is not one, or the name is not a text.
pub(super) fn common_name(request: &Value) -> Result<String, String> {
    with_subject(request, |subject| {
        let name = subject.iter_common_name().last();
        name.map_or(Ok(String::new()), text)
    })
}

fn text(attribute: &AttributeTypeAndValue<'_>) -> Result<String, String> {
    let text = attribute.as_str().map(str::to_owned);
    text.map_err(|error| format!("an attribute of the subject is not a text: {error}"))
}

fn with_subject<T>(
    request: &Value,
    read: impl FnOnce(&X509Name<'_>) -> Result<T, String>,
) -> Result<T, String> {
    let pem = STANDARD.decode(request.as_str().unwrap_or_default());
    let pem = pem.map_err(|error| error.to_string())?;
    let block = Pem::iter_from_buffer(&pem).next().and_then(Result::ok);
    let block = block.filter(|block| block.label == "CERTIFICATE REQUEST");
    let block = block.ok_or("PEM block type must be CERTIFICATE REQUEST")?;
    let parsed = X509CertificationRequest::from_der(&block.contents);
    let (_, request) = parsed.map_err(|error| error.to_string())?;
    read(&request.certification_request_info.subject)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{FakeCluster, attributes, refusal};
    use super::*;

    fn request(signer: &str, request: &str, status: Value) -> Value {
        json!({
            "metadata": {"name": "r"}, "spec": {"signerName": signer, "request": request},
            "status": status,
        })
    }

    /// Returns a certificate signing request with these organizations, as the field of an object.
    fn csr(organizations: &[&str]) -> String {
        let mut parameters = rcgen::CertificateParams::default();
        for organization in organizations {
            let subject = &mut parameters.distinguished_name;
            subject.push(rcgen::DnType::OrganizationName, *organization);
        }
        let key = rcgen::KeyPair::generate().unwrap();
        let request = parameters.serialize_request(&key).unwrap();
        STANDARD.encode(request.pem().unwrap())
    }

    async fn update(
        plugin: &dyn AdmissionPlugin,
        allowed: fn(&Attributes) -> bool,
        subresource: &'static str,
        status: Value,
    ) -> Result<(), AdmissionError> {
        let old = request("example.com/ours", "", json!({}));
        let new = request("example.com/ours", "", status);
        let mut attributes = attributes(Operation::Update, (GROUP, PLURAL), &new, &old);
        attributes.subresource = subresource;
        let cluster = FakeCluster {
            allowed,
            ..FakeCluster::default()
        };
        cluster.validate(plugin, attributes).await
    }

    #[tokio::test]
    async fn approving_and_signing_needs_permission_for_the_signer() {
        let issued = json!({"certificate": "x"});
        let plugins: [(&dyn AdmissionPlugin, _, _); 2] = [
            (&CertificateApproval, "approval", "approve"),
            (&CertificateSigning, "status", "sign"),
        ];
        for (plugin, subresource, verb) in plugins {
            let refused = update(plugin, |_| false, subresource, issued.clone()).await;
            assert_eq!(
                refusal(refused),
                format!(
                    "certificatesigningrequests.certificates.k8s.io \"r\" is forbidden: user not \
                     permitted to {verb} requests with signerName \"example.com/ours\""
                )
            );
            let signers: [fn(&Attributes) -> bool; 2] = [
                |attributes| attributes.name == "example.com/ours",
                |attributes| attributes.name == "example.com/*",
            ];
            for allowed in signers {
                let result = update(plugin, allowed, subresource, issued.clone());
                result.await.unwrap();
            }
        }
        let unchanged = update(&CertificateSigning, |_| false, "status", json!({}));
        unchanged.await.unwrap();
        let other = update(&CertificateApproval, |_| false, "status", issued);
        other.await.unwrap();
    }

    #[tokio::test]
    async fn certificates_of_system_masters_are_forbidden() {
        let create = async |signer: &str, csr: &str| {
            let object = request(signer, csr, json!({}));
            let plugin = &CertificateSubjectRestriction;
            let cluster = FakeCluster::default();
            cluster
                .validate_create(plugin, (GROUP, PLURAL), object)
                .await
        };
        let masters = csr(&["a", "system:masters"]);
        create(CLIENT_SIGNER, &csr(&["a"])).await.unwrap();
        create("example.com/ours", &masters).await.unwrap();
        let refused = create(CLIENT_SIGNER, &masters).await;
        assert_eq!(
            refusal(refused),
            "certificatesigningrequests.certificates.k8s.io \"r\" is forbidden: use of \
             kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
        );
        assert_eq!(
            refusal(create(CLIENT_SIGNER, "").await),
            "certificatesigningrequests.certificates.k8s.io \"r\" is forbidden: failed to parse CSR: \
             PEM block type must be CERTIFICATE REQUEST"
        );
    }
}
