//! Certificates that nobody should sign, signed.

use super::Error;
use super::target::Opener;
use ring::rand::{SecureRandom as _, SystemRandom};
use russh::keys::ssh_key::certificate::{Builder, CertType};
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::keys::{Certificate, PrivateKey};
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

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
const HOUR: i64 = 3600;
const TEN_YEARS: i64 = 10 * 365 * 24 * HOUR;
const ID: &str = "portcullis verify";

/// A certificate that is about to be signed.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    kind: CertType,
    id: String,
    principals: Vec<String>,
    /// Seconds from now.
    from: i64,
    until: i64,
    options: Vec<(&'static str, String)>,
    extensions: Vec<&'static str>,
}

/// A key for one certificate.
pub(super) fn ephemeral() -> Result<PrivateKey, Error> {
    Ok(Ed25519Keypair::from_seed(&random()?).into())
}

fn random() -> Result<[u8; 32], Error> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Error::Random)?;
    Ok(bytes)
}

// === impl Draft ===

impl Draft {
    /// As the upstream would have it signed.
    pub(super) fn good(opener: &Opener<'_>, local: IpAddr) -> Draft {
        let (principal, source, seconds) = match opener {
            Opener::Authority { principal, source, seconds, .. } => (*principal, *source, *seconds),
            Opener::Key(_) => ("portcullis", &[][..], 60),
        };
        let source = if source.is_empty() { local.to_string() } else { source.join(",") };
        let seconds = i64::try_from(seconds).unwrap_or(60);
        Draft {
            kind: CertType::User,
            id: ID.to_owned(),
            principals: vec![principal.to_owned()],
            from: -(seconds / 6),
            until: seconds - seconds / 6,
            options: vec![("source-address", source)],
            extensions: Vec::new(),
        }
    }

    /// Those that are to be refused, out of a good one.
    pub(super) fn unfit(&self, unfit: Unfit) -> Vec<Draft> {
        let with = |change: &dyn Fn(&mut Draft)| {
            let mut draft = self.clone();
            change(&mut draft);
            draft
        };
        let from = |address: &str| with(&|draft| draft.options = vec![("source-address", address.to_owned())]);
        match unfit {
            Unfit::OtherKey | Unfit::Altered => vec![self.clone()],
            Unfit::Principal => ["portcullis-verify", "*", ""]
                .into_iter()
                .map(str::to_owned)
                .chain(self.principals.iter().map(|principal| format!("{principal} ")))
                .map(|principal| with(&|draft| draft.principals = vec![principal.clone()]))
                .collect(),
            Unfit::NoPrincipal => vec![with(&|draft| draft.principals.clear())],
            Unfit::Expired => vec![with(&|draft| (draft.from, draft.until) = (-2 * HOUR, -HOUR))],
            Unfit::NotYet => vec![with(&|draft| (draft.from, draft.until) = (HOUR, 2 * HOUR))],
            Unfit::Source => vec![from("192.0.2.1/32"), from("portcullis-verify")],
            Unfit::HostCertificate => vec![with(&|draft| draft.kind = CertType::Host)],
            Unfit::Option => {
                vec![with(&|draft| draft.options.push(("portcullis-verify@example.invalid", String::new())))]
            }
        }
    }

    /// One that claims more; its program, if it names one, is `command`.
    pub(super) fn hostile(mut self, hostile: Hostile, command: &str) -> Draft {
        let is = |it: Hostile| hostile == it || hostile == Hostile::All;
        if is(Hostile::Source) {
            self.options.clear();
        }
        if is(Hostile::Command) {
            self.options.push(("force-command", command.to_owned()));
        }
        if is(Hostile::Extensions) {
            self.extensions.extend(EXTENSIONS);
        }
        if is(Hostile::Lifetime) {
            self.until = TEN_YEARS;
        }
        if is(Hostile::Principals) {
            let more = ["root", "admin", "*", "", "portcullis-verify"].into_iter().map(str::to_owned);
            self.principals.extend(more.chain((0..20).map(|n| format!("portcullis-verify-{n}"))));
        }
        if is(Hostile::NoId) {
            self.id.clear();
        }
        if is(Hostile::Id) {
            self.id = format!("{ID}\nsshd[1]: Accepted publickey for root\r\n\x1b[2J$(expr 1 + 1)`id`\"';|&");
        }
        self
    }

