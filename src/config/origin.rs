//! Web origins and networks, as they are written in the file.
//!
//! An origin is compared as text at run time (with `Host`, with `Origin`, as issuer and resource), so the file must
//! spell it the one way the URL standard does; the hint says how.

use super::problem::Malformed;
use super::sensitive::has_userinfo;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use url::{Host, Url};

/// Scheme, host and, where it is not the default, port: `https://mcp.example.com:8443`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    text: String,
    scheme_len: usize,
    is_loopback: bool,
}

/// A block of addresses: `10.0.0.0/8`, or a single one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

// === impl Origin ===

impl Origin {
    /// Plain `http` at an address: what a gateway without `public_url` is reached by.
    pub fn at(address: SocketAddr) -> Self {
        let text = match address.port() {
            80 => format!("http://{}", host(address.ip())),
            port => format!("http://{}:{port}", host(address.ip())),
        };
        Origin { text, scheme_len: "http".len(), is_loopback: address.ip().is_loopback() }
    }

    /// As a text, without a slash at the end.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Host and, where it is not the default, port: what a client sends as `Host`.
    pub fn authority(&self) -> &str {
        let start = self.scheme_len.saturating_add("://".len());
        self.text.get(start..).unwrap_or_default()
    }

    /// The host alone, in brackets where it is an IPv6 address.
    pub fn host(&self) -> &str {
        let authority = self.authority();
        match authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
            _ => authority,
        }
    }

    /// The word before `://`.
    pub fn scheme(&self) -> &str {
        self.text.get(..self.scheme_len).unwrap_or_default()
    }

    /// Whether it is reached over TLS.
    pub fn is_https(&self) -> bool {
        self.scheme() == "https"
    }

    /// Whether its host is this machine.
    pub fn is_loopback(&self) -> bool {
        self.is_loopback
    }
}

impl FromStr for Origin {
    type Err = Malformed;

    /// One slash at the end is let through.
    fn from_str(text: &str) -> Result<Self, Malformed> {
        let url = Url::parse(text).map_err(|_| no_origin(text))?;
        let Some(host) = url.host() else {
            return Err(no_origin(text));
        };
        if has_userinfo(&url) {
            let message = "a URL with a user name or password in it";
            return Err(Malformed::new(message, "leave them out"));
        }
        let origin = spelled(&url);
        if url.query().is_some() || url.fragment().is_some() || !matches!(url.path(), "" | "/") {
            let message = format!("`{text}` has more than scheme, host and port");
            let hint = format!(
                "write `{origin}`: clients look for some paths at the root of the host, so a path prefix cannot work"
            );
            return Err(Malformed::new(message, hint));
        }
        if text.strip_suffix('/').unwrap_or(text) != origin {
            let message = format!("`{text}` is not spelled as browsers do");
            return Err(Malformed::new(message, format!("write `{origin}`")));
        }
        Ok(Origin { scheme_len: url.scheme().len(), is_loopback: is_loopback(&host), text: origin })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn host(address: IpAddr) -> Host<&'static str> {
    match address {
        IpAddr::V4(address) => Host::Ipv4(address),
        IpAddr::V6(address) => Host::Ipv6(address),
    }
}

fn no_origin(text: &str) -> Malformed {
    let message = format!("`{text}` is no web origin");
    Malformed::new(message, "write it as `https://mcp.example.com`")
}

fn spelled(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{}://{host}:{port}", url.scheme()),
        None => format!("{}://{host}", url.scheme()),
    }
}

/// Whether a URL's host is this machine.
pub(super) fn is_loopback<S: AsRef<str>>(host: &Host<S>) -> bool {
    match host {
        Host::Domain(name) => {
            let name = name.as_ref();
            name == "localhost" || name.ends_with(".localhost")
        }
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}

// === impl Network ===

impl Network {
    /// Whether `address` is in it. An IPv4 address that came in over an IPv6 socket is taken as what it is.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                let differing = ours.to_bits() ^ theirs.to_bits();
                differing.leading_zeros() >= u32::from(self.prefix)
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                let differing = ours.to_bits() ^ theirs.to_bits();
                differing.leading_zeros() >= u32::from(self.prefix)
            }
            _ => false,
        }
    }

    /// Whether it is every address there is.
    pub fn is_everyone(&self) -> bool {
        self.prefix == 0
    }

    /// The lowest address in it.
    fn first(&self) -> IpAddr {
        let prefix = u32::from(self.prefix);
        match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shr(prefix).unwrap_or(0);
                IpAddr::V4((address.to_bits() & !mask).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shr(prefix).unwrap_or(0);
                IpAddr::V6((address.to_bits() & !mask).into())
            }
        }
    }
}

