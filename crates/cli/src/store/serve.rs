//! `phalanx store serve`: a store for others, until a signal ends it.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use phalanx_comm::secure::JobKey;
use phalanx_comm::store::{ServerOptions, StoreAddress, StoreServer};

use crate::failure::Failure;

/// Serve a store
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Where to serve
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    bind: StoreAddress,

    /// File with the job key
    #[arg(long, value_name = "PATH")]
    key_file: Option<PathBuf>,

    /// The epoch that is served
    #[arg(long, value_name = "N", default_value_t = 0)]
    epoch: u32,
}

/// Serves.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut server = ServerOptions::new(options.bind.clone()).epoch(options.epoch);
    if let Some(path) = &options.key_file {
        server = server.key(JobKey::read_file(path).map_err(|error| Failure::Stopped(error.to_string()))?);
    }
    let server = StoreServer::start(server)?;
    writeln!(io::stdout().lock(), "listening on {}", server.address())?;
    loop {
        std::thread::park();
    }
}
