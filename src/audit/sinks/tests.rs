//! Each sink with a receiver of the test's own: what is in the files arrives, in order, also what was written while
//! nobody received.

use super::*;
use crate::audit::tests::{House, record};
use crate::config;
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// Starts one sink on a log, from a runtime that runs beside the test.
fn start(house: &House, audit: &crate::audit::Audit, to: Destination) -> Sinks {
    let fetcher = Fetcher::new(Arc::new(pingora::connectors::http::Connector::new(None)));
    let given = Given {
        sinks: vec![Sink { name: "siem".to_owned(), to }],
        fetcher,
        metrics: Arc::new(Metrics::new()),
        clock: house.clock(),
    };
    audit.start_sinks(given).expect("an open log")
}

fn lines_of(house: &House) -> Vec<String> {
    let text: Vec<u8> = house.segments().iter().flat_map(|name| house.text(name)).collect();
    String::from_utf8(text).expect("ASCII").lines().map(str::to_owned).collect()
}

/// The records among messages of syslog, in their order; checkpoints are left out.
fn records(messages: &[String]) -> Vec<String> {
    let line = |message: &String| message.split_once(" - ").expect("a header").1.to_owned();
    messages.iter().map(line).filter(|line| line.starts_with("{\"seq\":")).collect()
}

