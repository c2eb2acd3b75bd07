//! The few places that commands may reach, where the settings name any: by a proxy that stands outside, since inside
//! there is no network but a loopback device. Whatever a command does to its own side of it, it is the proxy that
//! resolves names, compares, and connects.

/// Which places.
mod places;
/// The proxy: HTTP `CONNECT`, and requests of plain HTTP.
mod proxy;
/// How its listening socket comes from inside to the outside.
mod socket;

pub(crate) use places::Places;
pub(crate) use proxy::serve;
pub(crate) use socket::{receive, send};

/// Where programs inside find it.
pub(crate) const PORT: u16 = 3128;

/// The variables that tell programs about it; both spellings are in use.
pub(crate) fn environment() -> impl Iterator<Item = (String, String)> {
    let proxy = format!("http://127.0.0.1:{PORT}");
    let own = "localhost,127.0.0.1,::1".to_owned();
    let both = |name: &str, value: &str| [(name.to_lowercase(), value.to_owned()), (name.to_owned(), value.to_owned())];
    let all = [("HTTP_PROXY", &proxy), ("HTTPS_PROXY", &proxy), ("ALL_PROXY", &proxy), ("NO_PROXY", &own)];
    let all: Vec<_> = all.into_iter().flat_map(|(name, value)| both(name, value)).collect();
    // Node looks at the others only if this is there.
    all.into_iter().chain([("NODE_USE_ENV_PROXY".to_owned(), "1".to_owned())])
}
