//! Many at once with one code or one refresh token, through one gateway and through two that share a store, and with a
//! crash in the middle.

use super::app::{Codes, app, at_once, configuration, gate};
use crate::support::gate::Gate;
use crate::support::gateway::{Gateway, Launch};
use crate::support::http::{Connection, Response};
use crate::support::oauth::{Tokens, form_request, status_with, token};
use crate::support::recorder::Recorder;
use crate::support::wait_for;
use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Processes of one client that refresh at the same moment.
const AT_ONCE: usize = 50;

/// A few rounds; with `ROUNDS=1000` as many as attack-tests AS-63 asks for.
fn rounds(few: usize) -> usize {
    std::env::var("ROUNDS").map_or(few, |n| n.parse().expect("ROUNDS is a number"))
}

/// The refresh tokens in these answers, each of which must be a success.
#[track_caller]
fn successors(answers: &[Response]) -> BTreeSet<String> {
    answers.iter().map(|answer| Tokens::of(answer).refresh.expect("a refresh token")).collect()
}

#[test]
fn as_63_of_fifty_refreshes_at_once_nobody_is_logged_out_and_one_successor_lives() {
    let Gate { gateway, .. } = gate("");
    let codes = Codes::of(&gateway, &format!("http://{}", gateway.agent));
    let mut refresh = codes.log_in(&gateway).refresh.unwrap();
    for round in 0..rounds(8) {
        // Some logins last for many rounds, some are new: both have to hold.
        if round % 3 == 0 {
            refresh = codes.log_in(&gateway).refresh.unwrap();
        }

        let answers = at_once(&[gateway.agent], AT_ONCE, &form_request("/token", &app().refresh(&refresh)));

        let living = successors(&answers);
        assert_eq!(living.len(), 1, "round {round}");
        for answer in answers.iter().step_by(10) {
            assert_eq!(status_with(&gateway, &Tokens::of(answer).access), 200, "round {round}");
        }
        refresh = living.into_iter().next().unwrap();
    }
    assert_eq!(token(&gateway, &app().refresh(&refresh)).status, 200);
}

/// A gateway under a fixed name, so that another process can issue the same tokens.
const NAMED: &str = "public_url: https://gw.example.test\nbehind_proxy: { from: [127.0.0.1/32] }";
const NAME: &str = "https://gw.example.test";

#[test]
fn two_processes_that_share_a_store_agree_on_one_successor_and_one_redemption() {
    let recorder = Recorder::start();
    let one = Gateway::start(&configuration(&recorder.url(), NAMED));
    let data = one.path("data");
    let shared = format!("{NAMED}\ndata_dir: {}", data.display());
    let two = Gateway::start(&configuration(&recorder.url(), &shared));
    let both = [one.agent, two.agent];
    let codes = Codes::of(&one, NAME);
    for round in 0..rounds(4) {
        let refresh = codes.log_in(&one).refresh.unwrap();
        let answers = at_once(&both, AT_ONCE, &form_request("/token", &app().refresh(&refresh)));
        assert_eq!(successors(&answers).len(), 1, "round {round}");

        let back = codes.write();
        let redeem = form_request("/token", &app().redeem(&back.code, &back.verifier));
        let statuses: Vec<u16> = at_once(&both, AT_ONCE, &redeem).iter().map(|answer| answer.status).collect();
        assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "round {round}: {statuses:?}");
        assert_eq!(statuses.iter().filter(|status| **status == 400).count(), AT_ONCE - 1, "round {round}");
    }
}

#[test]
fn as_51_of_a_hundred_redemptions_at_once_exactly_one_gets_tokens() {
    let Gate { gateway, .. } = gate("");
    let codes = Codes::of(&gateway, &format!("http://{}", gateway.agent));
    for round in 0..rounds(3) {
        let back = codes.write();

        let redeem = form_request("/token", &app().redeem(&back.code, &back.verifier));
        let answers = at_once(&[gateway.agent], 100, &redeem);

        let (got, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
        assert_eq!((got.len(), refused.len()), (1, 99), "round {round}");
        for answer in refused {
            assert_eq!((answer.status, answer.json()["error"].as_str()), (400, Some("invalid_grant")));
        }
    }
}

#[test]
fn as_64_a_revocation_among_refreshes_is_not_undone() {
    let Gate { gateway, .. } = gate("");
    let codes = Codes::of(&gateway, &format!("http://{}", gateway.agent));
    for round in 0..rounds(4) {
        let tokens = codes.log_in(&gateway);
        let refresh = tokens.refresh.clone().unwrap();
        let revoke = form_request("/revoke", &app().form(&[("token", &refresh)]));
        let again = form_request("/token", &app().refresh(&refresh));

        let answers = thread::scope(|scope| {
            let refreshing = scope.spawn(|| at_once(&[gateway.agent], 20, &again));
            let revoked = scope.spawn(|| revoke.send(gateway.agent).status);
            assert_eq!(revoked.join().expect("an answer"), 200);
            refreshing.join().expect("answers")
        });

        assert!(codes.is_revoked(&grant_of(&tokens.access)), "round {round}");
        for answer in answers.iter().filter(|answer| answer.status == 200) {
            let refreshed = Tokens::of(answer);
            assert_eq!(token(&gateway, &app().refresh(&refreshed.refresh.unwrap())).status, 400, "round {round}");
        }
    }
}

/// The grant that an access token names.
fn grant_of(access: &str) -> String {
    portcullis::identity::grant_named_in(access).expect("one of our tokens")
}

#[test]
fn clients_go_on_after_a_crash_in_the_middle_of_their_refreshes() {
    let recorder = Recorder::start();
    let mut gateway = Launch::new(&configuration(&recorder.url(), NAMED)).start();
    for round in 0..rounds(3) {
        let codes = Codes::of(&gateway, NAME);
        let clients: Vec<String> = (0..20).map(|_| codes.log_in(&gateway).refresh.unwrap()).collect();

        // Sometimes early, sometimes late among them.
        gateway = crash_among(gateway, &clients, 1 + round * 7 % 19);

        // None of them knows whether its token was used up, and each comes with it once more.
        for refresh in &clients {
            let again = Tokens::of(&token(&gateway, &app().refresh(refresh)));
            let next = token(&gateway, &app().refresh(&again.refresh.unwrap()));
            assert_eq!(next.status, 200, "round {round}: {}", next.text());
        }
    }
}

/// Lets each client refresh, kills the gateway when so many of them have their answer, and starts it again.
fn crash_among(gateway: Gateway, clients: &[String], n_answered: usize) -> Gateway {
    let (barrier, answered) = (Barrier::new(clients.len()), AtomicUsize::new(0));
    thread::scope(|scope| {
        for refresh in clients {
            let (barrier, answered, address) = (&barrier, &answered, gateway.agent);
            scope.spawn(move || {
                let mut connection = Connection::open(address);
                let request = form_request("/token", &app().refresh(refresh)).to_bytes(&address.to_string());
                barrier.wait();
                // Answered or not: the crash decides.
                if connection.try_send(&request).and_then(|()| connection.try_response()).is_ok() {
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        wait_for("some answers", || answered.load(Ordering::SeqCst) >= n_answered);
        gateway.crash_and_restart()
    })
}
