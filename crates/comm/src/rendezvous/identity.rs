//! Which host this is: what two ranks must have in common to share memory.
//!
//! Ranks of one host hand each other descriptors of sealed memory over Unix sockets with abstract names. That needs one
//! kernel, which the boot id names, and one network namespace, in which abstract names live. Mount, process and user
//! namespaces do not matter: a descriptor that was handed over needs neither a path nor a process id. So containers on one
//! machine count as hosts of their own unless they share the network.

use std::fs;
use std::path::Path;

/// A host, equal for two ranks exactly where they can share memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct HostId(String);

impl HostId {
    /// The host of this process. Where the kernel tells no boot id, the host's name has to do.
    pub(super) fn of_this_process(host_name: &str) -> HostId {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let network = fs::read_link("/proc/self/ns/net");
        HostId::new(boot.ok().as_deref().map(str::trim), network.ok().as_deref(), host_name)
    }

    fn new(boot: Option<&str>, network: Option<&Path>, host_name: &str) -> HostId {
        let inode = |path: &Path| path.to_string_lossy().chars().filter(char::is_ascii_digit).collect::<String>();
        let text = match boot {
            Some(boot) => format!("{boot}/{}", network.map(inode).unwrap_or_default()),
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
pub fn host_identity() -> String {
    HostId::of_this_process(&host_name()).0
}

/// The name of this host as the system has it.
pub fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "unnamed".to_owned() } else { name.chars().take(MAX_LEN).collect() }
}

/// No name is longer: host names have at most 64 letters, an identity a boot id of 36 and an inode.
const MAX_LEN: usize = 64;
pub(super) const MAX_BYTE_LEN: usize = 4 * MAX_LEN;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_and_network_make_the_host() {
        let host = |boot, network: &str, name| HostId::new(boot, Some(Path::new(network)), name);
        let here = host(Some("b1"), "net:[4026531840]", "alpha");
        assert_eq!(here.as_str(), "b1/4026531840");
        assert_eq!(here, host(Some("b1"), "net:[4026531840]", "another name of it"));
        assert_ne!(here, host(Some("b1"), "net:[4026532000]", "alpha"));
        assert_ne!(here, host(Some("b2"), "net:[4026531840]", "alpha"));
        assert_eq!(host(None, "", "alpha").as_str(), "alpha");
    }

    #[test]
    fn this_process_is_where_it_is() {
        let host = HostId::of_this_process("alpha");
        assert_eq!(host, HostId::of_this_process("alpha"));
        assert_eq!(HostId::from_card(host.as_str()), Some(host));
        assert!(!host_name().is_empty());
        assert_eq!(HostId::from_card(""), None);
        assert_eq!(HostId::from_card(&"x".repeat(MAX_BYTE_LEN + 1)), None);
    }
}
