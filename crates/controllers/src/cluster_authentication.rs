//! The controller of the config map `extension-apiserver-authentication` in `kube-system`. It holds the CAs with
//! which other servers of the cluster verify the client certificates that this one accepts. Upstream,
//! kube-apiserver runs it.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use jiff::{SignedDuration, Timestamp};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::follower::{Follower, FollowerEvent};
use crate::framework::Controller;
use crate::queue::{Next, Pauses, WorkQueue};
use watchet_api::{GetOptions, ObjectKey, WriteOptions};
use watchet_auth::FrontProxyHeaders;
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
    front_proxy: Option<FrontProxyInfo>,
}

/// The front proxies that a server accepts, for other servers of the cluster.
#[derive(Debug, Clone)]
pub struct FrontProxyInfo {
    /// Their CAs, which may change.
    pub cas: watch::Receiver<Vec<CertificateDer<'static>>>,
    /// The allowed proxies and their headers.
    pub headers: FrontProxyHeaders,
}

impl ClusterAuthentication {
    /// Creates a controller that publishes `client_cas` and `front_proxy`.
    pub(super) fn new(
        registry: Arc<Registry>,
        metrics: &Metrics,
        client_cas: &watch::Receiver<Vec<CertificateDer<'static>>>,
        front_proxy: Option<&FrontProxyInfo>,
    ) -> Self {
        Self {
            registry,
            queue: WorkQueue::new(PAUSES, metrics.work_queue(NAME)),
            client_cas: client_cas.clone(),
            front_proxy: front_proxy.cloned(),
        }
    }

    fn resource(&self) -> Arc<Resource> {
        let resource = self.registry.resource("", "v1", "configmaps");
        resource.expect("the table of built-ins has it")
    }

    fn combined(&self, data: &Value) -> Value {
        let proxy = self.front_proxy.as_ref();
        let proxy = proxy.map(|proxy| (proxy.cas.borrow().clone(), &proxy.headers));
        let proxy = proxy
            .as_ref()
            .map(|(cas, headers)| (cas.as_slice(), *headers));
        combined(data, &self.client_cas.borrow(), proxy, Timestamp::now())
    }
}

