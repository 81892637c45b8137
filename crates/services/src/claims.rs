//! Claims: a key in storage for each address and each port that a service has. The parent module chooses the values.
//!
//! # Definitions
//!
//! - *Claim*: a key for one address (an `IPAddress`, as upstream) or one port, which names its service. It is created only if
//!   absent, so that of two services, on any number of servers, one gets it.
//! - *Hold*: an entry in a claim for a write in progress that relies on it: the write, and the revision of the service that it
//!   would replace, its *base* (zero for a create). Such a write cannot succeed any more once the service has a later
//!   revision.
//!
//! # Invariants
//!
//! 1. A write stores a service with a new value only after it has added its hold to the claim of that value.
//! 2. A release has a revision at which the service did not use the value. It deletes the claim only if no other write holds
//!    it from that revision on, by compare-and-swap, so that it detects a hold that is added concurrently. Any write that has
//!    given the value to the service since then began at that revision or later, and has its hold in the claim.
//!
//! Therefore every value of a service has a claim of that service, and the last release of a value deletes its claim. No clock
//! is used, except for the claims that a server leaves behind when it stops during a write: another service can take such a
//! claim over when its last hold is older than the longest write and the service that it names does not use the value.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::port_bitmap;
use super::ranges::Family;
use watchet_api::{ResourceVersion, StorageKey};
use watchet_registry::stored_form::encode;
use watchet_registry::{ApiError, Current, ObjectIdentity, WriteId, metadata};
use watchet_storage::{Expect, KeyValue, Outcome, Put, Storage, StorageError};

/// The maximum age of a hold: more than the longest write, which is one round of webhooks (30 s) and storage's time, and the
/// difference between the clocks of two servers.
const HOLD_MAX: Duration = Duration::from_secs(120);
/// The number of attempts of one write to change a claim.
const TRIES_MAX: usize = 100;
/// The annotation with the uid of the service, because another service with the same name may exist by now.
const UID: &str = "services.watchet/uid";
/// The annotation with the holds: `WRITER/BASE/SECOND`, separated by commas.
const HOLDS: &str = "services.watchet/holds";

/// A value that only one service can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Allocated {
    Address(IpAddr),
    Port(u16),
}

impl Allocated {
    fn key(self) -> StorageKey {
        let key = match self {
            Self::Address(ip) => format!("/ipaddresses/{ip}"),
            Self::Port(port) => format!("/ranges/servicenodeports/{port}"),
        };
        StorageKey::new(&key).expect("addresses and numbers are a path")
    }

    /// Returns the values of a service.
    pub(super) fn all_of(service: &Value) -> Vec<Self> {
        let spec = &service["spec"];
        let ips = spec["clusterIPs"].as_array().into_iter().flatten();
        let ips = ips.filter_map(Value::as_str);
        let ips = ips.filter_map(|ip| ip.parse().ok()).map(Self::Address);
        let ports = spec["ports"].as_array().into_iter().flatten();
        let ports = ports.map(|port| &port["nodePort"]);
        let ports = ports.chain([&spec["healthCheckNodePort"]]);
        let ports = ports.filter_map(Value::as_u64);
        let ports = ports.filter_map(|port| u16::try_from(port).ok());
        ips.chain(ports.filter(|port| *port != 0).map(Self::Port))
            .collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hold {
    writer: WriteId,
    base: ResourceVersion,
    since: Timestamp,
}

impl Hold {
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let hold = Self {
            writer: WriteId(parts.next()?.parse().ok()?),
            base: parts.next()?.parse().ok()?,
            since: Timestamp::from_second(parts.next()?.parse().ok()?).ok()?,
        };
        parts.next().is_none().then_some(hold)
    }

    fn write(&self) -> String {
        let Self {
            writer,
            base,
            since,
        } = self;
        format!("{}/{base}/{}", writer.0.simple(), since.as_second())
    }
}

/// A stored claim.
struct Claim {
    object: Value,
    at: ResourceVersion,
}

impl Claim {
    fn read(stored: &KeyValue) -> Result<Self, ApiError> {
        Ok(Self {
            object: Current::stored(stored)?.value,
            at: stored.mod_revision,
        })
    }

    fn annotation(&self, name: &str) -> &str {
        let value = &self.object["metadata"]["annotations"][name];
        value.as_str().unwrap_or_default()
    }

