//! Certificates that nobody should sign, signed.

use super::{Error, KEY_ID};
use crate::credential::{Authority, Login, Terms};
use ring::rand::{SecureRandom as _, SystemRandom};
use russh::keys::ssh_key::certificate::{Builder, CertType};
use russh::keys::{Certificate, PrivateKey};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A certificate that is good for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// Used with another key than it is for.
    OtherKey,
    /// Changed after it was signed.
    Altered,
    /// For other principals than the configured one.
    Principal,
    /// For none, which some take for all.
    NoPrincipal,
    /// Over for an hour.
    Expired,
    /// Good in an hour.
    NotYet,
    /// For an address that nobody has (RFC 5737), and for no address at all.
    Source,
    /// Of a host, not of a user.
    HostCertificate,
    /// With a critical option that nobody knows.
    Option,
}

/// A certificate that claims too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hostile {
    /// It says which program is to run.
    Command,
    /// It has every extension there is.
    Extensions,
    /// It is good for ten years.
    Lifetime,
    /// It is good for every address.
    Source,
    /// It names many principals, root among them.
    Principals,
    /// Its key id is empty.
    NoId,
    /// Its key id has lines, as a log would.
    Id,
    /// All of that.
    All,
}

/// Extensions of OpenSSH (PROTOCOL.certkeys).
const EXTENSIONS: [&str; 6] = [
    "permit-X11-forwarding",
    "permit-agent-forwarding",
    "permit-port-forwarding",
    "permit-pty",
    "permit-user-rc",
    "no-touch-required",
];
/// In seconds.
const HOUR: u64 = 3600;
const TEN_YEARS: u64 = 10 * 365 * 24 * HOUR;

/// A certificate that is about to be signed.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    kind: CertType,
    terms: Terms,
}

// === impl Draft ===

impl Draft {
    /// As the upstream would have it signed; where the credential is a key, as if there were an authority.
    pub(super) fn good(login: &Login, local: IpAddr) -> Draft {
        #[expect(clippy::disallowed_methods, reason = "the host's clock decides, and is not set by tests either")]
        let now = SystemTime::now();
        let terms = match login {
            Login::Certificates(authority) => authority.terms(KEY_ID, local, now),
            Login::Key(key) => {
                let (principal, lifetime) = ("portcullis".to_owned(), Duration::from_secs(60));
                Authority { key: Arc::clone(key), principal, source: Vec::new(), lifetime }.terms(KEY_ID, local, now)
            }
        };
        Draft { kind: CertType::User, terms }
    }

    /// Those that are to be refused, out of a good one.
    pub(super) fn unfit(&self, unfit: Unfit) -> Vec<Draft> {
        let with = |change: &dyn Fn(&mut Draft)| {
            let mut draft = self.clone();
            change(&mut draft);
            draft
        };
        let from = |address: &str| with(&|draft| draft.terms.critical = vec![option("source-address", address)]);
        let until = self.terms.valid.end;
        match unfit {
            Unfit::OtherKey | Unfit::Altered => vec![self.clone()],
            Unfit::Principal => ["portcullis-verify", "*", ""]
                .into_iter()
                .map(str::to_owned)
                .chain(self.terms.principals.iter().map(|principal| format!("{principal} ")))
                .map(|principal| with(&|draft| draft.terms.principals = vec![principal.clone()]))
                .collect(),
            Unfit::NoPrincipal => vec![with(&|draft| draft.terms.principals.clear())],
            // A host's clock that is off by an hour would take every certificate for one of these.
            Unfit::Expired => vec![with(&|draft| draft.terms.valid = until - 2 * HOUR..until - HOUR)],
            Unfit::NotYet => vec![with(&|draft| draft.terms.valid = until + HOUR..until + 2 * HOUR)],
            Unfit::Source => vec![from("192.0.2.1/32"), from("portcullis-verify")],
            Unfit::HostCertificate => vec![with(&|draft| draft.kind = CertType::Host)],
            Unfit::Option => vec![with(&|draft| {
                draft.terms.critical.push(option("portcullis-verify@example.invalid", ""));
            })],
        }
    }

    /// One that claims more; its program, if it names one, is `command`.
    pub(super) fn hostile(mut self, hostile: Hostile, command: &str) -> Draft {
        let terms = &mut self.terms;
        let is = |it: Hostile| hostile == it || hostile == Hostile::All;
        if is(Hostile::Source) {
            terms.critical.clear();
        }
        if is(Hostile::Command) {
            terms.critical.push(option("force-command", command));
        }
        if is(Hostile::Extensions) {
            terms.extensions.extend(EXTENSIONS.map(|name| option(name, "")));
        }
        if is(Hostile::Lifetime) {
            terms.valid.end += TEN_YEARS;
        }
        if is(Hostile::Principals) {
            let more = ["root", "admin", "*", "", "portcullis-verify"].into_iter().map(str::to_owned);
            terms.principals.extend(more.chain((0..20).map(|n| format!("portcullis-verify-{n}"))));
        }
        if hostile == Hostile::NoId {
            terms.key_id.clear();
        }
        if is(Hostile::Id) {
            terms.key_id = format!("{KEY_ID}\nsshd[1]: Accepted publickey for root\r\n\x1b[2J$(expr 1 + 1)`id`\"';|&");
        }
        self
    }

    /// One that names only this account.
    pub(super) fn naming(mut self, account: &str) -> Draft {
        self.terms.principals = vec![account.to_owned()];
        self
    }

    /// Signed by `authority`, for the holder of `subject`.
    ///
    /// # Errors
    /// It cannot be signed.
    pub(super) fn signed(&self, subject: &PrivateKey, authority: &PrivateKey) -> Result<Certificate, Error> {
        self.build(subject, authority).map_err(|why| Error::Certificate(why.to_string()))
    }

