//! Where the addresses of services and their ports on nodes come from: which are chosen, and when they are
//! claimed and given up. How a claim stays one service's is told by `claims`.
//!
//! # Beside a kube-apiserver
//!
//! On one etcd both see the same claims of addresses. Ports on nodes upstream keeps as one bitmap
//! (`/registry/ranges/servicenodeports`), which is not looked at here: it follows the services, within its
//! three minutes of repair, so only a port that both give away before that can be given twice.

mod claims;
mod families;
mod ranges;
pub(crate) mod spec;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::net::IpAddr;

use serde_json::{Value, json};

pub(crate) use claims::Writer;
use claims::{Claims, Good, Owner};
pub use ranges::ServiceRanges;
use ranges::{Family, Range};

use self::spec::{has_cluster_ip, has_health_port, has_node_ports};
use crate::api::{ResourceVersion, StatusCause};
use crate::registry::guaranteed_update::{Current, Place};
use crate::registry::{ApiError, Registry, Target, metadata};
use crate::storage::StorageError;

/// The ports on nodes.
const PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;
/// How many addresses are tried for one that is free.
const TRIES_MAX: u64 = 2048;
const HEALTH_PORT: &str = "spec.healthCheckNodePort";

/// One service's shopping.
struct Allocation<'a> {
    registry: &'a Registry,
    target: &'a Target,
    uid: String,
    writer: Writer,
    /// Which revision of the service the write would replace.
    base: ResourceVersion,
    dry_run: bool,
    /// Where the search begins.
    seed: u64,
}

/// Gives a service the address and the ports that its type asks for and that it does not have yet, and
/// claims those that it chose. `old` is the service as it is, and at which revision it is so.
///
/// # Errors
/// 422 when what it chose is another's, or is out of range; storage's. Nothing is claimed then.
pub(crate) async fn allocate(
    registry: &Registry,
    target: &Target,
    writer: Writer,
    old: Option<(&Value, ResourceVersion)>,
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
        writer,
        base: old.map_or(ResourceVersion::ZERO, |(_, at)| at),
        dry_run,
        seed: hasher.finish(),
    };
    let allocated = allocation.fill(old.map(|(old, _)| old), service).await;
    if allocated.is_err() && !dry_run {
        // What it got so far is of no use without the rest.
        give_up(registry, target.into(), Some(writer), old, service).await;
    }
    allocated
}

/// Gives up what `writer` claimed for the object `wanted` that was to follow `current` and was not stored, if
/// that is a service.
pub(crate) async fn withdraw(
    registry: &Registry,
    owner: Owner<'_>,
    writer: Option<Writer>,
    current: Option<&Current>,
    wanted: &Value,
    why: Option<&ApiError>,
) {
    // It may have been stored, or will be in a moment. Its claims are then its own; otherwise they are left
    // behind for who wants them.
    if let Some(ApiError::Storage(StorageError::Unavailable(_))) = why {
        return;
    }
    let old = current.map(|current| (&current.value, current.at));
    give_up(registry, owner, writer, old, wanted).await;
}

async fn give_up(
    registry: &Registry,
    owner: Owner<'_>,
    writer: Option<Writer>,
    old: Option<(&Value, ResourceVersion)>,
    wanted: &Value,
) {
    let had = old.map(|(old, _)| Good::all_of(old)).unwrap_or_default();
    let since = old.map_or(ResourceVersion::ZERO, |(_, at)| at);
    release(registry, owner, writer, &had, wanted, since).await;
}

/// Gives up the claims on what the object `before` had, which was replaced by `after` at revision `at`, if they
/// are services.
pub(crate) async fn settle(
    registry: &Registry,
    place: &Place,
    before: &Value,
    after: &Value,
    at: ResourceVersion,
) {
    let has = Good::all_of(after);
    release(registry, place.into(), None, &has, before, at).await;
}

/// Gives up all claims on what an object had that was deleted, if it is a service: no write brings it back.
/// Its `states` are the one that was there and the one that the write which deleted it made of that.
pub(crate) async fn bury(registry: &Registry, place: &Place, states: [&Value; 2]) {
    if !place.resource.is("", "services") {
        return;
    }
    for state in states {
        let end = ResourceVersion::new(u64::MAX);
        release(registry, place.into(), None, &[], state, end).await;
        if states[0]["spec"] == states[1]["spec"] {
            break;
        }
    }
}

