//! Where a rank listens, and at which addresses the others may reach it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};

use phalanx_core::{Error, Result};
use rustix::io::Errno;

use super::socket::Socket;
use crate::rendezvous::card::addresses;

/// A listening socket on a free port.
#[derive(Debug)]
pub(super) struct Door {
    listener: TcpListener,
    pub(super) port: u16,
    /// Where it can be reached, loopback for ranks of this host.
    pub(super) addresses: Vec<IpAddr>,
}

impl Door {
    /// Listens at `address`; without one at all interfaces, or where strangers could come in, at loopback only.
    pub(super) fn open(address: Option<IpAddr>, is_closed: bool) -> Result<Door> {
        let any = |address: &IpAddr| address.is_unspecified();
        let (listener, addresses) = match address.filter(|address| !any(address)) {
            Some(address) if !address.is_loopback() && !is_closed => {
                return Err(Error::setup(
                    format!("listening at {address}"),
                    "needs a job key, because others than this host can reach it; `insecure` does without",
                ));
            }
            Some(address) => (bind(address)?, vec![address]),
            None if is_closed => {
                let everywhere = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
                let listener = bind(everywhere).or_else(|_| bind(IpAddr::V4(Ipv4Addr::UNSPECIFIED)))?;
                (listener, [vec![LOOPBACK], addresses()].concat())
            }
            None => (bind(LOOPBACK)?, vec![LOOPBACK]),
        };
        let port = listener.local_addr().map_err(failed)?.port();
        Ok(Door { listener, port, addresses })
    }

    /// Whoever stands at the door, and from where; nobody where the next has gone again. What stands in the way is this
    /// process's own.
    pub(super) fn admit(&self) -> io::Result<Option<(Socket, SocketAddr)>> {
        match self.listener.accept() {
            Ok((stream, from)) => {
                let prepared = stream.set_nonblocking(true).and_then(|()| Socket::prepared(stream.into()));
                Ok(prepared.ok().map(|socket| (socket, from)))
            }
            Err(error) if is_own(&error) => Err(error),
            Err(_) => Ok(None),
        }
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Whether it is this process that lacks something. Of a connection that went wrong the system says so here as well.
fn is_own(error: &io::Error) -> bool {
    let lacking = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| lacking.contains(&errno))
}

fn bind(address: IpAddr) -> Result<TcpListener> {
    let named = |error| Error::setup(format!("listening at {address}"), error);
    let listener = TcpListener::bind((address, 0)).map_err(named)?;
    // Once more, with room for many ranks at once.
    rustix::net::listen(&listener, BACKLOG).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::setup("listening for ranks", error)
}

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The system takes less where it says so.
const BACKLOG: i32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_key_only_this_host() {
        let door = Door::open(None, false).unwrap();
        assert_eq!(door.addresses, [LOOPBACK]);
        let said = Door::open("192.0.2.1".parse().ok(), false).unwrap_err().to_string();
        assert!(said.starts_with("listening at 192.0.2.1: needs a job key"), "{said}");
        let said = Door::open("192.0.2.1".parse().ok(), true).unwrap_err().to_string();
        assert!(said.starts_with("listening at 192.0.2.1: "), "{said}");
        assert!(Door::open(None, true).unwrap().addresses.contains(&LOOPBACK));
    }
}
