//! How two ranks greet on a new connection: first they prove the key, where there is one, then they say who they are. Both
//! sides wait, each until a given moment, and read no byte more than a greeting has.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Instant;

use super::hello::Hello;
use super::protection::Protection;
use super::socket::Socket;
use crate::secure::{
    Claim, ClientHandshake, ClientStep, JobKey, JobName, Plane, ServerHandshake, ServerStep, Session, Tunnel, Welcome,
};

/// What a rank asks of whoever connects, and offers itself.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    pub(crate) key: Option<JobKey>,
    pub(crate) protection: Protection,
}

/// A connection to another rank.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) socket: Arc<Socket>,
    pub(crate) tunnel: Tunnel,
}

/// Why a greeting came to nothing, in words.
pub(super) type Trouble = String;

/// Greets the rank that `hello` is for.
pub(super) fn call(socket: Arc<Socket>, hello: Hello, guard: &Guard, until: Instant) -> Result<Line, Trouble> {
    let mut tunnel = match &guard.key {
        Some(key) => guard.protect(prove(&socket, key, &hello, until)?),
        None => Tunnel::plain(),
    };
    send_hello(&socket, &mut tunnel, &hello, until)?;
    match recv_hello(&socket, &mut tunnel, until)? {
        answer if answer == hello.turned() => Ok(Line { socket, tunnel }),
        _ => Err("another rank or group answers there".to_owned()),
    }
}

/// Reads the greeting of whoever connected, and answers if `accept` says so. A stranger is told nothing.
pub(super) fn answer(
    socket: Arc<Socket>,
    guard: &Guard,
    until: Instant,
    accept: impl FnOnce(&Hello) -> Result<(), Trouble>,
) -> Result<(Hello, Line), Trouble> {
    let mut tunnel = match &guard.key {
        Some(key) => guard.protect(challenge(&socket, key, until)?),
        None => Tunnel::plain(),
    };
    let hello = recv_hello(&socket, &mut tunnel, until)?;
    if socket.has_ended() {
        // It gave up here and tries another address: to take it for one that came and went would be the end of its group.
        return Err("it has gone again".to_owned());
    }
    accept(&hello)?;
    send_hello(&socket, &mut tunnel, &hello.turned(), until)?;
    Ok((hello, Line { socket, tunnel }))
}

impl Guard {
    fn protect(&self, tunnel: Tunnel) -> Tunnel {
        match self.protection {
            Protection::Handshake => Tunnel::plain(),
            Protection::Encrypted | Protection::Authenticated => tunnel,
        }
    }
}

/// The side of the key's proof that connects.
fn prove(socket: &Socket, key: &JobKey, hello: &Hello, until: Instant) -> Result<Tunnel, Trouble> {
    let job = JobName::new(JOB).map_err(words)?;
    let claim = Claim::new(job, hello.epoch, Session::from(hello.token));
    // One plane for all: which traffic it is says the hello, which the tunnel protects.
    let mut handshake = ClientHandshake::new(Some(key), &claim, Plane::Data);
    send(socket, &handshake.start(), until)?;
    let mut inbox = vec![];
    loop {
        recv(socket, &mut inbox, GREETING, until).map_err(|trouble| format!("{trouble} ({})", handshake.closed()))?;
        let (taken, step) = handshake.receive(&inbox).map_err(words)?;
        inbox.drain(..taken);
        match step {
            ClientStep::More => {}
            ClientStep::Send(bytes) => send(socket, &bytes, until)?,
            ClientStep::Admitted { tunnel, .. } => return Ok(tunnel),
            ClientStep::Denied(denial) => return Err(words(denial)),
        }
    }
}

/// The side of the key's proof that was connected to.
fn challenge(socket: &Socket, key: &JobKey, until: Instant) -> Result<Tunnel, Trouble> {
    let mut handshake = ServerHandshake::new(Some(key), Plane::Data);
    let (mut inbox, mut left) = (vec![], GREETING);
    loop {
        let before = inbox.len();
        recv(socket, &mut inbox, left, until)?;
        left -= inbox.len() - before;
        loop {
            let (taken, step) = handshake.receive(&inbox).map_err(words)?;
            inbox.drain(..taken);
            match step {
                ServerStep::More => break,
                ServerStep::Send(bytes) => send(socket, &bytes, until)?,
                ServerStep::Claimed(claimant) => {
                    let epoch = claimant.claim().epoch();
                    let (bytes, tunnel) = claimant.admit(&Welcome { instance: 0, epoch }).map_err(words)?;
                    send(socket, &bytes, until)?;
                    return Ok(tunnel);
                }
            }
        }
        if left == 0 {
            return Err("its greeting does not end".to_owned());
        }
    }
}

fn send_hello(socket: &Socket, tunnel: &mut Tunnel, hello: &Hello, until: Instant) -> Result<(), Trouble> {
    let mut wire = vec![];
    tunnel.seal(&hello.encode(), &mut wire).map_err(words)?;
    send(socket, &wire, until)
}

fn recv_hello(socket: &Socket, tunnel: &mut Tunnel, until: Instant) -> Result<Hello, Trouble> {
    let len = Hello::BYTE_LEN + if tunnel.is_sealed() { Tunnel::OVERHEAD } else { 0 };
    let (mut wire, mut plain) = (vec![], vec![]);
    while wire.len() < len {
        let left = len - wire.len();
        recv(socket, &mut wire, left, until)?;
    }
    tunnel.open(&wire, &mut plain).map_err(words)?;
    Hello::decode(&plain).ok_or_else(|| "what answers there is no rank of this version".to_owned())
}

fn send(socket: &Socket, bytes: &[u8], until: Instant) -> Result<(), Trouble> {
    socket.send_all(bytes, until).map_err(in_words)
}

fn recv(socket: &Socket, inbox: &mut Vec<u8>, most: usize, until: Instant) -> Result<(), Trouble> {
    socket.recv_some(inbox, most, until).map_err(in_words)
}

/// The reasons that greetings often have, without the system's numbers.
pub(super) fn in_words(error: std::io::Error) -> Trouble {
    match error.kind() {
        ErrorKind::TimedOut => "no answer in time".to_owned(),
        ErrorKind::UnexpectedEof => "the connection was closed".to_owned(),
        ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        _ => error.to_string(),
    }
}

fn words(error: impl std::fmt::Display) -> Trouble {
    error.to_string()
}

/// The name under which ranks prove the key to each other: which group it is says the token.
const JOB: &str = "ranks";
/// The most that a stranger's greeting may have, in bytes.
const GREETING: usize = 1 << 10;
