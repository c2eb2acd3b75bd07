//! Who a request counts as, once its token was verified and its subject found among the people in force.

use super::{Asserted, Clients, Users, Verified};
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
    /// Those of the groups that the token itself claims, as an external issuer's are mapped. Tokens of ours claim none.
    pub claimed: Arc<[String]>,
    /// The grant behind the token; tokens of external issuers have none.
    pub grant: Option<Arc<str>>,
    /// When what was vouched for ends, seconds since the Unix epoch; for tokens without a grant, which nobody can revoke.
    pub until: Option<i64>,
    /// Whose token it is: this gateway's own, not an external issuer's.
    pub is_local: bool,
    /// The person of this gateway it counts as: its own subject, or whom `also` names for an external one.
    pub person: Option<Arc<str>>,
}

impl Principal {
    /// The principal of a verified token; `None` when its subject is not configured (any more).
    pub fn of(verified: &Verified, users: &Users, clients: &Clients) -> Option<Principal> {
        let (person, groups) = match &verified.subject {
            Subject::User(name) => {
                let person = users.get(name)?;
                // A new password ends what was made under the old one.
                if verified.password_mark.as_ref().is_some_and(|mark| *mark != person.password_mark) {
                    return None;
                }
                (Some(name.clone()), person.groups.clone())
            }
            // It is nobody's deputy: the groups are its own, and rules about its owner are not about it.
            Subject::Client(id) => {
                let machine = clients.machine(id, users)?;
                let route = verified.resource.rsplit('/').next();
                // A route that was taken from it is closed to the tokens it has, too.
                machine.routes.iter().find(|it| Some(it.as_str()) == route)?;
                (None, machine.groups.clone())
            }
        };
        Some(Principal {
            issuer: verified.issuer.clone(),
            subject: verified.subject.clone(),
            client: verified.client.clone(),
            scopes: verified.scopes.clone(),
            groups,
            claimed: Arc::new([]),
            grant: Some(verified.grant.clone()),
            until: None,
            is_local: true,
            person,
        })
    }

    /// The principal of a verified token of an external issuer. Where `also` says that its subject is a person of this
    /// gateway, it counts as that person, with their groups beside those that are mapped; client and scopes stay theirs.
    pub fn external(asserted: &Asserted, users: &Users) -> Principal {
        let principal = Principal {
            issuer: asserted.issuer.clone(),
            subject: asserted.subject.clone(),
            client: asserted.client.clone(),
            scopes: asserted.scopes.clone(),
            groups: asserted.groups.clone(),
            claimed: asserted.groups.clone(),
            grant: None,
            until: Some(asserted.expires_at),
            is_local: false,
            person: None,
        };
        principal.counted(users)
    }

    /// An external principal as the person that `also` names now, if it names one. A machine is never a person.
    fn counted(self, users: &Users) -> Principal {
        let person = match &self.subject {
            Subject::User(name) => users.also(&self.issuer, name),
            Subject::Client(_) => None,
        };
        let Some(person) = person else {
            return Principal { groups: self.claimed.clone(), person: None, ..self };
        };
        let more = person.groups.iter().filter(|group| !self.claimed.contains(group));
        let groups = self.claimed.iter().chain(more).cloned().collect();
        Principal { groups, person: Some(person.name.clone()), ..self }
    }

    /// The same principal with the groups it has now; `None` when its subject is not configured any more.
    pub fn renewed(&self, users: &Users, clients: &Clients) -> Option<Principal> {
        if !self.is_local {
            return Some(self.clone().counted(users));
        }
        let groups = match &self.subject {
            Subject::User(name) => users.get(name)?.groups.clone(),
            Subject::Client(id) => clients.machine(id, users)?.groups.clone(),
        };
        Some(Principal { groups, ..self.clone() })
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
            password_mark: None,
        }
    }

    #[test]
    fn groups_are_those_configured_now_not_those_of_the_token() {
        let verified = verified("user:alice");
        let groups = |users: &Users| Principal::of(&verified, users, &Clients::default()).map(|p| p.groups.to_vec());

        assert_eq!(groups(&users(&[("alice", &["ops"])])), Some(vec!["ops".to_owned()]));
        assert_eq!(groups(&users(&[("alice", &[])])), Some(vec![]));
        assert_eq!(groups(&users(&[("bob", &["ops"])])), None);
    }

    fn asserted(subject: Subject) -> Asserted {
        Asserted {
            issuer: "https://idp.test".into(),
            subject,
            client: "app".into(),
            scopes: Arc::new([]),
            groups: Arc::new(["ops".to_owned()]),
            expires_at: 1,
        }
    }

    #[test]
    fn an_external_subject_is_the_person_that_also_names_and_nobody_else() {
        let also = |issuer: &str, subject: &str| crate::config::Also { issuer: issuer.into(), subject: subject.into() };
        let mut alice = crate::identity::tests::user("alice", &["admins", "ops"]);
        alice.also = vec![also("https://idp.test", "00u1"), also("https://other.test", "alice")];
        let users = Users::of([&alice]).unwrap();
        let of = |subject: Subject| Principal::external(&asserted(subject), &users);

        let known = of(Subject::User("00u1".into()));
        assert_eq!((known.person.as_deref(), known.is_local), (Some("alice"), false));
        assert_eq!(*known.groups, ["ops", "admins"]);
        // As a long stream is told: with the groups of now, and of nobody who is not that person any more.
        alice.groups = vec!["admins".to_owned()];
        let demoted = known.renewed(&Users::of([&alice]).unwrap(), &Clients::default()).unwrap();
        assert_eq!(
            (demoted.person.as_deref(), demoted.groups.to_vec()),
            (Some("alice"), vec!["ops".to_owned(), "admins".to_owned()])
        );
        alice.also.clear();
        let stranger = demoted.renewed(&Users::of([&alice]).unwrap(), &Clients::default()).unwrap();
        assert_eq!((stranger.person, stranger.groups.to_vec()), (None, vec!["ops".to_owned()]));
        for other in [Subject::User("alice".into()), Subject::User("00u".into()), Subject::Client("00u1".into())] {
            let unknown = of(other);
            assert_eq!(unknown.person, None, "{unknown:?}");
            assert_eq!(*unknown.groups, ["ops"]);
        }
    }

    #[test]
    fn a_client_of_the_same_name_is_not_the_user() {
        let users = users(&[("alice", &["admins"])]);
        let of = |subject: &str, clients: &Clients| Principal::of(&verified(subject), &users, clients);
        let machine =
            crate::identity::clients::tests::clients(&[("alice", Some("alice")), ("ci", Some("gone")), ("web", None)]);

        assert!(of("user:alice", &Clients::default()).is_some());
        assert!(of("client:alice", &Clients::default()).is_none());
        // Also where there is one of that name: its owner's groups are not its own.
        let machine_alice = of("client:alice", &machine).unwrap();
        assert_eq!((machine_alice.person.clone(), machine_alice.groups.to_vec()), (None, vec!["robots".to_owned()]));
        assert!(machine_alice.renewed(&users, &machine).is_some());
        assert!(machine_alice.renewed(&users, &Clients::default()).is_none());
        let elsewhere = Verified { resource: "https://mcp.example.com/mcp/files".into(), ..verified("client:alice") };
        assert!(Principal::of(&elsewhere, &users, &machine).is_none(), "not one of its routes");
        assert!(of("client:ci", &machine).is_none(), "nobody answers for it");
        assert!(of("client:web", &machine).is_none(), "it acts for people only");
    }
}