/// Returns the new data of the config map, which has `data` now: adds `client_cas` and `proxy`, removes expired
/// certificates, and retains the certificates and headers of other servers.
fn combined(
    data: &Value,
    client_cas: &[CertificateDer<'static>],
    proxy: Option<(&[CertificateDer<'static>], &FrontProxyHeaders)>,
    now: Timestamp,
) -> Value {
    let text = |member: &str| data[member].as_str().unwrap_or_default();
    let mut combined = Map::new();
    let client_bundle = bundle(text(CLIENT_CA), client_cas, now);
    if !client_bundle.is_empty() {
        combined.insert(CLIENT_CA.to_owned(), client_bundle.into());
    }
    if !text(PROXY_CA).is_empty() {
        let members = data.as_object().into_iter().flatten();
        let members = members.filter(|(member, _)| member.starts_with(PROXY));
        combined.extend(members.map(|(member, value)| (member.clone(), value.clone())));
    }
    if let Some((cas, headers)) = proxy {
        let proxy_bundle = bundle(text(PROXY_CA), cas, now);
        combined.insert(PROXY_CA.to_owned(), proxy_bundle.into());
        add_headers(&mut combined, headers);
    }
    combined.into()
}

fn add_headers(combined: &mut Map<String, Value>, headers: &FrontProxyHeaders) {
    let names = |names: &[HeaderName]| -> Vec<String> {
        let names = names.iter().map(HeaderName::as_str);
        names.map(canonical).collect()
    };
    let prefixes = headers.extra_prefixes.iter();
    for (member, own) in [
        ("requestheader-allowed-names", headers.allowed_names.clone()),
        ("requestheader-username-headers", names(&headers.username)),
        ("requestheader-uid-headers", names(&headers.uid)),
        ("requestheader-group-headers", names(&headers.group)),
        (
            "requestheader-extra-headers-prefix",
            prefixes.map(|one| canonical(one)).collect(),
        ),
    ] {
        let existing = combined.get(member).and_then(Value::as_str);
        let existing = existing.and_then(|text| serde_json::from_str::<Vec<String>>(text).ok());
        let mut all = existing.unwrap_or_default();
        for name in own {
            if !all.contains(&name) {
                all.push(name);
            }
        }
        // Upstream omits only the headers of unique IDs if there are none.
        if !all.is_empty() || member != "requestheader-uid-headers" {
            combined.insert(member.to_owned(), json!(all).to_string().into());
        }
    }
}

/// Returns the certificates in `pem` and `cas` that are valid, each once.
fn bundle(pem: &str, cas: &[CertificateDer<'static>], now: Timestamp) -> String {
    let existing = CertificateDer::pem_slice_iter(pem.as_bytes());
    // PEM blocks that are not certificates are dropped.
    let existing = existing.filter_map(Result::ok);
    let mut certificates: Vec<CertificateDer<'static>> = Vec::new();
    for certificate in existing.chain(cas.iter().cloned()) {
        let not_after = x509::not_after(&certificate);
        let is_valid = not_after.is_some_and(|not_after| not_after + LEEWAY > now);
        if is_valid && !certificates.contains(&certificate) {
            certificates.push(certificate);
        }
    }
    certificates.iter().map(|one| x509::to_pem(one)).collect()
}

/// Returns the name of a header as Go writes it: `X-Remote-User`.
fn canonical(name: &str) -> String {
    let words = name.split('-').map(|word| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_uppercase() + rest
    });
    words.collect::<Vec<_>>().join("-")
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
        let follow_proxy_cas = async {
            let Some(FrontProxyInfo { mut cas, .. }) = self.front_proxy.clone() else {
                return;
            };
            while cas.changed().await.is_ok() {
                self.queue.add(key.clone());
            }
        };
        futures_util::future::join3(follow_config_maps, follow_cas, follow_proxy_cas).await;
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
                let data = self.combined(&value["data"]);
                if value["data"] == data || value["data"].is_null() && data == json!({}) {
                    return Ok(Next::After(INTERVAL));
                }
                value["data"] = data;
                let updated = self.registry.update(&target, value, &options).await;
                updated.map(drop)
            }
            Err(error) if error.is_not_found() => {
                let data = self.combined(&Value::Null);
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
        assert_eq!(combined(&Value::Null, &cas, None, now), fresh);
        assert_eq!(combined(&fresh, &cas, None, now), fresh);
        let existing = json!({
            CLIENT_CA: format!("junk\n{}", bundle(&[&other, &expired, &just_expired, &other])),
            PROXY_CA: "x", "requestheader-allowed-names": "[]", "other": "y",
        });
        let expected = json!({
            CLIENT_CA: bundle(&[&other, &just_expired, &own]),
            PROXY_CA: "x", "requestheader-allowed-names": "[]",
        });
        assert_eq!(combined(&existing, &cas, None, now), expected);
        let without_ca = json!({"requestheader-allowed-names": "[]"});
        assert_eq!(combined(&without_ca, &cas, None, now), fresh);
    }

    #[test]
    fn front_proxies_of_all_servers_are_published() {
        let now: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        let [own, other] = ["own", "other"].map(|name| certificate(name, 2040));
        let headers = FrontProxyHeaders {
            allowed_names: vec!["p".to_owned()],
            username: vec!["x-remote-user".parse().unwrap()],
            group: vec!["x-remote-group".parse().unwrap()],
            extra_prefixes: vec!["x-remote-extra-".to_owned()],
            ..FrontProxyHeaders::default()
        };
        let cas = [own.clone()];
        let fresh = json!({
            PROXY_CA: x509::to_pem(&own),
            "requestheader-allowed-names": r#"["p"]"#,
            "requestheader-username-headers": r#"["X-Remote-User"]"#,
            "requestheader-group-headers": r#"["X-Remote-Group"]"#,
            "requestheader-extra-headers-prefix": r#"["X-Remote-Extra-"]"#,
        });
        let with = |data: &Value| combined(data, &[], Some((&cas, &headers)), now);
        assert_eq!(with(&Value::Null), fresh);
        assert_eq!(with(&fresh), fresh);
        let mut existing = fresh.clone();
        existing[PROXY_CA] = x509::to_pem(&other).into();
        existing["requestheader-allowed-names"] = r#"["q"]"#.into();
        let both = with(&existing);
        assert_eq!(both[PROXY_CA], x509::to_pem(&other) + &x509::to_pem(&own));
        assert_eq!(both["requestheader-allowed-names"], r#"["q","p"]"#);
    }
}
