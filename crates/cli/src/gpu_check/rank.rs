//! One rank of a world that goes through the list: a process that says, a line each, how every trial ended.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use phalanx::{Layout, Store};
use phalanx_comm::store::{FileStore, FileStoreOptions};
use phalanx_nccl::api::Device;
use phalanx_nccl::conformance::{Candidate, trials};
use phalanx_nccl::group::Stack;
use phalanx_nccl::library::{CudaDriver, Machine, NcclLibrary, Nvrtc};
use serde_json::json;

use super::Places;
use crate::failure::Failure;
use crate::seconds::seconds;

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
    #[arg(long, value_parser = seconds)]
    timeout: Duration,
}

/// Goes through the list.
pub(crate) fn rank(role: &Role) -> Result<(), Failure> {
    let (cuda, device) = (Arc::new(CudaDriver::open(&role.places.search())?), Device(role.device));
    let nccl = Arc::new(NcclLibrary::open(&role.places.of_nccl(), Some(Arc::clone(&cuda)))?);
    let knows_nan_check =
        Nvrtc::open(&role.places.search()).and_then(|nvrtc| cuda.load_nan_check(device, &nvrtc)).is_ok();
    let stack = Stack::new(nccl, cuda, Arc::new(Machine::new()), device);
    let layout = Layout::one_host(role.rank, role.size)?;
    let store = Store::new(FileStore::open(&role.store, FileStoreOptions::new())?).with_timeout(role.timeout);
    let candidate = Candidate::new(stack, layout, store, role.timeout)?;
    let candidate = if knows_nan_check { candidate.knowing_nan_check() } else { candidate };
    for trial in trials() {
        let began = Instant::now();
        let (state, why) = match trial.run(&candidate) {
            Ok(None) => ("passed", None),
            Ok(skipped) => ("skipped", skipped),
            Err(why) => ("failed", Some(why)),
        };
        let took = began.elapsed().as_secs_f64();
        let line = json!({ "name": trial.name(), "state": state, "why": why, "seconds": took });
        writeln!(io::stdout().lock(), "{line}")?;
    }
    Ok(())
}