/// A failure is not the client's: it leaves a claim that nobody uses, which may be taken over.
async fn release(
    registry: &Registry,
    owner: Owner<'_>,
    writer: Option<Writer>,
    keeps: &[Good],
    service: &Value,
    since: ResourceVersion,
) {
    if !owner.resource.is("", "services") {
        return;
    }
    let uid = metadata::text(service, "uid");
    let claims = Claims {
        registry,
        owner,
        uid,
    };
    for good in Good::all_of(service) {
        if keeps.contains(&good) {
            continue;
        }
        if let Err(error) = claims.release(good, writer, since).await {
            tracing::warn!(?good, uid, %error, "a service's claim is left behind");
        }
    }
}

impl Allocation<'_> {
    async fn fill(&self, old: Option<&Value>, service: &mut Value) -> Result<(), ApiError> {
        let ranges = &self.registry.service_ranges;
        let resource = &self.target.resource;
        families::fill(ranges, old, service)
            .map_err(|causes| ApiError::invalid(resource, &self.target.name, causes))?;
        let had = old.map(Good::all_of).unwrap_or_default();
        let spec = service["spec"].as_object().cloned().unwrap_or_default();
        if has_cluster_ip(&spec) && service["spec"]["clusterIP"] != "None" {
            self.addresses(&had, service).await?;
        }
        if has_node_ports(&spec) {
            self.ports(&had, service).await?;
        }
        if has_health_port(&spec) {
            self.health_port(&had, service).await?;
        }
        Ok(())
    }

    /// The port that a balancer asks for the service's health: none of the service's own others.
    async fn health_port(&self, had: &[Good], service: &mut Value) -> Result<(), ApiError> {
        let ports = service["spec"]["ports"].as_array().into_iter().flatten();
        let taken = ports.filter_map(|port| port["nodePort"].as_u64());
        let taken: Vec<u64> = taken.collect();
        let port = match service["spec"]["healthCheckNodePort"].as_u64().unwrap_or(0) {
            0 => self.free_port(u64::from(u16::MAX), &taken).await?,
            given if taken.contains(&given) => return Err(self.taken_port(given, HEALTH_PORT)),
            given => self.chosen_port(given, HEALTH_PORT, had).await?,
        };
        service["spec"]["healthCheckNodePort"] = port.into();
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
        let health = service["spec"]["healthCheckNodePort"].as_u64();
        let mut shared: Vec<(u64, u16)> = Vec::new();
        let mut taken: Vec<u64> = health.into_iter().collect();
        for (index, port) in ports.iter().enumerate() {
            let number = port["port"].as_u64().unwrap_or(0);
            if let Some(given) = port["nodePort"].as_u64().filter(|given| *given != 0) {
                let field = format!("spec.ports[{index}].nodePort");
                let chosen = self.chosen_port(given, &field, had).await?;
                shared.push((number, chosen));
                taken.push(given);
            }
        }
        for (index, port) in ports.iter().enumerate() {
            if port["nodePort"].as_u64().unwrap_or(0) != 0 {
                continue;
            }
            let number = port["port"].as_u64().unwrap_or(0);
            let same = shared.iter().find(|(port, _)| *port == number);
            let given = match same {
                Some((_, given)) => *given,
                None => self.free_port(number, &taken).await?,
            };
            shared.push((number, given));
            taken.push(given.into());
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
        Err(self.taken_port(port, field))
    }

    fn taken_port(&self, port: u64, field: &str) -> ApiError {
        let why = "provided port is already allocated";
        self.refused(StatusCause::invalid_number(field, port, why))
    }

    async fn free_port(&self, number: u64, taken: &[u64]) -> Result<u16, ApiError> {
        let choice = u64::from(PORTS.end() - PORTS.start()) + 1;
        let start = self.seed.wrapping_add(number.wrapping_mul(0x9e37_79b9)) % choice;
        for step in 0..choice {
            let port = PORTS.start() + ((start + step) % choice) as u16;
            if !taken.contains(&port.into()) && self.claim(Good::Port(port)).await? {
                return Ok(port);
            }
        }
        let full = "range is full";
        Err(self.refused(StatusCause::invalid("spec.ports", "", full)))
    }

    /// Claims something; false when it is another's.
    async fn claim(&self, good: Good) -> Result<bool, ApiError> {
        let claims = Claims {
            registry: self.registry,
            owner: self.target.into(),
            uid: &self.uid,
        };
        match self.dry_run {
            true => claims.is_free(good).await,
            false => claims.claim(good, self.writer, self.base).await,
        }
    }
}
