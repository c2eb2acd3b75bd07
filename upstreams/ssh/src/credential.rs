//! What opens the host: a key, or an authority that signs a certificate for each action (OpenSSH, PROTOCOL.certkeys).
//!
//! A certificate lives for a minute, names the request and the action it is for, and has no extensions: it allows no
//! terminal and no forwarding. That it runs one script only is the host's to say (`ForceCommand`): a leaked authority could
//! sign anything.

use crate::settings::{Credential, Host};
use ring::rand::{SecureRandom as _, SystemRandom};
use russh::keys::ssh_key::certificate::{Builder, CertType};
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::keys::{Algorithm, Certificate, PrivateKey};
use std::fmt;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// What opens the account, ready to be used.
#[derive(Clone)]
pub enum Login {
    /// A key that the host lets run one script.
    Key(Arc<PrivateKey>),
    /// A certificate for each action.
    Certificates(Authority),
}

/// What signs certificates.
#[derive(Clone)]
pub struct Authority {
    /// Its key.
    pub key: Arc<PrivateKey>,
    /// The principal that certificates name.
    pub principal: String,
    /// Where they may come from, as addresses or CIDR blocks; empty for the address that a connection has here.
    pub source: Vec<String>,
    /// How long one is good for, a sixth of it in the past.
    pub lifetime: Duration,
}

/// What a certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// What it is for; sshd writes it into its log.
    pub key_id: String,
    /// Tells it from all others.
    pub serial: u64,
    /// Whom it is for.
    pub principals: Vec<String>,
    /// In seconds since 1970.
    pub valid: Range<u64>,
    /// What the host must heed, or refuse it.
    pub critical: Vec<(String, String)>,
    /// What it allows beside running something.
    pub extensions: Vec<(String, String)>,
}

/// A certificate, and the key that it is for.
#[derive(Clone)]
pub struct Issued {
    /// Used once.
    pub key: Arc<PrivateKey>,
    /// What the authority signed.
    pub certificate: Certificate,
}

/// Bounds of a certificate's lifetime.
const LIFETIME: Range<Duration> = Duration::from_secs(2)..Duration::from_secs(60 * 60 + 1);
/// The longest principal, in bytes.
const PRINCIPAL_MAX: usize = 64;
/// Entries of `source`.
const SOURCES_MAX: usize = 32;

// === impl Login ===

impl Login {
    /// Reads keys and looks at the rest.
    ///
    /// # Errors
    /// What cannot be used, and what to do. Nothing of the key is in it.
    pub fn of(credential: &Credential) -> Result<Login, String> {
        match credential {
            Credential::Key { private } => Ok(Login::Key(Arc::new(private_key(private)?))),
            Credential::Certificates { authority, principal, source, lifetime } => {
                let key = Arc::new(private_key(authority)?);
                Ok(Login::Certificates(Authority::checked(key, principal, source, *lifetime)?))
            }
        }
    }
}

impl Credential {
    /// Whether it can be used, without using it.
    ///
    /// # Errors
    /// What cannot be used, and what to do. Nothing of the key is in it.
    pub fn check(&self) -> Result<(), String> {
        Login::of(self).map(|_| ())
    }
}

/// Reads a private key in OpenSSH's format.
///
/// # Errors
/// It is none, it is encrypted, or of a kind that is not used: what to do. Nothing of the key is in it.
pub fn private_key(text: &str) -> Result<PrivateKey, String> {
    const NEW: &str = "make one by `ssh-keygen -t ed25519 -N ''`";
    let text = Zeroizing::new(format!("{}\n", text.trim()));
    if !text.starts_with("-----BEGIN OPENSSH PRIVATE KEY-----") {
        return Err(if ["ssh-", "ecdsa-", "sk-"].iter().any(|kind| text.starts_with(kind)) {
            "this is a public key, and the private one belongs here (the file without `.pub`)".to_owned()
        } else if text.starts_with("-----BEGIN ") {
            "this key is not in OpenSSH's format; `ssh-keygen -p -f FILE` writes it anew in that".to_owned()
        } else {
            format!("this is no private key; {NEW}")
        });
    }
    let key = PrivateKey::from_openssh(text.as_bytes())
        .map_err(|why| format!("this private key cannot be read ({why}); {NEW}"))?;
    if key.is_encrypted() {
        return Err("this private key is encrypted, and nobody is there to ask for a passphrase; `ssh-keygen -p -N '' -f FILE` \
                    takes it off"
            .to_owned());
    }
    match key.algorithm() {
        Algorithm::Ed25519 | Algorithm::Ecdsa { .. } => Ok(key),
        other => Err(format!("keys of type `{other}` cannot be used, only Ed25519 and ECDSA; {NEW}")),
    }
}

/// A key for one certificate.
///
/// # Panics
/// This host has no random numbers.
pub fn ephemeral() -> PrivateKey {
    let mut seed = Zeroizing::new([0; 32]);
    SystemRandom::new().fill(seed.as_mut()).expect("the system has random numbers");
    PrivateKey::from(Ed25519Keypair::from_seed(&seed))
}

