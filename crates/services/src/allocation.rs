//! The allocation for one write: chooses the addresses and ports of a service, claims them, and releases them.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::claims::{Allocated, Claims};
use crate::families;
use crate::ranges::{Family, Range, ServiceRanges};
use crate::spec::{has_cluster_ip, has_health_port, has_node_ports};
use watchet_api::{ResourceVersion, StatusCause};
use watchet_registry::{ApiError, ObjectIdentity, WriteId, metadata};
use watchet_storage::Storage;

/// The range of node ports.
const PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;
/// The number of addresses that an allocation tries before it fails.
const TRIES_MAX: u64 = 2048;
const HEALTH_PORT: &str = "spec.healthCheckNodePort";

/// The allocation for one write of a service.
pub(crate) struct Allocation<'a> {
    pub(crate) storage: &'a dyn Storage,
    pub(crate) ranges: &'a ServiceRanges,
    pub(crate) owner: ObjectIdentity<'a>,
    pub(crate) uid: String,
    pub(crate) writer: WriteId,
    /// The revision of the service that the write would replace.
    pub(crate) base: ResourceVersion,
    pub(crate) dry_run: bool,
    /// Determines where the search for a free value starts.
    pub(crate) seed: u64,
}

impl Allocation<'_> {
    pub(crate) async fn fill(
        &self,
        old: Option<&Value>,
        service: &mut Value,
    ) -> Result<(), ApiError> {
        let ranges = self.ranges;
        families::fill(ranges, old, service).map_err(|causes| self.invalid(causes))?;
        let had = old.map(Allocated::all_of).unwrap_or_default();
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

    /// Allocates the health check node port, which differs from the node ports of the service.
    async fn health_port(&self, had: &[Allocated], service: &mut Value) -> Result<(), ApiError> {
        let ports = service["spec"]["ports"].as_array().into_iter().flatten();
        let used = ports.filter_map(|port| port["nodePort"].as_u64());
        let used: Vec<u64> = used.collect();
        let port = match service["spec"]["healthCheckNodePort"].as_u64().unwrap_or(0) {
            0 => self.free_port(u64::from(u16::MAX), &used).await?,
            given if used.contains(&given) => return Err(self.port_in_use(given, HEALTH_PORT)),
            given => self.chosen_port(given, HEALTH_PORT, had).await?,
        };
        service["spec"]["healthCheckNodePort"] = port.into();
        Ok(())
    }

    /// Allocates an address for each family of the service, in the order of `ipFamilies`.
    async fn addresses(&self, had: &[Allocated], service: &mut Value) -> Result<(), ApiError> {
        let texts = |member: &str| -> Vec<String> {
            let list = service["spec"][member].as_array().into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let (families, mut given) = (texts("ipFamilies"), texts("clusterIPs"));
        for (index, family) in families.iter().enumerate() {
            let range = match &**family {
                "IPv4" => self.ranges.of(Family::V4),
                _ => self.ranges.of(Family::V6),
            };
            let ip = match (given.get(index), range) {
                (Some(chosen), range) => self.chosen_address(chosen, range, had).await?,
                (None, Some(range)) => self.free_address(range).await?,
                // The service prefers dual stack and was created when the cluster had two ranges.
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
        had: &[Allocated],
    ) -> Result<String, ApiError> {
        let Ok(ip) = given.parse::<IpAddr>() else {
            return Err(self.address_error(given, "not a valid IP address"));
        };
        let value = Allocated::Address(ip);
        if had.contains(&value) {
            return Ok(given.to_owned());
        }
        let Some(range) = range.filter(|range| !range.contains(ip)) else {
            return match self.claim(value).await? {
                true => Ok(given.to_owned()),
                false => Err(self.address_error(given, "provided IP is already allocated")),
            };
        };
        let why = format!(
            "the provided IP ({ip}) is not in the valid range. The range of valid IPs is {range}"
        );
        Err(self.address_error(given, &why))
    }

    fn address_error(&self, ip: &str, why: &str) -> ApiError {
        let message = format!("Invalid value: [{ip:?}]: failed to allocate IP {ip}: {why}");
        self.invalid_field(StatusCause {
            reason: "FieldValueInvalid".to_owned(),
            message,
            field: "spec.clusterIPs".to_owned(),
        })
    }

    fn invalid_field(&self, cause: StatusCause) -> ApiError {
        self.invalid(vec![cause])
    }

    fn invalid(&self, causes: Vec<StatusCause>) -> ApiError {
        ApiError::Invalid {
            group: String::new(),
            kind: "Service".to_owned(),
            name: self.owner.name.to_owned(),
            causes,
        }
    }

    /// Claims a free address: first from the dynamic part of the range, then from the part that is left for requested
    /// addresses (KEP-3070).
    async fn free_address(&self, range: Range) -> Result<String, ApiError> {
        let (chosen, all) = (range.static_len(), range.len());
        for (from, len) in [(chosen, all - chosen), (0, chosen)] {
            let start = self.seed.checked_rem(len).unwrap_or(0);
            for step in 0..len.min(TRIES_MAX) {
                let ip = range.at(from + (start + step) % len);
                if self.claim(Allocated::Address(ip)).await? {
                    return Ok(ip.to_string());
                }
            }
        }
        Err(ApiError::Unsupported(
            "failed to allocate a serviceIP: range is full".to_owned(),
        ))
    }

    /// Allocates the node ports. Ports with the same number and different protocols share a node port.
    async fn ports(&self, had: &[Allocated], service: &mut Value) -> Result<(), ApiError> {
        let ports = service["spec"]["ports"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let health = service["spec"]["healthCheckNodePort"].as_u64();
        let mut shared: Vec<(u64, u16)> = Vec::new();
        let mut used: Vec<u64> = health.into_iter().collect();
        for (index, port) in ports.iter().enumerate() {
            let number = port["port"].as_u64().unwrap_or(0);
            if let Some(given) = port["nodePort"].as_u64().filter(|given| *given != 0) {
                let field = format!("spec.ports[{index}].nodePort");
                let chosen = self.chosen_port(given, &field, had).await?;
                shared.push((number, chosen));
                used.push(given);
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
                None => self.free_port(number, &used).await?,
            };
            shared.push((number, given));
            used.push(given.into());
            service["spec"]["ports"][index]["nodePort"] = given.into();
        }
        Ok(())
    }

    async fn chosen_port(
        &self,
        port: u64,
        field: &str,
        had: &[Allocated],
    ) -> Result<u16, ApiError> {
        let known = u16::try_from(port).ok().filter(|port| PORTS.contains(port));
        let Some(known) = known else {
            let why = format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                PORTS.start(),
                PORTS.end()
            );
            return Err(self.invalid_field(StatusCause::invalid_number(field, port, &why)));
        };
        let value = Allocated::Port(known);
        if had.contains(&value) || self.claim(value).await? {
            return Ok(known);
        }
        Err(self.port_in_use(port, field))
    }

    fn port_in_use(&self, port: u64, field: &str) -> ApiError {
        let why = "provided port is already allocated";
        self.invalid_field(StatusCause::invalid_number(field, port, why))
    }

    async fn free_port(&self, number: u64, used: &[u64]) -> Result<u16, ApiError> {
        let choice = u64::from(PORTS.end() - PORTS.start()) + 1;
        let start = self.seed.wrapping_add(number.wrapping_mul(0x9e37_79b9)) % choice;
        for step in 0..choice {
            let port = PORTS.start() + ((start + step) % choice) as u16;
            if !used.contains(&port.into()) && self.claim(Allocated::Port(port)).await? {
                return Ok(port);
            }
        }
        let full = "range is full";
        Err(self.invalid_field(StatusCause::invalid("spec.ports", "", full)))
    }

    /// Claims a value. Returns false if another service has it.
    async fn claim(&self, value: Allocated) -> Result<bool, ApiError> {
        let claims = Claims {
            storage: self.storage,
            owner: self.owner,
            uid: &self.uid,
        };
        match self.dry_run {
            true => claims.is_free(value).await,
            false => claims.claim(value, self.writer, self.base).await,
        }
    }
}

/// Releases the values that `service` has and `old` does not have.
pub(crate) async fn release_new(
    storage: &dyn Storage,
    owner: ObjectIdentity<'_>,
    writer: Option<WriteId>,
    old: Option<(&Value, ResourceVersion)>,
    service: &Value,
) {
    let had = old
        .map(|(old, _)| Allocated::all_of(old))
        .unwrap_or_default();
    let since = old.map_or(ResourceVersion::ZERO, |(_, at)| at);
    release(storage, owner, writer, &had, service, since).await;
}

/// Releases the values that `service` has and that `retained` does not contain. A failure is only logged: it leaves an
/// unused claim, which another service can take over.
pub(crate) async fn release(
    storage: &dyn Storage,
    owner: ObjectIdentity<'_>,
    writer: Option<WriteId>,
    retained: &[Allocated],
    service: &Value,
    since: ResourceVersion,
) {
    let uid = metadata::text(service, "uid");
    let claims = Claims {
        storage,
        owner,
        uid,
    };
    for allocated in Allocated::all_of(service) {
        if retained.contains(&allocated) {
            continue;
        }
        if let Err(error) = claims.release(allocated, writer, since).await {
            tracing::warn!(?allocated, uid, %error, "cannot release a claim of a service");
        }
    }
}
