//! The network interfaces of this host: without loopback nobody meets over TCP, without another one no other host is reached.

use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

use super::finding::Finding;

/// An address of an interface that is up.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Address {
    interface: String,
    is_loopback: bool,
    ip: IpAddr,
}

/// All addresses, or why they cannot be listed.
pub(super) fn read() -> Result<Vec<Address>, String> {
    let interfaces = getifaddrs().map_err(|errno| errno.desc().to_lowercase())?;
    let up = interfaces.filter(|interface| interface.flags.contains(InterfaceFlags::IFF_UP));
    let address = up.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        let ip = v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))?;
        let is_loopback = interface.flags.contains(InterfaceFlags::IFF_LOOPBACK);
        Some(Address { interface: interface.interface_name, is_loopback, ip })
    });
    Ok(address.collect())
}

pub(super) fn judge(reading: &Result<Vec<Address>, String>) -> Finding {
    let addresses = match reading {
        Ok(addresses) => addresses,
        Err(refused) => {
            let why = "ranks cannot tell others where they are";
            return Finding::wrong(CHECK, refused, why, "allow netlink sockets in the container's seccomp profile");
        }
    };
    let found = listed(addresses);
    if !addresses.iter().any(|address| address.is_loopback) {
        let why = "ranks of one host meet at loopback";
        return Finding::wrong(CHECK, found, why, "ip link set lo up");
    }
    if addresses.iter().all(|address| address.is_loopback) {
        return Finding::ok(CHECK, format!("{found}; no other host can be reached"));
    }
    Finding::ok(CHECK, found)
}

/// Each interface with its addresses, in the order of the system.
fn listed(addresses: &[Address]) -> String {
    let mut interfaces: Vec<(&str, Vec<String>)> = vec![];
    for Address { interface, ip, .. } in addresses {
        match interfaces.iter_mut().find(|(name, _)| name == interface) {
            Some((_, ips)) => ips.push(ip.to_string()),
            None => interfaces.push((interface, vec![ip.to_string()])),
        }
    }
    let told: Vec<String> = interfaces.iter().map(|(name, ips)| format!("{name} {}", ips.join(" "))).collect();
    if told.is_empty() { "none is up".to_owned() } else { told.join(", ") }
}

const CHECK: &str = "interfaces";

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn address(interface: &str, ip: &str) -> Address {
        let ip: IpAddr = ip.parse().expect("an address");
        Address { interface: interface.to_owned(), is_loopback: ip.is_loopback(), ip }
    }

    #[test]
    fn addresses_stand_behind_their_interface() {
        let all = vec![address("lo", "127.0.0.1"), address("eth0", "10.0.0.5"), address("lo", "::1")];
        assert_eq!(judge(&Ok(all)), Finding::ok(CHECK, "lo 127.0.0.1 ::1, eth0 10.0.0.5"));
        let alone = judge(&Ok(vec![address("lo", "127.0.0.1")]));
        assert_eq!(alone, Finding::ok(CHECK, "lo 127.0.0.1; no other host can be reached"));
    }

    #[test]
    fn no_loopback_is_wrong_and_so_is_no_answer() {
        assert_eq!(judge(&Ok(vec![address("eth0", "10.0.0.5")])).level, Level::Wrong);
        assert_eq!(judge(&Ok(vec![])).found, "none is up");
        assert_eq!(judge(&Err("permission denied".to_owned())).level, Level::Wrong);
    }

    #[test]
    fn this_host_can_be_listed() {
        assert!(!read().expect("a list").is_empty());
    }
}
