//! Who can reach us, under which names, and whether what they send can be read on the way.

use crate::config::problem::{Path, Problem};
use crate::config::{Admin, BehindProxy, Config, Network, Origin};
use std::net::SocketAddr;
use url::Url;

pub(super) fn check(config: &Config, problems: &mut Vec<Problem>) {
    let root = Path::root();
    let agents = address(&config.listen, &root.key("listen"), problems);
    let public = config.public_url.as_ref().and_then(|url| {
        let parsed = url.parse::<Origin>();
        let refused = |malformed: crate::config::Malformed| malformed.at(root.key("public_url"));
        parsed.map_err(|malformed| problems.push(refused(malformed))).ok()
    });
    if let Some(address) = agents {
        agent_listener(config, address, problems);
    }
    if let Some(origin) = &public {
        public_url(config, origin, agents.is_some_and(is_local), problems);
    }
    let metrics = metrics(config, agents, problems);
    admin(config, public.as_ref(), agents, metrics, problems);
    behind_proxy(config.behind_proxy.as_ref(), &root.key("behind_proxy"), problems);
    names(config, problems);
}

/// An address to listen on. Names are not looked up: what they stand for changes, and a listener does not.
fn address(text: &str, path: &Path, problems: &mut Vec<Problem>) -> Option<SocketAddr> {
    let parsed = text.parse();
    if parsed.is_err() {
        problems.push(
            Problem::new(path, format!("`{text}` is no address to listen on"))
                .hint("write address and port, like `127.0.0.1:8080`, `0.0.0.0:8443` or `[::1]:8080`"),
        );
    }
    parsed.ok()
}

