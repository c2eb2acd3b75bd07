//! The user that a local upstream runs as: ours, unless we are root.

use nix::unistd::{Gid, Uid, User, geteuid};

/// Numbers that nothing hands out: above those of the distribution and of systemd, below those of containers
/// (systemd, "Users, Groups, UIDs and GIDs on systemd Systems"; shadow-utils give subordinate ids from 100,000 up).
const FIRST: u32 = 70_000;
const COUNT: u32 = 20_000;

/// User and group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// Whom the upstream `name` runs as; `None` for ourselves.
///
/// # Errors
/// The configured user is not there, or cannot be had.
pub(super) fn account(name: &str, configured: Option<&str>) -> Result<Option<Account>, String> {
    let we = geteuid();
    let Some(user) = configured else {
        let number = number(name);
        return Ok(we.is_root().then_some(Account { uid: number, gid: number }));
    };
    let found = User::from_name(user).map_err(|why| format!("cannot look up the user `{user}`: {why}"))?;
    let User { uid, gid, .. } = found.ok_or_else(|| format!("there is no user `{user}` on this host"))?;
    choose(we, user, uid, gid)
}

fn choose(we: Uid, user: &str, uid: Uid, gid: Gid) -> Result<Option<Account>, String> {
    if uid.is_root() {
        return Err(format!("`{user}` is root, and a sandbox of root's confines less"));
    }
    if uid == we {
        return Ok(None);
    }
    if !we.is_root() {
        return Err(format!("the gateway runs as user {we} and cannot become `{user}`; only root can"));
    }
    Ok(Some(Account { uid: uid.as_raw(), gid: gid.as_raw() }))
}

/// The same for the same name on every host, so that a workspace that is copied still fits.
fn number(name: &str) -> u32 {
    let digest = ring::digest::digest(&ring::digest::SHA256, name.as_bytes());
    let start: [u8; 4] = digest.as_ref()[..4].try_into().expect("SHA-256 has more than 4 bytes");
    FIRST + u32::from_be_bytes(start) % COUNT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sandboxes_of_a_root_gateway_are_two_users_that_nobody_else_is() {
        let (one, two) = (number("sandbox"), number("other"));

        assert_ne!(one, two);
        assert_eq!(one, number("sandbox"));
        for uid in [one, two] {
            assert!((FIRST..FIRST + COUNT).contains(&uid), "{uid}");
        }
    }

    #[test]
    fn only_root_becomes_somebody_else_and_nobody_becomes_root() {
        let (root, we, they) = (Uid::from_raw(0), Uid::from_raw(1000), Uid::from_raw(1001));
        let group = Gid::from_raw(7);

        assert_eq!(choose(root, "they", they, group), Ok(Some(Account { uid: 1001, gid: 7 })));
        assert_eq!(choose(we, "me", we, group), Ok(None));
        assert!(choose(we, "they", they, group).is_err_and(|why| why.contains("only root")));
        assert!(choose(root, "root", root, group).is_err_and(|why| why.contains("is root")));
    }
}
