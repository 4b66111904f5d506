//! The stores of a job: where its ranks meet. Not what they keep there.

use std::net::{Ipv4Addr, TcpListener};

use crate::failure::Failure;

/// What ranks are told of the stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Addresses {
    /// The store for programs of ours.
    pub(super) keyed: Option<String>,
    /// The descriptor on which a rank finds the job key.
    pub(super) key_descriptor: Option<i32>,
    /// The store for PyTorch: its host, its port, and whether the launcher serves it rather than rank 0.
    pub(super) master_host: String,
    pub(super) master_port: u16,
    pub(super) master_is_ours: bool,
}

/// A port that was free a moment ago, for rank 0 to serve PyTorch's store on.
pub(super) fn free_port() -> Result<u16, Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let port = listener.and_then(|listener| listener.local_addr()).map(|address| address.port());
    port.map_err(|error| Failure::Stopped(format!("no free port on 127.0.0.1: {error}")))
}