fn is_local(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Whether what goes over the agent listener is encrypted on its way through other networks.
fn is_covered(config: &Config) -> bool {
    config.tls.is_some() || config.behind_proxy.is_some()
}

fn agent_listener(config: &Config, address: SocketAddr, problems: &mut Vec<Problem>) {
    let path = Path::root().key("listen");
    let (is_local, is_covered) = (is_local(address), is_covered(config));
    if !is_local && !is_covered {
        problems.push(
            Problem::new(&path, format!("`{address}` can be reached from other machines, without TLS"))
                .hint("add `tls`, or `behind_proxy` if a proxy in front ends TLS, or listen on `127.0.0.1`"),
        );
    }
    if config.public_url.is_none() && (!is_local || is_covered) {
        problems.push(
            Problem::new(&path, "`public_url` is missing, and clients do not come by this address alone")
                .hint("write the URL that clients type, like `public_url: https://mcp.example.com`"),
        );
    }
}

fn public_url(config: &Config, origin: &Origin, is_local: bool, problems: &mut Vec<Problem>) {
    let path = Path::root().key("public_url");
    if !origin.is_https() && origin.scheme() != "http" {
        problems.push(
            Problem::new(path, format!("`{origin}` is neither `https` nor `http`"))
                .hint("write it as `https://mcp.example.com`"),
        );
        return;
    }
    if !origin.is_https() && !origin.is_loopback() {
        problems.push(
            Problem::new(path, format!("`{origin}` is not `https`, so tokens and passwords could be read on the way"))
                .hint("write `https://`. Plain `http` works for this machine only"),
        );
    } else if !origin.is_https() && config.tls.is_some() {
        problems.push(
            Problem::new(path, format!("`{origin}` is `http`, but the listener speaks TLS"))
                .hint("write `https://`, or remove `tls`"),
        );
    } else if origin.is_https() && is_local && !is_covered(config) {
        // One that is not local and not covered was refused already.
        problems.push(
            Problem::warning(path, format!("`{origin}` is `https`, but the listener speaks plain `http`"))
                .hint("add `tls`; or, if a proxy ends TLS, say which: `behind_proxy: { from: [127.0.0.1] }`"),
        );
    }
}

fn metrics(config: &Config, agents: Option<SocketAddr>, problems: &mut Vec<Problem>) -> Option<SocketAddr> {
    let metrics = config.metrics.as_ref()?;
    let path = Path::root().key("metrics").key("listen");
    let address = address(&metrics.listen, &path, problems)?;
    if !is_local(address) && metrics.token.is_none() {
        problems.push(
            Problem::new(&path, format!("`{address}` can be reached from other machines, without a token"))
                .hint("add `token: { env: METRICS_TOKEN }`, or listen on `127.0.0.1`"),
        );
    }
    if agents.is_some_and(|agents| is_same(agents, address)) {
        problems.push(
            Problem::new(&path, format!("`{address}` is where agents connect"))
                .hint("give the metrics a port of their own"),
        );
    }
    Some(address)
}

/// The listener for people who decide: reached as safely as agents reach theirs, and apart from it.
fn admin(
    config: &Config,
    agents_url: Option<&Origin>,
    agents: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
    problems: &mut Vec<Problem>,
) {
    let Some(admin) = &config.admin else {
        return;
    };
    let path = Path::root().key("admin");
    behind_proxy(admin.behind_proxy.as_ref(), &path.key("behind_proxy"), problems);
    let address = address(&admin.listen, &path.key("listen"), problems);
    if let Some(address) = address {
        admin_address(admin, address, &path.key("listen"), problems);
        for (other, whose) in [(agents, "agents connect"), (metrics, "metrics are served")] {
            if other.is_some_and(|other| is_same(other, address)) {
                problems.push(
                    Problem::new(path.key("listen"), format!("`{address}` is where {whose}"))
                        .hint("give the pages of approvers a port of their own"),
                );
            }
        }
    }
    let Some(url) = &admin.public_url else {
        return;
    };
    match url.parse::<Origin>() {
        Err(malformed) => problems.push(malformed.at(path.key("public_url"))),
        Ok(origin) => admin_url(admin, &origin, agents_url, &path.key("public_url"), problems),
    }
}

fn admin_address(admin: &Admin, address: SocketAddr, path: &Path, problems: &mut Vec<Problem>) {
    let is_covered = admin.tls.is_some() || admin.behind_proxy.is_some();
    if !is_local(address) && !is_covered {
        problems.push(
            Problem::new(path, format!("`{address}` can be reached from other machines, without TLS"))
                .hint("add `tls`, or `behind_proxy` if a proxy in front ends TLS, or listen on `127.0.0.1`"),
        );
    }
    if admin.public_url.is_none() && (!is_local(address) || is_covered) {
        problems.push(
            Problem::new(path, "`public_url` of `admin` is missing, and approvers do not come by this address alone")
                .hint("write the URL that approvers type, like `public_url: https://approve.example.com`"),
        );
    }
}

fn admin_url(admin: &Admin, origin: &Origin, agents: Option<&Origin>, path: &Path, problems: &mut Vec<Problem>) {
    let is_plain_here = origin.scheme() == "http" && origin.is_loopback();
    if !origin.is_https() && !is_plain_here {
        problems.push(
            Problem::new(path, format!("`{origin}` is not `https`, so passwords could be read on the way"))
                .hint("write `https://`. Plain `http` works for this machine only"),
        );
    } else if !origin.is_https() && admin.tls.is_some() {
        problems.push(
            Problem::new(path, format!("`{origin}` is `http`, but the listener speaks TLS"))
                .hint("write `https://`, or remove `tls`"),
        );
    }
    // Cookies know no ports: a page of the agents' host would have the approvers' sessions in its reach.
    let is_the_same =
        |agents: &Origin| agents.host() == origin.host() && !(agents.is_loopback() && origin.is_loopback());
    if agents.is_some_and(is_the_same) {
        problems.push(
            Problem::new(path, format!("`{}` is the host that agents use", origin.host()))
                .hint("give approvers a host of their own: browsers send the cookies of a host to all its ports"),
        );
    }
}

/// Whether both cannot be bound. Port 0 is a new port each time.
fn is_same(a: SocketAddr, b: SocketAddr) -> bool {
    let is_all = |address: SocketAddr| address.ip().is_unspecified();
    a.port() == b.port() && a.port() != 0 && (a.ip() == b.ip() || is_all(a) || is_all(b))
}

fn behind_proxy(proxy: Option<&BehindProxy>, path: &Path, problems: &mut Vec<Problem>) {
    let Some(proxy) = proxy else {
        return;
    };
    let path = path.key("from");
    for (at, text) in proxy.from.iter().enumerate() {
        match text.parse::<Network>() {
            Err(malformed) => problems.push(malformed.at(path.index(at))),
            Ok(network) if network.is_everyone() => problems.push(
                Problem::warning(path.index(at), format!("`{text}` takes everyone for a proxy of ours"))
                    .hint("anyone who reaches this port can then say where a request came from"),
            ),
            Ok(_) => {}
        }
    }
}

fn names(config: &Config, problems: &mut Vec<Problem>) {
    for (at, host) in config.hosts.iter().enumerate() {
        if !is_host(host) {
            problems.push(
                Problem::new(
                    Path::root().key("hosts").index(at),
                    format!("`{host}` is no host as clients send it"),
                )
                .hint("write a name or address in lower case and, where it is not the default, a port: `mcp.internal:8443`"),
            );
        }
    }
    for (at, origin) in config.origins.iter().enumerate() {
        if let Err(malformed) = origin.parse::<Origin>() {
            problems.push(malformed.at(Path::root().key("origins").index(at)));
        }
    }
}

/// Whether it is spelled as a URL spells it, which leaves no room for userinfo, paths or wildcards.
fn is_host(text: &str) -> bool {
    // The default port of one scheme is dropped, of the other kept.
    ["http", "https"].into_iter().any(|scheme| {
        let url = Url::parse(&format!("{scheme}://{text}"));
        url.is_ok_and(|url| url.as_str() == format!("{scheme}://{text}/")) && !text.contains(['@', '*', '/'])
    })
}
