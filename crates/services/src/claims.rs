//! Claims: a key in storage for each address and each port that a service has. The parent module chooses
//! what to claim.
//!
//! # Definitions
//!
//! - *Claim*: a key for one address (an `IPAddress`, as upstream has them) or one port, that names the
//!   service that has it. It is only created if absent, so that of two services, on any number of servers, one
//!   gets it.
//! - *Hold*: a mark in a claim that a write which is under way relies on it: which write, and which revision
//!   of the service it would replace, its *base* (zero when it makes the service). Such a write is over for
//!   good once the service has a later revision.
//!
//! # Invariants
//!
//! 1. A write stores a service with what the service did not have only after it has put its hold there.
//! 2. Who gives up a claim knows a revision at which the service had no use for it. It deletes the claim only
//!    if no other write holds it from that revision on, and by compare and swap, so that a hold which comes in
//!    between is noticed. Whatever write has given the service a use for it since began at that revision or
//!    later, and its hold would be there.
//!
//! So the claim of what a service has is there and its own, and of all who gave one up the last deletes it. No
//! clock is asked, but for what a server leaves behind that dies in the middle of a write: that is taken over
//! by who wants it, when its last hold is older than any write gets and the service it names has no use for it.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::ranges::Family;
use watchet_api::{ResourceVersion, StorageKey};
use watchet_registry::stored_form::encode;
use watchet_registry::{ApiError, Current, ObjectIdentity, WriteId, metadata};
use watchet_storage::{Expect, KeyValue, Outcome, Put, Storage};

/// How long a hold counts: longer than any write takes from there on, which is one round of webhooks (30 s)
/// and storage's time, and by how much the clocks of two servers may differ.
const HOLD_MAX: Duration = Duration::from_secs(120);
/// How often others may change a claim while one write looks at it.
const TRIES_MAX: usize = 100;
/// Whose claim it is: a service of that name may be another one by now.
const UID: &str = "services.watchet/uid";
/// The holds: `WRITER/BASE/SECOND`, with commas between.
const HOLDS: &str = "services.watchet/holds";

/// Something of which each is one service's.
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

    /// What a service has.
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

/// What a claim says.
struct Claim {
    note: Value,
    at: ResourceVersion,
}

impl Claim {
    fn read(stored: &KeyValue) -> Result<Self, ApiError> {
        Ok(Self {
            note: Current::stored(stored)?.value,
            at: stored.mod_revision,
        })
    }

    fn annotation(&self, name: &str) -> &str {
        let value = &self.note["metadata"]["annotations"][name];
        value.as_str().unwrap_or_default()
    }

    fn parent(&self, member: &str) -> &str {
        let value = &self.note["spec"]["parentRef"][member];
        value.as_str().unwrap_or_default()
    }

    fn holds(&self) -> Vec<Hold> {
        let texts = self.annotation(HOLDS).split(',');
        texts.filter_map(Hold::read).collect()
    }

    /// When it was last held; without a time it is as old as can be.
    fn since(&self) -> Timestamp {
        let made = metadata::text(&self.note, "creationTimestamp").parse().ok();
        let held = self.holds().into_iter().map(|hold| hold.since);
        held.chain(made).max().unwrap_or(Timestamp::UNIX_EPOCH)
    }
}

/// The claims of one service.
pub(super) struct Claims<'a> {
    pub(super) storage: &'a dyn Storage,
    pub(super) owner: ObjectIdentity<'a>,
    pub(super) uid: &'a str,
}

