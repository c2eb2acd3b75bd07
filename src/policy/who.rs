//! For whom a rule is. Scopes are asked apart from the rest, because a scope is the one thing a client can still get.

use crate::identity::Principal;

/// The compiled `who`: each list that is there must have a match, and all scopes must be carried.
#[derive(Debug, Default)]
pub(super) struct Who {
    pub(super) users: Option<Box<[Box<str>]>>,
    pub(super) groups: Option<Box<[Box<str>]>>,
    pub(super) clients: Option<Box<[Box<str>]>>,
    pub(super) scopes: Box<[Box<str>]>,
    /// A deny without names is for everybody.
    pub(super) is_of_deny: bool,
}

/// Why a principal is not meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Miss {
    External,
    User,
    Group,
    Client,
}

impl Who {
    /// Whether the rule is for somebody else, scopes left aside.
    ///
    /// Names of users and clients are names of this gateway: an external issuer's `alice` is another person. What an
    /// external issuer says counts only as the groups it is mapped to, so without `groups` a rule opens nothing to its
    /// principals. A deny closes, and may as well close to all. Whom `also` makes a person of this gateway is that person;
    /// the client they use stays a client of the other issuer.
    pub(super) fn misses(&self, principal: &Principal) -> Option<Miss> {
        let is_opened_by_group = self.groups.is_some();
        let is_of_this_gateway = principal.is_local || principal.person.is_some();
        if !is_of_this_gateway && !is_opened_by_group && !self.is_of_deny {
            return Some(Miss::External);
        }
        let user = principal.person.as_deref();
        let client = principal.is_local.then_some(&*principal.client);
        if !is_among(self.users.as_deref(), user) {
            return Some(Miss::User);
        }
        if !is_among(self.clients.as_deref(), client) {
            return Some(Miss::Client);
        }
        let groups = principal.groups.iter().map(String::as_str);
        if !is_among(self.groups.as_deref(), groups) {
            return Some(Miss::Group);
        }
        None
    }

    /// The scopes it asks for that the token does not carry, nor `granted` add.
    pub(super) fn missing_scopes<'a>(
        &'a self,
        principal: &'a Principal,
        granted: &'a [Box<str>],
    ) -> impl Iterator<Item = &'a str> {
        self.scopes
            .iter()
            .filter(|wanted| !granted.contains(wanted) && !principal.scopes.iter().any(|held| **held == ***wanted))
            .map(AsRef::as_ref)
    }
}

/// Whether one of `given` is in the list, or there is no list.
fn is_among<'a>(list: Option<&[Box<str>]>, given: impl IntoIterator<Item = &'a str>) -> bool {
    list.is_none_or(|list| given.into_iter().any(|name| list.iter().any(|listed| **listed == *name)))
}
