//! Redirect URIs (stand-in until the registry's is here).

pub(super) fn is_loopback(uri: &str) -> bool {
    url::Url::parse(uri).is_ok_and(|url| {
        url.scheme() == "http"
            && match url.host() {
                Some(url::Host::Domain(name)) => name == "localhost",
                Some(url::Host::Ipv4(address)) => address.is_loopback(),
                Some(url::Host::Ipv6(address)) => address.is_loopback(),
                None => false,
            }
    })
}

pub(super) fn sent_to(uri: &str) -> String {
    url::Url::parse(uri).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default()
}

pub(super) fn form_action(uri: &str) -> Option<String> {
    let url = url::Url::parse(uri).ok()?;
    Some(match url.scheme() {
        "http" | "https" => url.origin().ascii_serialization(),
        scheme => format!("{scheme}:"),
    })
}