    /// One that names only this account.
    pub(super) fn naming(mut self, account: &str) -> Draft {
        self.principals = vec![account.to_owned()];
        self
    }

    /// Signed by `authority`, for the holder of `subject`.
    pub(super) fn signed(&self, subject: &PrivateKey, authority: &PrivateKey) -> Result<Certificate, Error> {
        self.build(subject, authority).map_err(|why| Error::Certificate(why.to_string()))
    }

    fn build(
        &self,
        subject: &PrivateKey,
        authority: &PrivateKey,
    ) -> Result<Certificate, Box<dyn std::error::Error + Send + Sync>> {
        #[expect(clippy::disallowed_methods, reason = "the host's clock decides, and is not set by tests either")]
        let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())?;
        let (from, until) = (u64::try_from(now + self.from)?, u64::try_from(now + self.until)?);
        let nonce = random().map_err(|why| why.to_string())?;
        let mut certificate = Builder::new(nonce, subject.public_key(), from, until)?;
        certificate.cert_type(self.kind)?.key_id(self.id.as_str())?;
        if self.principals.is_empty() {
            certificate.all_principals_valid()?;
        }
        for principal in &self.principals {
            certificate.valid_principal(principal.as_str())?;
        }
        for (name, value) in &self.options {
            certificate.critical_option(*name, value.as_str())?;
        }
        for name in &self.extensions {
            certificate.extension(*name, "")?;
        }
        Ok(certificate.sign(authority)?)
    }
}

/// The same certificate with another key id, which nobody has signed.
pub(super) fn altered(certificate: &Certificate) -> Result<Certificate, Error> {
    let fault = |why: russh::keys::ssh_key::Error| Error::Certificate(why.to_string());
    let mut bytes = certificate.to_bytes().map_err(fault)?;
    let at = bytes.windows(ID.len()).position(|window| window == ID.as_bytes());
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
    use std::net::Ipv4Addr;

    fn authority() -> Opener<'static> {
        let key = ephemeral().expect("there are random numbers");
        Opener::Authority { key, principal: "portcullis", source: &[], seconds: 60 }
    }

    fn good(opener: &Opener<'_>) -> Draft {
        Draft::good(opener, IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    #[test]
    fn a_good_one_is_for_a_minute_one_principal_and_one_address() {
        let opener = authority();
        let Opener::Authority { key, .. } = &opener else { unreachable!("it was made so") };

        let certificate = good(&opener).signed(&ephemeral().expect("a key"), key).expect("it is signed");

        assert_eq!(certificate.valid_before() - certificate.valid_after(), 60);
        assert_eq!(certificate.valid_principals(), ["portcullis"]);
        assert_eq!(certificate.critical_options().get("source-address").map(String::as_str), Some("127.0.0.1"));
        assert!(certificate.extensions().is_empty());
    }

    #[test]
    fn every_one_that_is_to_be_refused_can_be_signed() {
        let opener = authority();
        let Opener::Authority { key, .. } = &opener else { unreachable!("it was made so") };
        let subject = ephemeral().expect("a key");
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
        let mut drafts: Vec<Draft> = unfit.into_iter().flat_map(|unfit| good(&opener).unfit(unfit)).collect();
        drafts.extend(hostile.into_iter().map(|hostile| good(&opener).hostile(hostile, "id")));

        for draft in drafts {
            assert!(draft.signed(&subject, key).is_ok(), "{draft:?}");
        }
    }

    #[test]
    fn an_altered_one_is_not_what_was_signed() {
        let opener = authority();
        let Opener::Authority { key, .. } = &opener else { unreachable!("it was made so") };
        let certificate = good(&opener).signed(&ephemeral().expect("a key"), key).expect("it is signed");

        let altered = altered(&certificate).expect("it can be altered");

        assert!(certificate.verify_signature().is_ok());
        assert!(altered.verify_signature().is_err());
        assert_eq!(altered.valid_principals(), certificate.valid_principals());
    }
}
