//! The framework alone: pingora's own proxy, with the gateway's allocator, one worker thread and the same pool settings.
//! What the gateway costs more than this is what it does.
//!
//! `bench-bare LISTEN UPSTREAM`

use async_trait::async_trait;
use pingora::prelude::*;
use pingora::server::configuration::ServerConf;
use pingora::upstreams::peer::Peer as _;
use std::net::SocketAddr;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Bare {
    upstream: SocketAddr,
}

#[async_trait]
impl ProxyHttp for Bare {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _session: &mut Session, _ctx: &mut ()) -> pingora::Result<Box<HttpPeer>> {
        let mut peer = HttpPeer::new(self.upstream, false, String::new());
        // As `src/upstream/dial.rs` sets them.
        if let Some(options) = peer.get_mut_peer_options() {
            options.connection_timeout = Some(Duration::from_secs(10));
            options.total_connection_timeout = Some(Duration::from_secs(10));
            options.write_timeout = Some(Duration::from_secs(30));
            options.idle_timeout = Some(Duration::from_secs(4));
        }
        Ok(Box::new(peer))
    }
}

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut address = || arguments.next().ok_or_else(|| anyhow::anyhow!("usage: bench-bare LISTEN UPSTREAM"));
    let (listen, upstream) = (address()?, address()?.parse()?);
    let conf = ServerConf { threads: 1, grace_period_seconds: Some(0), ..ServerConf::default() };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let mut service = http_proxy_service(&server.configuration, Bare { upstream });
    service.add_tcp(&listen);
    server.add_service(service);
    server.run_forever()
}
