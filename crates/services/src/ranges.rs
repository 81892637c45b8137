//! The ranges of the cluster IPs: one, or one of each family. `claims` stores which addresses are allocated.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IP family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Returns the name of the family in `ipFamilies`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    fn bits(self) -> u32 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// Returns the minimum prefix length of a range, as upstream. A larger range has no use.
    fn prefix_min(self) -> u32 {
        match self {
            Self::V4 => 12,
            Self::V6 => 64,
        }
    }
}

/// An address range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    family: Family,
    base: u128,
    prefix: u32,
}

impl Range {
    /// Parses `ADDRESS/BITS`; ignores the address bits after the prefix.
    fn parse(text: &str) -> Result<Self, String> {
        let (address, prefix) = text
            .split_once('/')
            .ok_or_else(|| format!("{text:?} is not a range such as 10.96.0.0/12"))?;
        let no_range = || format!("{text:?} is not a range such as 10.96.0.0/12");
        let ip: IpAddr = address.parse().map_err(|_| no_range())?;
        let family = Family::of(ip);
        let prefix: u32 = prefix.parse().map_err(|_| no_range())?;
        let (min, max) = (family.prefix_min(), family.bits() - 3);
        if prefix > family.bits() {
            return Err(no_range());
        }
        if !(min..=max).contains(&prefix) {
            return Err(format!(
                "{text:?} must have a prefix of {min} to {max} bits: a range has at least 8 addresses"
            ));
        }
        let number = match ip {
            IpAddr::V4(ip) => u128::from(u32::from(ip)),
            IpAddr::V6(ip) => u128::from(ip),
        };
        let host = family.bits() - prefix;
        Ok(Self {
            family,
            base: number >> host << host,
            prefix,
        })
    }

    /// Returns the number of usable addresses: without the network address and, for IPv4, the broadcast address.
    pub(crate) fn len(&self) -> u64 {
        let all = 1_u128 << (self.family.bits() - self.prefix);
        let reserved = match self.family {
            Family::V4 => 2,
            Family::V6 => 1,
        };
        u64::try_from(all - reserved).unwrap_or(u64::MAX)
    }

    /// Returns the usable address with this index, from 0.
    pub(crate) fn at(&self, place: u64) -> IpAddr {
        let number = self.base + 1 + u128::from(place);
        match self.family {
            // An IPv4 base has 32 bits, and the index is in the range.
            Family::V4 => Ipv4Addr::from(number as u32).into(),
            Family::V6 => Ipv6Addr::from(number).into(),
        }
    }

    pub(crate) fn contains(&self, ip: IpAddr) -> bool {
        let number = match ip {
            IpAddr::V4(ip) => u128::from(u32::from(ip)),
            IpAddr::V6(ip) => u128::from(ip),
        };
        let place = number.checked_sub(self.base + 1);
        Family::of(ip) == self.family && place.is_some_and(|p| p < u128::from(self.len()))
    }

    /// Returns the number of addresses at the beginning of the range that are left for services that request an address,
    /// while others are free (KEP-3070): a sixteenth of the range, at least 16 and at most 256.
    pub(crate) fn static_len(&self) -> u64 {
        const MIN: u64 = 16;
        const MAX: u64 = 256;
        match 1_u128 << (self.family.bits() - self.prefix) {
            all if all < u128::from(MIN) => 0,
            all => u64::try_from(all / 16)
                .unwrap_or(MAX)
                .clamp(MIN, MAX)
                .min(self.len() - 1),
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base = match self.family {
            Family::V4 => IpAddr::from(Ipv4Addr::from(self.base as u32)),
            Family::V6 => IpAddr::from(Ipv6Addr::from(self.base)),
        };
        write!(f, "{base}/{}", self.prefix)
    }
}

/// The service IP ranges of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceRanges {
    first: Range,
    second: Option<Range>,
}

impl Default for ServiceRanges {
    /// Returns 10.96.0.0/12, the default of kubeadm.
    fn default() -> Self {
        Self {
            first: Range {
                family: Family::V4,
                base: u128::from(u32::from_be_bytes([10, 96, 0, 0])),
                prefix: 12,
            },
            second: None,
        }
    }
}

