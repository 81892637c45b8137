//! The controller of the config map `extension-apiserver-authentication` in `kube-system`. It holds the CAs with
//! which other servers of the cluster verify the client certificates that this one accepts. Upstream,
//! kube-apiserver runs it.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::follower::{Follower, FollowerEvent};
use crate::framework::Controller;
use crate::queue::{Next, Pauses, WorkQueue};
use watchet_api::{GetOptions, ObjectKey, WriteOptions};
use watchet_metrics::Metrics;
use watchet_registry::{ApiError, Registry, Resource, Target};
use watchet_x509 as x509;

const NAME: &str = "cluster-authentication-trust-controller";

const NAMESPACE: &str = "kube-system";
const CONFIG_MAP: &str = "extension-apiserver-authentication";

/// The member with the CAs of client certificates.
const CLIENT_CA: &str = "client-ca-file";
/// The member with the CAs of front proxies. The other members about front proxies are ignored without this one.
const PROXY_CA: &str = "requestheader-client-ca-file";
const PROXY: &str = "requestheader-";

/// How often the config map is compared with the server's CAs; upstream's interval.
const INTERVAL: Duration = Duration::from_secs(60);
/// The pause between attempts while the namespace does not exist.
const NO_NAMESPACE: Duration = Duration::from_millis(500);
/// How long an expired certificate remains in the config map; upstream's leeway.
const LEEWAY: SignedDuration = SignedDuration::from_mins(5);

const PAUSES: Pauses = Pauses {
    first: Duration::from_millis(50),
    max: Duration::from_secs(10),
};

/// Publishes the CAs of client certificates in the config map.
#[derive(Debug)]
pub(super) struct ClusterAuthentication {
    registry: Arc<Registry>,
    /// Contains only the key of the config map.
    queue: WorkQueue<ObjectKey>,
    client_cas: watch::Receiver<Vec<CertificateDer<'static>>>,
}

impl ClusterAuthentication {
    /// Creates a controller that publishes `client_cas`.
    pub(super) fn new(
        registry: Arc<Registry>,
        metrics: &Metrics,
        client_cas: &watch::Receiver<Vec<CertificateDer<'static>>>,
    ) -> Self {
        Self {
            registry,
            queue: WorkQueue::new(PAUSES, metrics.work_queue(NAME)),
            client_cas: client_cas.clone(),
        }
    }

    fn resource(&self) -> Arc<Resource> {
        let resource = self.registry.resource("", "v1", "configmaps");
        resource.expect("the table of built-ins has it")
    }
}

