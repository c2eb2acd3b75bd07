//! What the gateway hands over at the start: `upstreams.<name>.ssh` of `gateway.yaml`, with files read and names made out.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;
use zeroize::Zeroize as _;

/// All of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The upstream's name, for logs.
    pub name: String,
    /// Whose account, and where.
    pub host: Host,
    /// What opens it.
    pub credential: Credential,
    /// The text of `known_hosts`.
    pub known_hosts: String,
    /// The text of the actions file.
    pub actions: String,
    /// To connect, from the first packet to a login.
    pub connect: Duration,
    /// After so much silence on a connection the host is asked whether it is still there; twice unanswered, it is not.
    pub keep_alive: Duration,
    /// A connection that nobody uses for this long is closed. Only restricted keys use one again.
    pub idle: Duration,
    /// Actions at once; further ones wait their turn for a while.
    pub at_once: u32,
}

/// Whose account, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The account there.
    pub user: String,
    /// A name or an address, without brackets.
    pub name: String,
    /// The TCP port.
    pub port: u16,
}

/// What opens the account.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Credential {
    /// A key that the host lets run one script.
    Key {
        /// In OpenSSH's format, unencrypted.
        private: String,
    },
    /// A certificate for each action, behind a `ForceCommand` on the host.
    Certificates {
        /// The authority's key, in OpenSSH's format, unencrypted.
        authority: String,
        /// The principal that certificates name.
        principal: String,
        /// Where the host sees us come from, as addresses or CIDR blocks; empty for the address that each connection has here.
        source: Vec<String>,
        /// How long a certificate is good for, its allowance for clocks that are behind included.
        lifetime: Duration,
    },
}

impl Settings {
    /// The longest time from an action's turn to its answer; the gateway waits as long. A session may have to be opened on a
    /// connection that has gone stale, then a connection, and a session on that.
    pub fn longest(&self) -> Duration {
        let action = crate::actions::Actions::parse(&self.actions).map(|actions| actions.longest());
        action.unwrap_or_default() + self.connect * 3 + crate::run::GRACE
    }
}

impl Host {
    /// Out of `user@host`, `user@host:port` or `user@[address]:port`.
    ///
    /// # Errors
    /// What is wrong with it, for the person who wrote it.
    pub fn parse(text: &str) -> Result<Host, String> {
        let (user, place) = text.split_once('@').ok_or_else(|| {
            format!("`{}` names no account; write it as `user@host` or `user@host:port`", text.escape_debug())
        })?;
        if !is_user(user) {
            return Err(format!(
                "`{}` is no account: 1 to 32 of `a-z`, `0-9`, `_`, `.`, `-`, a letter or `_` first",
                user.escape_debug()
            ));
        }
        let (name, port) = match place.strip_prefix('[') {
            Some(rest) => {
                let (address, rest) = rest.split_once(']').ok_or("an address that begins with `[` ends with `]`")?;
                address
                    .parse::<std::net::Ipv6Addr>()
                    .map_err(|_| format!("`{}` is no IPv6 address", address.escape_debug()))?;
                (
                    address,
                    if rest.is_empty() { None } else { Some(rest.strip_prefix(':').ok_or("`:port` follows `]`")?) },
                )
            }
            None => place.split_once(':').map_or((place, None), |(name, port)| (name, Some(port))),
        };
        let is_address = name.parse::<std::net::IpAddr>().is_ok();
        if !is_address && !is_name(name) {
            return Err(format!("`{}` is no host name and no address", name.escape_debug()));
        }
        let port = match port {
            None => 22,
            Some(port) => port
                .parse()
                .ok()
                .filter(|number| *number != 0 && port.bytes().all(|b| b.is_ascii_digit()))
                .ok_or_else(|| format!("`{}` is no port", port.escape_debug()))?,
        };
        Ok(Host { user: user.to_owned(), name: name.to_owned(), port })
    }
}

fn is_user(user: &str) -> bool {
    let is_first = |b: u8| b.is_ascii_lowercase() || b == b'_';
    (1..=32).contains(&user.len())
        && user.bytes().next().is_some_and(is_first)
        && user.bytes().all(|b| is_first(b) || b.is_ascii_digit() || b == b'.' || b == b'-')
}

/// RFC 1123, "Host Names and Numbers", in lower case; underscores are in use.
fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Host { user, name, port } = self;
        if name.contains(':') { write!(f, "{user}@[{name}]:{port}") } else { write!(f, "{user}@{name}:{port}") }
    }
}

impl Credential {
    /// Takes the key out of memory, once it was read.
    pub fn wipe(&mut self) {
        match self {
            Credential::Key { private: key } | Credential::Certificates { authority: key, .. } => key.zeroize(),
        }
    }
}

// Keys are in no log.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Credential::Key { .. } => "Key",
            Credential::Certificates { .. } => "Certificates",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_an_account_a_name_and_a_port() {
        let host = |user: &str, name: &str, port| Ok(Host { user: user.to_owned(), name: name.to_owned(), port });

        assert_eq!(Host::parse("deploy@prod.internal"), host("deploy", "prod.internal", 22));
        assert_eq!(Host::parse("deploy@10.0.0.7:2222"), host("deploy", "10.0.0.7", 2222));
        assert_eq!(Host::parse("_svc.x-1@[::1]:2222"), host("_svc.x-1", "::1", 2222));
    }

    #[test]
    fn u_19_what_a_shell_or_an_option_parser_could_take_for_something_else_is_no_host() {
        for hostile in [
            "prod",
            "@prod",
            "-oProxyCommand=id@prod",
            "deploy@-oProxyCommand=id",
            "de$ploy@prod",
            "de\\ploy@prod",
            "de`id`@prod",
            "deploy@pr`id`od",
            "deploy@prod\n",
            "deploy\n@prod",
            "deploy@%h",
            "deploy@pr od",
            "deploy@prod:0",
            "deploy@prod:+22",
            "deploy@prod:22x",
            "deploy@prod:70000",
            "deploy@[::1",
            "deploy@[::1]22",
            "deploy@[prod]:22",
            "deploy@",
            "a@b@c",
            "deploy@prod..x",
            "Deploy@prod",
            "deploy@Prod",
            "deploy@prod/../x",
            "deploy@prod;id",
            "deploy@::1",
        ] {
            assert!(Host::parse(hostile).is_err(), "{hostile:?}");
        }
    }
}
