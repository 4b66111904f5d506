//! The stores of a job: where its ranks meet. Not what they keep there.
//!
//! There are two, each with a table of its own. One is for programs of ours, behind the job key. The other is for PyTorch,
//! whose clients know no key; so it is served to this machine only, and to others only where that was asked for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::os::fd::OwnedFd;

use phalanx_comm::secure::{JobKey, JobName};
use phalanx_comm::store::{ServerOptions, StoreAddress, StoreServer};
use phalanx_core::Error;

use super::Options;
use crate::failure::Failure;
use crate::key;

/// The stores that this launcher serves, or knows of, and the key to them.
#[derive(Debug)]
pub(super) struct Stores {
    key: Option<JobKey>,
    job: JobName,
    /// Where the store for our programs is.
    address: StoreAddress,
    /// That store, where this launcher serves it.
    keyed: Option<StoreServer>,
    /// The store for PyTorch, of one epoch.
    plain: Option<StoreServer>,
    insecure: bool,
}

/// What ranks are told of the stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Addresses {
    /// The store for programs of ours.
    pub(super) keyed: String,
    /// The store for PyTorch.
    pub(super) master: Master,
}

/// The store for PyTorch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Master {
    pub(super) host: String,
    pub(super) port: u16,
    /// Whether the launcher serves it, rather than rank 0.
    pub(super) is_ours: bool,
}

impl Master {
    /// The same as a node is to name it that finds the job's store at `store`. A first node that listens at all of its addresses
    /// (0.0.0.0) names none: to the others it is where they have found it, to itself loopback.
    pub(super) fn seen_from(&self, node: usize, store: &StoreAddress) -> Master {
        let Some(everywhere) = unspecified(&self.host) else {
            return self.clone();
        };
        let host = match store {
            StoreAddress::Tcp { host, .. } if node > 0 => host.clone(),
            _ if everywhere.is_ipv4() => Ipv4Addr::LOCALHOST.to_string(),
            _ => Ipv6Addr::LOCALHOST.to_string(),
        };
        Master { host, ..self.clone() }
    }
}

impl Stores {
    /// Brings up the store of a job at its first node; on the others, only notes where it is. `guard` is the process that the
    /// user started.
    pub(super) fn start(options: &Options, guard: i32) -> Result<Stores, Failure> {
        let job = JobName::new(&options.job(guard)).map_err(|error| Failure::Usage(error.to_string()))?;
        let key = key(options)?;
        let address = address(options)?;
        let keyed = (options.node() == 0).then(|| serve(options, &address, key.as_ref(), &job)).transpose()?;
        let address = keyed.as_ref().map_or(address, |server| server.address().clone());
        Ok(Stores { key, job, address, keyed, plain: None, insecure: options.insecure })
    }

    pub(super) fn key(&self) -> Option<&JobKey> {
        self.key.as_ref()
    }

    pub(super) fn job(&self) -> &JobName {
        &self.job
    }

    pub(super) fn address(&self) -> &StoreAddress {
        &self.address
    }

    /// The key as a rank inherits it.
    pub(super) fn sealed_key(&self) -> Result<Option<OwnedFd>, Failure> {
        Ok(self.key.as_ref().map(JobKey::to_memfd).transpose()?)
    }

    /// Begins an epoch: nobody of the one before is let in any more. At the first node this returns where PyTorch's ranks
    /// meet, at a place of their own, for what they left in the last epoch is of no use in this one.
    pub(super) fn begin(&mut self, epoch: u32) -> Result<Option<Master>, Failure> {
        let Some(keyed) = &self.keyed else {
            return Ok(None);
        };
        if epoch > 0 {
            // How many ranks there are, every node checks when it joins.
            keyed.advance(epoch, 0);
        }
        let StoreAddress::Tcp { host, .. } = self.address.clone() else {
            return Err(Failure::Usage(format!("{}: a job's store must be at a port", self.address)));
        };
        if !self.address.is_local() && !self.insecure {
            let port = free_port(&host)?;
            return Ok(Some(Master { host, port, is_ours: false }));
        }
        self.plain = None;
        let options = ServerOptions::new(StoreAddress::tcp(host.clone(), 0)).insecure(self.insecure);
        let plain = self.plain.insert(StoreServer::start(options)?);
        match plain.address() {
            StoreAddress::Tcp { port, .. } => Ok(Some(Master { host, port: *port, is_ours: true })),
            StoreAddress::Unix { .. } => Ok(None),
        }
    }
}

