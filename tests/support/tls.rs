//! Certificates made on the spot, and TLS on either side of a plain socket: the recorder and the raw client stay plain,
//! a thread with pingora's TLS stands between.

use pingora::tls;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::thread;
use tokio::net::{TcpListener, TcpStream};

/// A key and the certificate for it.
pub(crate) struct Identity {
    /// The certificate, PEM.
    pub(crate) cert: String,
    /// The key, PEM.
    pub(crate) key: String,
    /// The certificate, DER.
    pub(crate) der: tls::CertificateDer<'static>,
    params: CertificateParams,
    pair: KeyPair,
}

// === impl Identity ===

impl Identity {
    /// An authority that signs others.
    pub(crate) fn authority(name: &str) -> Identity {
        let mut params = named(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pair = KeyPair::generate().expect("the operating system has randomness");
        let cert = params.self_signed(&pair).expect("the parameters are complete");
        Identity { cert: cert.pem(), key: pair.serialize_pem(), der: cert.der().clone(), params, pair }
    }

    /// A server or client with these names (DNS names or addresses), signed by this authority.
    pub(crate) fn sign(&self, names: &[&str]) -> Identity {
        self.sign_with(named(names.first().copied().unwrap_or("nobody"), names))
    }

    /// The same, but its time was over long ago.
    pub(crate) fn sign_expired(&self, names: &[&str]) -> Identity {
        let mut params = named(names.first().copied().unwrap_or("nobody"), names);
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2020, 2, 1);
        self.sign_with(params)
    }

    fn sign_with(&self, params: CertificateParams) -> Identity {
        let pair = KeyPair::generate().expect("the operating system has randomness");
        let issuer = Issuer::from_params(&self.params, &self.pair);
        let cert = params.signed_by(&pair, &issuer).expect("the parameters are complete");
        Identity { cert: cert.pem(), key: pair.serialize_pem(), der: cert.der().clone(), params, pair }
    }

    fn chain(&self) -> (Vec<tls::CertificateDer<'static>>, tls::PrivateKeyDer<'static>) {
        let key = tls::PrivateKeyDer::try_from(self.pair.serialize_der()).expect("rcgen writes PKCS #8");
        (vec![self.der.clone()], key)
    }

    fn roots(&self) -> tls::RootCertStore {
        let mut roots = tls::RootCertStore::empty();
        roots.add(self.der.clone()).expect("an authority is a root");
        roots
    }
}

fn named(common_name: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names are ASCII");
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

/// Ends TLS on a port of 127.0.0.1 and hands each connection on in plain, with the name it asked for. Connections whose handshake fails are dropped.
pub(crate) fn terminate(
    identity: &Identity,
    clients_ca: Option<&Identity>,
    serve: impl Fn(UnixStream, String) + Send + Sync + 'static,
) -> SocketAddr {
    terminate_offering(identity, clients_ca, &[], serve)
}

/// The same, offering these protocols (ALPN).
pub(crate) fn terminate_offering(
    identity: &Identity,
    clients_ca: Option<&Identity>,
    protocols: &[&[u8]],
    serve: impl Fn(UnixStream, String) + Send + Sync + 'static,
) -> SocketAddr {
    tls::install_default_crypto_provider();
    let (chain, key) = identity.chain();
    let config = match clients_ca {
        None => tls::ServerConfig::builder().with_no_client_auth(),
        Some(ca) => {
            let verifier =
                tls::WebPkiClientVerifier::builder(Arc::new(ca.roots())).build().expect("the authority is a root");
            tls::ServerConfig::builder().with_client_cert_verifier(verifier)
        }
    };
    let mut config = config.with_single_cert(chain, key).expect("the key fits");
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let acceptor = tls::TlsAcceptor::from(Arc::new(config));
    let serve = Arc::new(serve);
    let (sender, address) = mpsc::channel();
    thread::spawn(move || {
        runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            sender.send(listener.local_addr().expect("it is bound")).expect("the caller waits");
            while let Ok((stream, _)) = listener.accept().await {
                let (accept, serve) = (acceptor.accept(stream), Arc::clone(&serve));
                tokio::spawn(async move {
                    if let Ok(stream) = accept.await {
                        let (ours, theirs) = pair();
                        serve(theirs, stream.get_ref().1.server_name().unwrap_or_default().to_owned());
                        drop(bridge(stream, ours).await);
                    }
                });
            }
        });
    });
    address.recv().expect("the listener starts")
}

/// Connects to a TLS server under this name, trusting this authority, and gives the plain side.
#[track_caller]
pub(crate) fn connect(address: SocketAddr, server_name: &str, authority: &Identity) -> io::Result<UnixStream> {
    connect_offering(address, server_name, authority, &[]).map(|connected| connected.stream)
}

/// A connection over TLS.
pub(crate) struct Connected {
    /// Its plain side.
    pub(crate) stream: UnixStream,
    /// The protocol that the server chose (ALPN).
    pub(crate) protocol: Option<Vec<u8>>,
    /// The certificate that the server showed, DER.
    pub(crate) certificate: Vec<u8>,
}

/// The same, offering these protocols (ALPN), with what the server chose and showed.
#[track_caller]
pub(crate) fn connect_offering(
    address: SocketAddr,
    server_name: &str,
    authority: &Identity,
    protocols: &[&[u8]],
) -> io::Result<Connected> {
    tls::install_default_crypto_provider();
    let mut config = tls::ClientConfig::builder().with_root_certificates(authority.roots()).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let connector = tls::TlsConnector::from(Arc::new(config));
    let name = tls::ServerName::try_from(server_name.to_owned()).expect("a server name");
    let (ours, theirs) = pair();
    let (sender, connected) = mpsc::channel();
    thread::spawn(move || {
        runtime().block_on(async {
            let stream = match TcpStream::connect(address).await {
                Ok(stream) => connector.connect(name, stream).await,
                Err(error) => Err(error),
            };
            match stream {
                Ok(stream) => {
                    let session = stream.get_ref().1;
                    let certificate = session.peer_certificates().and_then(|chain| chain.first());
                    let certificate = certificate.map(|der| der.to_vec()).unwrap_or_default();
                    let protocol = session.alpn_protocol().map(<[u8]>::to_vec);
                    sender.send(Ok((protocol, certificate))).expect("the caller waits");
                    drop(bridge(stream, ours).await);
                }
                Err(error) => sender.send(Err(error)).expect("the caller waits"),
            }
        });
    });
    let (protocol, certificate) = connected.recv().expect("the thread answers")?;
    Ok(Connected { stream: theirs, protocol, certificate })
}

async fn bridge(
    mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    plain: UnixStream,
) -> io::Result<()> {
    plain.set_nonblocking(true)?;
    let mut plain = tokio::net::UnixStream::from_std(plain)?;
    tokio::io::copy_bidirectional(&mut stream, &mut plain).await?;
    Ok(())
}

fn pair() -> (UnixStream, UnixStream) {
    UnixStream::pair().expect("the process may open sockets")
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts")
}
