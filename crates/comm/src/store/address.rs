//! Where a store is found: a host and a port, or a path. How it is reached is the client's business, how it is offered the
//! server's.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use phalanx_core::{Error, Result};

/// The address of a store: `host:port`, `[v6]:port` or `unix:/path`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StoreAddress {
    /// A TCP port.
    Tcp {
        /// A name, or an address without brackets.
        host: String,
        /// The port; a server that is given 0 takes a free one.
        port: u16,
    },
    /// A Unix socket.
    Unix {
        /// Its path.
        path: PathBuf,
    },
}

impl StoreAddress {
    /// The port `port` of `host`, which is a name or an address without brackets.
    pub fn tcp(host: impl Into<String>, port: u16) -> StoreAddress {
        StoreAddress::Tcp { host: host.into(), port }
    }

    /// The Unix socket at `path`.
    pub fn unix(path: impl AsRef<Path>) -> StoreAddress {
        StoreAddress::Unix { path: path.as_ref().to_owned() }
    }

    /// Whether what is sent there stays on this machine: a Unix socket, a loopback address, or the name `localhost`.
    pub fn is_local(&self) -> bool {
        match self {
            StoreAddress::Unix { .. } => true,
            StoreAddress::Tcp { host, .. } => match host.parse::<IpAddr>() {
                Ok(address) => address.to_canonical().is_loopback(),
                Err(_) => host.eq_ignore_ascii_case("localhost"),
            },
        }
    }
}

impl FromStr for StoreAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<StoreAddress> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(wrong(text)) } else { Ok(StoreAddress::unix(path)) };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(|| wrong(text))?;
        let port = port.parse().map_err(|_| wrong(text))?;
        Ok(StoreAddress::tcp(bare(host).ok_or_else(|| wrong(text))?, port))
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreAddress::Unix { path } => write!(f, "unix:{}", path.display()),
            StoreAddress::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            StoreAddress::Tcp { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// A host without its brackets; none where they do not fit, or where there is nothing.
fn bare(host: &str) -> Option<&str> {
    match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').filter(|inside| inside.contains(':')),
        None => Some(host).filter(|host| !host.is_empty() && !host.contains([':', ']', '/', ' '])),
    }
}

fn wrong(text: &str) -> Error {
    Error::setup(format!("store address \"{text}\""), "must be host:port, [v6]:port or unix:/path")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_written_as_it_was() {
        for text in ["127.0.0.1:29500", "[::1]:0", "node-3.cluster:65535", "unix:/run/a b/store", "localhost:1"] {
            assert_eq!(text.parse::<StoreAddress>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let wrong = [
            "",
            ":",
            "host",
            "host:",
            ":1",
            "host:65536",
            "host:-1",
            "::1:80",
            "[::1]",
            "[host]:1",
            "[::1:80",
            "unix:",
        ];
        for text in wrong {
            let said = text.parse::<StoreAddress>().unwrap_err().to_string();
            assert!(said.starts_with(&format!("store address \"{text}\": must be host:port")), "{said}");
        }
    }

    #[test]
    fn only_this_machine_is_local() {
        let local = |text: &str| text.parse::<StoreAddress>().unwrap().is_local();
        for text in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "localhost:1", "unix:/x"] {
            assert!(local(text), "{text}");
        }
        for text in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "127.0.0.1.example.org:1", "host:1"] {
            assert!(!local(text), "{text}");
        }
    }
}
