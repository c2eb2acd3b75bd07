//! Whose word counts, on the page: the right people, each once, as they are at that moment (attack tests A-07, A-08, A-14, A-24).

use super::held::{Holder, PEOPLE, Wish, decide, gateway, logged_in, password_of, path, recorded, terms, yaml};
use super::page::COMMAND;
use portcullis::store::ApprovalState;

#[test]
fn a_14_a_call_of_others_and_an_id_that_nobody_was_given_are_the_same_nothing() {
    let gateway = gateway("");
    let holder = Holder::of(&gateway);
    let mut wish = Wish { by: "alice", ..Wish::of(COMMAND) };
    wish.terms = terms(&["admins"], 1);
    let of_alice = holder.hold(&wish);
    let of_bob = holder.hold(&Wish::of(COMMAND));
    let mut bob = logged_in(&gateway, "bob");

    let hidden = bob.get(&path(&of_alice));
    let unknown = bob.get("/approvals/h_AAAAAAAAAAAAAAAAAAAAAA");
    assert_eq!((hidden.status(), unknown.status()), (404, 404));
    assert_eq!(hidden.text(), unknown.text());
    let own = bob.get(&path(&of_bob));
    assert!(own.status() == 200 && own.text().contains("run_command"), "{}", own.text());
    let list = bob.get("/").text();
    assert!(list.contains(&path(&of_bob)) && !list.contains(&path(&of_alice)), "{list}");
    // Whoever guesses the form as well is written down.
    let (_, mut fields) = own.filled(&[("decision", "withdraw"), ("password", &password_of("bob"))]);
    fields.iter_mut().filter(|(name, _)| name == "decision").for_each(|(_, value)| *value = "approve".to_owned());
    assert_eq!(bob.post(&path(&of_alice), &fields).status(), 404);
    recorded(&gateway, "approval.refused", "approval.not_entitled");
    assert_eq!(bob.post("/approvals/h_AAAAAAAAAAAAAAAAAAAAAA", &fields).status(), 404);
    recorded(&gateway, "approval.refused", "approval.unknown");
    assert_eq!(holder.state(&of_alice), ApprovalState::Pending);
    let mut carol = logged_in(&gateway, "carol");
    decide(&mut carol, &of_alice, "carol", "approve");
    assert_eq!(holder.state(&of_alice), ApprovalState::Approved);
}

#[test]
fn somebody_demoted_between_looking_and_pressing_decides_nothing() {
    let gateway = gateway("");
    let holder = Holder::of(&gateway);
    let held = holder.hold(&Wish::of(COMMAND));
    let mut carol = logged_in(&gateway, "carol");
    let page = carol.get(&path(&held));
    gateway.rewrite(&yaml("", &PEOPLE.replace("carol, groups: [admins]", "carol, groups: [ops]")));
    gateway.reload().success();

    let refused = carol.submit(&page, &[("decision", "approve"), ("password", &password_of("carol"))]);

    assert_eq!((refused.status(), holder.state(&held)), (404, ApprovalState::Pending));
    recorded(&gateway, "approval.refused", "approval.not_entitled");
    gateway.rewrite(&yaml("", PEOPLE));
    gateway.reload().success();
    carol.submit(&page, &[("decision", "approve"), ("password", &password_of("carol"))]);
    assert_eq!(holder.state(&held), ApprovalState::Approved);
}

#[test]
fn an_approver_counts_once_for_a_quorum_and_a_second_person_completes_it() {
    let gateway = gateway("");
    let holder = Holder::of(&gateway);
    let held = holder.hold(&Wish { terms: terms(&["admins"], 2), ..Wish::of(COMMAND) });
    let mut alice = logged_in(&gateway, "alice");
    let page = alice.get(&path(&held));

    let after = alice.submit(&page, &[("decision", "approve"), ("password", &password_of("alice"))]);
    assert!(
        after.text().contains("<b>1 of 2</b>") && after.text().contains("Another person is needed"),
        "{}",
        after.text()
    );
    let twice = alice.submit(&page, &[("decision", "approve"), ("password", &password_of("alice"))]);

    assert_eq!((twice.status(), holder.state(&held)), (409, ApprovalState::Pending));
    recorded(&gateway, "approval.refused", "approval.twice");
    decide(&mut logged_in(&gateway, "carol"), &held, "carol", "approve");
    assert_eq!(holder.state(&held), ApprovalState::Approved);
}