    fn parent(&self, member: &str) -> &str {
        let value = &self.object["spec"]["parentRef"][member];
        value.as_str().unwrap_or_default()
    }

    fn holds(&self) -> Vec<Hold> {
        let texts = self.annotation(HOLDS).split(',');
        texts.filter_map(Hold::read).collect()
    }

    /// Returns the time of the last hold or of the creation, whichever is later; the epoch if the claim has neither.
    fn since(&self) -> Timestamp {
        let created = metadata::text(&self.object, "creationTimestamp")
            .parse()
            .ok();
        let held = self.holds().into_iter().map(|hold| hold.since);
        held.chain(created).max().unwrap_or(Timestamp::UNIX_EPOCH)
    }
}

/// The claims of one service.
pub(super) struct Claims<'a> {
    pub(super) storage: &'a dyn Storage,
    pub(super) owner: ObjectIdentity<'a>,
    pub(super) uid: &'a str,
}

impl Claims<'_> {
    /// Claims a value for a write of the service at revision `base`. Returns false if another service has it.
    pub(super) async fn claim(
        &self,
        value: Allocated,
        writer: WriteId,
        base: ResourceVersion,
    ) -> Result<bool, ApiError> {
        let hold = Hold {
            writer,
            base,
            since: metadata::now(),
        };
        for _ in 0..TRIES_MAX {
            if let Some(is_claimed) = self.create(value, &hold).await? {
                return Ok(is_claimed);
            }
            let Some(mut claim) = self.find(value).await? else {
                continue;
            };
            if self.is_own(&claim) {
                // Writes that replace an earlier revision cannot succeed any more.
                let mut holds = claim.holds();
                holds.retain(|other| other.base >= base && other.writer != writer);
                holds.push(hold);
                self.set_holds(&mut claim.object, &holds);
                if self.put(value, &claim.object, Expect::At(claim.at)).await? {
                    return Ok(true);
                }
            } else if !self.is_abandoned(value, &claim).await? {
                return Ok(false);
            } else {
                self.delete(value, &claim).await?;
            }
        }
        Err(contended(value))
    }

    /// Creates the claim of a value. Returns false if a kube-apiserver has allocated the port, and `None` if the claim
    /// exists.
    async fn create(&self, value: Allocated, hold: &Hold) -> Result<Option<bool>, ApiError> {
        if let Allocated::Port(port) = value
            && !port_bitmap::allocate(self.storage, port).await?
        {
            // Another server of this project sets the bit before it creates its claim.
            let exists = self.find(value).await?.is_some();
            return Ok((!exists).then_some(false));
        }
        let claim = self.object(value, hold);
        let created = self.put(value, &claim, Expect::Absent).await;
        if let (Err(error), Allocated::Port(port)) = (&created, value) {
            self.clear_bit(port, error).await;
        }
        Ok(created?.then_some(true))
    }

    /// Clears the bit of `port`, which this server has just set, after the creation of its claim failed with `error`. The
    /// bit stays if the claim may have been created: no bit can be cleared later, because a kube-apiserver may have
    /// allocated the port to a service that it has not stored yet.
    async fn clear_bit(&self, port: u16, error: &ApiError) {
        if matches!(error, ApiError::Storage(StorageError::OutcomeUnknown(_))) {
            return;
        }
        if let Err(error) = port_bitmap::release(self.storage, port).await {
            tracing::warn!(port, %error, "cannot release a node port in the bitmap of kube-apiserver");
        }
    }

    /// Deletes a claim, and clears the bit of its port; returns false if it has changed.
    async fn delete(&self, value: Allocated, claim: &Claim) -> Result<bool, ApiError> {
        let deleted = self.storage.delete(&value.key(), claim.at).await?;
        if !matches!(deleted, Outcome::Done(_)) {
            return Ok(false);
        }
        if let Allocated::Port(port) = value {
            port_bitmap::release(self.storage, port).await?;
        }
        Ok(true)
    }

    /// Returns true if the value could be claimed.
    pub(super) async fn is_free(&self, value: Allocated) -> Result<bool, ApiError> {
        match (self.find(value).await?, value) {
            (None, Allocated::Port(port)) => {
                Ok(!port_bitmap::is_allocated(self.storage, port).await?)
            }
            (None, Allocated::Address(_)) => Ok(true),
            (Some(claim), _) => Ok(self.is_own(&claim) || self.is_abandoned(value, &claim).await?),
        }
    }

    /// Releases a value that the service did not use at revision `since`, and the hold of `writer`, if it has one.
    pub(super) async fn release(
        &self,
        value: Allocated,
        writer: Option<WriteId>,
        since: ResourceVersion,
    ) -> Result<(), ApiError> {
        for _ in 0..TRIES_MAX {
            let Some(mut claim) = self.find(value).await? else {
                return Ok(());
            };
            if !self.is_own(&claim) {
                return Ok(());
            }
            let holds = claim.holds();
            let mut others = holds.clone();
            others.retain(|hold| hold.base >= since && Some(hold.writer) != writer);
            let done = if others.is_empty() {
                self.delete(value, &claim).await?
            } else if !holds.iter().any(|hold| Some(hold.writer) == writer) {
                true
            } else {
                self.set_holds(&mut claim.object, &others);
                self.put(value, &claim.object, Expect::At(claim.at)).await?
            };
            if done {
                return Ok(());
            }
        }
        Err(contended(value))
    }

    async fn find(&self, value: Allocated) -> Result<Option<Claim>, ApiError> {
        let (stored, _) = self.storage.get(&value.key()).await?;
        stored.as_ref().map(Claim::read).transpose()
    }

    async fn put(
        &self,
        value: Allocated,
        object: &Value,
        expect: Expect,
    ) -> Result<bool, ApiError> {
        let put = Put {
            key: value.key(),
            value: encode(object),
            expect,
            ttl: None,
        };
        let outcome = self.storage.put(put).await?;
        Ok(matches!(outcome, Outcome::Done(_)))
    }

    /// Returns true if the claim belongs to this service. A claim of a kube-apiserver has only the name of the service.
    fn is_own(&self, claim: &Claim) -> bool {
        match claim.annotation(UID) {
            "" => {
                claim.parent("resource") == "services"
                    && claim.parent("name") == self.owner.name
                    && claim.parent("namespace") == self.owner.namespace
            }
            uid => uid == self.uid,
        }
    }

    /// Returns true if no service uses this claim.
    async fn is_abandoned(&self, value: Allocated, claim: &Claim) -> Result<bool, ApiError> {
        let age = Timestamp::now().duration_since(claim.since());
        if age.as_secs() <= HOLD_MAX.as_secs() as i64 {
            return Ok(false);
        }
        let (namespace, name) = (claim.parent("namespace"), claim.parent("name"));
        let key = format!("/{}/{namespace}/{name}", self.owner.storage_prefix);
        let Some(key) = StorageKey::new(&key).ok().filter(|_| !namespace.is_empty()) else {
            // The claim contains no name of a service.
            return Ok(true);
        };
        match self.storage.get(&key).await? {
            (Some(stored), _) => {
                let service = Current::stored(&stored)?.value;
                Ok(!Allocated::all_of(&service).contains(&value))
            }
            (None, _) => Ok(true),
        }
    }

    /// Returns a new claim. The claim of an address is an object that clients see.
    fn object(&self, value: Allocated, hold: &Hold) -> Value {
        let ObjectIdentity {
            namespace, name, ..
        } = self.owner;
        let parent =
            json!({"group": "", "resource": "services", "namespace": namespace, "name": name});
        let mut object = json!({
            "metadata": {
                "uid": Uuid::new_v4().to_string(),
                "creationTimestamp": metadata::now().to_string(),
            },
            "spec": {"parentRef": parent},
        });
        if let Allocated::Address(ip) = value {
            object["apiVersion"] = "networking.k8s.io/v1".into();
            object["kind"] = "IPAddress".into();
            object["metadata"]["name"] = ip.to_string().into();
            object["metadata"]["labels"] = json!({
                "ipaddress.kubernetes.io/ip-family": Family::of(ip).as_str(),
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            });
        }
        self.set_holds(&mut object, &[*hold]);
        object
    }

    /// Writes the uid of the service and the holds into a claim.
    fn set_holds(&self, object: &mut Value, holds: &[Hold]) {
        let texts: Vec<String> = holds.iter().map(Hold::write).collect();
        object["metadata"]["annotations"][UID] = self.uid.into();
        object["metadata"]["annotations"][HOLDS] = texts.join(",").into();
    }
}

fn contended(value: Allocated) -> ApiError {
    ApiError::Timeout(format!(
        "the claim of {value:?} was changed concurrently {TRIES_MAX} times: try again"
    ))
}
