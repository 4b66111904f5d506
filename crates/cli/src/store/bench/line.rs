//! One non-blocking connection with what is still to be sent over it. What is said is somebody else's business.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

/// A connection, perhaps not made yet.
#[derive(Debug)]
pub(super) struct Line {
    socket: TcpStream,
    is_connected: bool,
    /// What is to be sent, once there is a connection with room.
    pub(super) outbox: Vec<u8>,
}

/// Whether more can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Open,
    Closed,
}

impl Line {
    /// Begins to connect. Events come under `token`.
    pub(super) fn open(address: SocketAddr, registry: &Registry, token: Token) -> io::Result<Line> {
        let mut socket = TcpStream::connect(address)?;
        registry.register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Line { socket, is_connected: false, outbox: Vec::new() })
    }

    pub(super) fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Sends what there is room for; nothing before the connection is made.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if !self.is_connected && !self.connect()? {
            return Ok(());
        }
        while !self.outbox.is_empty() {
            match self.socket.write(&self.outbox) {
                Ok(len) => drop(self.outbox.drain(..len)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Hands everything that has come to `take`, and says whether more can.
    pub(super) fn read(&mut self, mut take: impl FnMut(&[u8], &mut Vec<u8>)) -> io::Result<End> {
        if !self.is_connected {
            return Ok(End::Open);
        }
        let mut bytes = [0; 4096];
        loop {
            match self.socket.read(&mut bytes) {
                Ok(0) => return Ok(End::Closed),
                Ok(len) => take(&bytes[..len], &mut self.outbox),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(End::Open),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Says that nothing more will be sent.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)
    }

    /// Whether the connection is made by now.
    fn connect(&mut self) -> io::Result<bool> {
        if let Some(error) = self.socket.take_error()? {
            return Err(error);
        }
        match self.socket.peer_addr() {
            Ok(_) => self.is_connected = true,
            Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(false),
            Err(error) => return Err(error),
        }
        // A request is smaller than a segment and must not wait for the one before to be acknowledged.
        self.socket.set_nodelay(true)?;
        Ok(true)
    }
}