/// One node mints a key of its own; several must have been given one, or do without in so many words.
fn key(options: &Options) -> Result<Option<JobKey>, Failure> {
    match key::find(options.key_file.as_deref())? {
        Some(key) => Ok(Some(key)),
        None if options.nodes() == 1 => {
            let minted = JobKey::mint().map_err(|error| Failure::Stopped(format!("job key: {error}")))?;
            Ok(Some(minted))
        }
        None if options.insecure => Ok(None),
        None => Err(Failure::Usage(KEYLESS.to_owned())),
    }
}

/// Where the nodes meet. One node takes any free port; several have to know which before they meet.
fn address(options: &Options) -> Result<StoreAddress, Failure> {
    let Some(endpoint) = options.endpoint() else {
        return Ok(StoreAddress::tcp(Ipv4Addr::LOCALHOST.to_string(), 0));
    };
    let refused = |why: String| Failure::Usage(format!("--rdzv-endpoint: {why}"));
    let address = endpoint.parse().map_err(|error: Error| refused(error.to_string()))?;
    match address {
        StoreAddress::Tcp { port: 0, .. } if options.nodes() > 1 => {
            let why = "a free port, which the other nodes cannot know: with --nnodes above 1 the port must be given";
            Err(refused(format!("{address} is {why}")))
        }
        address => Ok(address),
    }
}

fn serve(
    options: &Options,
    address: &StoreAddress,
    key: Option<&JobKey>,
    job: &JobName,
) -> Result<StoreServer, Failure> {
    let served = ServerOptions::new(address.clone()).job(job.clone()).insecure(options.insecure);
    let served = match key {
        Some(key) => served.key(key.clone()),
        None => served,
    };
    Ok(StoreServer::start(served)?)
}

/// The address that stands for all of a machine's, if `host` is it.
pub(super) fn unspecified(host: &str) -> Option<IpAddr> {
    host.parse().ok().filter(IpAddr::is_unspecified)
}

/// A port that was free a moment ago, for rank 0 to serve PyTorch's store on.
fn free_port(host: &str) -> Result<u16, Failure> {
    let listener = TcpListener::bind((host, 0));
    let port = listener.and_then(|listener| listener.local_addr()).map(|address| address.port());
    port.map_err(|error| Failure::Stopped(format!("no free port on {host}: {error}")))
}

const KEYLESS: &str = "several nodes need a job key: make one with `phalanx store mint-key job.key` and give each node \
                       --key-file job.key, or say --insecure";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_node_that_listens_everywhere_is_where_the_others_have_found_it() {
        let master = |host: &str| Master { host: host.to_owned(), port: 7, is_ours: false };
        let seen = |host: &str, node: usize, store: &str| master(host).seen_from(node, &store.parse().unwrap());
        assert_eq!(seen("0.0.0.0", 1, "10.9.0.1:29400"), master("10.9.0.1"));
        assert_eq!(seen("::", 2, "node0:29400"), master("node0"));
        assert_eq!(seen("0.0.0.0", 0, "0.0.0.0:29400"), master("127.0.0.1"));
        assert_eq!(seen("::", 0, "[::]:29400"), master("::1"));
        assert_eq!(seen("10.9.0.1", 1, "node0:29400"), master("10.9.0.1"));
    }
}
