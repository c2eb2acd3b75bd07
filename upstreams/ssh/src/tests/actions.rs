//! What becomes of actions on hosts that do strange things.

use super::host::{OddHost, Oddity, PATIENCE};
use super::{ask, ask_until, certificates, key, order, pool, text, way};
use crate::pool::Pool;
use crate::run::{End, Order, STAY, Then};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

async fn host() -> OddHost {
    OddHost::open(Oddity::none()).await
}

#[tokio::test]
async fn an_action_is_sent_as_it_is_and_nothing_beside_it() {
    let host = host().await;

    let ran = ask(&pool(&host), &order("do out")).await.expect("ran");

    assert_eq!(ran.end, End::Exited(0));
    assert_eq!((text(&ran.stdout.head), text(&ran.stderr.head)), ("out\n".to_owned(), "warning\n".to_owned()));
    let stdin = format!("stdin {STAY:?}");
    for happened in ["connected", "login deploy", "exec do out", &stdin] {
        assert_eq!(host.next().await, happened);
    }
    assert_eq!(host.rest().await, [""; 0]);
}

#[tokio::test]
async fn b74_status_signal_and_no_word_at_all_are_told_apart() {
    let host = host().await;
    let pool = pool(&host);
    for (command, end) in [
        ("do three", End::Exited(3)),
        ("do killed", End::Signalled("KILL".to_owned())),
        ("do refuse", End::NotRun),
        ("do nothing", End::Lost("the host ended the session and did not say how the action ended".to_owned())),
        ("do out", End::Exited(0)),
    ] {
        assert_eq!(ask(&pool, &order(command)).await.expect("ran").end, end, "{command}");
    }
    let happened = host.rest().await;
    assert_eq!(happened.iter().filter(|what| *what == "connected").count(), 1, "{happened:?}");
}

#[tokio::test]
async fn u_19_a_banner_and_escape_sequences_are_no_part_of_what_is_answered() {
    let host = OddHost::open(Oddity { banner: Some("\x1b[2J\x1b]0;owned\x07 Welcome\r\n"), ..Oddity::none() }).await;

    let ran = ask(&pool(&host), &order("do colours")).await.expect("ran");

    assert_eq!(ran.stdout.head, b"\x1b]0;title\x07\x1b[31mred\r\n\0\xff\n");
    assert_eq!(ran.stdout.total, ran.stdout.head.len() as u64);
    assert_eq!(ran.stderr.total, 0);
}

#[tokio::test]
async fn b74_five_megabytes_leave_their_beginning_and_their_end() {
    let host = host().await;

    let ran = ask(&pool(&host), &Order { output: 1024, ..order("do much") }).await.expect("ran");

    assert_eq!(ran.end, End::Exited(0));
    assert_eq!(ran.stdout.total, 160 * 32 * 1024 + 10);
    assert!(ran.stdout.head.starts_with(b"begin\n") && ran.stdout.tail.ends_with(b"end\n"));
    assert_eq!(ran.stdout.head.len() + ran.stdout.tail.len(), 1024);
}

#[tokio::test]
async fn a_host_that_never_stops_writing_is_left_when_the_time_is_over() {
    let host = host().await;
    let pool = pool(&host);
    let flood = Order { timeout: Duration::from_millis(300), output: 1024, ..order("do flood") };

    let ran = timeout(PATIENCE, ask(&pool, &flood)).await.expect("left").expect("ran");

    assert_eq!(ran.end, End::TimedOut(Then::Unknown));
    assert!(ran.stdout.total > 1024 * 1024, "{}", ran.stdout.total);
    assert_eq!(ran.stdout.head.len() + ran.stdout.tail.len(), 1024);
    // It gets no further action over that connection: this one has a new one.
    assert_eq!(ask(&pool, &order("do out")).await.expect("ran").end, End::Exited(0));
}

#[tokio::test]
async fn b74_a_time_limit_and_a_cancel_end_the_command_on_the_host() {
    let host = host().await;
    let pool = pool(&host);

    let ran = ask(&pool, &Order { timeout: Duration::from_millis(200), ..order("do wait") }).await.expect("ran");

    assert_eq!(ran.end, End::TimedOut(Then::Ended));
    assert_eq!(text(&ran.stdout.head), "begun\n");
    let cancelled = CancellationToken::new();
    let (order, waits) = (order("do wait"), Order { timeout: Duration::from_millis(100), ..order("do stay") });
    let asking = ask_until(&pool, &order, &cancelled);
    let cancelling = async {
        while host.next().await != "exec do wait" {}
        while host.next().await != "exec do wait" {}
        cancelled.cancel();
    };
    let (ran, ()) = tokio::join!(asking, cancelling);
    assert_eq!(ran.expect("ran").end, End::Cancelled(Then::Ended));
    while host.next().await != "eof" {}
    // One that does not end when it is told to is left, and that is said.
    let began = Instant::now();
    assert_eq!(ask(&pool, &waits).await.expect("ran").end, End::TimedOut(Then::Unknown));
    assert!(began.elapsed() >= crate::run::GRACE);
    while host.next().await != "disconnected" {}
}

