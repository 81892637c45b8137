//! Where the addresses of services and their ports on nodes come from.
//!
//! # Definitions
//!
//! - *Claim*: a key in storage for one address (an `IPAddress`, as upstream has them) or one port, that
//!   says which service has it. It is put where there is none, so of two that want the same, on however
//!   many servers, one gets it.
//!
//! # Invariants
//!
//! 1. A service is stored only with addresses and ports of which it has the claims.
//! 2. A claim goes with the write that gives up what it is for, and with the one that wanted it and was
//!    refused. One that is left behind by a server that died is taken over when somebody wants it and
//!    the service that it names has no use for it.
//!
//! # Beside a kube-apiserver
//!
//! On one etcd both see the same claims of addresses. Ports on nodes upstream keeps as one bitmap
//! (`/registry/ranges/servicenodeports`), which is not looked at here: it follows the services, within its
//! three minutes of repair, so only a port that both give away before that can be given twice.

mod families;
mod ranges;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

pub use ranges::ServiceRanges;
use ranges::{Family, Range};

use super::builtin::services::{has_cluster_ip, has_health_port, has_node_ports};
use super::write::{Current, Place, encode};
use super::{ApiError, Registry, Resource, Target, metadata};
use crate::api::{StatusCause, StorageKey};
use crate::storage::{Expect, KeyValue, Outcome, Put};

/// The ports on nodes.
const PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;
/// How many addresses are tried for one that is free.
const TRIES_MAX: u64 = 2048;
/// How long a claim may wait for its service to be written: longer than any write takes.
const UNUSED_MAX: Duration = Duration::from_secs(60);
/// Whose claim it is: a service of that name may be another one by now.
const UID: &str = "services.watchet/uid";

/// Something of which each is one service's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Good {
    Address(IpAddr),
    Port(u16),
}

impl Good {
    fn key(self) -> StorageKey {
        let key = match self {
            Self::Address(ip) => format!("/ipaddresses/{ip}"),
            Self::Port(port) => format!("/ranges/servicenodeports/{port}"),
        };
        StorageKey::new(&key).expect("addresses and numbers are a path")
    }

    /// Whether the service has it.
    fn is_of(self, service: &Value) -> bool {
        goods(service).contains(&self)
    }
}

/// What a service has.
fn goods(service: &Value) -> Vec<Good> {
    let spec = &service["spec"];
    let ips = spec["clusterIPs"].as_array().into_iter().flatten();
    let ips = ips
        .filter_map(Value::as_str)
        .filter_map(|ip| ip.parse().ok());
    let ports = spec["ports"].as_array().into_iter().flatten();
    let ports = ports.map(|port| &port["nodePort"]);
    let ports = ports.chain([&spec["healthCheckNodePort"]]);
    let ports = ports
        .filter_map(Value::as_u64)
        .filter_map(|port| u16::try_from(port).ok());
    let ports = ports.filter(|port| *port != 0);
    ips.map(Good::Address)
        .chain(ports.map(Good::Port))
        .collect()
}

/// One service's shopping.
struct Allocation<'a> {
    registry: &'a Registry,
    target: &'a Target,
    uid: String,
    dry_run: bool,
    /// Where the search begins: the same for each try of one write, which so finds its own claims.
    seed: u64,
}

/// Gives a service the address and the ports that its type asks for and that it does not have yet, and
/// claims those that it chose. `old` is the service as it is.
///
/// # Errors
/// 422 when what it chose is another's, or is out of range; storage's.
pub(super) async fn allocate(
    registry: &Registry,
    target: &Target,
    old: Option<&Value>,
    service: &mut Value,
    dry_run: bool,
) -> Result<(), ApiError> {
    if !target.resource.is("", "services") || target.subresource.is_some() {
        return Ok(());
    }
    let uid = metadata::text(service, "uid").to_owned();
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    let allocation = Allocation {
        registry,
        target,
        uid,
        dry_run,
        seed: hasher.finish(),
    };
    let allocated = allocation.fill(old, service).await;
    if allocated.is_err() && !dry_run {
        // What it got so far is of no use without the rest.
        settle(registry, &target.resource, service, old).await;
    }
    allocated
}

