//! The door while ranks come together: who is let in, who is not, and what is told when nobody opens.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use phalanx_core::store::Limits;

use super::*;
use crate::net::connect::reach;
use crate::net::guests;
use crate::net::protection::Protection;
use crate::secure::JobKey;
use crate::store::LocalStore;

const TOKEN: [u8; 16] = [6; 16];

fn guard(key: Option<&str>) -> Guard {
    let key = key.map(|byte| JobKey::from_hex(&byte.repeat(32)).expect("a key"));
    Guard { key, protection: Protection::default() }
}

fn hello(from: u32, to: u32) -> Hello {
    Hello { token: TOKEN, epoch: 1, from, to, traffic: Traffic::Control }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// Lets `visitors` come to the door of rank 1 of 3, while rank 2 is awaited.
fn at_the_door(guard: &Guard, visitors: impl FnOnce(SocketAddr, &Places)) {
    at_this_door(&Door::open(None, false).expect("a free port"), guard, visitors);
}

fn at_this_door(door: &Door, guard: &Guard, visitors: impl FnOnce(SocketAddr, &Places)) {
    let places = Places::new(hello(1, 0), 3).expect("an eventfd");
    thread::scope(|scope| {
        let places = &places;
        scope.spawn(move || welcome(scope, door, places, guard, soon()));
        visitors((door.addresses[0], door.port).into(), places);
        places.fail();
    });
}

/// Whether the other side closed the connection, having said nothing.
fn is_sent_away(mut stranger: TcpStream) -> bool {
    stranger.set_read_timeout(Some(Duration::from_secs(20))).expect("a limit");
    let mut said = vec![];
    // A stranger whose bytes were not all read is reset.
    stranger.read_to_end(&mut said).map_or_else(|error| error.kind() == std::io::ErrorKind::ConnectionReset, |_| true)
        && said.is_empty()
}

#[test]
fn strangers_are_sent_away_and_members_are_let_in_once() {
    let guard = guard(None);
    at_the_door(&guard, |at, places| {
        let silent = TcpStream::connect(at).expect("it listens");
        let wrong = [
            vec![b'x'; 2000],
            b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n".to_vec(),
            Hello { token: [0; 16], ..hello(2, 1) }.encode().to_vec(),
            Hello { epoch: 2, ..hello(2, 1) }.encode().to_vec(),
            hello(2, 0).encode().to_vec(),
            hello(0, 1).encode().to_vec(),
            hello(1, 1).encode().to_vec(),
            hello(3, 1).encode().to_vec(),
            hello(u32::MAX, 1).encode().to_vec(),
        ];
        for bytes in wrong {
            let mut stranger = TcpStream::connect(at).expect("it listens");
            // The door may be shut before all is written.
            let _ = stranger.write_all(&bytes);
            assert!(is_sent_away(stranger), "{bytes:?}");
        }
        assert_eq!(places.absent(), [0, 2]);
        let lines = reach(&[at], (hello(2, 1), 1), &guard, soon()).expect("a member");
        assert_eq!(lines.len(), 3);
        let again = reach(&[at], (hello(2, 1), 1), &guard, soon()).expect_err("taken").to_string();
        assert!(again.starts_with(&format!("rank 1 at {at}: cannot be reached: ")), "{again}");
        assert_eq!(places.absent(), [0]);
        assert!(is_sent_away(silent));
    });
}

#[test]
fn only_who_has_the_key_is_let_in() {
    let ours = guard(Some("07"));
    at_the_door(&ours, |at, places| {
        for key in [Some("08"), None] {
            let error = reach(&[at], (hello(2, 1), 1), &guard(key), soon()).expect_err("no member").to_string();
            assert!(error.contains("cannot be reached"), "{error}");
        }
        assert_eq!(places.absent(), [0, 2]);
        let lines = reach(&[at], (hello(2, 1), 1), &ours, soon()).expect("a member");
        assert!(lines.iter().all(|(_, line)| line.tunnel.is_sealed()));
    });
}

#[test]
fn silent_strangers_make_room_and_are_waited_for_by_nobody() {
    for guard in [guard(None), guard(Some("07"))] {
        let began = Instant::now();
        at_the_door(&guard, |at, places| {
            let strangers: Vec<_> =
                (0..guests::MOST + 50).map(|_| TcpStream::connect(at).expect("it listens")).collect();
            reach(&[at], (hello(2, 1), 1), &guard, soon()).expect("a member");
            places.fail();
            assert!(strangers.into_iter().all(is_sent_away));
        });
        assert!(began.elapsed() < GREETING, "{:?}", began.elapsed());
    }
}

#[test]
fn a_rank_that_gave_one_address_up_is_let_in_at_another() {
    let door = Door::open(None, false).expect("a free port");
    let at: SocketAddr = (door.addresses[0], door.port).into();
    // It was too long until somebody opened.
    let mut given_up = TcpStream::connect(at).expect("it listens");
    given_up.write_all(&Hello { traffic: Traffic::ALL[0], ..hello(2, 1) }.encode()).expect("there is room");
    drop(given_up);
    at_this_door(&door, &guard(None), |at, places| {
        let lines = reach(&[at], (hello(2, 1), 1), &guard(None), soon()).expect("a member");
        assert_eq!((lines.len(), places.lost()), (3, None));
    });
}

#[test]
fn a_port_where_nobody_listens_is_named() {
    let door = Door::open(None, false).expect("a free port");
    let at = (door.addresses[0], door.port).into();
    drop(door);
    let error = reach(&[at], (hello(2, 1), 1), &guard(None), soon()).expect_err("nobody");
    assert_eq!(error.to_string(), format!("rank 1 at {at}: cannot be reached: connection refused"));
    assert_eq!(error.culprits(), [1]);
    let error = reach(&[], (hello(2, 1), 1), &guard(None), soon()).expect_err("nowhere");
    assert_eq!(error.to_string(), "rank 1: is on another host and listens only at loopback there");
}

/// A port where something listens that says this to everybody, or nothing.
fn another_program(says: &'static [u8]) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = listener.local_addr().expect("bound");
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a caller");
        let _ = stream.write_all(says);
        // Until the caller has gone.
        let _ = stream.read_to_end(&mut vec![]);
    });
    at
}

