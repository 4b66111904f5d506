//! The server's door: where it is bound, and who may knock at all.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use mio::event::Source;
use mio::net::{TcpListener, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use phalanx_core::{Error, Result};
use rustix::net::sockopt;

use super::socket::{Peer, Socket};
use crate::store::StoreAddress;

/// A bound socket that takes connections.
#[derive(Debug)]
pub(super) struct Listener {
    door: Door,
    address: StoreAddress,
    /// Whether only this machine can reach it.
    local: bool,
}

#[derive(Debug)]
enum Door {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        /// Kept to be dropped with it.
        _file: File,
    },
}

/// The file of a Unix socket, which is removed with the listener unless another has taken its place.
#[derive(Debug)]
struct File {
    path: PathBuf,
    identity: (u64, u64),
}

/// Somebody at the door.
#[derive(Debug)]
pub(super) enum Visitor {
    Guest(Socket, Peer),
    /// Another user, who is sent away.
    Stranger(Peer),
}

impl Listener {
    /// Binds `address`; port 0 takes a free one. A name of this machine that leads to its loopback is bound on all
    /// interfaces where `open` is set.
    ///
    /// # Errors
    ///
    /// `Setup` when that is not possible, or when others than this machine would reach it although `open` is not set.
    pub(super) fn bind(address: &StoreAddress, open: bool) -> Result<Listener> {
        let fail = |why: &dyn std::fmt::Display| Error::setup(format!("store server at {address}"), why);
        match address {
            StoreAddress::Tcp { host, port } => {
                let found: Vec<SocketAddr> =
                    (&**host, *port).to_socket_addrs().map_err(|error| fail(&error))?.collect();
                let places = places_to_bind(host, found, open);
                let local = places.iter().all(is_loopback);
                if !local && !open {
                    return Err(fail(
                        &"needs a job key, because others than this machine can reach it; `insecure` does without",
                    ));
                }
                let (listener, port) = bind_tcp(&places).map_err(|error| fail(&in_words(&error)))?;
                if local && is_name_of_machine(host) {
                    let here = places.first().map(SocketAddr::ip).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
                    log::warn!(
                        "store server at {address}: only this machine reaches it, because here {host} is {here}"
                    );
                }
                Ok(Listener { door: Door::Tcp(listener), address: StoreAddress::tcp(&**host, port), local })
            }
            StoreAddress::Unix { path } => {
                let (listener, file) = bind_unix(path).map_err(|error| fail(&in_words_at(path, &error)))?;
                Ok(Listener { door: Door::Unix { listener, _file: file }, address: address.clone(), local: true })
            }
        }
    }

    /// Where it is bound, with the port that was taken.
    pub(super) fn address(&self) -> &StoreAddress {
        &self.address
    }

