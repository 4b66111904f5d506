//! An office and its visitors: good ones, slow ones, endless ones, and those who speak another language.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr as Name;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::desk::MOST_VISITORS;
use super::super::request::Page;
use super::*;

const LONG: Duration = Duration::from_secs(60);

/// An office with a door of each kind.
struct House {
    address: SocketAddr,
    name: Name,
    _office: Office,
}

impl House {
    fn open(patience: Duration) -> House {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("office-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let doors = vec![Door::network("127.0.0.1:0".parse().unwrap()).unwrap(), Door::host(name.as_bytes()).unwrap()];
        let address = doors[0].address().unwrap();
        let office = Office::open((doors, None), Box::new(page), patience).unwrap();
        House { address, name: Name::from_abstract_name(name).unwrap(), _office: office }
    }

    fn visit(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    /// What is answered to these bytes.
    fn ask(&self, request: &[u8]) -> String {
        told(self.visit(), request)
    }
}

fn page(path: &str, is_of_this_host: bool) -> Option<Page> {
    let body = match path {
        "/metrics" => "counted".to_owned(),
        "/long" => "x".repeat(32 << 20),
        "/account" if is_of_this_host => "told".to_owned(),
        _ => return None,
    };
    Some(Page { content_type: "text/plain", body })
}

fn told(mut stream: impl Read + Write, request: &[u8]) -> String {
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_page_is_told_at_the_door_where_it_may_be() {
    let house = House::open(LONG);
    assert!(
        house
            .ask(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
            .ends_with("\r\nContent-Length: 7\r\nConnection: close\r\n\r\ncounted")
    );
    assert!(house.ask(b"GET /account HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 Not Found\r\n"));
    let neighbour = UnixStream::connect_addr(&house.name).unwrap();
    neighbour.set_read_timeout(Some(LONG)).unwrap();
    assert!(told(neighbour, b"GET /account HTTP/1.1\r\n\r\n").ends_with("\r\n\r\ntold"));
    let long = house.ask(b"GET /long HTTP/1.1\r\n\r\n");
    assert_eq!(long.len() - long.find("\r\n\r\n").unwrap(), 4 + (32 << 20));
}

#[test]
fn other_words_are_refused() {
    let house = House::open(LONG);
    assert!(house.ask(b"POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    assert!(house.ask(b"\x16\x03\x01\x00\x00\r\n\r\n").starts_with("HTTP/1.1 400 "));
    let mut endless = house.visit();
    let _ = endless.write_all(b"GET /metrics HTTP/1.1\r\n").and_then(|()| endless.write_all(&[b'a'; 20_000]));
    let mut answer = String::new();
    endless.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[test]
fn those_who_say_nothing_keep_nobody_waiting() {
    let house = House::open(LONG);
    let mut silent: Vec<TcpStream> = (0..2 * MOST_VISITORS).map(|_| house.visit()).collect();
    silent.iter_mut().for_each(|stream| drop(stream.write_all(b"G")));
    assert!(house.ask(b"GET /metrics HTTP/1.1\r\n\r\n").ends_with("counted"));
    // The first had to go for those who came later.
    assert!(!matches!(silent[0].read(&mut [0]), Ok(1..)));
}

#[test]
fn a_visit_ends_when_its_time_is_up() {
    let house = House::open(Duration::from_millis(50));
    let mut slow = house.visit();
    slow.write_all(b"GET /metr").unwrap();
    assert_eq!(slow.read(&mut [0]).unwrap(), 0);
    // One who does not read what it asked for is no better.
    let mut deaf = house.visit();
    deaf.write_all(b"GET /long HTTP/1.1\r\n\r\n").unwrap();
    let (mut heard, mut bytes) = (0, [0; 1 << 16]);
    deaf.peek(&mut bytes).unwrap();
    slow = house.visit();
    assert_eq!(slow.read(&mut [0]).unwrap(), 0, "this one came later and is gone");
    while let Ok(count @ 1..) = deaf.read(&mut bytes) {
        heard += count;
    }
    assert!(heard < 32 << 20);
}

#[test]
fn nobody_is_there_after_the_end() {
    let House { address, name, _office: office } = House::open(LONG);
    let mut waiting = TcpStream::connect(address).unwrap();
    waiting.set_read_timeout(Some(LONG)).unwrap();
    drop(office);
    assert!(!matches!(waiting.read(&mut [0]), Ok(1..)));
    assert!(TcpStream::connect(address).is_err() && UnixStream::connect_addr(&name).is_err());
}