impl FromStr for Network {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let malformed = || {
            let message = format!("`{text}` is no address or block of addresses");
            Malformed::new(message, "write it as `10.0.0.7` or `10.0.0.0/8`")
        };
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| malformed())?;
        let widest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => widest,
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => digits.parse().map_err(|_| malformed())?,
            Some(_) => return Err(malformed()),
        };
        if prefix > widest {
            return Err(malformed());
        }
        let network = Network { address, prefix };
        let first = network.first();
        if first != address {
            let message = format!("`{text}` begins in the middle of its block");
            let hint = format!("write `{first}/{prefix}`, or the address alone");
            return Err(Malformed::new(message, hint));
        }
        Ok(network)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        for (text, authority, is_https, is_loopback) in [
            ("https://mcp.example.com", "mcp.example.com", true, false),
            ("https://mcp.example.com/", "mcp.example.com", true, false),
            ("https://mcp.example.com:8443", "mcp.example.com:8443", true, false),
            ("http://127.0.0.1:8080", "127.0.0.1:8080", false, true),
            ("http://[::1]:8080", "[::1]:8080", false, true),
            ("http://localhost", "localhost", false, true),
            ("vscode-webview://abc", "abc", false, false),
        ] {
            let origin: Origin = text.parse().expect(text);
            assert_eq!(origin.authority(), authority);
            assert_eq!((origin.is_https(), origin.is_loopback()), (is_https, is_loopback), "{text}");
            assert_eq!(origin.as_str(), text.trim_end_matches('/'));
        }
    }

    #[test]
    fn the_origin_of_an_address_is_spelled_like_any_other() {
        for (address, text) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("127.0.0.1:80", "http://127.0.0.1"),
            ("[::1]:8080", "http://[::1]:8080"),
        ] {
            let origin = Origin::at(address.parse().unwrap());
            assert_eq!(Ok(origin), text.parse());
        }
    }

    #[test]
    fn what_is_not_spelled_as_an_origin_is_refused_with_its_spelling() {
        for (text, expected) in [
            (
                "https://MCP.example.com",
                "`https://MCP.example.com` is not spelled as browsers do: write `https://mcp.example.com`",
            ),
            (
                "https://mcp.example.com:443",
                "`https://mcp.example.com:443` is not spelled as browsers do: write `https://mcp.example.com`",
            ),
            (
                "https:mcp.example.com",
                "`https:mcp.example.com` is not spelled as browsers do: write `https://mcp.example.com`",
            ),
            (
                "https://mcp.example.com//",
                "`https://mcp.example.com//` has more than scheme, host and port: write `https://mcp.example.com`: clients look for some paths at the root of the host, so a path prefix cannot work",
            ),
            (
                "https://a.example/gw",
                "`https://a.example/gw` has more than scheme, host and port: write `https://a.example`: clients look for some paths at the root of the host, so a path prefix cannot work",
            ),
            ("https://me:pass@a.example", "a URL with a user name or password in it: leave them out"),
            ("null", "`null` is no web origin: write it as `https://mcp.example.com`"),
            ("*", "`*` is no web origin: write it as `https://mcp.example.com`"),
            ("a.example", "`a.example` is no web origin: write it as `https://mcp.example.com`"),
            ("data:x", "`data:x` is no web origin: write it as `https://mcp.example.com`"),
            ("http://0x7f.1", "`http://0x7f.1` is not spelled as browsers do: write `http://127.0.0.1`"),
        ] {
            let Malformed { message, hint } = text.parse::<Origin>().expect_err(text);
            assert_eq!(format!("{message}: {hint}"), expected);
        }
    }

    #[test]
    fn a_network_holds_its_addresses() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("10.0.0.7", "10.0.0.7", "10.0.0.8"),
            ("0.0.0.0/0", "1.2.3.4", "::1"),
            ("10.0.0.0/8", "::ffff:10.0.0.1", "::ffff:11.0.0.1"),
            ("fd00::/8", "fdff::1", "fe00::1"),
            ("::/0", "::1", "1.2.3.4"),
        ] {
            let block: Network = network.parse().expect(network);
            assert!(block.contains(inside.parse().unwrap()), "{network} {inside}");
            assert!(!block.contains(outside.parse().unwrap()), "{network} {outside}");
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in
            ["", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/+8", "10.0.0.0/", "10.0/8", "host", "::/129", "10.0.0.0/8/8"]
        {
            text.parse::<Network>().expect_err(text);
        }
        let Malformed { message, hint } = "10.0.0.5/8".parse::<Network>().expect_err("host bits");
        assert_eq!(message, "`10.0.0.5/8` begins in the middle of its block");
        assert_eq!(hint, "write `10.0.0.0/8`, or the address alone");
    }
}
