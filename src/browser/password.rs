//! Trying a password on a page: at a pace for each address, counted for each name, and written down where it fails.

use super::Plane;
use crate::identity::{self, PasswordError, Person};
use crate::secret::Secret;
use crate::snapshot::Snapshot;
use crate::web::Caller;
use axum::http::{HeaderMap, StatusCode};
use std::net::IpAddr;

/// How a page says that a password was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The status it comes with.
    pub status: StatusCode,
    /// A sentence for the person. Which of name and password was wrong is not said.
    pub text: String,
    /// After how many seconds another try makes sense.
    pub wait_s: Option<i64>,
}

impl Plane {
    /// The person `name`, if this is their password and it may be tried now. A browser that is known has a pace of its own,
    /// whoever shares its address. What is right costs the address nothing: a program may come with it every second.
    ///
    /// # Errors
    /// Why not; it is written down.
    pub async fn verify(
        &self,
        snapshot: &Snapshot,
        caller: &Caller,
        headers: &HeaderMap,
        name: &str,
        password: &str,
    ) -> Result<Person, PasswordError> {
        let device = self.device_of(snapshot, headers, name);
        let is_known = device.is_some();
        let counter = device.or_else(|| self.kind.apart.map(str::to_owned));
        let verified = if is_known || self.may_try(caller.address) {
            let password = Secret::new(password.to_owned());
            identity::verify_person(&self.store, &snapshot.users, name, counter.as_deref(), password, &self.clock).await
        } else {
            Err(PasswordError::Busy)
        };
        if verified.is_ok() && !is_known {
            self.logins.give_back(caller.address);
        }
        verified.inspect_err(|error| self.login_failed(snapshot, caller, name, error))
    }

    /// Whether somebody at this address may try now; it counts as a try.
    pub fn may_try(&self, address: Option<IpAddr>) -> bool {
        self.logins.take(address).is_ok()
    }
}

/// What to tell a person of this.
pub fn trouble(error: &PasswordError, now_ms: i64) -> Trouble {
    match error {
        PasswordError::Paused { until_ms } => {
            let wait_s = until_ms.saturating_sub(now_ms).max(0) / 1000 + 1;
            let text = format!("Too many failed attempts. Try again in {}.", people_time(wait_s));
            Trouble { status: StatusCode::TOO_MANY_REQUESTS, text, wait_s: Some(wait_s) }
        }
        PasswordError::Busy => {
            let text = "Too many attempts at once. Wait a moment, then try again.".to_owned();
            Trouble { status: StatusCode::TOO_MANY_REQUESTS, text, wait_s: Some(5) }
        }
        PasswordError::Wrong | PasswordError::Length => {
            let text = "Name and password do not match.".to_owned();
            Trouble { status: StatusCode::FORBIDDEN, text, wait_s: None }
        }
        _ => {
            let text = "Logging in does not work right now. Try again later.".to_owned();
            Trouble { status: StatusCode::SERVICE_UNAVAILABLE, text, wait_s: None }
        }
    }
}

fn people_time(seconds: i64) -> String {
    match seconds {
        ..=1 => "a second".to_owned(),
        2..=90 => format!("{seconds} seconds"),
        _ => format!("{} minutes", (seconds + 59) / 60),
    }
}