    fn build(&self, subject: &PrivateKey, authority: &PrivateKey) -> russh::keys::ssh_key::Result<Certificate> {
        let Terms { key_id, serial, principals, valid, critical, extensions } = &self.terms;
        let mut nonce = [0; Builder::RECOMMENDED_NONCE_SIZE];
        SystemRandom::new().fill(&mut nonce).map_err(|_| russh::keys::ssh_key::Error::Crypto)?;
        let mut certificate = Builder::new(nonce, subject.public_key(), valid.start, valid.end)?;
        certificate.cert_type(self.kind)?.key_id(key_id.as_str())?.serial(*serial)?;
        if principals.is_empty() {
            certificate.all_principals_valid()?;
        }
        for principal in principals {
            certificate.valid_principal(principal.as_str())?;
        }
        for (name, value) in critical {
            certificate.critical_option(name.as_str(), value.as_str())?;
        }
        for (name, value) in extensions {
            certificate.extension(name.as_str(), value.as_str())?;
        }
        certificate.sign(authority)
    }
}

fn option(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// The same certificate with another key id, which nobody has signed.
pub(super) fn altered(certificate: &Certificate) -> Result<Certificate, Error> {
    let fault = |why: russh::keys::ssh_key::Error| Error::Certificate(why.to_string());
    let mut bytes = certificate.to_bytes().map_err(fault)?;
    let at = bytes.windows(KEY_ID.len()).position(|window| window == KEY_ID.as_bytes());
    let at = at.ok_or_else(|| Error::Certificate("its key id is not in it".to_owned()))?;
    bytes[at] = b'P';
    Certificate::from_bytes(&bytes).map_err(fault)
}

// === impl Unfit, Hostile ===

impl Unfit {
    /// What kind of certificate it is, for the table of attacks.
    pub(super) fn words(self) -> &'static str {
        match self {
            Unfit::OtherKey => "for a key that is not the one that signs the login",
            Unfit::Altered => "of which a letter was changed",
            Unfit::Principal => {
                "for `portcullis-verify`, for `*`, for an empty principal, and for the true one with a space"
            }
            Unfit::NoPrincipal => "without any principal",
            Unfit::Expired => "that was over an hour ago",
            Unfit::NotYet => "that is good in an hour",
            Unfit::Source => "for 192.0.2.1, and for what is no address",
            Unfit::HostCertificate => "of a host",
            Unfit::Option => "with the critical option `portcullis-verify@example.invalid`",
        }
    }
}

impl Hostile {
    /// What kind of certificate it is, for the table of attacks.
    pub(super) fn words(self) -> &'static str {
        match self {
            Hostile::Command => "with a `force-command` of its own",
            Hostile::Extensions => "with every extension that OpenSSH knows",
            Hostile::Lifetime => "that is good for ten years",
            Hostile::Source => "without a source address",
            Hostile::Principals => "for 26 principals, `root` and `*` among them",
            Hostile::NoId => "with an empty key id",
            Hostile::Id => "with a key id of several lines, quotes and escape sequences",
            Hostile::All => "with all of that (the key id is the one of many lines)",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credential::ephemeral;
    use std::net::Ipv4Addr;

    fn authority() -> (PrivateKey, Draft) {
        let key = ephemeral();
        let lifetime = Duration::from_secs(60);
        let authority =
            Authority { key: Arc::new(key.clone()), principal: "portcullis".to_owned(), source: Vec::new(), lifetime };
        (key, Draft::good(&Login::Certificates(authority), IpAddr::V4(Ipv4Addr::LOCALHOST)))
    }

    #[test]
    fn a_good_one_is_for_a_minute_one_principal_and_one_address() {
        let (key, good) = authority();

        let certificate = good.signed(&ephemeral(), &key).expect("it is signed");

        assert!((60..=61).contains(&(certificate.valid_before() - certificate.valid_after())));
        assert_eq!(certificate.valid_principals(), ["portcullis"]);
        assert_eq!(certificate.critical_options().get("source-address").map(String::as_str), Some("127.0.0.1/32"));
        assert!(certificate.extensions().is_empty());
    }

    #[test]
    fn every_one_that_is_to_be_refused_can_be_signed() {
        let (key, good) = authority();
        let unfit = [
            Unfit::OtherKey,
            Unfit::Principal,
            Unfit::NoPrincipal,
            Unfit::Expired,
            Unfit::NotYet,
            Unfit::Source,
            Unfit::HostCertificate,
            Unfit::Option,
        ];
        let hostile = [
            Hostile::Command,
            Hostile::Extensions,
            Hostile::Lifetime,
            Hostile::Source,
            Hostile::Principals,
            Hostile::NoId,
            Hostile::Id,
            Hostile::All,
        ];
        let mut drafts: Vec<Draft> = unfit.into_iter().flat_map(|unfit| good.unfit(unfit)).collect();
        drafts.extend(hostile.into_iter().map(|hostile| good.clone().hostile(hostile, "id")));

        for draft in drafts {
            assert!(draft.signed(&ephemeral(), &key).is_ok(), "{draft:?}");
        }
    }

    #[test]
    fn an_altered_one_is_not_what_was_signed() {
        let (key, good) = authority();
        let certificate = good.signed(&ephemeral(), &key).expect("it is signed");

        let altered = altered(&certificate).expect("it can be altered");

        assert!(certificate.verify_signature().is_ok());
        assert!(altered.verify_signature().is_err());
        assert_eq!(altered.valid_principals(), certificate.valid_principals());
    }
}
