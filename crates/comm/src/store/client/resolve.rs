//! From a name to addresses. The system's resolver knows no deadline, so it runs in a thread that can be left behind.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

use super::socket::Place;
use crate::moment::left;
use crate::store::StoreAddress;

/// Looks names up, a few at a time.
#[derive(Debug, Default)]
pub(super) struct Resolver {
    running: Arc<AtomicUsize>,
}

impl Resolver {
    /// Where `address` may be, in the order in which to try. Ends at `until`.
    pub(super) fn places(&self, address: &StoreAddress, until: Instant) -> io::Result<Vec<Place>> {
        match address {
            StoreAddress::Unix { path } => Ok(vec![Place::Unix(path.clone())]),
            StoreAddress::Tcp { host, port } => match host.parse::<IpAddr>() {
                Ok(address) => Ok(vec![Place::Tcp((address, *port).into())]),
                Err(_) => self.look_up(host.clone(), *port, until),
            },
        }
    }

    fn look_up(&self, host: String, port: u16, until: Instant) -> io::Result<Vec<Place>> {
        let (found, answer) = mpsc::sync_channel(1);
        let running = Running::start(&self.running)?;
        thread::Builder::new().name("phalanx-resolve".to_owned()).spawn(move || {
            let addresses = (host.as_str(), port).to_socket_addrs();
            // Nobody listens any more when it took too long.
            let _ = found.send(addresses.map(Iterator::collect::<Vec<SocketAddr>>));
            drop(running);
        })?;
        let addresses = answer.recv_timeout(left(until)).map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        if addresses.is_empty() {
            return Err(io::Error::other("the name has no address"));
        }
        Ok(addresses.into_iter().map(Place::Tcp).collect())
    }
}

/// One look-up under way, counted so that a resolver that hangs does not gather threads.
struct Running(Arc<AtomicUsize>);

impl Running {
    fn start(count: &Arc<AtomicUsize>) -> io::Result<Running> {
        let running = Running(Arc::clone(count));
        if count.fetch_add(1, Ordering::Relaxed) < MOST {
            return Ok(running);
        }
        Err(io::Error::other("the system's name resolution hangs"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The most look-ups at once.
const MOST: usize = 16;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn places(text: &str) -> io::Result<Vec<Place>> {
        Resolver::default().places(&text.parse().unwrap(), Instant::now() + Duration::from_secs(20))
    }

    #[test]
    fn numbers_and_paths_need_no_look_up() {
        assert_eq!(places("127.0.0.1:7").unwrap(), [Place::Tcp("127.0.0.1:7".parse().unwrap())]);
        assert_eq!(places("[::1]:7").unwrap(), [Place::Tcp("[::1]:7".parse().unwrap())]);
        assert_eq!(places("unix:/run/store").unwrap(), [Place::Unix("/run/store".into())]);
    }

    #[test]
    fn this_machine_has_a_name() {
        let found = places("localhost:7").unwrap();
        assert!(found.iter().all(|place| matches!(place, Place::Tcp(address) if address.ip().is_loopback())));
    }

    #[test]
    fn a_resolver_that_hangs_gathers_no_threads() {
        let count = Arc::new(AtomicUsize::new(0));
        let running: Vec<_> = (0..MOST).map(|_| Running::start(&count).unwrap()).collect();
        assert!(Running::start(&count).is_err());
        drop(running);
        assert!(Running::start(&count).is_ok());
        assert_eq!(count.load(Ordering::Relaxed), 0);
    }
}
