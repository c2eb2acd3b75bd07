//! Which places commands may reach: names, names below a name, and addresses, each with a port.

use crate::settings::Destination;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// How many of the places a refusal names.
const NAMED: usize = 20;

/// All that were listed.
#[derive(Clone, Debug)]
pub(crate) struct Places(Vec<Place>);

#[derive(Clone, Debug)]
struct Place {
    host: Host,
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    Address(IpAddr),
    Name(String),
    /// `.example.com`: every name that ends so.
    Below(String),
}

/// Whom somebody asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    host: Host,
    pub(super) port: u16,
}

// === impl Places ===

impl Places {
    /// As they are listed.
    ///
    /// # Errors
    /// One of them can never be asked for.
    pub(crate) fn new(listed: &[Destination]) -> Result<Places, String> {
        let place = |listed: &Destination| {
            let host = match listed.host.strip_prefix("*.") {
                Some(name) => host(name).and_then(|host| match host {
                    Host::Name(name) => Some(Host::Below(format!(".{name}"))),
                    _ => None,
                }),
                None => host(&listed.host),
            };
            let host = host.filter(|_| listed.port != 0);
            let fault = || format!("`network`: `{}:{}` is no place in a network", listed.host, listed.port);
            host.map(|host| Place { host, port: listed.port }).ok_or_else(fault)
        };
        listed.iter().map(place).collect::<Result<_, _>>().map(Places)
    }

    /// Whether this place is one of them.
    pub(super) fn allow(&self, asked: &Asked) -> bool {
        let is_it = |place: &Place| match (&place.host, &asked.host) {
            (Host::Below(end), Host::Name(name)) => name.len() > end.len() && name.ends_with(end.as_str()),
            (listed, asked) => listed == asked,
        };
        self.0.iter().any(|place| place.port == asked.port && is_it(place))
    }
}

impl fmt::Display for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, place) in self.0.iter().take(NAMED).enumerate() {
            let comma = if n > 0 { ", " } else { "" };
            let star = if matches!(place.host, Host::Below(_)) { "*" } else { "" };
            write!(f, "{comma}{star}{}:{}", place.host, place.port)?;
        }
        if self.0.len() > NAMED { f.write_str(", …") } else { Ok(()) }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Host::Address(address) => write!(f, "{address}"),
            Host::Name(name) | Host::Below(name) => f.write_str(name),
        }
    }
}

// === impl Asked ===

impl Asked {
    /// `host:port`, or `host` where there is a usual port.
    pub(super) fn parse(authority: &str, usual: Option<u16>) -> Option<Asked> {
        let (name, port) = match authority.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => {
                let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
                (name, is_number.then(|| port.parse().ok()).flatten()?)
            }
            _ => (authority, usual?),
        };
        // An address of version 6 has colons of its own.
        if name.contains(':') && !name.starts_with('[') {
            return None;
        }
        host(name).filter(|_| port != 0).map(|host| Asked { host, port })
    }

    /// For the resolver.
    pub(super) fn name(&self) -> Result<IpAddr, &str> {
        match &self.host {
            Host::Address(address) => Ok(*address),
            Host::Name(name) | Host::Below(name) => Err(name),
        }
    }

    /// Whether a name may lead to this address. That of the host itself and of the link it is on are reached by being
    /// listed themselves: a name is somebody else's, who may let it lead anywhere.
    pub(super) fn may_be(&self, address: IpAddr) -> bool {
        match &self.host {
            Host::Address(_) => true,
            Host::Name(name) if name == "localhost" => address.to_canonical().is_loopback(),
            _ => !is_special(address.to_canonical()),
        }
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// A name or an address, in the one way in which it is compared.
fn host(text: &str) -> Option<Host> {
    if let Some(inside) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        return inside.parse::<Ipv6Addr>().ok().map(|address| Host::Address(IpAddr::V6(address).to_canonical()));
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(Host::Address(address.to_canonical()));
    }
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let is_label = |label: &str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        !label.is_empty() && label.len() < 64 && label.bytes().all(is_part)
    };
    // A last part of digits would be an address in one of its older spellings (inet_aton).
    let is_number = name.rsplit('.').next().is_some_and(|last| last.starts_with(|first: char| first.is_ascii_digit()));
    (name.len() < 254 && !is_number && name.split('.').all(is_label)).then_some(Host::Name(name))
}

