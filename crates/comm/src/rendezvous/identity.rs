//! Which host this is: what two ranks must have in common to share memory.
//!
//! Ranks of one host hand each other descriptors of sealed memory over Unix sockets with abstract names, open each other's
//! processes by their numbers, and look in `/proc` how these stand. That needs one kernel, which the boot id names, one network
//! namespace, in which abstract names live, and one PID namespace: a process of another one has no number here, or another. Mount
//! and user namespaces do not matter: a descriptor that was handed over needs no path. So containers on one machine count as hosts of
//! their own unless they share both.

use std::fs;
use std::path::Path;

/// A host, equal for two ranks exactly where they can share memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct HostId(String);

impl HostId {
    /// The host of this process. Where the kernel tells no boot id, the host's name has to do.
    pub(super) fn of_this_process(host_name: &str) -> HostId {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let [network, processes] = ["net", "pid"].map(|kind| fs::read_link(format!("/proc/self/ns/{kind}")).ok());
        let namespaces = [network.as_deref(), processes.as_deref()];
        HostId::new(boot.ok().as_deref().map(str::trim), namespaces, host_name)
    }

    /// `namespaces` are that of the network and that of the processes.
    fn new(boot: Option<&str>, namespaces: [Option<&Path>; 2], host_name: &str) -> HostId {
        let inode = |path: &Path| path.to_string_lossy().chars().filter(char::is_ascii_digit).collect::<String>();
        let [network, processes] = namespaces.map(|path| path.map(inode).unwrap_or_default());
        let text = match boot {
            Some(boot) => format!("{boot}/{network}/{processes}"),
            None => host_name.to_owned(),
        };
        HostId(text.chars().take(MAX_LEN).collect())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// A host as a card names it.
    pub(super) fn from_card(text: &str) -> Option<HostId> {
        (!text.is_empty() && text.len() <= MAX_BYTE_LEN).then(|| HostId(text.to_owned()))
    }
}

/// Which host this is, as text: equal for two processes exactly where they can share memory.
pub(crate) fn home_identity() -> String {
    HostId::of_this_process(&host_name()).0
}

/// Which host this is for a network, as text: equal for two processes exactly where they have one loopback interface and one
/// set of socket names. They may be in different PID namespaces, and share no memory then.
pub fn host_identity() -> String {
    network_of(HostId::of_this_process(&host_name()).as_str()).to_owned()
}

/// Whether two processes whose homes these are have one loopback interface.
pub(crate) fn share_network(home: &str, other: &str) -> bool {
    network_of(home) == network_of(other)
}

/// A home without its processes.
fn network_of(home: &str) -> &str {
    home.rsplit_once('/').map_or(home, |(network, _)| network)
}

/// The name of this host as the system has it.
pub fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "unnamed".to_owned() } else { name.chars().take(MAX_LEN).collect() }
}

/// No name is longer: host names have at most 64 letters, an identity a boot id of 36 and two inodes of up to 10.
const MAX_LEN: usize = 64;
pub(super) const MAX_BYTE_LEN: usize = 4 * MAX_LEN;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_network_and_processes_make_the_host() {
        let host = |boot, [network, processes]: [&str; 2], name| {
            HostId::new(boot, [Some(Path::new(network)), Some(Path::new(processes))], name)
        };
        let namespaces = ["net:[4026531840]", "pid:[4026531836]"];
        let here = host(Some("b1"), namespaces, "alpha");
        assert_eq!(here.as_str(), "b1/4026531840/4026531836");
        assert_eq!(here, host(Some("b1"), namespaces, "another name of it"));
        assert_ne!(here, host(Some("b1"), ["net:[4026532000]", namespaces[1]], "alpha"));
        assert_ne!(here, host(Some("b1"), [namespaces[0], "pid:[4026532178]"], "alpha"));
        assert_ne!(here, host(Some("b2"), namespaces, "alpha"));
        assert_eq!(host(None, ["", ""], "alpha").as_str(), "alpha");
    }

    #[test]
    fn processes_apart_may_have_one_network() {
        assert_eq!(network_of("b1/4026531840/4026531836"), network_of("b1/4026531840/4026532178"));
        assert_ne!(network_of("b1/4026531840/4026531836"), network_of("b1/4026532000/4026531836"));
        assert_eq!(network_of("alpha"), "alpha");
    }

    #[test]
    fn this_process_is_where_it_is() {
        let host = HostId::of_this_process("alpha");
        assert_eq!(host, HostId::of_this_process("alpha"));
        assert!(host.as_str().starts_with(&host_identity()), "{host:?}");
        assert_eq!(HostId::from_card(host.as_str()), Some(host));
        assert!(!host_name().is_empty());
        assert_eq!(HostId::from_card(""), None);
        assert_eq!(HostId::from_card(&"x".repeat(MAX_BYTE_LEN + 1)), None);
    }
}