#[tokio::test]
async fn what_is_to_finish_runs_on_when_everybody_has_left() {
    let host = host().await;
    let pool = pool(&host);
    let deploy = Order { finishes: true, ..order("do stay") };
    let (cancelled, (held, gone)) = (CancellationToken::new(), oneshot::channel::<()>());
    let channel = pool.channel("r_1 do stay").await.expect("a channel");
    let progress = tokio::sync::watch::Sender::new(Default::default());
    let running = crate::run::run(channel, &deploy, &progress, &cancelled, held);
    let cancelling = async {
        // Its stdin ends at once, and means nothing; nothing was written to it.
        let happened = [host.next().await, host.next().await, host.next().await, host.next().await];
        assert_eq!(happened[2..], ["exec do stay", "eof"]);
        cancelled.cancel();
    };

    let (ran, ()) = tokio::join!(running, cancelling);

    assert_eq!(ran.end, End::Cancelled(Then::RunsOn));
    // Whoever waits for it still does, and its channel is open.
    let mut gone = gone;
    assert!(gone.try_recv().is_err_and(|why| why == oneshot::error::TryRecvError::Empty));
    assert!(host.rest().await.is_empty());
    host.hang_up();
    assert!(timeout(PATIENCE, gone).await.expect("let go").is_err());
}

#[tokio::test]
async fn f_11_a_connection_that_breaks_in_the_middle_leaves_open_what_became_of_the_action() {
    let host = host().await;
    let pool = pool(&host);

    let ran = ask(&pool, &order("do break")).await.expect("ran");

    let End::Lost(why) = &ran.end else { panic!("{:?}", ran.end) };
    assert!(why.ends_with(r"the host closed it: \u{1b}[31mgoing down\nnow"), "{why}");
    assert!(ran.stdout.total > 0);
    // Sent once; the next one goes over a new connection.
    assert_eq!(ask(&pool, &order("do out")).await.expect("ran").end, End::Exited(0));
    let happened = host.rest().await;
    assert_eq!(happened.iter().filter(|what| *what == "exec do break").count(), 1, "{happened:?}");
    assert_eq!(happened.iter().filter(|what| *what == "connected").count(), 2, "{happened:?}");
}

#[tokio::test]
async fn b75_a_host_that_falls_silent_is_noticed_by_its_silence() {
    let host = host().await;
    let way = crate::connection::Way { keep_alive: Duration::from_millis(200), ..way(&host) };
    let pool = Pool::new(way, key(), Duration::from_secs(300));
    let began = Instant::now();

    let ran = ask(&pool, &order("do dead")).await.expect("ran");

    let End::Lost(why) = &ran.end else { panic!("{:?}", ran.end) };
    assert!(why.ends_with("the host does not answer any more"), "{why}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_host_that_does_not_say_that_it_begins_is_not_waited_for() {
    let host = host().await;

    let ran = ask(&pool(&host), &Order { begin: Duration::from_millis(200), ..order("do mute") }).await.expect("ran");

    assert_eq!(ran.end, End::Lost("the host did not say within 200ms whether it begins".to_owned()));
}

#[tokio::test]
async fn what_a_command_leaves_behind_does_not_hold_its_answer() {
    let host = host().await;

    let pool = pool(&host);
    let daemon = Order { timeout: PATIENCE * 20, ..order("do daemon") };

    let ran = timeout(PATIENCE, ask(&pool, &daemon)).await.expect("not held").expect("ran");

    assert_eq!(ran.end, End::Exited(0));
    assert_eq!(text(&ran.stdout.head), "started\n");
}

#[tokio::test]
async fn u_19_a_host_opens_nothing_towards_us() {
    let host = host().await;

    let ran = ask(&pool(&host), &order("do intrude")).await.expect("ran");

    assert_eq!(ran.end, End::Exited(0));
    assert_eq!(text(&ran.stdout.head), "[false, false, false, false, false, false, false]");
}

#[tokio::test]
async fn a_certificate_names_the_request_and_the_action_and_is_used_once() {
    let host = host().await;
    let pool = Pool::new(way(&host), certificates(), Duration::from_secs(300));

    for _ in 0..2 {
        assert_eq!(ask(&pool, &order("do three")).await.expect("ran").end, End::Exited(3));
    }

    let mut happened = vec![];
    while happened.iter().filter(|what| *what == "disconnected").count() < 2 {
        happened.push(host.next().await);
    }
    assert_eq!(happened.iter().filter(|what| *what == "certificate r_1 do three").count(), 2, "{happened:?}");
    assert_eq!(happened.iter().filter(|what| *what == "connected").count(), 2, "{happened:?}");
}
