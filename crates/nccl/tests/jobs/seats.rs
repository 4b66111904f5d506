//! What every test of simulated jobs needs: seeds, a rank's group, and that a job went as it must.

use std::env;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use phalanx_core::{GroupOptions, Layout, Result};
use phalanx_nccl::api::Device;
use phalanx_nccl::group::{DeviceGroup, NcclOptions, Stack};
use phalanx_nccl::sim::{Outcome, SimCuda, SimNccl, SimProcess, SimRank};

pub(crate) type Group = DeviceGroup<SimNccl, SimCuda, SimProcess>;

pub(crate) const DEVICE: Device = Device(0);

/// The seeds to run: as few, as `PHALANX_TEST_SEEDS` says (`2000`), or those of a share of more (`500..1000`).
pub(crate) fn seeds(few: u64) -> Range<u64> {
    let Ok(text) = env::var("PHALANX_TEST_SEEDS") else { return 0..few };
    let (from, to) = text.split_once("..").unwrap_or(("0", &text));
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("PHALANX_TEST_SEEDS is {text:?}"));
    number(from)..number(to)
}

/// A group of a rank.
pub(crate) fn group(rank: &SimRank, scope: &str, options: NcclOptions) -> Result<Group> {
    let (nccl, cuda, process) = (Arc::clone(&rank.nccl), Arc::clone(&rank.cuda), Arc::clone(&rank.process));
    let layout = Layout::one_host(rank.rank, rank.size)?;
    let group = GroupOptions::default().timeout(Duration::from_secs(2));
    DeviceGroup::new(Stack::new(nccl, cuda, process, DEVICE), layout, rank.store.scope(scope), options, group)
}

/// That a job went as it must.
pub(crate) fn clean<T>(outcome: &Outcome<T>, seed: u64) {
    let found: Vec<String> = outcome.findings.iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "seed {seed}: {}", found.join("\n"));
    assert_eq!(outcome.left_over, Vec::<String>::new(), "seed {seed}");
    assert!(outcome.not_freed.iter().all(|&bytes| bytes == (0, 0)), "seed {seed}: {:?}", outcome.not_freed);
}