#[test]
fn ones_own_call_is_for_another_person_unless_the_rule_says_self() {
    let gateway = gateway("");
    let holder = Holder::of(&gateway);
    let own = holder.hold(&Wish { by: "alice", ..Wish::of(COMMAND) });
    let mut alice = logged_in(&gateway, "alice");
    let page = alice.get(&path(&own));
    assert!(page.text().contains("the rule does not let you decide on it"), "{}", page.text());
    assert!(!page.text().contains("value=\"approve\""));
    let (action, mut fields) = page.filled(&[("decision", "withdraw"), ("password", &password_of("alice"))]);
    fields.iter_mut().filter(|(name, _)| name == "decision").for_each(|(_, value)| *value = "approve".to_owned());

    let refused = alice.post(&action, &fields);

    assert_eq!((refused.status(), holder.state(&own)), (403, ApprovalState::Pending));
    recorded(&gateway, "approval.refused", "approval.own_call");
    let mut with_self = Wish { by: "alice", ..Wish::of(r#"{"command":"rm answer"}"#) };
    with_self.terms.by_requester = true;
    let with_self = holder.hold(&with_self);
    decide(&mut alice, &with_self, "alice", "approve");
    assert_eq!(holder.state(&with_self), ApprovalState::Approved);
}

#[test]
fn another_digest_than_the_one_held_and_a_decision_that_came_too_late_change_nothing() {
    let gateway = gateway("");
    let holder = Holder::of(&gateway);
    let (held, other) = (holder.hold(&Wish::of(COMMAND)), holder.hold(&Wish::of(r#"{"command":"rm other"}"#)));
    let (mut alice, mut carol) = (logged_in(&gateway, "alice"), logged_in(&gateway, "carol"));
    let (page, of_carol) = (alice.get(&path(&held)), carol.get(&path(&held)));
    let (_, of_other) = alice.get(&path(&other)).filled(&[("decision", "approve")]);
    let digest = of_other.iter().find(|(name, _)| name == "digest").map(|(_, value)| value.clone()).unwrap();

    for decision in ["approve", "deny", "withdraw"] {
        let fill = [("decision", decision), ("digest", &digest), ("password", &password_of("alice"))];
        let refused = alice.submit(&page, &fill);
        assert_eq!((refused.status(), holder.state(&held)), (409, ApprovalState::Pending), "{decision}");
    }
    recorded(&gateway, "approval.refused", "approval.digest");
    alice.submit(&page, &[("decision", "deny"), ("password", &password_of("alice"))]);
    let late = carol.submit(&of_carol, &[("decision", "approve"), ("password", &password_of("carol"))]);
    assert_eq!((late.status(), holder.state(&held)), (409, ApprovalState::Denied));
    assert!(late.text().contains("denied already"), "{}", late.text());
    recorded(&gateway, "approval.refused", "approval.decided");
}

#[test]
fn admins_see_what_is_for_others_and_cannot_decide_on_it() {
    let gateway = gateway("");
    let holder = Holder::of(&gateway);
    let held = holder.hold(&Wish { terms: terms(&["ops"], 1), ..Wish::of(COMMAND) });
    let mut carol = logged_in(&gateway, "carol");

    let page = carol.get(&path(&held));

    assert!(page.text().contains("are not among its approvers"), "{}", page.text());
    assert!(!page.text().contains("name=\"decision\""), "{}", page.text());
    decide(&mut logged_in(&gateway, "alice"), &held, "alice", "approve");
    assert_eq!(holder.state(&held), ApprovalState::Approved);
}
