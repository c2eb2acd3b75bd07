//! What a reload changes about tokens that were good before it.

use super::{config, echo, entry, gate, invalid, token};
use crate::support::gate::error;
use crate::support::issuer::Issuer;
use serde_json::json;

#[test]
fn a_reload_changes_what_counts_at_once_and_fetches_no_keys_that_are_known() {
    let issuer = Issuer::start();
    let gate = gate(&issuer, "");
    let good = echo(&token(&gate, &issuer));
    let put = |entries: &str| {
        gate.gateway.rewrite(&config(&gate.recorder.url(), entries));
        gate.gateway.reload().success();
    };
    gate.passes("before", &good);

    put(&format!("{}# the same again\n", entry(&issuer.name, "")));
    gate.passes("nothing changed", &good);
    put(&entry(&issuer.name, "").replace("operators: ops", "others: ops"));
    gate.refuses("its group is not mapped any more", &good, &error(200, -32602, "policy.unlisted").id("7"));
    put(&entry(&issuer.name, ", clients: [other]"));
    gate.refuses("its client does not count any more", &good, &invalid());
    put(&entry(&issuer.name, ", audience: [other]"));
    gate.refuses("its audience is another", &good, &invalid());
    put(&entry(&issuer.name, ", algorithms: [RS256]"));
    gate.refuses("its algorithm does not count any more", &good, &invalid());
    put(&entry(&issuer.name, ""));
    gate.passes("as it was", &good);
    assert_eq!(issuer.n_fetches(), 1, "the keys come from where they came from");

    put(&entry("http://127.0.0.1:1", ""));
    gate.refuses("its issuer is gone", &good, &invalid());
    put(&entry(&issuer.name, ""));
    super::wait_for_keys(&gate, &issuer.name);
    crate::support::wait_for("the keys to be fetched anew", || issuer.n_fetches() >= 2);
    gate.passes("and back", &echo(&issuer.token(&gate.gateway.url("up"), &json!({ "jti": "t2" }))));
}

#[test]
fn a_configuration_with_a_broken_issuer_is_refused_and_the_old_one_stays() {
    let issuer = Issuer::start();
    let gate = gate(&issuer, "");
    let good = echo(&token(&gate, &issuer));
    for (broken, said) in [
        (entry("http://idp.example.com", ""), "is not `https`"),
        (entry(&issuer.name, ", tls: { ca: nowhere.pem }"), "`tls` has no meaning"),
        (entry("https://idp.example.com", ", tls: { ca: nowhere.pem }"), "cannot read nowhere.pem"),
        (entry(&issuer.name, ", algorithms: [HS256]"), "HS256"),
        (entry(&issuer.name, ", algorithms: [none]"), "none"),
        (entry(&issuer.name, "") + &entry(&issuer.name, ""), "stands twice"),
    ] {
        gate.gateway.rewrite(&config(&gate.recorder.url(), &broken));
        let refused = gate.gateway.reload();
        assert!(!refused.status.success() && refused.stdout.contains(said), "{said}: {refused:?}");
        gate.passes(said, &good);
    }
}