    /// Whether only this machine can reach it.
    pub(super) fn is_local(&self) -> bool {
        self.local
    }

    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match &mut self.door {
            Door::Tcp(listener) => listener.register(registry, token, Interest::READABLE),
            Door::Unix { listener, .. } => listener.register(registry, token, Interest::READABLE),
        }
    }

    /// The next visitor.
    pub(super) fn accept(&self) -> io::Result<Visitor> {
        match &self.door {
            Door::Tcp(listener) => {
                let (stream, from) = listener.accept()?;
                Ok(Visitor::Guest(Socket::Tcp(stream), Peer::Tcp(from)))
            }
            Door::Unix { listener, .. } => {
                let (stream, _) = listener.accept()?;
                // rustix knows no process 0, which is what one of another PID namespace is called here.
                let credentials = getsockopt(&stream, PeerCredentials)?;
                let peer = Peer::Unix(credentials.pid());
                let ours = [rustix::process::geteuid().as_raw(), ROOT].contains(&credentials.uid());
                Ok(if ours { Visitor::Guest(Socket::Unix(stream), peer) } else { Visitor::Stranger(peer) })
            }
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // Nobody is left to tell, and the next server recognises a file that nobody serves.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Where to listen for `host`, which was looked up as `found`. On some systems a machine's own name is a loopback address
/// to itself (127.0.1.1), and its real one to others, who would come in vain.
fn places_to_bind(host: &str, found: Vec<SocketAddr>, open: bool) -> Vec<SocketAddr> {
    match found.iter().find(|place| is_loopback(place)) {
        Some(place) if open && is_name_of_machine(host) => {
            let all: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
            all.map(|address| SocketAddr::new(address, place.port())).into()
        }
        _ => found,
    }
}

/// Whether `host` is a name by which others may know this machine: neither an address nor one for loopback.
fn is_name_of_machine(host: &str) -> bool {
    let host = host.to_ascii_lowercase();
    let is_address = host.parse::<IpAddr>().is_ok() || !host.contains(|letter: char| letter.is_ascii_alphabetic());
    !is_address && !LOOPBACK_NAMES.iter().any(|name| host.contains(name))
}

fn is_loopback(place: &SocketAddr) -> bool {
    place.ip().to_canonical().is_loopback()
}

/// The first of `places` that can be bound, with its port.
fn bind_tcp(places: &[SocketAddr]) -> io::Result<(TcpListener, u16)> {
    let mut failure = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for place in places {
        // The standard library sets SO_REUSEADDR, so that a restarted server has its port at once.
        match std::net::TcpListener::bind(place) {
            Ok(listener) => {
                prepare(&listener)?;
                // Once more, with room for a whole job that joins at once.
                rustix::net::listen(&listener, BACKLOG)?;
                listener.set_nonblocking(true)?;
                let port = listener.local_addr()?.port();
                return Ok((TcpListener::from_std(listener), port));
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Sets what every connection has, which accepted sockets inherit: answers leave at once, and a peer whose machine is gone
/// is noticed.
fn prepare(listener: &std::net::TcpListener) -> io::Result<()> {
    sockopt::set_tcp_nodelay(listener, true)?;
    sockopt::set_socket_keepalive(listener, true)?;
    sockopt::set_tcp_keepidle(listener, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(listener, KEEPALIVE / 3)?;
    sockopt::set_tcp_keepcnt(listener, 3)?;
    sockopt::set_tcp_user_timeout(listener, UNTAKEN)?;
    Ok(())
}

/// Binds a Unix socket for this user alone. The socket file of a server that is gone is replaced.
fn bind_unix(path: &Path) -> io::Result<(UnixListener, File)> {
    let listener = match std::os::unix::net::UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse && is_abandoned(path) => {
            fs::remove_file(path)?;
            std::os::unix::net::UnixListener::bind(path)?
        }
        bound => bound?,
    };
    let file = File { path: path.to_owned(), identity: identity(path)? };
    // Whoever connected before this is another user's process and is recognised as such when it is accepted.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    Ok((UnixListener::from_std(listener), file))
}

/// Whether a socket file stands there that nobody serves.
fn is_abandoned(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == ErrorKind::ConnectionRefused;
    // This connect never waits, not even for a server that has stopped accepting.
    is_socket && UnixStream::connect(path).is_err_and(refused)
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

fn in_words(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::AddrInUse => "is in use by another program".to_owned(),
        ErrorKind::AddrNotAvailable => "is no address of this machine".to_owned(),
        _ => error.to_string(),
    }
}

/// The same where a Unix socket was to be bound: what is in its way may be no program's.
fn in_words_at(path: &Path, error: &io::Error) -> String {
    let is_other = || fs::metadata(path).is_ok_and(|metadata| !metadata.file_type().is_socket());
    match error.kind() {
        ErrorKind::AddrInUse if is_other() => "there is a file that is no socket".to_owned(),
        _ => in_words(error),
    }
}

/// Parts of the names that systems give to loopback itself: `localhost4`, `ip6-loopback`, `localhost.localdomain`.
const LOOPBACK_NAMES: [&str; 2] = ["localhost", "loopback"];

/// How many connections the kernel may hold before they are accepted; it takes less where the system says so.
const BACKLOG: i32 = 4096;

/// How long a silent peer is left alone before the kernel asks whether it is there; it is given up after twice as long.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// How long a peer may leave bytes untaken before the kernel gives it up, in milliseconds.
const UNTAKEN: u32 = 60_000;

/// The user who may do everything.
const ROOT: u32 = 0;

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn local(port: u16) -> StoreAddress {
        StoreAddress::tcp("127.0.0.1", port)
    }

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("phalanx-listener-{name}-{}", std::process::id()))
    }

    #[test]
    fn a_free_port_is_taken_and_told_and_its_use_noticed() {
        let listener = Listener::bind(&local(0), false).unwrap();
        let StoreAddress::Tcp { host, port } = listener.address() else { panic!("{listener:?}") };
        assert!(host == "127.0.0.1" && *port != 0 && listener.is_local());
        let _guest = TcpStream::connect((&**host, *port)).unwrap();
        let said = Listener::bind(&local(*port), false).unwrap_err().to_string();
        assert_eq!(said, format!("store server at 127.0.0.1:{port}: is in use by another program"));
    }

    #[test]
    fn without_a_key_only_this_machine() {
        for host in ["0.0.0.0", "::"] {
            let said = Listener::bind(&StoreAddress::tcp(host, 0), false).unwrap_err().to_string();
            assert!(said.contains("needs a job key") && said.contains("insecure"), "{said}");
        }
        assert!(!Listener::bind(&StoreAddress::tcp("0.0.0.0", 0), true).unwrap().is_local());
    }

    #[test]
    fn a_name_that_is_loopback_to_this_machine_alone_is_bound_for_all() {
        let places = |list: &[&str]| list.iter().map(|text| text.parse().unwrap()).collect::<Vec<SocketAddr>>();
        let (own, all) = (places(&["127.0.1.1:7"]), places(&["[::]:7", "0.0.0.0:7"]));
        assert_eq!(places_to_bind("node-3.cluster", own.clone(), true), all);
        assert_eq!(places_to_bind("node-3.cluster", own.clone(), false), own);
        assert_eq!(places_to_bind("node", places(&["[::1]:7", "10.0.0.3:7"]), true), all);
        assert_eq!(places_to_bind("node", places(&["10.0.0.3:7"]), true), places(&["10.0.0.3:7"]));
        assert_eq!(places_to_bind("node", Vec::new(), true), []);
        // Whoever says loopback means it.
        for host in ["127.0.1.1", "127.1", "::1", "localhost", "LocalHost", "localhost.localdomain", "ip6-loopback"] {
            assert_eq!(places_to_bind(host, own.clone(), true), own, "{host}");
        }
    }

    #[test]
    fn all_interfaces_are_reached_by_both_families() {
        let all = places_to_bind("node", vec!["127.0.1.1:0".parse().unwrap()], true);
        let (_listener, port) = bind_tcp(&all).unwrap();
        TcpStream::connect(("127.0.0.1", port)).unwrap();
        if TcpListener::bind("[::1]:0".parse().unwrap()).is_ok() {
            TcpStream::connect(("::1", port)).unwrap();
        }
    }

    #[test]
    fn a_foreign_address_is_named() {
        let said = Listener::bind(&StoreAddress::tcp("192.0.2.1", 0), true).unwrap_err().to_string();
        assert_eq!(said, "store server at 192.0.2.1:0: is no address of this machine");
    }

    #[test]
    fn a_socket_file_is_this_users_and_goes_with_the_listener() {
        let path = path("file");
        let listener = Listener::bind(&StoreAddress::unix(&path), false).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let _guest = UnixStream::connect(&path).unwrap();
        let visitor = listener.accept().unwrap();
        assert!(matches!(visitor, Visitor::Guest(_, Peer::Unix(process)) if process as u32 == std::process::id()));
        let said = Listener::bind(&StoreAddress::unix(&path), false).unwrap_err().to_string();
        assert!(said.contains("is in use"), "{said}");
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn an_abandoned_socket_file_is_replaced_and_nothing_else() {
        let path = path("abandoned");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        drop(Listener::bind(&StoreAddress::unix(&path), false).unwrap());
        fs::write(&path, "a file of somebody").unwrap();
        let said = Listener::bind(&StoreAddress::unix(&path), false).unwrap_err().to_string();
        assert!(said.ends_with(": there is a file that is no socket"), "{said}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "a file of somebody");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn another_servers_file_is_left_alone() {
        let path = path("other");
        let first = Listener::bind(&StoreAddress::unix(&path), false).unwrap();
        fs::remove_file(&path).unwrap();
        let second = Listener::bind(&StoreAddress::unix(&path), false).unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
    }
}
