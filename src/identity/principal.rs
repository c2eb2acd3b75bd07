//! Who a request counts as, once its token was verified and its subject found among the people in force.

use super::{Users, Verified};
use std::sync::Arc;

// A grant names its subject too, and `store` stands on a lower floor: the type lives there.
pub use crate::store::Subject;

/// Issuer, subject, client, scopes and groups a request stands for.
#[derive(Clone, Debug)]
pub struct Principal {
    /// Who vouches for it. The same subject of two issuers is two principals.
    pub issuer: Arc<str>,
    /// On whose behalf.
    pub subject: Subject,
    /// The OAuth client that asks.
    pub client: Arc<str>,
    /// What the token may be used for.
    pub scopes: Arc<[String]>,
    /// The subject's groups, as configured now.
    pub groups: Arc<[String]>,
    /// The grant behind the token.
    pub grant: Arc<str>,
    /// Of this gateway itself, not of an external issuer.
    pub is_local: bool,
}

impl Principal {
    /// The principal of a verified token; `None` when its subject is not configured (any more).
    pub fn of(verified: &Verified, users: &Users) -> Option<Principal> {
        let groups = match &verified.subject {
            Subject::User(name) => users.get(name)?.groups.clone(),
            // No client acts on its own account until `identity.clients` exists.
            Subject::Client(_) => return None,
        };
        Some(Principal {
            issuer: verified.issuer.clone(),
            subject: verified.subject.clone(),
            client: verified.client.clone(),
            scopes: verified.scopes.clone(),
            groups,
            grant: verified.grant.clone(),
            is_local: true,
        })
    }

    /// The same principal with the groups it has now; `None` when its subject is not configured any more.
    pub fn renewed(&self, users: &Users) -> Option<Principal> {
        match &self.subject {
            Subject::User(name) if self.is_local => {
                Some(Principal { groups: users.get(name)?.groups.clone(), ..self.clone() })
            }
            _ => Some(self.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::users::tests::users;

    fn verified(subject: &str) -> Verified {
        Verified {
            issuer: "https://mcp.example.com".into(),
            subject: subject.parse().expect("a subject"),
            client: "cli".into(),
            scopes: Arc::new(["mcp".to_owned()]),
            grant: "g_1".into(),
            resource: "https://mcp.example.com/mcp/github".into(),
            expires_at: 1,
        }
    }

    #[test]
    fn groups_are_those_configured_now_not_those_of_the_token() {
        let verified = verified("user:alice");
        let groups = |users: &Users| Principal::of(&verified, users).map(|p| p.groups.to_vec());

        assert_eq!(groups(&users(&[("alice", &["ops"])])), Some(vec!["ops".to_owned()]));
        assert_eq!(groups(&users(&[("alice", &[])])), Some(vec![]));
        assert_eq!(groups(&users(&[("bob", &["ops"])])), None);
    }

    #[test]
    fn a_client_of_the_same_name_is_not_the_user() {
        let users = users(&[("alice", &["admins"])]);
        assert!(Principal::of(&verified("user:alice"), &users).is_some());
        assert!(Principal::of(&verified("client:alice"), &users).is_none());
    }
}