/// Returns the new data of the config map, which has `data` now: adds `client_cas`, removes expired certificates, and
/// retains the certificates of other servers and the members about front proxies, which this server does not have.
fn combined(data: &Value, client_cas: &[CertificateDer<'static>], now: Timestamp) -> Value {
    let text = |member: &str| data[member].as_str().unwrap_or_default();
    let existing = CertificateDer::pem_slice_iter(text(CLIENT_CA).as_bytes());
    // PEM blocks that are not certificates are dropped.
    let existing = existing.filter_map(Result::ok);
    let mut certificates: Vec<CertificateDer<'static>> = Vec::new();
    for certificate in existing.chain(client_cas.iter().cloned()) {
        let not_after = x509::not_after(&certificate);
        let is_valid = not_after.is_some_and(|not_after| not_after + LEEWAY > now);
        if is_valid && !certificates.contains(&certificate) {
            certificates.push(certificate);
        }
    }
    let mut combined = Map::new();
    if !certificates.is_empty() {
        let bundle: String = certificates.iter().map(|one| x509::to_pem(one)).collect();
        combined.insert(CLIENT_CA.to_owned(), bundle.into());
    }
    if !text(PROXY_CA).is_empty() {
        let members = data.as_object().into_iter().flatten();
        let members = members.filter(|(member, _)| member.starts_with(PROXY));
        combined.extend(members.map(|(member, value)| (member.clone(), value.clone())));
    }
    combined.into()
}

impl Controller for ClusterAuthentication {
    type Key = ObjectKey;
    const NAME: &'static str = NAME;
    const WORKERS: usize = 1;

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    async fn follow(&self) {
        let key = ObjectKey::new(Some(NAMESPACE), CONFIG_MAP);
        self.queue.add(key.clone());
        let follow_config_maps = async {
            let mut config_maps = Follower::new(self.registry.clone(), self.resource());
            loop {
                for event in config_maps.next().await {
                    if let FollowerEvent::Object(object) | FollowerEvent::Deleted(object) = event
                        && *object.key() == key
                    {
                        self.queue.add(key.clone());
                    }
                }
            }
        };
        let follow_cas = async {
            let mut client_cas = self.client_cas.clone();
            // The sender is dropped if no file is configured that could change.
            while client_cas.changed().await.is_ok() {
                self.queue.add(key.clone());
            }
        };
        futures_util::future::join(follow_config_maps, follow_cas).await;
    }

    async fn reconcile(&self, _: &ObjectKey) -> Result<Next, ApiError> {
        let target = Target {
            resource: self.resource(),
            namespace: Some(NAMESPACE.to_owned()),
            name: CONFIG_MAP.to_owned(),
            subresource: None,
        };
        let options = WriteOptions::of_server();
        let found = self.registry.get(&target, GetOptions::default()).await;
        let written = match found {
            Ok(object) => {
                let mut value: Value =
                    serde_json::from_slice(object.body_slice()).unwrap_or_default();
                let data = combined(&value["data"], &self.client_cas.borrow(), Timestamp::now());
                if value["data"] == data || value["data"].is_null() && data == json!({}) {
                    return Ok(Next::After(INTERVAL));
                }
                value["data"] = data;
                let updated = self.registry.update(&target, value, &options).await;
                updated.map(drop)
            }
            Err(error) if error.is_not_found() => {
                let data = combined(&Value::Null, &self.client_cas.borrow(), Timestamp::now());
                if data == json!({}) {
                    return Ok(Next::After(INTERVAL));
                }
                let object = json!({"metadata": {"name": CONFIG_MAP}, "data": data});
                let resource = &target.resource;
                let created = self
                    .registry
                    .create(resource, Some(NAMESPACE), object, &options);
                created.await.map(drop)
            }
            Err(error) => return Err(error),
        };
        match written {
            Ok(()) => Ok(Next::After(INTERVAL)),
            // Another server has created it, possibly with other certificates.
            Err(ApiError::AlreadyExists { .. }) => Ok(Next::After(Duration::ZERO)),
            Err(error) if error.is_not_found() => Ok(Next::After(NO_NAMESPACE)),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(name: &str, until: i32) -> CertificateDer<'static> {
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2015, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }

    #[test]
    fn certificates_of_other_servers_stay_until_they_expire() {
        let now: Timestamp = "2030-01-01T00:04:00Z".parse().unwrap();
        let [own, other] = ["own", "other"].map(|name| certificate(name, 2040));
        let (expired, just_expired) = (certificate("a", 2029), certificate("b", 2030));
        let bundle = |all: &[&CertificateDer<'static>]| -> String {
            all.iter().map(|one| x509::to_pem(one)).collect()
        };
        let cas = [own.clone()];
        let fresh = json!({CLIENT_CA: bundle(&[&own])});
        assert_eq!(combined(&Value::Null, &cas, now), fresh);
        assert_eq!(combined(&fresh, &cas, now), fresh);
        let existing = json!({
            CLIENT_CA: format!("junk\n{}", bundle(&[&other, &expired, &just_expired, &other])),
            PROXY_CA: "x", "requestheader-allowed-names": "[]", "other": "y",
        });
        let expected = json!({
            CLIENT_CA: bundle(&[&other, &just_expired, &own]),
            PROXY_CA: "x", "requestheader-allowed-names": "[]",
        });
        assert_eq!(combined(&existing, &cas, now), expected);
        let without_ca = json!({"requestheader-allowed-names": "[]"});
        assert_eq!(combined(&without_ca, &cas, now), fresh);
    }
}
