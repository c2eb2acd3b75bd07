//! Keys that are taken and keys that are not; what stands in a certificate.

use super::*;
use russh::keys::ssh_key::LineEnding;
use russh::keys::{EcdsaCurve, HashAlg};

fn text(key: &PrivateKey) -> String {
    key.to_openssh(LineEnding::LF).expect("a key is text").to_string()
}

/// A private key of OpenSSH's own making.
fn keygen(arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("key");
    #[expect(clippy::disallowed_methods, reason = "OpenSSH's own program makes the key")]
    let made =
        std::process::Command::new("ssh-keygen").args(["-q", "-C", "", "-f"]).arg(&file).args(arguments).output();
    let made = made.expect("ssh-keygen is installed (openssh-client)");
    assert!(made.status.success(), "{made:?}");
    std::fs::read_to_string(file).expect("a key")
}

fn authority(source: &[&str]) -> Authority {
    let source: Vec<String> = source.iter().map(|source| (*source).to_owned()).collect();
    Authority::checked(Arc::new(ephemeral()), "portcullis", &source, Duration::from_secs(60)).expect("an authority")
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

#[test]
fn a_key_is_read_however_its_file_ends() {
    let key = ephemeral();
    let text = text(&key);

    for text in [text.clone(), text.trim().to_owned(), format!("\n{text}\n\n"), text.replace('\n', "\r\n")] {
        let read = private_key(&text).expect("a key");
        assert_eq!(read.public_key().key_data(), key.public_key().key_data());
    }
    assert_ne!(ephemeral().public_key().key_data(), key.public_key().key_data());
}

#[test]
fn what_cannot_be_used_is_no_key_and_the_error_holds_nothing_of_it() {
    let (encrypted, rsa) = (keygen(&["-t", "ed25519", "-N", "x"]), keygen(&["-t", "rsa", "-b", "2048", "-N", ""]));
    let key = ephemeral();
    let whole = text(&key);
    let public = key.public_key().to_openssh().expect("text");
    let cut = &whole[..whole.len() / 2];
    for (text, says) in [
        (encrypted.as_str(), "is encrypted, and nobody is there to ask"),
        (rsa.as_str(), "only Ed25519 and ECDSA"),
        (&public, "this is a public key"),
        ("-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n", "not in OpenSSH's format"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "not in OpenSSH's format"),
        ("", "no private key"),
        ("hunter2", "no private key"),
        (cut, "cannot be read"),
    ] {
        let credential = Credential::Key { private: text.to_owned() };
        let why = credential.check().expect_err(says);
        assert!(why.contains(says), "{why}");
        assert!(text.lines().all(|line| line.len() < 7 || line.starts_with("-----") || !why.contains(line)), "{why}");
    }
    assert_eq!(Credential::Key { private: whole }.check(), Ok(()));
}

#[test]
fn a_certificate_says_what_it_is_for_and_nothing_more() {
    let authority = authority(&[]);

    let terms = authority.terms("r_1/h_2 deploy project-b", "127.0.0.1".parse().expect("an address"), at(1_000_000));
    let Issued { key, certificate } = authority.issue(&terms).expect("issued");

    // Read back from the bytes that travel.
    let read = Certificate::from_bytes(&certificate.to_bytes().expect("bytes")).expect("a certificate");
    assert_eq!(read.public_key(), key.public_key().key_data());
    assert_eq!(read.signature_key(), authority.key.public_key().key_data());
    let fingerprint = authority.key.public_key().fingerprint(HashAlg::Sha256);
    assert!(read.validate_at(1_000_000, [&fingerprint]).is_ok());
    assert!(read.cert_type().is_user());
    assert_eq!(read.key_id(), "r_1/h_2 deploy project-b");
    assert_eq!(read.valid_principals(), ["portcullis"]);
    assert_eq!((read.valid_after(), read.valid_before()), (999_990, 1_000_051));
    let critical: Vec<_> = read.critical_options().iter().collect();
    assert_eq!(critical, [(&"source-address".to_owned(), &"127.0.0.1/32".to_owned())]);
    assert!(read.extensions().is_empty());
}

#[test]
fn no_two_certificates_have_the_same_key_or_serial() {
    let authority = authority(&[]);
    let terms = || authority.terms("r", "::1".parse().expect("an address"), at(1_000_000));
    let (one, two) = (terms(), terms());

    assert_ne!(one.serial, two.serial);
    let keys = [&one, &two].map(|terms| authority.issue(terms).expect("issued").key);
    assert_ne!(keys[0].public_key().key_data(), keys[1].public_key().key_data());
}

#[test]
fn a_certificate_is_good_from_where_we_come_or_where_the_settings_say() {
    let source = |authority: &Authority, from: &str| {
        authority.terms("r", from.parse().expect("an address"), at(0)).critical[0].1.clone()
    };

    assert_eq!(source(&authority(&[]), "10.1.2.3"), "10.1.2.3/32");
    assert_eq!(source(&authority(&[]), "::ffff:10.1.2.3"), "10.1.2.3/32");
    assert_eq!(source(&authority(&[]), "fd00::1"), "fd00::1/128");
    assert_eq!(source(&authority(&["192.0.2.0/24", "fd00::/8"]), "10.1.2.3"), "192.0.2.0/24,fd00::/8");
}

#[test]
fn an_authority_that_would_sign_too_much_is_none() {
    let credential = |principal: &str, source: &[&str], seconds| Credential::Certificates {
        authority: text(&ephemeral()),
        principal: principal.to_owned(),
        source: source.iter().map(|source| (*source).to_owned()).collect(),
        lifetime: Duration::from_secs(seconds),
    };

    assert_eq!(credential("portcullis", &["10.0.0.1", "10.0.0.0/8", "fd00::/8"], 60).check(), Ok(()));
    for (credential, says) in [
        (credential("", &[], 60), "no principal"),
        (credential("a,b", &[], 60), "no principal"),
        (credential("a b", &[], 60), "no principal"),
        (credential("a", &[], 1), "between 2 s and 1 h"),
        (credential("a", &[], 3601), "between 2 s and 1 h"),
        (credential("a", &[], 0), "between 2 s and 1 h"),
        (credential("a", &["prod"], 60), "`prod` in `source`"),
        (credential("a", &["10.0.0.0/33"], 60), "`10.0.0.0/33` in `source`"),
        (credential("a", &["10.0.0.0/+8"], 60), "in `source`"),
        (credential("a", &["10.0.0.1,0.0.0.0/0"], 60), "in `source`"),
        (credential("a", &[""; 33], 60), "more than 32"),
    ] {
        let why = credential.check().expect_err(says);
        assert!(why.contains(says), "{why}");
    }
    let none = Terms { principals: vec![], ..authority(&[]).terms("r", "::1".parse().expect("an address"), at(9)) };
    assert!(authority(&[]).issue(&none).is_err());
}

#[test]
fn an_ecdsa_authority_signs_too() {
    for (bits, curve) in [("256", EcdsaCurve::NistP256), ("384", EcdsaCurve::NistP384), ("521", EcdsaCurve::NistP521)] {
        let key = private_key(&keygen(&["-t", "ecdsa", "-b", bits, "-N", ""])).expect("a key");
        assert_eq!(key.algorithm(), Algorithm::Ecdsa { curve });
        let authority = Authority { key: Arc::new(key), ..authority(&[]) };

        let issued = authority.issue(&authority.terms("r", "::1".parse().expect("an address"), at(1_000_000)));

        assert!(issued.expect("issued").certificate.verify_signature().is_ok());
    }
}

#[test]
fn a_login_is_in_no_log() {
    let login = Login::of(&Credential::Key { private: text(&ephemeral()) }).expect("a login");
    assert_eq!(format!("{login:?}"), "Key");
}
