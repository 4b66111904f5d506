//! A way between two ranks on which the test can do harm: it stands where rank 0 says that it listens, and passes on what comes,
//! until a given byte of a given connection.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use phalanx_comm::store::LocalStore;
use phalanx_core::store::{Home, Reply, Request, StoreError, Value};

/// What is done to a byte.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Harm {
    /// This bit of it is turned over.
    Flip(u8),
    /// It is the first that does not come, and both sides see the end of the connection.
    Cut,
    /// The same as a reset.
    Reset,
}

/// One fault: on the connection that was made as this one, in the direction away from who connected or back, at this byte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) connection: usize,
    pub(crate) back: bool,
    pub(crate) at: usize,
    pub(crate) harm: Harm,
}

/// The way, with what happened on it.
pub(crate) struct Relay {
    listener: TcpListener,
    to: OnceLock<u16>,
    fault: Option<Fault>,
    /// How many bytes are passed on at once.
    portion: usize,
    /// How many bytes went each way on each connection.
    counts: [[AtomicUsize; 2]; CONNECTIONS],
    fired: OnceLock<Instant>,
    open: Mutex<Vec<TcpStream>>,
}

/// The store of a rank, on which one that is led finds the relay in rank 0's place.
pub(crate) struct Detour {
    pub(crate) home: Arc<LocalStore>,
    pub(crate) relay: Arc<Relay>,
    pub(crate) is_led: bool,
}

impl Relay {
    pub(crate) fn start(fault: Option<Fault>, portion: usize) -> Arc<Relay> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let (to, fired, open) = (OnceLock::new(), OnceLock::new(), Mutex::default());
        let relay = Arc::new(Relay { listener, to, fault, portion, counts: Default::default(), fired, open });
        let passing = Arc::clone(&relay);
        thread::spawn(move || passing.pass());
        relay
    }

    /// How many bytes went each way on each connection.
    pub(crate) fn counts(&self) -> [[usize; 2]; CONNECTIONS] {
        self.counts.each_ref().map(|ways| ways.each_ref().map(|count| count.load(Ordering::Acquire)))
    }

    /// When the fault came to pass, if it did.
    pub(crate) fn fired(&self) -> Option<Instant> {
        self.fired.get().copied()
    }

    /// Ends all connections, and lets no more in.
    pub(crate) fn end(&self) {
        let address = self.listener.local_addr().expect("bound");
        self.to.get_or_init(|| 0);
        for stream in self.open.lock().expect("no panic").iter() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // The last one, who finds nobody to be led to.
        let _ = TcpStream::connect_timeout(&address, Duration::from_secs(1));
    }

    fn pass(self: Arc<Relay>) {
        for connection in 0..=CONNECTIONS {
            let Ok((from, _)) = self.listener.accept() else { return };
            let Some(&port) = self.to.get().filter(|port| **port != 0 && connection < CONNECTIONS) else { return };
            let Ok(to) = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))) else { return };
            for (back, from, to) in [(false, &from, &to), (true, &to, &from)] {
                let _ = (from.set_nodelay(true), to.set_nodelay(true));
                let (from, to) = (from.try_clone().expect("a descriptor"), to.try_clone().expect("a descriptor"));
                let relay = Arc::clone(&self);
                thread::spawn(move || relay.carry(connection, back, from, to));
            }
            self.open.lock().expect("no panic").extend([from, to]);
        }
    }

    fn carry(&self, connection: usize, back: bool, mut from: TcpStream, mut to: TcpStream) {
        let count = &self.counts[connection][usize::from(back)];
        let fault = self.fault.filter(|fault| (fault.connection, fault.back) == (connection, back));
        let mut bytes = vec![0; self.portion];
        while let Ok(len @ 1..) = from.read(&mut bytes) {
            let before = count.fetch_add(len, Ordering::AcqRel);
            let hit = fault.and_then(|fault| Some((fault.at.checked_sub(before).filter(|at| *at < len)?, fault.harm)));
            let end = match hit {
                Some((at, Harm::Flip(bit))) => {
                    bytes[at] ^= 1 << bit;
                    len
                }
                Some((at, _)) => at,
                None => len,
            };
            let sent = to.write_all(&bytes[..end]);
            if let Some((_, harm)) = hit {
                self.fired.get_or_init(Instant::now);
                match harm {
                    Harm::Flip(_) => {}
                    Harm::Cut => return end_both(&from, &to),
                    Harm::Reset => return reset_both(&from, &to),
                }
            }
            if sent.is_err() {
                return end_both(&from, &to);
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    }
}

impl Home for Detour {
    fn ask(&self, request: Request, timeout: Duration) -> Result<Reply, StoreError> {
        let tells_all = match &request {
            Request::Append { value, .. } => {
                self.relay.note(value);
                false
            }
            Request::Get { keys, .. } => keys.iter().any(|key| key.as_bytes().ends_with(b"/all")),
            Request::CompareSet { key, .. } => key.as_bytes().ends_with(b"/all"),
            _ => false,
        };
        match self.home.ask(request, timeout)? {
            Reply::Values(values) if tells_all && self.is_led => {
                let lead = |value: Option<Value>| value.map(|value| self.relay.lead(&value));
                Ok(Reply::Values(values.into_iter().map(lead).collect()))
            }
            reply => Ok(reply),
        }
    }

    fn describe(&self) -> String {
        self.home.describe()
    }
}

impl Relay {
    /// Remembers the port of the first card of all, if this is a card of rank 0.
    fn note(&self, arrival: &[u8]) {
        if arrival.starts_with(&[0; 4])
            && let Some(at) = port_of_card(arrival)
        {
            let port = u16::from_le_bytes([arrival[at], arrival[at + 1]]);
            let _ = self.to.set(port);
        }
    }

    /// The same cards, but whoever looks for rank 0 finds this relay.
    fn lead(&self, cards: &[u8]) -> Value {
        let ours = self.listener.local_addr().expect("bound").port();
        let ends = |port: u16| [&u32::from(port).to_le_bytes()[..], &[4, 127, 0, 0, 1]].concat();
        let theirs = self.to.get().map(|port| ends(*port)).unwrap_or_default();
        let mut cards = cards.to_vec();
        let at = cards.windows(theirs.len().max(1)).position(|window| window == theirs);
        if let Some(at) = at {
            cards[at..at + theirs.len()].copy_from_slice(&ends(ours));
        }
        Value::from(cards)
    }
}

/// Where the port stands in an arrival with a card: after rank, size, the card's length; version, manner, epoch, profile, token, and host.
fn port_of_card(arrival: &[u8]) -> Option<usize> {
    const HOST: usize = 12 + 1 + 4 + 4 + 8 + 16;
    let len = arrival.get(HOST..HOST + 4)?.try_into().ok()?;
    let at = HOST + 4 + u32::from_le_bytes(len) as usize;
    (arrival.len() >= at + 4).then_some(at)
}

fn end_both(from: &TcpStream, to: &TcpStream) {
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

fn reset_both(from: &TcpStream, to: &TcpStream) {
    // A socket that is told to forget its peer resets the connection.
    let _ = (rustix::net::connect_unspec(from), rustix::net::connect_unspec(to));
}

/// Collectives, messages and control.
pub(crate) const CONNECTIONS: usize = 3;
