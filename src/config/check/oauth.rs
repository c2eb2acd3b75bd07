//! Lives of tokens that would end before they begin, or never.

use crate::config::problem::{Path, Problem};
use crate::config::{Config, Period};

/// A longer access token is a refresh token that does not rotate.
const LONGEST_ACCESS_TOKEN: Period = Period::seconds(24 * 60 * 60);

pub(super) fn check(config: &Config, problems: &mut Vec<Problem>) {
    let path = Path::root().key("oauth");
    let oauth = &config.oauth;
    for (key, period) in [("access_token", oauth.access_token), ("idle", oauth.idle), ("lifetime", oauth.lifetime)] {
        // Tokens carry whole seconds.
        if period.duration().as_secs() == 0 {
            let message = format!("`{period}` is not at least `1s`");
            problems.push(Problem::new(path.key(key), message));
        }
    }
    if oauth.access_token.duration() > LONGEST_ACCESS_TOKEN.duration() {
        let message = format!("`{}` is more than `{LONGEST_ACCESS_TOKEN}`", oauth.access_token);
        let hint = "clients refresh without asking anybody; `idle` and `lifetime` say how long they may";
        problems.push(Problem::new(path.key("access_token"), message).hint(hint));
    }
}