// === impl Authority ===

impl Authority {
    fn checked(
        key: Arc<PrivateKey>,
        principal: &str,
        source: &[String],
        lifetime: Duration,
    ) -> Result<Authority, String> {
        let is_principal = (1..=PRINCIPAL_MAX).contains(&principal.len())
            && principal.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.@:/-".contains(&b));
        if !is_principal {
            return Err(format!(
                "`{}` is no principal: 1 to {PRINCIPAL_MAX} of `A-Za-z0-9_.@:/-`",
                principal.escape_debug()
            ));
        }
        if !LIFETIME.contains(&lifetime) {
            return Err(format!("a lifetime of {lifetime:?} is not between 2 s and 1 h"));
        }
        if source.len() > SOURCES_MAX {
            return Err(format!("`source` has more than {SOURCES_MAX} entries"));
        }
        if let Some(wrong) = source.iter().find(|entry| !is_cidr(entry)) {
            return Err(format!("`{}` in `source` is no address and no CIDR block", wrong.escape_debug()));
        }
        Ok(Authority { key, principal: principal.to_owned(), source: source.to_vec(), lifetime })
    }

    /// What a certificate says that is for one action, over a connection whose address here is `from`.
    pub fn terms(&self, key_id: &str, from: IpAddr, now: SystemTime) -> Terms {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let past = self.lifetime / 6;
        let source = match (self.source.as_slice(), from.to_canonical()) {
            ([], IpAddr::V4(address)) => format!("{address}/32"),
            ([], IpAddr::V6(address)) => format!("{address}/128"),
            (source, _) => source.join(","),
        };
        let mut serial = [0; 8];
        // Serials tell certificates apart for people; nothing depends on them.
        let _ = SystemRandom::new().fill(&mut serial);
        Terms {
            key_id: key_id.to_owned(),
            serial: u64::from_be_bytes(serial),
            principals: vec![self.principal.clone()],
            valid: now.saturating_sub(past).as_secs()..(now + self.lifetime - past).as_secs().saturating_add(1),
            critical: vec![("source-address".to_owned(), source)],
            extensions: Vec::new(),
        }
    }

    /// Signs a certificate that says this, for a new key.
    ///
    /// # Errors
    /// The terms make no sense.
    pub fn issue(&self, terms: &Terms) -> Result<Issued, String> {
        let key = ephemeral();
        let certificate = self.sign(&key, terms).map_err(|why| format!("no certificate can be signed: {why}"))?;
        Ok(Issued { key: Arc::new(key), certificate })
    }

    fn sign(&self, key: &PrivateKey, terms: &Terms) -> Result<Certificate, russh::keys::ssh_key::Error> {
        let mut nonce = [0; Builder::RECOMMENDED_NONCE_SIZE];
        SystemRandom::new().fill(&mut nonce).map_err(|_| russh::keys::ssh_key::Error::Crypto)?;
        let mut builder = Builder::new(nonce, key.public_key().key_data().clone(), terms.valid.start, terms.valid.end)?;
        builder.cert_type(CertType::User)?.key_id(terms.key_id.as_str())?.serial(terms.serial)?;
        // Without any it would be good for every account, and the builder refuses.
        for principal in &terms.principals {
            builder.valid_principal(principal.as_str())?;
        }
        for (name, value) in &terms.critical {
            builder.critical_option(name.as_str(), value.as_str())?;
        }
        for (name, value) in &terms.extensions {
            builder.extension(name.as_str(), value.as_str())?;
        }
        builder.sign(&*self.key)
    }
}

fn is_cidr(text: &str) -> bool {
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let Ok(address) = address.parse::<IpAddr>() else { return false };
    let most = if address.is_ipv4() { 32 } else { 128 };
    bits.is_none_or(|bits| bits.parse::<u8>().is_ok_and(|number| number <= most && number.to_string() == bits))
}

/// The name under which sshd's log finds a request and what it was for.
pub fn key_id(request: &str, command: &str) -> String {
    format!("{request} {command}")
}

// Keys are in no log.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Login::Key(_) => "Key",
            Login::Certificates(_) => "Certificates",
        })
    }
}

impl fmt::Display for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Login::Key(_) => "the key",
            Login::Certificates(_) => "a certificate",
        })
    }
}

/// Where a login is used.
impl Login {
    /// What a person may look at when it is refused.
    pub(crate) fn advice(&self, host: &Host) -> String {
        match self {
            Login::Key(_) => format!("is it in `authorized_keys` of `{}`?", host.user),
            Login::Certificates(authority) => format!(
                "does the host trust the authority (`TrustedUserCAKeys`), does `{}` accept the principal `{}`, are the clocks \
                 right, and does the host see us come from where the certificate says?",
                host.user, authority.principal
            ),
        }
    }
}

#[cfg(test)]
mod tests;