/// Row 23.
#[test]
fn a_port_where_another_program_listens_is_named_with_what_it_does() {
    let page = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\nContent-Length: 0\r\n\r\n";
    let unlike = "what answers there is no rank of this version";
    for (key, says, why) in [
        (None, &page[..], unlike),
        (None, b"SSH-2.0-OpenSSH_9.6 and a few letters more than a greeting", unlike),
        (None, b"", "no answer in time"),
        (Some("07"), b"", "no answer in time"),
    ] {
        let (at, began) = (another_program(says), Instant::now());
        let error = reach(&[at], (hello(2, 1), 1), &guard(key), began + SHORT).expect_err("no rank").to_string();
        assert!(error.starts_with(&format!("rank 1 at {at}: cannot be reached: {why}")), "{error}");
        assert!(began.elapsed() < SHORT + Duration::from_secs(2), "{:?}", began.elapsed());
    }
    let at = another_program(page);
    let error =
        reach(&[at], (hello(2, 1), 1), &guard(Some("07")), Instant::now() + SHORT).expect_err("no rank").to_string();
    assert!(error.starts_with(&format!("rank 1 at {at}: cannot be reached: ")), "{error}");
}

fn manner() -> Manner {
    let (checksum, shared_memory, windows, algorithm) = (false, false, false, None);
    Manner { epoch: 1, checksum, shared_memory, windows, algorithm, profile: 0, protection: 0 }
}

/// One rank of two, with the test as the other, which is gone once it has done this much.
fn with_a_peer_that_dies(rank: usize, dies: impl FnOnce(&Card) + Send) -> (Duration, String) {
    let store = Store::new(LocalStore::new(Limits::default()));
    let manner = manner();
    let terms = Terms { rank, members: Arc::new([0, 1]), address: None, insecure: false, manner, guard: guard(None) };
    let (told, died) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let meeting = Meeting::new(store.clone(), "ranks", 1 - rank, 2);
        scope.spawn(move || {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
            let (port, addresses) = (listener.local_addr().expect("bound").port(), vec![[127, 0, 0, 1].into()]);
            let card = Card { token: TOKEN, manner, cipher: Cipher::Aes, host: home_identity(), port, addresses };
            let cards = meeting.meet(&card.encode(), LONG).expect("both come");
            let theirs = Card::decode(&cards[rank]).expect("a card");
            match rank {
                0 => dies(&theirs),
                _ => drop(listener.accept().map(|(mut stream, _)| stream.read(&mut [0; 20]))),
            }
            told.send(Instant::now()).expect("the test waits");
        });
        let error = gather(&store, &terms, Instant::now() + LONG).expect_err("the other is dead").to_string();
        (died.recv().expect("no panic").elapsed(), error)
    })
}