impl Claims<'_> {
    /// Claims something for a write of the service as it is at `base`; false when it is another's.
    pub(super) async fn claim(
        &self,
        good: Allocated,
        writer: WriteId,
        base: ResourceVersion,
    ) -> Result<bool, ApiError> {
        let hold = Hold {
            writer,
            base,
            since: metadata::now(),
        };
        for _ in 0..TRIES_MAX {
            let made = self.note(good, &hold);
            if self.put(good, &made, Expect::Absent).await? {
                return Ok(true);
            }
            let Some(mut claim) = self.find(good).await? else {
                continue;
            };
            if self.is_own(&claim) {
                // Who replaces an earlier revision has lost already.
                let mut holds = claim.holds();
                holds.retain(|other| other.base >= base && other.writer != writer);
                holds.push(hold);
                self.mark(&mut claim.note, &holds);
                if self.put(good, &claim.note, Expect::At(claim.at)).await? {
                    return Ok(true);
                }
            } else if !self.is_abandoned(good, &claim).await? {
                return Ok(false);
            } else {
                self.storage.delete(&good.key(), claim.at).await?;
            }
        }
        Err(contended(good))
    }

    /// Whether it could be claimed now.
    pub(super) async fn is_free(&self, good: Allocated) -> Result<bool, ApiError> {
        match self.find(good).await? {
            None => Ok(true),
            Some(claim) => Ok(self.is_own(&claim) || self.is_abandoned(good, &claim).await?),
        }
    }

    /// Gives up what the service had no use for at revision `since`, on behalf of `writer`, if one held it.
    pub(super) async fn release(
        &self,
        good: Allocated,
        writer: Option<WriteId>,
        since: ResourceVersion,
    ) -> Result<(), ApiError> {
        for _ in 0..TRIES_MAX {
            let Some(mut claim) = self.find(good).await? else {
                return Ok(());
            };
            if !self.is_own(&claim) {
                return Ok(());
            }
            let holds = claim.holds();
            let mut others = holds.clone();
            others.retain(|hold| hold.base >= since && Some(hold.writer) != writer);
            let done = if others.is_empty() {
                let key = good.key();
                let deleted = self.storage.delete(&key, claim.at).await?;
                matches!(deleted, Outcome::Done(_))
            } else if !holds.iter().any(|hold| Some(hold.writer) == writer) {
                true
            } else {
                self.mark(&mut claim.note, &others);
                self.put(good, &claim.note, Expect::At(claim.at)).await?
            };
            if done {
                return Ok(());
            }
        }
        Err(contended(good))
    }

    async fn find(&self, good: Allocated) -> Result<Option<Claim>, ApiError> {
        let (stored, _) = self.storage.get(&good.key()).await?;
        stored.as_ref().map(Claim::read).transpose()
    }

    async fn put(&self, good: Allocated, note: &Value, expect: Expect) -> Result<bool, ApiError> {
        let put = Put {
            key: good.key(),
            value: encode(note),
            expect,
            ttl: None,
        };
        let outcome = self.storage.put(put).await?;
        Ok(matches!(outcome, Outcome::Done(_)))
    }

    /// One that a kube-apiserver made names the service only.
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
    async fn is_abandoned(&self, good: Allocated, claim: &Claim) -> Result<bool, ApiError> {
        let age = Timestamp::now().duration_since(claim.since());
        if age.as_secs() <= HOLD_MAX.as_secs() as i64 {
            return Ok(false);
        }
        let (namespace, name) = (claim.parent("namespace"), claim.parent("name"));
        let key = format!("/{}/{namespace}/{name}", self.owner.storage_prefix);
        let Some(key) = StorageKey::new(&key).ok().filter(|_| !namespace.is_empty()) else {
            // It names no service.
            return Ok(true);
        };
        match self.storage.get(&key).await? {
            (Some(stored), _) => {
                let service = Current::stored(&stored)?.value;
                Ok(!Allocated::all_of(&service).contains(&good))
            }
            (None, _) => Ok(true),
        }
    }

    /// A claim as it is stored. That of an address is an object that clients see.
    fn note(&self, good: Allocated, hold: &Hold) -> Value {
        let ObjectIdentity {
            namespace, name, ..
        } = self.owner;
        let parent =
            json!({"group": "", "resource": "services", "namespace": namespace, "name": name});
        let mut note = json!({
            "metadata": {
                "uid": Uuid::new_v4().to_string(),
                "creationTimestamp": metadata::now().to_string(),
            },
            "spec": {"parentRef": parent},
        });
        if let Allocated::Address(ip) = good {
            note["apiVersion"] = "networking.k8s.io/v1".into();
            note["kind"] = "IPAddress".into();
            note["metadata"]["name"] = ip.to_string().into();
            note["metadata"]["labels"] = json!({
                "ipaddress.kubernetes.io/ip-family": Family::of(ip).as_str(),
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            });
        }
        self.mark(&mut note, &[*hold]);
        note
    }

    /// Writes into a claim whose it is and who holds it.
    fn mark(&self, note: &mut Value, holds: &[Hold]) {
        let texts: Vec<String> = holds.iter().map(Hold::write).collect();
        note["metadata"]["annotations"][UID] = self.uid.into();
        note["metadata"]["annotations"][HOLDS] = texts.join(",").into();
    }
}

fn contended(good: Allocated) -> ApiError {
    ApiError::Timeout(format!(
        "others changed the claim of {good:?} {TRIES_MAX} times meanwhile"
    ))
}
