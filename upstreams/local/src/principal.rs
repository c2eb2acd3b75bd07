//! Who asks, in a header: an upstream of our own may keep things apart for those who use it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// The header that says who asks. The gateway sets it, on requests to local upstreams only; no client can.
pub const HEADER: &str = "portcullis-principal";

/// Who asks, as the gateway found out from their token. Which client they use makes no difference here.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Principal {
    /// Who vouches for the subject; empty for the gateway itself.
    pub issuer: String,
    /// Who it is there: `user:<name>` or `client:<id>` of this gateway, anything of an external issuer.
    pub subject: String,
}

impl Principal {
    /// As the header's value: base64url of JSON, since a subject may hold any character.
    pub fn to_header(&self) -> String {
        let json = serde_json::to_vec(self).expect("two strings are always JSON");
        URL_SAFE_NO_PAD.encode(json)
    }

    /// Out of the header's value; `None` if it was not made by [`Principal::to_header`].
    pub fn of_header(value: &[u8]) -> Option<Principal> {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(value).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_it_is_comes_out_as_they_went_in() {
        for (issuer, subject) in [("", "user:alice"), ("https://idp.test/\r\nx", "ä\0\"|日本")] {
            let principal = Principal { issuer: issuer.to_owned(), subject: subject.to_owned() };

            let header = principal.to_header();

            assert!(header.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{header}");
            assert_eq!(Principal::of_header(header.as_bytes()), Some(principal));
        }
        assert_eq!(Principal::of_header(b"user:alice"), None);
    }
}
