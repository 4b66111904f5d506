//! One rank of a world that goes through the list: a process that says, a line each, how every trial ended.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use phalanx::{Layout, Store};
use phalanx_comm::store::{FileStore, FileStoreOptions};
use phalanx_nccl::api::{Device, Nccl};
use phalanx_nccl::conformance::{Candidate, trials};
use phalanx_nccl::group::Stack;
use phalanx_nccl::library::{CudaDriver, Machine, NcclLibrary, Nvrtc, Program};
use phalanx_nccl::same_host::SameHost;
use serde_json::json;

use super::Places;
use crate::failure::{Failure, printed};
use crate::seconds::seconds_above_zero;

/// Which rank, where its ranks meet, and on which card.
#[derive(Args, Debug)]
pub(crate) struct Role {
    #[command(flatten)]
    places: Places,
    #[arg(long)]
    rank: usize,
    #[arg(long)]
    size: usize,
    #[arg(long)]
    store: PathBuf,
    #[arg(long)]
    device: i32,
    /// Without NCCL, by the transport of one host
    #[arg(long)]
    same_host: bool,
    #[arg(long, value_parser = seconds_above_zero)]
    timeout: Duration,
}

/// Goes through the list.
pub(crate) fn rank(role: &Role) -> Result<(), Failure> {
    let (cuda, device) = (Arc::new(CudaDriver::open(&role.places.search())?), Device(role.device));
    let process = Arc::new(Machine::new());
    let store = Store::new(FileStore::open(&role.store, FileStoreOptions::new())?).with_timeout(role.timeout);
    if role.same_host {
        Program::new().load(&cuda, device)?;
        let transport = SameHost::new(Arc::clone(&cuda), Arc::clone(&process), store.scope("same-host"));
        return go_through(role, Stack::new(Arc::new(transport), cuda, process, device), store);
    }
    let nccl = NcclLibrary::open(&role.places.of_nccl(), Some(Arc::clone(&cuda)))?;
    go_through(role, Stack::new(Arc::new(nccl), cuda, process, device), store)
}

fn go_through<N: Nccl>(role: &Role, stack: Stack<N, CudaDriver, Machine>, store: Store) -> Result<(), Failure> {
    let compiler = Nvrtc::open(&role.places.search()).ok();
    let nan_check = Program::new().compiler(compiler.as_ref()).load_nan_check(stack.cuda(), stack.device());
    let layout = Layout::one_host(role.rank, role.size)?;
    let candidate = Candidate::new(stack, layout, store, role.timeout)?;
    let candidate = match nan_check {
        Ok(_) => candidate.knowing_nan_check(),
        Err(why) => candidate.lacking_nan_check(why.to_string()),
    };
    for trial in trials() {
        let began = Instant::now();
        let (state, why) = match trial.run(&candidate) {
            Ok(None) => ("passed", None),
            Ok(skipped) => ("skipped", skipped),
            Err(why) => ("failed", Some(why)),
        };
        let took = began.elapsed().as_secs_f64();
        let line = json!({ "name": trial.name(), "state": state, "why": why, "seconds": took });
        printed(writeln!(io::stdout().lock(), "{line}"))?;
    }
    // The end of the process would take threads out of the middle of the libraries.
    Ok(candidate.leave()?)
}
