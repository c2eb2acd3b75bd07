//! Reaching a host: its key, logins, connections that are used again.

use super::host::{OddHost, Oddity, PATIENCE};
use super::{ask, certificates, key, order, pool, way};
use crate::connection::{Connection, Error, Way};
use crate::credential::ephemeral;
use crate::known_hosts::Pinned;
use crate::pool::Pool;
use crate::run::End;
use std::io::Read as _;
use std::time::Duration;
use tokio::time::{Instant, timeout};

#[tokio::test]
async fn u_19_a_host_with_another_key_is_not_logged_in_to() {
    let host = OddHost::open(Oddity::none()).await;
    let other = ephemeral();
    let pinned = Pinned::of(&host.line(&other), &host.host()).expect("pinned");
    for login in [key(), certificates()] {
        let way = Way { pinned: pinned.clone(), ..way(&host) };

        let error = ask(&Pool::new(way, login, Duration::from_secs(9)), &order("do out")).await.expect_err("refused");

        let Error::HostKey(why) = error else { panic!("{error}") };
        let fingerprint = |key: &russh::keys::PrivateKey| crate::known_hosts::fingerprint(key.public_key());
        assert!(why.contains(&format!("it shows {}", fingerprint(&host.key))), "{why}");
        assert!(why.contains(&format!("known_hosts has {}", fingerprint(&other))), "{why}");
        assert_eq!(host.next().await, "connected");
        assert_eq!(host.next().await, "disconnected");
    }
    assert_eq!(ask(&pool(&host), &order("do out")).await.expect("ran").end, End::Exited(0));
}

#[tokio::test]
async fn a_host_that_has_no_key_of_a_pinned_kind_is_another_one() {
    let host = OddHost::open(Oddity::none()).await;
    let text = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBEmKSENjQEezOmxkZMy7opKgwFB9nkt5Y\
                RrYMjNuG5N87uRgg6CLrbo5wAdT/y6v0mKV0U2w0WZ2YB/++Tpockg=";
    let file = format!("[{}]:{} {text}\n", host.address.ip(), host.address.port());
    let pinned = Pinned::of(&file, &host.host()).expect("pinned");

    let error = Connection::open(&Way { pinned, ..way(&host) }).await.map(|_| ()).expect_err("refused");

    let Error::HostKey(why) = error else { panic!("{error}") };
    assert!(why.contains("it has none of that kind, but ssh-ed25519"), "{why}");
}

#[tokio::test]
async fn f_11_a_host_that_asks_for_a_password_gets_none() {
    let host = OddHost::open(Oddity { wants_password: true, ..Oddity::none() }).await;
    for login in [key(), certificates()] {
        let error = ask(&Pool::new(way(&host), login, Duration::from_secs(9)), &order("do out")).await;

        let why = error.map(|_| ()).expect_err("refused").to_string();
        assert!(why.contains("does not accept") && why.contains("it wants one of: password"), "{why}");
    }
    let happened = host.rest().await;
    assert!(happened.iter().all(|what| !what.starts_with("password") && !what.starts_with("exec")), "{happened:?}");
}

#[tokio::test]
async fn f_11_a_host_that_is_down_is_said_to_be_at_once_and_reached_again_when_it_is_back() {
    let oddity = Oddity::none();
    let host = OddHost::open(oddity.clone()).await;
    let pool = pool(&host);
    assert_eq!(ask(&pool, &order("do out")).await.expect("ran").end, End::Exited(0));
    let address = host.end().await;

    let began = Instant::now();
    for _ in 0..20 {
        let why = ask(&pool, &order("do out")).await.map(|_| ()).expect_err("down").to_string();
        assert!(why.starts_with("cannot reach deploy@127.0.0.1:") && why.contains("refused"), "{why}");
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());

    let host = OddHost::at(address, oddity).await;
    assert_eq!(ask(&pool, &order("do out")).await.expect("ran").end, End::Exited(0));
    assert_eq!(host.next().await, "connected");
}

#[tokio::test]
async fn many_calls_to_a_silent_host_wait_together_and_not_one_after_the_other() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("listens");
    let host = OddHost::open(Oddity::none()).await;
    let mut way = way(&host);
    way.host.port = silent.local_addr().expect("an address").port();
    way.connect = Duration::from_millis(500);
    for login in [key(), certificates()] {
        let pool = std::sync::Arc::new(Pool::new(way.clone(), login, Duration::from_secs(9)));
        let began = Instant::now();

        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..30 {
            let pool = std::sync::Arc::clone(&pool);
            calls.spawn(async move { pool.channel("r").await.map(|_| ()).map_err(|why| why.to_string()) });
        }
        while let Some(call) = calls.join_next().await {
            let why = call.expect("no panic").expect_err("silent");
            assert!(why.contains("did not answer within 500ms"), "{why}");
        }

        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn whoever_gives_up_connecting_leaves_no_connection_behind() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("listens");
    let host = OddHost::open(Oddity::none()).await;
    let mut way = way(&host);
    way.host.port = silent.local_addr().expect("an address").port();
    way.connect = Duration::from_millis(200);

    let error = Connection::open(&way).await.map(|_| ()).expect_err("silent");

    assert!(error.to_string().contains("did not answer within 200ms"), "{error}");
    let (mut socket, _) = silent.accept().expect("somebody came");
    socket.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let mut said = String::new();
    socket.read_to_string(&mut said).expect("and went");
    assert!(said.starts_with("SSH-2.0-portcullis_"), "{said}");
}

