//! The addresses that a request came from.

use std::net::IpAddr;

/// Returns the addresses in upstream's order: those of `X-Forwarded-For` (the client first), `X-Real-Ip` and the remote
/// address, the last two unless they repeat the address before them. Clients choose the headers: only the remote
/// address is certain.
pub fn source_ips(
    forwarded_for: Option<&str>,
    real_ip: Option<&str>,
    remote: Option<IpAddr>,
) -> Vec<IpAddr> {
    let address = |text: &str| text.trim().parse::<IpAddr>().ok();
    let forwarded = forwarded_for.unwrap_or_default().split(',');
    let mut addresses: Vec<IpAddr> = forwarded.filter_map(address).collect();
    for next in [real_ip.and_then(address), remote].into_iter().flatten() {
        let next = next.to_canonical();
        if addresses.last() != Some(&next) {
            addresses.push(next);
        }
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(forwarded: &str, real: &str, remote: &str, expect: &str) {
        let forwarded = (!forwarded.is_empty()).then_some(forwarded);
        let real = (!real.is_empty()).then_some(real);
        let actual = source_ips(forwarded, real, Some(remote.parse().unwrap()));
        let actual: Vec<String> = actual.iter().map(ToString::to_string).collect();
        assert_eq!(actual.join(" "), expect);
    }

    #[test]
    fn addresses_are_in_the_order_of_the_hops() {
        check("", "", "10.0.0.9", "10.0.0.9");
        check(
            "1.1.1.1, 2.2.2.2",
            "",
            "10.0.0.9",
            "1.1.1.1 2.2.2.2 10.0.0.9",
        );
        check("1.1.1.1, x", "1.1.1.1", "10.0.0.9", "1.1.1.1 10.0.0.9");
        check("", "1.1.1.1", "1.1.1.1", "1.1.1.1");
        check("", "", "::ffff:10.0.0.9", "10.0.0.9");
    }
}