/// Gives up what a write claimed for the object `wanted` and did not get stored, if that is a service. What
/// the service that is there has by now stays its own.
pub(super) async fn give_back(registry: &Registry, place: &Place, wanted: &Value) {
    if !place.resource.is("", "services") {
        return;
    }
    let stored = match registry.read_stored(place).await {
        Ok(current) => Some(current.value),
        Err(error) if error.is_not_found() => None,
        Err(error) => {
            tracing::warn!(%error, "a service's claims are left behind");
            return;
        }
    };
    settle(registry, &place.resource, wanted, stored.as_ref()).await;
}

/// Gives up the claims on what the object `before` has and `after` has not, if they are services. A
/// failure is not the client's: it leaves a claim that nobody uses, which may be taken over.
pub(super) async fn settle(
    registry: &Registry,
    resource: &Resource,
    before: &Value,
    after: Option<&Value>,
) {
    if !resource.is("", "services") {
        return;
    }
    let uid = metadata::text(before, "uid");
    for good in goods(before) {
        if after.is_some_and(|after| good.is_of(after)) {
            continue;
        }
        if let Err(error) = release(registry, good, uid).await {
            tracing::warn!(?good, uid, %error, "a service's claim is left behind");
        }
    }
}

async fn release(registry: &Registry, good: Good, uid: &str) -> Result<(), ApiError> {
    let (stored, _) = registry.storage.get(&good.key()).await?;
    let Some(stored) = stored else {
        return Ok(());
    };
    if Claim::read(&stored)?.uid == uid {
        registry
            .storage
            .delete(&good.key(), stored.mod_revision)
            .await?;
    }
    Ok(())
}