fn receive(socket: &UnixDatagram, n: usize) -> Vec<String> {
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
    let mut messages = Vec::new();
    while records(&messages).len() < n {
        let mut text = vec![0; 64 * 1024];
        let len = socket.recv(&mut text).unwrap_or_else(|error| panic!("{error} after {messages:#?}"));
        text.truncate(len);
        messages.push(String::from_utf8(text).expect("text"));
    }
    messages
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unix_socket_gets_every_line_as_it_stands_in_order() {
    let house = House::new();
    let path = house.data_dir.path().join("log");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    let audit = house.open();
    let sinks = start(&house, &audit, Destination::Syslog(SyslogTo::Unix(path)));

    for i in 0..50 {
        record(&audit, &format!("tool-{i}")).await.expect("written");
    }
    let received = tokio::task::spawn_blocking(move || receive(&socket, 51)).await.expect("no panic");

    assert_eq!(records(&received), lines_of(&house));
    assert!(received[0].starts_with("<110>1 2027-01-15T08:00:00.000Z "), "{}", received[0]);
    assert!(received[0].contains(" portcullis ") && received[0].contains(" start - {"), "{}", received[0]);
    audit.close();
    sinks.finish(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_written_while_nobody_received_arrives_later_and_nothing_waits_for_it() {
    let house = House::new();
    let path = house.data_dir.path().join("log");
    let audit = house.open();
    let sinks = start(&house, &audit, Destination::Syslog(SyslogTo::Unix(path.clone())));
    for i in 0..20 {
        record(&audit, &format!("tool-{i}")).await.expect("written");
    }
    house.wait_for("the problem shows", || audit.sinks()[0].problem.is_some()).await;
    assert!(audit.is_available());
    assert!(audit.sinks()[0].behind_bytes > 0);
    audit.close();
    sinks.finish(Duration::from_secs(10)).await;

    // Held to the end: checkpoints come after the records.
    let socket = Arc::new(UnixDatagram::bind(&path).expect("a socket"));
    let again = house.open();
    let sinks = start(&house, &again, Destination::Syslog(SyslogTo::Unix(path)));
    let from = Arc::clone(&socket);
    let received = tokio::task::spawn_blocking(move || receive(&from, 22)).await.expect("no panic");

    assert_eq!(records(&received), lines_of(&house));
    house.wait_for("nothing is left", || again.sinks()[0].behind_bytes == 0).await;
    again.close();
    sinks.finish(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_goes_on_where_it_was_and_sends_nothing_twice_that_had_arrived() {
    let house = House::new();
    let path = house.data_dir.path().join("log");
    let socket = Arc::new(UnixDatagram::bind(&path).expect("a socket"));
    let mut all = Vec::new();
    for process in 0..3 {
        let audit = house.open();
        let sinks = start(&house, &audit, Destination::Syslog(SyslogTo::Unix(path.clone())));
        record(&audit, &format!("tool-{process}")).await.expect("written");
        let from = Arc::clone(&socket);
        all.extend(tokio::task::spawn_blocking(move || receive(&from, 2)).await.expect("no panic"));
        audit.close();
        sinks.finish(Duration::from_secs(10)).await;
    }

    assert_eq!(records(&all), lines_of(&house));
}

/// Reads messages as RFC 6587 counts them.
fn read_counted(stream: &mut impl std::io::Read, n: usize) -> Vec<String> {
    let mut messages = Vec::new();
    while records(&messages).len() < n {
        let mut digits = String::new();
        let mut byte = [0];
        loop {
            stream.read_exact(&mut byte).expect("a length");
            if byte == *b" " {
                break;
            }
            digits.push(char::from(byte[0]));
        }
        let mut text = vec![0; digits.parse().expect("a number")];
        stream.read_exact(&mut text).expect("a whole message");
        messages.push(String::from_utf8(text).expect("text"));
    }
    messages
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tcp_counts_octets_and_a_connection_that_broke_costs_no_record() {
    let house = House::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let audit = house.open();
    let sinks = start(&house, &audit, Destination::Syslog(SyslogTo::Tcp("127.0.0.1".to_owned(), port)));
    record(&audit, "first").await.expect("written");

    let (listener, first) = tokio::task::spawn_blocking(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let first = read_counted(&mut stream, 2);
        // Ended by the receiver, as at a restart of it.
        drop(stream);
        (listener, first)
    })
    .await
    .expect("no panic");
    for i in 0..10 {
        record(&audit, &format!("tool-{i}")).await.expect("written");
    }
    let second = tokio::task::spawn_blocking(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let wanted = "\"object\":\"tool-9\"";
        let mut messages = Vec::new();
        while !messages.iter().any(|message: &String| message.contains(wanted)) {
            messages.extend(read_counted(&mut stream, 1));
        }
        messages
    })
    .await
    .expect("no panic");

    let mut arrived = records(&first);
    arrived.extend(records(&second));
    for line in lines_of(&house) {
        assert!(arrived.contains(&line), "{line} never arrived");
    }
    audit.close();
    sinks.finish(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn udp_gets_one_message_a_datagram_and_checkpoints_among_them() {
    let house = House::new();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = socket.local_addr().expect("an address").port();
    let audit = house.open();
    let sinks = start(&house, &audit, Destination::Syslog(SyslogTo::Udp("127.0.0.1".to_owned(), port)));
    record(&audit, "t").await.expect("written");
    audit.close();
    sinks.finish(Duration::from_secs(10)).await;

    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
    let (mut seen, mut text) = (Vec::new(), vec![0; 64 * 1024]);
    while !seen.iter().any(|message: &String| message.contains("\"object\":\"t\""))
        || !seen.iter().any(|message: &String| message.contains(" checkpoint - {\"checkpoint\":"))
    {
        let len = socket.recv(&mut text).unwrap_or_else(|error| panic!("{error} after {seen:#?}"));
        seen.push(String::from_utf8_lossy(&text[..len]).into_owned());
    }
    assert_eq!(records(&seen), lines_of(&house));
}

#[tokio::test]
async fn a_sink_that_looks_late_has_the_checkpoints_of_its_process_and_none_from_before() {
    let house = House::new();
    let open = || async {
        let audit = house.open();
        record(&audit, "t").await.expect("written");
        audit.close();
        std::fs::metadata(&house.settings.checkpoints).expect("it is there").len()
    };
    let before = open().await;
    let (segments, after) = (house.segments(), open().await);
    let second = house.segments().into_iter().find(|name| !segments.contains(name)).expect("a file of its own");

    let log = Log { checkpoints_from: before, ..house.log(&second) };
    let batch = Source::new(&log, house.data_dir.path().join("cursor.json")).next(1000, 1 << 20).expect("readable");

    let text = std::fs::read_to_string(&house.settings.checkpoints).expect("ASCII");
    let of_second: Vec<_> = text[before as usize..].lines().collect();
    let sent: Vec<_> = batch.lines.iter().filter(|line| line.starts_with("{\"checkpoint\":")).collect();
    assert!(after > before && !of_second.is_empty());
    assert_eq!(sent, of_second);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_went_before_they_were_sent_are_told() {
    let mut house = House::new();
    house.settings.config.file_size = config::ByteSize::kibibytes(8);
    let audit = house.open();
    let sinks = start(&house, &audit, Destination::Syslog(SyslogTo::Unix(Path::new("/nowhere/log").into())));
    for i in 0..60 {
        record(&audit, &format!("tool-{i}")).await.expect("written");
    }
    house.wait_for("it is behind", || audit.sinks()[0].problem.is_some()).await;
    let first = house.segments().remove(0);

    std::fs::remove_file(house.path(&first)).expect("removed");

    // A sink that knew the file by its cursor alone is asked directly.
    let mut source = Source::new(&house.log(&first), house.data_dir.path().join("cursor.json"));
    cursor::Cursor { files: [(first.clone(), 10)].into(), ..cursor::Cursor::default() }
        .save(&house.data_dir.path().join("cursor.json"))
        .expect("saved");
    let batch = source.next(10, 1000).expect("readable");
    assert_eq!(batch.lost, 1);
    audit.close();
    sinks.finish(Duration::from_secs(10)).await;
}