impl ServiceRanges {
    /// Parses one range, or one of each family separated by a comma. Services that specify no family get the first
    /// family.
    ///
    /// # Errors
    /// A message for users: why the text is invalid.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',').map(str::trim);
        let first = Range::parse(parts.next().unwrap_or_default())?;
        let second = parts.next().map(Range::parse).transpose()?;
        if parts.next().is_some() {
            return Err("must be one range or two".to_owned());
        }
        if second.is_some_and(|second| second.family == first.family) {
            return Err("two ranges must be of different IP families".to_owned());
        }
        Ok(Self { first, second })
    }

    /// Returns the address of the service `kubernetes`.
    pub fn api_address(&self) -> IpAddr {
        self.first.at(0)
    }

    /// Returns the family of services that specify none.
    pub(crate) fn default_family(&self) -> Family {
        self.first.family
    }

    pub(crate) fn of(&self, family: Family) -> Option<Range> {
        let mut both = [Some(self.first), self.second].into_iter().flatten();
        both.find(|range| range.family == family)
    }

    pub(crate) fn is_dual(&self) -> bool {
        self.second.is_some()
    }
}

impl fmt::Display for ServiceRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.second {
            None => write!(f, "{}", self.first),
            Some(second) => write!(f, "{},{second}", self.first),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Range {
        ServiceRanges::parse(text).unwrap().first
    }

    #[test]
    fn ranges_have_their_size_and_addresses() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        for (text, len, first, last, chosen) in [
            (
                "10.96.0.0/12",
                1_048_574,
                "10.96.0.1",
                "10.111.255.254",
                256,
            ),
            ("10.0.0.7/24", 254, "10.0.0.1", "10.0.0.254", 16),
            ("10.0.0.0/28", 14, "10.0.0.1", "10.0.0.14", 13),
            ("10.0.0.0/29", 6, "10.0.0.1", "10.0.0.6", 0),
            ("fd00::/108", 1_048_575, "fd00::1", "fd00::f:ffff", 256),
            (
                "fd00::/64",
                u64::MAX,
                "fd00::1",
                "fd00::ffff:ffff:ffff:ffff",
                256,
            ),
        ] {
            let range = range(text);
            assert_eq!(range.len(), len, "{text}");
            assert_eq!(
                (range.at(0), range.at(len - 1)),
                (ip(first), ip(last)),
                "{text}"
            );
            assert_eq!(range.static_len(), chosen, "{text}");
            assert!(
                range.contains(ip(first)) && range.contains(ip(last)),
                "{text}"
            );
        }
        let range = range("10.0.0.0/24");
        for outside in [
            "10.0.0.0",
            "10.0.0.255",
            "10.0.1.1",
            "9.255.255.255",
            "::a00:1",
        ] {
            assert!(!range.contains(ip(outside)), "{outside}");
        }
        assert_eq!(
            ServiceRanges::default(),
            ServiceRanges::parse("10.96.0.0/12").unwrap()
        );
    }

    #[test]
    fn two_ranges_must_have_different_families() {
        let both = ServiceRanges::parse("fd00::/108, 10.96.0.0/16").unwrap();
        assert_eq!(both.to_string(), "fd00::/108,10.96.0.0/16");
        assert_eq!(both.default_family(), Family::V6);
        assert!(both.is_dual() && both.of(Family::V4).is_some());
        assert_eq!(both.api_address().to_string(), "fd00::1");
        for (text, problem) in [
            ("", "is not a range"),
            ("10.0.0.0", "is not a range"),
            ("10.0.0.0/33", "is not a range"),
            ("x/8", "is not a range"),
            ("10.0.0.0/8", "12 to 29 bits"),
            ("10.0.0.0/30", "12 to 29 bits"),
            ("fd00::/48", "64 to 125 bits"),
            ("10.0.0.0/16,10.1.0.0/16", "different IP families"),
            ("10.0.0.0/16,fd00::/108,10.1.0.0/16", "one range or two"),
        ] {
            let error = ServiceRanges::parse(text).unwrap_err();
            assert!(error.contains(problem), "{text:?}: {error}");
        }
    }
}
