//! The certificate signing controller: signs approved requests of the built-in signers with the
//! server's CA, or sets the condition `Failed`. It does not approve requests.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use memchr::memmem;
use rustls_pki_types::CertificateDer;
use serde_json::{Value, json};

use crate::csr_signers::Signer;
use crate::follower::{Follower, FollowerEvent};
use crate::framework::{self, Controller};
use crate::queue::{Next, Pauses, WorkQueue};
use watchet_api::{GetOptions, Object};
use watchet_metrics::Metrics;
use watchet_registry::{ApiError, Patch, Registry, Resource, Target};
use watchet_x509::{CertificateAuthority, CertificateRequest, Profile, Usages, to_pem};

const NAME: &str = "certificatesigningrequest-signing-controller";

/// The name of upstream's service account for this controller.
const ACCOUNT: &str = "certificate-controller";

const PAUSES: Pauses = Pauses {
    first: Duration::from_millis(200),
    max: Duration::from_secs(10),
};

/// The maximum lifetime of a certificate, also the default (upstream's
/// `--cluster-signing-duration`).
const LIFETIME: SignedDuration = SignedDuration::from_hours(365 * 24);

/// The minimum lifetime.
const LIFETIME_MIN: SignedDuration = SignedDuration::from_mins(10);

/// How far `notBefore` is in the past, for clocks that are behind.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);

/// Certificates with at least this lifetime are not extended by the backdating.
const LONG: SignedDuration = SignedDuration::from_hours(8);

/// Signs approved certificate signing requests.
#[derive(Debug)]
pub(super) struct CsrSigning {
    registry: Arc<Registry>,
    queue: WorkQueue<String>,
    authority: Arc<CertificateAuthority>,
}

impl CsrSigning {
    pub(super) fn new(
        registry: Arc<Registry>,
        metrics: &Metrics,
        authority: Arc<CertificateAuthority>,
    ) -> Self {
        Self {
            registry,
            queue: WorkQueue::new(PAUSES, metrics.work_queue(NAME)),
            authority,
        }
    }

    fn resource(&self) -> Arc<Resource> {
        let group = "certificates.k8s.io";
        let resource = self
            .registry
            .resource(group, "v1", "certificatesigningrequests");
        resource.expect("the table of built-ins has it")
    }

    fn target(&self, name: &str, subresource: Option<&str>) -> Target {
        Target {
            resource: self.resource(),
            namespace: None,
            name: name.to_owned(),
            subresource: subresource.map(str::to_owned),
        }
    }
}

impl Controller for CsrSigning {
    type Key = String;
    const NAME: &'static str = NAME;
    const WORKERS: usize = 5;

    fn queue(&self) -> &WorkQueue<String> {
        &self.queue
    }

    async fn follow(&self) {
        let mut requests = Follower::new(self.registry.clone(), self.resource());
        loop {
            for event in requests.next().await {
                if let FollowerEvent::Object(request) = event
                    && memmem::find(request.body_slice(), b"\"Approved\"").is_some()
                    && signer_if_due(&parse(&request)).is_some()
                {
                    self.queue.add(request.key().name().to_owned());
                }
            }
        }
    }

    async fn reconcile(&self, name: &String) -> Result<Next, ApiError> {
        let target = self.target(name, None);
        let object = match self.registry.get(&target, GetOptions::default()).await {
            Ok(object) => object,
            Err(error) if error.is_not_found() => return Ok(Next::Done),
            Err(error) => return Err(error),
        };
        let request = parse(&object);
        let Some(signer) = signer_if_due(&request) else {
            return Ok(Next::Done);
        };
        let status = match sign(&self.authority, signer, &request["spec"], Timestamp::now()) {
            Ok(certificate) => json!({"certificate": STANDARD.encode(to_pem(&certificate))}),
            Err((reason, message)) => {
                tracing::info!(request = name, reason, message, "certificate not signed");
                let conditions = request["status"]["conditions"].as_array();
                let mut conditions = conditions.cloned().unwrap_or_default();
                conditions.push(json!({
                    "type": "Failed", "status": "True", "reason": reason, "message": message,
                }));
                json!({"conditions": conditions})
            }
        };
        let metadata = json!({
            "uid": object.uid(), "resourceVersion": object.resource_version().to_string(),
        });
        let patch = Patch::Merge(json!({"metadata": metadata, "status": status}));
        let target = self.target(name, Some("status"));
        let options = framework::write_options(ACCOUNT);
        match self.registry.patch(&target, &patch, &options).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(Next::Done),
        }
    }
}

/// Returns the signer of a request that is approved, and neither signed nor failed.
fn signer_if_due(request: &Value) -> Option<Signer> {
    let status = &request["status"];
    let has = |kind: &str| {
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        conditions.any(|condition| condition["type"] == kind && condition["status"] != "False")
    };
    let certificate = status["certificate"].as_str().unwrap_or_default();
    let decided = has("Approved") && !has("Denied") && !has("Failed");
    if !decided || !certificate.is_empty() {
        return None;
    }
    Signer::named(request["spec"]["signerName"].as_str()?)
}

/// Returns the certificate for a request, or the reason and message of the failure.
fn sign(
    authority: &CertificateAuthority,
    signer: Signer,
    spec: &Value,
    now: Timestamp,
) -> Result<CertificateDer<'static>, (&'static str, String)> {
    let invalid = |message: String| ("SignerValidationFailure", message);
    let encoded = spec["request"].as_str().unwrap_or_default();
    let unparsable = |error: String| invalid(format!("unable to parse csr: {error}"));
    let pem = STANDARD.decode(encoded);
    let pem = pem.map_err(|error| unparsable(error.to_string()))?;
    let request = CertificateRequest::from_pem(&pem).map_err(unparsable)?;
    let usages = spec["usages"].as_array().into_iter().flatten();
    let usages: Vec<_> = usages.filter_map(Value::as_str).collect();
    signer.check(&request, &usages).map_err(invalid)?;
    let failed = |message: String| ("SigningFailure", message);
    let (not_before, not_after) =
        validity(spec["expirationSeconds"].as_i64(), authority, now).map_err(failed)?;
    let profile = Profile {
        usages: Usages::parse(&usages).map_err(failed)?,
        not_before,
        not_after,
    };
    authority.sign(&request, &profile).map_err(failed)
}

/// Returns the validity of a certificate, never longer than the CA's own.
fn validity(
    seconds: Option<i64>,
    authority: &CertificateAuthority,
    now: Timestamp,
) -> Result<(Timestamp, Timestamp), String> {
    let requested = seconds.map_or(LIFETIME, SignedDuration::from_secs);
    let lifetime = requested.clamp(LIFETIME_MIN, LIFETIME);
    let counted = match lifetime < LONG {
        true => lifetime,
        false => lifetime - BACKDATE,
    };
    let last = authority.not_after()?;
    if now >= last {
        return Err(format!(
            "refusing to sign a certificate that expired in the past: NotAfter={last}"
        ));
    }
    let of_clock = |error: jiff::Error| error.to_string();
    let not_before = now.checked_sub(BACKDATE).map_err(of_clock)?;
    let not_after = now.checked_add(counted).map_err(of_clock)?;
    Ok((not_before, not_after.min(last)))
}

fn parse(object: &Object) -> Value {
    serde_json::from_slice(object.body_slice()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