impl Allocation<'_> {
    async fn fill(&self, old: Option<&Value>, service: &mut Value) -> Result<(), ApiError> {
        let ranges = &self.registry.service_ranges;
        let resource = &self.target.resource;
        families::fill(ranges, old, service)
            .map_err(|causes| ApiError::invalid(resource, &self.target.name, causes))?;
        let had = old.map(goods).unwrap_or_default();
        let spec = service["spec"].as_object().cloned().unwrap_or_default();
        if has_cluster_ip(&spec) && service["spec"]["clusterIP"] != "None" {
            self.addresses(&had, service).await?;
        }
        if has_node_ports(&spec) {
            self.ports(&had, service).await?;
        }
        if has_health_port(&spec) {
            let given = service["spec"]["healthCheckNodePort"].as_u64().unwrap_or(0);
            let port = match given {
                0 => self.free_port(u64::from(u16::MAX), &[]).await?,
                given => {
                    self.chosen_port(given, "spec.healthCheckNodePort", &had)
                        .await?
                }
            };
            service["spec"]["healthCheckNodePort"] = port.into();
        }
        Ok(())
    }

    /// An address of each family, in their order.
    async fn addresses(&self, had: &[Good], service: &mut Value) -> Result<(), ApiError> {
        let texts = |member: &str| -> Vec<String> {
            let list = service["spec"][member].as_array().into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let (families, mut given) = (texts("ipFamilies"), texts("clusterIPs"));
        for (index, family) in families.iter().enumerate() {
            let range = match &**family {
                "IPv4" => self.registry.service_ranges.of(Family::V4),
                _ => self.registry.service_ranges.of(Family::V6),
            };
            let ip = match (given.get(index), range) {
                (Some(chosen), range) => self.chosen_address(chosen, range, had).await?,
                (None, Some(range)) => self.free_address(range).await?,
                // One that prefers two families and was made when there were two.
                (None, None) => break,
            };
            given.truncate(index);
            given.push(ip);
        }
        if let Some(first) = given.first().cloned() {
            service["spec"]["clusterIP"] = first.into();
            service["spec"]["clusterIPs"] = json!(given);
        }
        Ok(())
    }

    async fn chosen_address(
        &self,
        given: &str,
        range: Option<Range>,
        had: &[Good],
    ) -> Result<String, ApiError> {
        let Ok(ip) = given.parse::<IpAddr>() else {
            return Err(self.refused_address(given, "it is no address"));
        };
        let good = Good::Address(ip);
        if had.contains(&good) {
            return Ok(given.to_owned());
        }
        let Some(range) = range.filter(|range| !range.contains(ip)) else {
            return match self.claim(good).await? {
                true => Ok(given.to_owned()),
                false => Err(self.refused_address(given, "provided IP is already allocated")),
            };
        };
        let why = format!(
            "the provided IP ({ip}) is not in the valid range. The range of valid IPs is {range}"
        );
        Err(self.refused_address(given, &why))
    }

    fn refused_address(&self, ip: &str, why: &str) -> ApiError {
        let message = format!("Invalid value: [{ip:?}]: failed to allocate IP {ip}: {why}");
        self.refused(StatusCause {
            reason: "FieldValueInvalid".to_owned(),
            message,
            field: "spec.clusterIPs".to_owned(),
        })
    }

    fn refused(&self, cause: StatusCause) -> ApiError {
        ApiError::invalid(&self.target.resource, &self.target.name, vec![cause])
    }

    /// One that nobody has: of those that nobody chooses, then of the others.
    async fn free_address(&self, range: Range) -> Result<String, ApiError> {
        let (chosen, all) = (range.chosen(), range.len());
        for (from, len) in [(chosen, all - chosen), (0, chosen)] {
            let start = self.seed.checked_rem(len).unwrap_or(0);
            for step in 0..len.min(TRIES_MAX) {
                let ip = range.at(from + (start + step) % len);
                if self.claim(Good::Address(ip)).await? {
                    return Ok(ip.to_string());
                }
            }
        }
        Err(ApiError::Unsupported(
            "failed to allocate a serviceIP: range is full".to_owned(),
        ))
    }

    /// The ports on nodes of all ports; one port of two protocols has the same for both.
    async fn ports(&self, had: &[Good], service: &mut Value) -> Result<(), ApiError> {
        let ports = service["spec"]["ports"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let mut taken: Vec<(u64, u16)> = Vec::new();
        for (index, port) in ports.iter().enumerate() {
            let number = port["port"].as_u64().unwrap_or(0);
            if let Some(given) = port["nodePort"].as_u64().filter(|given| *given != 0) {
                let field = format!("spec.ports[{index}].nodePort");
                let given = self.chosen_port(given, &field, had).await?;
                taken.push((number, given));
            }
        }
        for (index, port) in ports.iter().enumerate() {
            if port["nodePort"].as_u64().unwrap_or(0) != 0 {
                continue;
            }
            let number = port["port"].as_u64().unwrap_or(0);
            let shared = taken.iter().find(|(port, _)| *port == number);
            let given = match shared {
                Some((_, given)) => *given,
                None => self.free_port(number, &taken).await?,
            };
            taken.push((number, given));
            service["spec"]["ports"][index]["nodePort"] = given.into();
        }
        Ok(())
    }

    async fn chosen_port(&self, port: u64, field: &str, had: &[Good]) -> Result<u16, ApiError> {
        let known = u16::try_from(port).ok().filter(|port| PORTS.contains(port));
        let Some(known) = known else {
            let why = format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                PORTS.start(),
                PORTS.end()
            );
            return Err(self.refused(StatusCause::invalid_number(field, port, &why)));
        };
        let good = Good::Port(known);
        if had.contains(&good) || self.claim(good).await? {
            return Ok(known);
        }
        let why = "provided port is already allocated";
        Err(self.refused(StatusCause::invalid_number(field, port, why)))
    }

    async fn free_port(&self, number: u64, taken: &[(u64, u16)]) -> Result<u16, ApiError> {
        let choice = u64::from(PORTS.end() - PORTS.start()) + 1;
        let start = self.seed.wrapping_add(number.wrapping_mul(0x9e37_79b9)) % choice;
        for step in 0..choice {
            let port = PORTS.start() + ((start + step) % choice) as u16;
            let own = taken.iter().any(|(_, taken)| *taken == port);
            if !own && self.claim(Good::Port(port)).await? {
                return Ok(port);
            }
        }
        let full = "range is full";
        Err(self.refused(StatusCause::invalid("spec.ports", "", full)))
    }

    /// Claims something; false when it is another's.
    async fn claim(&self, good: Good) -> Result<bool, ApiError> {
        let storage = &self.registry.storage;
        if !self.dry_run {
            let put = Put {
                key: good.key(),
                value: encode(&self.note(good)),
                expect: Expect::Absent,
                ttl: None,
            };
            if let Outcome::Done(_) = storage.put(put).await? {
                return Ok(true);
            }
        }
        let (Some(stored), _) = storage.get(&good.key()).await? else {
            // Gone again: whoever gave it up did so just now. For a dry run it is free.
            return Ok(self.dry_run);
        };
        let claim = Claim::read(&stored)?;
        if claim.uid == self.uid {
            return Ok(true);
        }
        if self.dry_run || !self.is_abandoned(good, &claim).await? {
            return Ok(false);
        }
        let put = Put {
            key: good.key(),
            value: encode(&self.note(good)),
            expect: Expect::At(stored.mod_revision),
            ttl: None,
        };
        Ok(matches!(storage.put(put).await?, Outcome::Done(_)))
    }

    /// Whether nobody has a use for a claim any more.
    async fn is_abandoned(&self, good: Good, claim: &Claim) -> Result<bool, ApiError> {
        let age = Timestamp::now().duration_since(claim.since);
        if age.as_secs() <= UNUSED_MAX.as_secs() as i64 {
            return Ok(false);
        }
        let place = Place::new(&self.target.resource, Some(&claim.namespace), &claim.name)?;
        match self.registry.read_stored(&place).await {
            Ok(Current { value, .. }) => Ok(!good.is_of(&value)),
            Err(error) if error.is_not_found() => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// The claim as it is stored. That of an address is an object that clients see.
    fn note(&self, good: Good) -> Value {
        let parent = json!({
            "group": "", "resource": "services", "namespace": self.target.namespace,
            "name": self.target.name,
        });
        let mut note = json!({
            "metadata": {
                "uid": uuid::Uuid::new_v4().to_string(),
                "creationTimestamp": metadata::now().to_string(),
                "annotations": {UID: self.uid},
            },
            "spec": {"parentRef": parent},
        });
        if let Good::Address(ip) = good {
            note["apiVersion"] = "networking.k8s.io/v1".into();
            note["kind"] = "IPAddress".into();
            note["metadata"]["name"] = ip.to_string().into();
            note["metadata"]["labels"] = json!({
                "ipaddress.kubernetes.io/ip-family": Family::of(ip).as_str(),
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            });
        }
        note
    }
}

/// What a claim says.
struct Claim {
    namespace: String,
    name: String,
    uid: String,
    since: Timestamp,
}

impl Claim {
    fn read(stored: &KeyValue) -> Result<Self, ApiError> {
        let note = Current::stored(stored)?.value;
        let parent = &note["spec"]["parentRef"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(Self {
            namespace: text(&parent["namespace"]),
            name: text(&parent["name"]),
            uid: text(&note["metadata"]["annotations"][UID]),
            // Without a time it is as old as can be.
            since: text(&note["metadata"]["creationTimestamp"])
                .parse()
                .unwrap_or(Timestamp::UNIX_EPOCH),
        })
    }
}
