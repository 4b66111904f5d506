//! Clients as simple as can be: sockets with deadlines, and the bytes of both dialects.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use phalanx_comm::secure::{Claim, ClientHandshake, ClientStep, Denial, JobKey, JobName, Plane, Session, Tunnel};
use phalanx_comm::store::server::Counts;
use phalanx_comm::store::{ServerOptions, StoreAddress, StoreServer};
use phalanx_core::store::wire::native::{self, Answer, Answers};
use phalanx_core::store::{Limits, Refusal, Reply, Request};

/// How long anything may take that is expected to happen.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A server at a free port of this machine.
pub(crate) fn local() -> ServerOptions {
    ServerOptions::new(StoreAddress::tcp("127.0.0.1", 0))
}

pub(crate) fn start(options: ServerOptions) -> StoreServer {
    StoreServer::start(options).expect("a server starts")
}

pub(crate) fn connect(server: &StoreServer) -> TcpStream {
    let StoreAddress::Tcp { host, port } = server.address() else { panic!("{server:?}") };
    let stream = TcpStream::connect((&**host, *port)).expect("the server is there");
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.set_write_timeout(Some(SOON)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Counts, once they are as wished.
pub(crate) fn counts(server: &StoreServer, wish: impl Fn(&Counts) -> bool) -> Counts {
    let deadline = Instant::now() + SOON;
    loop {
        let counts = server.counts();
        if wish(&counts) {
            return counts;
        }
        assert!(Instant::now() < deadline, "not within {SOON:?}: {counts:?}");
        std::thread::yield_now();
    }
}

pub(crate) fn read(stream: &mut impl Read, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes).expect("an answer");
    bytes
}

/// Whether the server ends the connection, without another byte.
pub(crate) fn is_closed(stream: &mut impl Read) -> bool {
    match stream.read(&mut [0]) {
        Ok(len) => len == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

pub(crate) fn claim(rank: Option<u32>) -> Claim {
    let claim = Claim::new(JobName::new("train").unwrap(), 0, Session::mint().unwrap());
    match rank {
        Some(rank) => claim.member(rank, 4).unwrap(),
        None => claim,
    }
}

/// A client of our own frames.
pub(crate) struct Native {
    pub(crate) stream: TcpStream,
    tunnel: Tunnel,
    sealed: Vec<u8>,
    plain: Vec<u8>,
    answers: Answers,
}

impl Native {
    /// Says hello; with a key, proves it.
    pub(crate) fn join(stream: TcpStream, key: Option<&JobKey>, claim: &Claim) -> Result<Native, Denial> {
        let mut stream = stream;
        let mut handshake = ClientHandshake::new(key, claim, Plane::Store);
        stream.write_all(&handshake.start()).unwrap();
        loop {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("the handshake goes on");
            match handshake.receive(&byte).unwrap().1 {
                ClientStep::More => {}
                ClientStep::Send(bytes) => stream.write_all(&bytes).unwrap(),
                ClientStep::Denied(denial) => return Err(denial),
                ClientStep::Admitted { tunnel, .. } => {
                    let limits = Limits::default();
                    let answers = Answers::new(&limits);
                    return Ok(Native { stream, tunnel, sealed: Vec::new(), plain: Vec::new(), answers });
                }
            }
        }
    }

    pub(crate) fn say(&mut self, request: &Request) {
        let mut plain = Vec::new();
        native::encode_request(request, &mut plain).unwrap();
        self.send(&plain);
    }

    pub(crate) fn cancel(&mut self) {
        let mut plain = Vec::new();
        native::encode_cancel(&mut plain);
        self.send(&plain);
    }

    pub(crate) fn send(&mut self, plain: &[u8]) {
        let mut wire = Vec::new();
        self.tunnel.seal(plain, &mut wire).unwrap();
        self.stream.write_all(&wire).unwrap();
    }

    pub(crate) fn answer(&mut self) -> Answer {
        loop {
            if let Some((answer, len)) = self.answers.decode(&self.plain).unwrap() {
                self.plain.drain(..len);
                return answer;
            }
            let mut bytes = [0; 4096];
            let len = self.stream.read(&mut bytes).expect("an answer");
            assert!(len > 0, "the connection was closed");
            self.sealed.extend_from_slice(&bytes[..len]);
            let opened = self.tunnel.open(&self.sealed, &mut self.plain).unwrap();
            self.sealed.drain(..opened);
        }
    }

    pub(crate) fn ask(&mut self, request: Request) -> Result<Reply, Refusal> {
        self.say(&request);
        match self.answer() {
            Answer::Answered(answer) => answer,
            other => panic!("{other:?} to {request:?}"),
        }
    }
}

pub(crate) fn set(key: &str, value: impl Into<Vec<u8>>) -> Request {
    Request::Set { pairs: vec![(key.into(), value.into().into())] }
}

pub(crate) fn get(key: &str) -> Request {
    Request::Get { keys: vec![key.into()], wait: false }
}

pub(crate) fn wait(key: &str) -> Request {
    Request::Wait { keys: vec![key.into()] }
}
