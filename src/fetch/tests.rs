//! Against real sockets: what is fetched, what is not, and what nobody even knocks at.

use super::*;

/// Answers every connection with these bytes, in a thread of its own.
fn server(answer: &'static [u8]) -> Url {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://localhost:{}/a?b=c", listener.local_addr().unwrap().port());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut seen = Vec::new();
            let mut byte = [0];
            while !seen.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n > 0) {
                seen.extend(byte);
            }
            drop(stream.write_all(answer));
        }
    });
    url.parse().unwrap()
}

async fn get(url: &Url, reach: Reach) -> Result<Bytes, Error> {
    let fetcher = Fetcher::new(Arc::new(Connector::new(None)));
    fetcher.get(&Get { url, authorities: None, reach, limit: Duration::from_secs(20), max_bytes: 5 }).await
}

#[tokio::test]
async fn the_body_of_a_200_is_fetched_and_nothing_else_is() {
    let good = server(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n12345");
    assert_eq!(get(&good, Reach::Anywhere).await.unwrap(), "12345");
    assert!(matches!(get(&good, Reach::Public).await, Err(Error::Url("is not `https`"))));

    let large = server(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n123456");
    assert!(matches!(get(&large, Reach::Anywhere).await, Err(Error::TooLarge(5))));
    let moved = server(b"HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n");
    assert!(matches!(get(&moved, Reach::Anywhere).await, Err(Error::Status(StatusCode::FOUND))));
    let short = server(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n123");
    assert!(matches!(get(&short, Reach::Anywhere).await, Err(Error::Lost(_))));
    let noise = server(b"SSH-2.0-x\r\n\r\n");
    assert!(matches!(get(&noise, Reach::Anywhere).await, Err(Error::Lost(_))));
    let file = "file:///etc/passwd".parse().unwrap();
    assert!(matches!(get(&file, Reach::Anywhere).await, Err(Error::Url(_))));
}

#[tokio::test]
async fn s_10_what_comes_compressed_or_without_end_is_not_taken() {
    let packed = server(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\n12345");
    assert!(matches!(get(&packed, Reach::Anywhere).await, Err(Error::Encoded)));
    let plain = server(b"HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nContent-Length: 5\r\n\r\n12345");
    assert_eq!(get(&plain, Reach::Anywhere).await.unwrap(), "12345");
    let endless = server(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n1234\r\n4\r\n5678\r\n");
    assert!(matches!(get(&endless, Reach::Anywhere).await, Err(Error::TooLarge(5))));
    let until_closed = server(b"HTTP/1.1 200 OK\r\n\r\n1234567890");
    assert!(matches!(get(&until_closed, Reach::Anywhere).await, Err(Error::TooLarge(5))));
}

/// Sends the head at once and then one byte in each of these times.
fn dripping(every: Duration) -> Url {
    use std::io::Write as _;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://localhost:{}/", listener.local_addr().unwrap().port());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut wrote = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
            while wrote.is_ok() {
                wrote = stream.write_all(b"x");
                std::thread::sleep(every);
            }
        }
    });
    url.parse().unwrap()
}

#[tokio::test]
async fn s_10_a_slow_drip_ends_with_the_time_for_the_whole() {
    let fetcher = Fetcher::new(Arc::new(Connector::new(None)));
    let (url, limit) = (dripping(Duration::from_millis(20)), Duration::from_millis(500));
    let get = Get { url: &url, authorities: None, reach: Reach::Anywhere, limit, max_bytes: 5000 };
    let begun = tokio::time::Instant::now();

    let result = fetcher.get(&get).await;

    // Each byte came in time; the whole did not.
    assert!(matches!(result, Err(Error::Timeout(_))), "{result:?}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

/// Counts connections.
struct Door(std::net::TcpListener);

impl Door {
    fn new(address: &str) -> Door {
        let listener = std::net::TcpListener::bind((address, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        Door(listener)
    }

    fn port(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }

    fn n_knocks(&self) -> usize {
        std::iter::from_fn(|| self.0.accept().ok()).count()
    }
}

/// A fetcher for which every name has these addresses, and the port of https is that of `door`.
fn led_to(door: &Door, addresses: &[&str]) -> (Fetcher, Arc<std::sync::atomic::AtomicUsize>) {
    let n_asked = Arc::default();
    let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
    let lookup = Lookup::Fixed(Arc::new(addresses), Arc::clone(&n_asked));
    (Fetcher { connector: Arc::new(Connector::new(None)), lookup, public_port: door.port() }, n_asked)
}

async fn knock(fetcher: &Fetcher, url: &str, reach: Reach) -> Error {
    let url: Url = url.parse().unwrap();
    let get = Get { url: &url, authorities: None, reach, limit: Duration::from_secs(20), max_bytes: 5 };
    fetcher.get(&get).await.expect_err("nobody answers there")
}

#[tokio::test]
async fn s_01_a_literal_address_of_this_network_is_not_connected_to_however_it_is_spelled() {
    let doors = [Door::new("127.0.0.1"), Door::new("0.0.0.0")];
    for door in &doors {
        let port = door.port();
        let fetcher = Fetcher { public_port: port, ..Fetcher::new(Arc::new(Connector::new(None))) };
        for host in [
            "127.0.0.1",
            "0.0.0.0",
            "127.1",
            "0x7f.1",
            "017700000001",
            "2130706433",
            "[::]",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[::127.0.0.1]",
            "[64:ff9b::7f00:1]",
            "[64:ff9b:1::7f00:1]",
            "[2002:7f00:1::]",
            "[2001:0:7f00:1::]",
            "[fe80::1]",
            "[fec0::1]",
            "[fc00::1]",
            "[fe80::5efe:7f00:1]",
            "localhost",
            "localhost.",
            "127.0.0.1.",
        ] {
            let error = knock(&fetcher, &format!("https://{host}:{port}/"), Reach::Public).await;
            assert!(matches!(error, Error::NotPublic(_) | Error::Resolve { .. }), "{host}: {error}");
        }
        assert_eq!(door.n_knocks(), 0);
        // The door is there: who may go anywhere gets to it.
        knock(&fetcher, &format!("https://127.0.0.1:{port}/"), Reach::Anywhere).await;
        assert!(door.n_knocks() > 0);
    }
    // S-06: an address with a zone is no URL at all.
    assert!(Url::parse("https://[fe80::1%25eth0]/").is_err());
}

#[tokio::test]
async fn s_02_s_03_a_name_with_one_address_of_this_network_among_public_ones_is_not_connected_to() {
    let door = Door::new("127.0.0.1");
    let url = format!("https://client.example:{}/", door.port());
    for addresses in [
        &["127.0.0.1"][..],
        &["1.1.1.1", "127.0.0.1"],
        &["127.0.0.1", "1.1.1.1"],
        &["2606:4700::1111", "::ffff:127.0.0.1"],
        &["1.1.1.1", "1.0.0.1", "8.8.8.8", "8.8.4.4", "::1"],
        &["169.254.169.254"],
        &["100.64.0.1"],
        &["64:ff9b::a9fe:a9fe"],
    ] {
        let (fetcher, n_asked) = led_to(&door, addresses);
        let error = knock(&fetcher, &url, Reach::Public).await;
        assert!(matches!(error, Error::NotPublic(_)), "{addresses:?}: {error}");
        assert_eq!(n_asked.load(std::sync::atomic::Ordering::SeqCst), 1);
    }
    assert_eq!(door.n_knocks(), 0);
}

#[tokio::test]
async fn s_03_the_name_is_looked_up_once_and_what_was_judged_is_what_is_connected_to() {
    let door = Door::new("127.0.0.1");
    let (fetcher, n_asked) = led_to(&door, &["127.0.0.1"]);

    knock(&fetcher, &format!("https://client.example:{}/", door.port()), Reach::Anywhere).await;

    assert!(door.n_knocks() > 0, "the address that was given is the one that was dialled");
    assert_eq!(n_asked.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[tokio::test]
async fn s_08_a_strangers_url_is_https_on_its_own_port() {
    let door = Door::new("127.0.0.1");
    let (fetcher, _) = led_to(&door, &["1.1.1.1"]);
    let error = knock(&fetcher, "https://client.example:22/", Reach::Public).await;
    assert!(matches!(error, Error::Port(22)), "{error}");
    for url in ["http://client.example/", "ftp://client.example/", "gopher://client.example/", "file:///etc/passwd"] {
        let error = knock(&fetcher, url, Reach::Public).await;
        assert!(matches!(error, Error::Url(_)), "{url}: {error}");
    }
    assert_eq!(door.n_knocks(), 0);
}

#[test]
fn a_file_without_a_usable_certificate_is_no_authority() {
    assert!(Authorities::of_pem(b"").is_err());
    assert!(Authorities::of_pem(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").is_err());
}