fn is_special(address: IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast() || address.octets()[0] == 0,
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    };
    is_link_local || address.is_loopback() || address.is_unspecified() || address.is_multicast()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(listed: &[(&str, u16)]) -> Places {
        let listed: Vec<_> =
            listed.iter().map(|(host, port)| Destination { host: (*host).to_owned(), port: *port }).collect();
        Places::new(&listed).expect("places")
    }

    #[test]
    fn exactly_what_is_listed_is_allowed() {
        let places = places(&[("a.example", 443), ("*.B.example", 443), ("192.0.2.1", 80), ("2001:db8::1", 80)]);

        for (authority, is_allowed) in [
            ("a.example:443", true),
            ("A.Example.:443", true),
            ("a.example:80", false),
            ("x.a.example:443", false),
            ("aaexample:443", false),
            ("x.b.example:443", true),
            ("x.y.b.example:443", true),
            ("b.example:443", false),
            ("xb.example:443", false),
            ("b.example.evil.test:443", false),
            ("192.0.2.1:80", true),
            ("[::ffff:192.0.2.1]:80", true),
            ("192.0.2.2:80", false),
            ("[2001:db8:0::1]:80", true),
            ("[2001:db8::2]:80", false),
        ] {
            let asked = Asked::parse(authority, None).unwrap_or_else(|| panic!("{authority}"));
            assert_eq!(places.allow(&asked), is_allowed, "{authority}");
        }
        assert_eq!(places.to_string(), "a.example:443, *.b.example:443, 192.0.2.1:80, [2001:db8::1]:80");
    }

    #[test]
    fn what_is_no_place_is_not_one() {
        for authority in [
            "",
            ":80",
            "a.example",
            "a.example:",
            "a.example:0",
            "a.example:65536",
            "a.example:+80",
            "a.example:8 0",
            "u@a.example:80",
            "a..example:80",
            ".a.example:80",
            "a.example/:80",
            "a.example%00:80",
            "a\0b:80",
            "*.a:80",
            "2001:db8::1:80",
            "[2001:db8::1:80",
            "127.1:80",
            "0x7f.1:80",
            "2130706433:80",
            "ä.example:80",
        ] {
            assert_eq!(Asked::parse(authority, None), None, "{authority}");
        }
        assert_eq!(Asked::parse("a.example", Some(80)), Asked::parse("a.example:80", None));
        assert_eq!(Asked::parse("[2001:db8::1]", Some(80)), Asked::parse("[2001:db8::1]:80", None));
        for (host, port) in [("", 80), ("*", 80), ("*.192.0.2.1", 80), ("a.*.example", 80), ("a", 0), ("a:80", 80)] {
            assert!(Places::new(&[Destination { host: host.to_owned(), port }]).is_err(), "{host}");
        }
    }

    #[test]
    fn a_name_does_not_lead_to_the_host_itself() {
        let name = Asked::parse("a.example:80", None).expect("a name");
        let localhost = Asked::parse("localhost:80", None).expect("a name");
        let address = Asked::parse("127.0.0.1:80", None).expect("an address");
        let at = |text: &str| text.parse::<IpAddr>().expect("an address");

        for special in
            ["127.0.0.1", "::1", "::ffff:127.0.0.1", "169.254.169.254", "fe80::1", "0.0.0.0", "::", "224.0.0.1"]
        {
            assert!(!name.may_be(at(special)), "{special}");
        }
        for usual in ["192.0.2.1", "10.0.0.1", "2001:db8::1"] {
            assert!(name.may_be(at(usual)) && !localhost.may_be(at(usual)), "{usual}");
        }
        assert!(localhost.may_be(at("127.0.0.1")) && address.may_be(at("127.0.0.1")));
    }
}
