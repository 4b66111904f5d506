//! `phalanx store serve`: a store of its own, until a signal ends it.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use phalanx_comm::secure::JobName;
use phalanx_comm::store::{ServerOptions, StoreAddress, StoreServer};
use phalanx_core::store::Limits;

use crate::failure::{Failure, printed};
use crate::run::process::signals;
use crate::{key, open_files, sizes};

/// Serve a store until SIGINT, SIGTERM, SIGHUP or SIGQUIT
///
/// Prints `listening on ADDRESS` once it serves. Without a key it speaks PyTorch's TCPStore protocol as well as ours, and
/// serves this machine only, unless --insecure is given. With a key it speaks ours, encrypted, to those who have the key.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Options {
    /// Where to serve: host:port, [v6]:port or unix:/path; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    bind: String,

    /// File with the job key; without it the key is looked for in PHALANX_KEY_FD, PHALANX_KEY_FILE and PHALANX_KEY
    #[arg(long, value_name = "PATH")]
    key_file: Option<PathBuf>,

    /// Serve other machines without a key: whoever reaches the port can read and change everything
    #[arg(long)]
    insecure: bool,

    /// Serve this job only
    #[arg(long, value_name = "ID")]
    job_id: Option<String>,

    /// Serve this epoch only
    #[arg(long, value_name = "N", default_value_t = 0)]
    epoch: u32,

    /// Most bytes of a value
    #[arg(long, value_name = "BYTES", default_value = "8M", value_parser = bytes)]
    max_value: usize,

    /// Most bytes that one client's entries may take; PyTorch's clients are bounded by --max-total alone
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = bytes)]
    max_client: usize,

    /// Most bytes that all entries may take
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = bytes)]
    max_total: usize,
}

/// Serves.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    // Handlers come first: who reads the first line may send a signal at once.
    let signals = signals::listen(&signals::ending());
    let mut signals = signals.map_err(|error| Failure::Stopped(format!("signal handlers: {error}")))?;
    // Each client takes one.
    open_files::raise();
    let server = StoreServer::start(options.server()?);
    let server = server.map_err(|error| Failure::Stopped(key::name_flags(&error.to_string())))?;
    let mut out = io::stdout().lock();
    let announced = writeln!(out, "listening on {}", server.address()).and_then(|()| out.flush());
    match options.address()? {
        // The system chose, and whoever does not hear it now will never know.
        StoreAddress::Tcp { port: 0, .. } => announced.map_err(|error| Failure::output(&error))?,
        _ => printed(announced)?,
    }
    // Any of them is a wish to end, and ending so is a success.
    signals.forever().next();
    Ok(())
}

impl Options {
    /// Where to serve, as that was asked for.
    fn address(&self) -> Result<StoreAddress, Failure> {
        self.bind.parse().map_err(|error| Failure::Usage(format!("--bind: {error}")))
    }

    fn server(&self) -> Result<ServerOptions, Failure> {
        let limits = Limits::default().value(self.max_value).client(self.max_client).total(self.max_total);
        // One message holds a value and its key.
        let limits = limits.message(limits.message_byte_len().max(self.max_value.saturating_add(MESSAGE_ROOM)));
        let mut options = ServerOptions::new(self.address()?).epoch(self.epoch).insecure(self.insecure).limits(limits);
        if let Some(job) = &self.job_id {
            options = options.job(JobName::new(job).map_err(|error| Failure::Usage(error.to_string()))?);
        }
        Ok(match key::find(self.key_file.as_deref())? {
            Some(key) => options.key(key),
            None => options,
        })
    }
}

fn bytes(text: &str) -> Result<usize, String> {
    match text.parse::<sizes::Sizes>()?.0[..] {
        [size] if size > 0 => Ok(size),
        _ => Err(format!("'{text}' must be one size above 0")),
    }
}

const MESSAGE_ROOM: usize = 1 << 20;

const EXAMPLES: &str = "\
Exit codes:
  0  a signal ended it
  1  it could not serve, or could tell nobody which free port it took
  2  the command line could not be understood

Examples:
  phalanx store serve --bind 127.0.0.1:29500
  phalanx store serve --bind 10.0.0.1:29400 --key-file job.key --max-total 1G";
