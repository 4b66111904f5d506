//! Waits until a name has an address: that of a pod is known some seconds after its start. What is done with the address is not this
//! room's matter.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::thread;
use std::time::Duration;

use phalanx_comm::store::StoreAddress;

/// Waits until the name of this rank's own store is known, for as long as is left. A name that never is, its server refuses.
pub(crate) fn await_own(address: &StoreAddress, left: impl Fn() -> Duration) {
    if let StoreAddress::Tcp { host, port } = address
        && host.parse::<IpAddr>().is_err()
    {
        await_name(host, || (host.as_str(), *port).to_socket_addrs().map(|mut found| found.next().is_some()), left);
    }
}

fn await_name(name: &str, mut is_known: impl FnMut() -> io::Result<bool>, left: impl Fn() -> Duration) {
    let mut is_told = false;
    loop {
        let why = match is_known() {
            Ok(true) => return,
            Ok(false) => "it has no address".to_owned(),
            Err(error) => error.to_string(),
        };
        let left = left();
        if left.is_zero() {
            return;
        }
        if !std::mem::replace(&mut is_told, true) {
            log::warn!("waiting until {name}, where this rank is to serve the store, is known: {why}");
        }
        thread::sleep(PAUSE.min(left));
    }
}

const PAUSE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_name_is_looked_up_until_it_is_known() {
        let mut answers = vec![Ok(true), Ok(false), Err(io::Error::other("no such name"))];
        await_name("pod-0", || answers.pop().expect("known by then"), || Duration::from_millis(1));
        assert!(answers.is_empty());
    }

    #[test]
    fn a_name_that_is_never_known_is_given_up_in_time() {
        let (left, looks) = (Cell::new(3_u64), Cell::new(0));
        let look = || {
            looks.set(looks.get() + 1);
            Err(io::Error::other("no such name"))
        };
        await_name("pod-0", look, || Duration::from_millis(left.replace(left.get().saturating_sub(1))));
        assert_eq!(looks.get(), 4);
    }

    #[test]
    fn an_address_is_not_looked_up() {
        let address = StoreAddress::tcp("::1", 0);
        await_own(&address, || panic!("nothing is waited for"));
    }
}