#[tokio::test]
async fn what_does_not_speak_ssh_is_said_to_be_something_else() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("listens");
    let host = OddHost::open(Oddity::none()).await;
    let mut way = way(&host);
    way.host.port = listener.local_addr().expect("an address").port();
    let web = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.expect("somebody");
        let _ = tokio::io::AsyncWriteExt::write_all(&mut socket, b"HTTP/1.1 400 \x1b[31mBad\r\n\r\n").await;
    });

    let why = Connection::open(&way).await.map(|_| ()).expect_err("a web server").to_string();

    web.await.expect("served");
    assert!(why.starts_with("cannot reach deploy@127.0.0.1:") && !why.contains('\x1b'), "{why}");
}

#[tokio::test]
async fn a_connection_is_used_again_and_closed_when_nobody_uses_it() {
    let host = OddHost::open(Oddity::none()).await;
    let pool = Pool::new(way(&host), key(), Duration::from_millis(400));
    let work = async {
        for _ in 0..3 {
            assert_eq!(ask(&pool, &order("do three")).await.expect("ran").end, End::Exited(3));
        }
        let mut happened = vec![];
        while happened.last().is_none_or(|last| last != "disconnected") {
            happened.push(host.next().await);
        }
        assert_eq!(happened.iter().filter(|what| *what == "connected").count(), 1, "{happened:?}");
        assert_eq!(happened.iter().filter(|what| what.starts_with("exec")).count(), 3, "{happened:?}");
        assert_eq!(ask(&pool, &order("do three")).await.expect("ran").end, End::Exited(3));
    };

    tokio::select! { () = work => {}, never = pool.tidy() => never }
}

#[tokio::test]
async fn a_stale_connection_is_replaced_before_anything_is_sent() {
    let host = OddHost::open(Oddity::none()).await;
    let pool = pool(&host);
    assert_eq!(ask(&pool, &order("do out")).await.expect("ran").end, End::Exited(0));
    host.hang_up();

    assert_eq!(ask(&pool, &order("do three")).await.expect("ran").end, End::Exited(3));

    let happened = host.rest().await;
    assert_eq!(happened.iter().filter(|what| *what == "exec do three").count(), 1, "{happened:?}");
}

#[tokio::test]
async fn a_host_that_opens_no_session_in_time_is_tried_once_more_and_no_oftener() {
    let host = OddHost::open(Oddity { opens_nothing: true, ..Oddity::none() }).await;
    let way = Way { connect: Duration::from_millis(500), ..way(&host) };
    let pool = Pool::new(way, key(), Duration::from_secs(9));

    let error = timeout(PATIENCE, ask(&pool, &order("do out"))).await.expect("in time").map(|_| ());

    assert!(matches!(error, Err(Error::Lost { .. })), "{error:?}");
    let happened = host.rest().await;
    assert_eq!(happened.iter().filter(|what| *what == "connected").count(), 1, "{happened:?}");
}

#[tokio::test]
async fn a_host_that_allows_few_sessions_gets_more_connections_up_to_four() {
    let host = OddHost::open(Oddity { most: 2, ..Oddity::none() }).await;
    let pool = pool(&host);
    let mut open = Vec::new();
    for _ in 0..8 {
        open.push(pool.channel("r").await.expect("a channel"));
    }

    let full = pool.channel("r").await.map(|_| ()).expect_err("full");

    assert!(full.to_string().contains("no more sessions on 4 connections; try again"), "{full}");
    let (channel, lease) = open.pop().expect("one");
    channel.close().await.expect("closed");
    while host.next().await != "close" {}
    drop((channel, lease));
    assert!(pool.channel("r").await.is_ok());
    let happened = host.rest().await;
    assert!(happened.is_empty(), "{happened:?}");
}

#[tokio::test]
async fn a_host_that_allows_no_session_at_all_says_so() {
    let host = OddHost::open(Oddity { most: 0, ..Oddity::none() }).await;

    let why = ask(&pool(&host), &order("do out")).await.map(|_| ()).expect_err("none").to_string();

    assert!(why.contains("let us in and opens no session (ConnectFailed)"), "{why}");
}