/// Row 24: the peer dies when it has made so many connections, and said so much on the next.
#[test]
fn a_peer_that_dies_while_ranks_connect_is_no_long_wait() {
    for (whole, said) in (0..4).flat_map(|whole| [(whole, 0), (whole, 7), (whole, Hello::BYTE_LEN - 1)]).skip(3) {
        let dies = |card: &Card| {
            let say = |traffic, len: usize| {
                let mut stream = TcpStream::connect((card.addresses[0], card.port)).expect("it listens");
                let hello = Hello { token: card.token, traffic, ..hello(1, 0) };
                stream.write_all(&hello.encode()[..len]).expect("it reads");
                if len == Hello::BYTE_LEN {
                    stream.read_exact(&mut [0; Hello::BYTE_LEN]).expect("it answers");
                }
                stream
            };
            let _streams: Vec<_> =
                Traffic::ALL.into_iter().take(whole).map(|traffic| say(traffic, Hello::BYTE_LEN)).collect();
            let _next = Traffic::ALL.get(whole).map(|traffic| say(*traffic, said));
        };
        let (took, error) = with_a_peer_that_dies(0, dies);
        assert!(took < SHORT, "{whole} connections and {said} bytes: {took:?}");
        assert!(error.starts_with("ranks over TCP: rank 1 "), "{error}");
    }
    let (took, error) = with_a_peer_that_dies(1, |_| {});
    assert!(took < SHORT, "{took:?}");
    assert!(error.starts_with("rank 0 at 127.0.0.1:") && error.contains("cannot be reached: "), "{error}");
}

/// A lower rank opens only once a higher one is dead, while another one is still to come.
#[test]
fn a_peer_that_dies_while_lower_ranks_are_called_is_the_one_that_is_told() {
    let store = Store::new(LocalStore::new(Limits::default()));
    let (manner, guard) = (manner(), guard(None));
    let terms =
        Terms { rank: 1, members: (0..4).collect(), address: None, insecure: false, manner, guard: guard.clone() };
    let door = Door::open(None, false).expect("a free port");
    let places = Places::new(hello(0, 0), 4).expect("an eventfd");
    let card = |port| {
        let addresses = vec![[127, 0, 0, 1].into()];
        Card { token: TOKEN, manner, cipher: Cipher::Aes, host: home_identity(), port, addresses }
    };
    let meet = |rank, port| {
        let meeting = Meeting::new(store.clone(), "ranks", rank, 4);
        Card::decode(&meeting.meet(&card(port).encode(), LONG).expect("all come")[1]).expect("a card")
    };
    thread::scope(|scope| {
        let (meet, store, door, places, guard) = (&meet, &store, &door, &places, &guard);
        scope.spawn(move || {
            meet(0, door.port);
            store.get("accord/1").expect("rank 1 sees that rank 2 is dead");
            welcome(scope, door, places, guard, soon())
        });
        scope.spawn(move || {
            let theirs = meet(2, 1);
            let mut stream = TcpStream::connect((theirs.addresses[0], theirs.port)).expect("it listens");
            stream.write_all(&hello(2, 1).encode()).expect("it reads");
            stream.read_exact(&mut [0; Hello::BYTE_LEN]).expect("it answers");
        });
        scope.spawn(move || meet(3, 1));
        let error = gather(store, &terms, Instant::now() + LONG).expect_err("rank 2 is dead");
        assert_eq!(error.to_string(), "ranks over TCP: rank 2 ended its connection before all were connected");
        assert_eq!(error.culprits(), [2]);
        let told = store.get("accord/0").expect("rank 1 tells all others");
        let told = String::from_utf8(told.to_vec()).expect("words");
        assert!(told.starts_with("2;rank 1 could not connect to all others: "), "{told}");
        places.fail();
    });
}

const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(60);
