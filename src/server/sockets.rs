//! What a gateway listens on, bound before anything else is made: an address in use is found out first.

use super::{Addresses, Error};
use crate::config;
use crate::store::files;
use std::fs::Permissions;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

/// See the module.
pub(super) struct Sockets {
    pub(super) agent: TcpListener,
    pub(super) metrics: Option<TcpListener>,
    pub(super) admin: Option<TcpListener>,
    pub(super) operator: (UnixListener, PathBuf),
    pub(super) addresses: Addresses,
}

impl Sockets {
    pub(super) fn bind(loaded: &config::Loaded) -> Result<Sockets, Error> {
        let data_dir = loaded.resolve(&loaded.config.data_dir);
        files::make_private_dir(&data_dir).map_err(|source| Error::File { path: data_dir.clone(), source })?;
        let (agent, agent_address) = bind(&loaded.config.listen)?;
        let metrics = loaded.config.metrics.as_ref().map(|metrics| bind(&metrics.listen)).transpose()?;
        let admin = loaded.config.admin.as_ref().map(|admin| bind(&admin.listen)).transpose()?;
        let addresses = Addresses {
            agent: agent_address,
            metrics: metrics.as_ref().map(|(_, address)| *address),
            admin: admin.as_ref().map(|(_, address)| *address),
        };
        let operator = bind_unix(data_dir.join(OPERATOR_SOCKET))?;
        let (metrics, admin) = (metrics.map(|(listener, _)| listener), admin.map(|(listener, _)| listener));
        Ok(Sockets { agent, metrics, admin, operator, addresses })
    }
}

/// The operator's socket in `data_dir`.
pub const OPERATOR_SOCKET: &str = "operator.sock";

fn bind(address: &str) -> Result<(TcpListener, SocketAddr), Error> {
    let fault = |source| Error::Listen { address: address.to_owned(), source };
    let listener = TcpListener::bind(address).map_err(fault)?;
    listener.set_nonblocking(true).map_err(fault)?;
    let local = listener.local_addr().map_err(fault)?;
    Ok((listener, local))
}

fn bind_unix(path: PathBuf) -> Result<(UnixListener, PathBuf), Error> {
    let fault = |source| Error::File { path: path.clone(), source };
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(fault(error)),
        _ => {}
    }
    let listener = UnixListener::bind(&path).map_err(fault)?;
    listener.set_nonblocking(true).map_err(fault)?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(fault)?;
    Ok((listener, path))
}
