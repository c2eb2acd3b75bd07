//! Places in the network, by way of the proxy.

use crate::world::World;
use portcullis_sandbox::settings::{Destination, Network};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::mpsc;

/// Answers each request with what came in, and tells it.
fn echo(address: &str) -> (SocketAddr, mpsc::Receiver<String>) {
    let listener = TcpListener::bind((address, 0)).expect("bound");
    let at = listener.local_addr().expect("bound");
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.expect("accepted");
            let mut read = Vec::new();
            while !read.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if socket.read(&mut byte).expect("read") == 0 {
                    break;
                }
                read.push(byte[0]);
            }
            let head = String::from_utf8_lossy(&read).into_owned();
            let _ = write!(socket, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{head}", head.len());
            let _ = socket.shutdown(Shutdown::Write);
            let _ = tell.send(head);
        }
    });
    (at, told)
}

fn allowing(places: &[(&str, u16)]) -> World {
    let listed = places.iter().map(|(host, port)| Destination { host: (*host).to_owned(), port: *port }).collect();
    World::with(|settings| settings.network = Network::Allow(listed))
}

/// Says `request` to the proxy; what it answers.
fn to_proxy(world: &mut World, request: &str) -> String {
    world.output(&format!("exec 3<>/dev/tcp/127.0.0.1/3128; printf '{request}' >&3; cat <&3"))
}

#[test]
fn what_is_listed_is_reached_by_programs_that_know_of_proxies_and_nothing_else_is() {
    // Not 127.0.0.1, which programs do not ask a proxy for.
    let (listed, told) = echo("127.0.0.2");
    let (other, untold) = echo("127.0.0.3");
    let mut world = allowing(&[("127.0.0.2", listed.port())]);
    let get = |at: SocketAddr| {
        format!("python3 -c 'import urllib.request as r; print(r.urlopen(\"http://{at}/path\").read().decode())'")
    };

    let reached = world.run(&get(listed));
    let refused = world.run(&get(other));
    let direct = world.run(&format!("echo > /dev/tcp/{}/{}", listed.ip(), listed.port()));

    assert!(reached.stdout.starts_with("GET /path HTTP/1.1\r\n"), "{reached:?}");
    assert!(told.recv().expect("reached").contains("Connection: close"));
    assert!(refused.stderr.contains("HTTP Error 403"), "{refused:?}");
    assert!(direct.stderr.contains("refused"), "{direct:?}");
    assert!(told.try_recv().is_err() && untold.try_recv().is_err());
}

#[test]
fn a_tunnel_leads_to_a_listed_name_and_port_only_and_a_refusal_says_which_those_are() {
    let (at, told) = echo("127.0.0.1");
    let port = at.port();
    let mut world = allowing(&[("localhost", port), ("*.example.com", 443)]);

    let tunnel =
        to_proxy(&mut world, &format!("CONNECT LocalHost:{port} HTTP/1.1\\r\\n\\r\\nGET / HTTP/1.1\\r\\n\\r\\n"));
    let refused = [
        format!("127.0.0.1:{port}"),
        format!("[::1]:{port}"),
        format!("localhost.example.org:{port}"),
        "localhost:1".to_owned(),
        "example.com:443".to_owned(),
    ]
    .map(|place| (to_proxy(&mut world, &format!("CONNECT {place} HTTP/1.1\\r\\n\\r\\n")), place));

    assert!(tunnel.starts_with("HTTP/1.1 200 "), "{tunnel}");
    assert!(tunnel.ends_with("\r\n\r\nGET / HTTP/1.1\r\n\r\n"), "{tunnel}");
    assert_eq!(told.recv().expect("reached"), "GET / HTTP/1.1\r\n\r\n");
    for (refused, place) in refused {
        assert!(refused.starts_with("HTTP/1.1 403 "), "{place}: {refused}");
        assert!(refused.contains(&format!("localhost:{port}, *.example.com:443")), "{refused}");
    }
    assert!(told.try_recv().is_err());
}

#[test]
fn the_proxy_reads_no_more_than_it_must_and_ends_with_its_command() {
    let mut world = allowing(&[("a.example", 80)]);

    let long = world.run("exec 3<>/dev/tcp/127.0.0.1/3128; (printf 'GET http://a.example/ HTTP/1.1\\r\\nX: '; yes | head -c 100000) >&3 2>/dev/null & cat <&3");
    let odd = to_proxy(&mut world, "GET / HTTP/1.1\\r\\n\\r\\n");
    let many = world.run(
        "for i in $(seq 100); do exec {fd}<>/dev/tcp/127.0.0.1/3128 || exit 1; done; \
         printf 'GET / HTTP/1.1\\r\\n\\r\\n' >&$fd; exec 10>&-; echo open",
    );
    let own = world.run("python3 -c 'import socket; socket.create_server((\"127.0.0.1\", 3128))'");

    assert!(long.stdout.starts_with("HTTP/1.1 431 "), "{long:?}");
    assert!(odd.starts_with("HTTP/1.1 400 "), "{odd}");
    assert_eq!(many.stdout, "open\n", "{many:?}");
    assert!(own.stderr.contains("Address already in use"), "{own:?}");
    world.assert_nothing_left();
}

#[test]
fn a_list_of_no_places_says_so_at_the_start() {
    let said = World::refused(|settings| {
        settings.network = Network::Allow(vec![Destination { host: "http://a.example".to_owned(), port: 80 }]);
    });

    assert!(said.contains("`network`: `http://a.example:80` is no place in a network"), "{said}");
}
