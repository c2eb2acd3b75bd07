//! Addresses of the public internet, and all others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address belongs to the public internet (IANA special-purpose address registries). An IPv4 address that is
/// hidden in an IPv6 one (mapped, translated, tunnelled) is judged as what it is, or refused.
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = match (a, b, c) {
        (0 | 10 | 127 | 224.., _, _)
        | (169, 254, _)
        | (192, 168, _)
        | (192, 0, 0 | 2)
        | (192, 88, 99)
        | (198, 18 | 19, _)
        | (198, 51, 100)
        | (203, 0, 113) => true,
        (100, b, _) => b & 0xc0 == 64,
        (172, b, _) => b & 0xf0 == 16,
        _ => false,
    };
    !is_special
}

/// Only global unicast, 2000::/3, without what stands in there for something else: protocol assignments and Teredo
/// (2001::/23), documentation (2001:db8::/32, 3fff::/20) and 6to4 (2002::/16). The rest (loopback, unique local, link
/// local, NAT64, IPv4-compatible, multicast) lies outside.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    let is_special = (a == 0x2001 && (b < 0x200 || b == 0xdb8)) || a == 0x2002 || (a == 0x3fff && b < 0x1000);
    a & 0xe000 == 0x2000 && !is_special
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_public_internet_are_public() {
        for public in ["1.1.1.1", "100.63.0.1", "172.32.0.1", "192.1.0.1", "2606:4700::1111", "::ffff:8.8.8.8"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for private in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.168.1.1",
            "198.19.0.1",
            "203.0.113.9",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::10.0.0.1",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "fd00:ec2::254",
            "64:ff9b::7f00:1",
            "64:ff9b:1::7f00:1",
            "::ffff:0:7f00:1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "ff02::1",
            "3fff::1",
            "4000::1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
    }
}
