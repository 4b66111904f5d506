//! What the watch asks of the store, which all ranks share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use phalanx_comm::store::LocalStore;
use phalanx_core::store::{Home, Limits, Reply, Request, Store, StoreError};
use phalanx_core::{GroupOptions, Layout};
use phalanx_nccl::api::Process;
use phalanx_nccl::group::{DeviceGroup, NcclOptions, Stack};
use phalanx_nccl::sim::Simulation;

use crate::seats::DEVICE;

/// A store that counts what it is asked.
struct Counting {
    home: LocalStore,
    count: Arc<AtomicUsize>,
}

impl Home for Counting {
    fn ask(&self, request: Request, timeout: Duration) -> Result<Reply, StoreError> {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.home.ask(request, timeout)
    }

    fn describe(&self) -> String {
        "a store that counts".to_owned()
    }
}

#[test]
fn a_rank_of_many_asks_for_few_each_heartbeat() {
    let outcome = Simulation::new(1, 1).run(|rank| {
        let count = Arc::new(AtomicUsize::new(0));
        let store = Store::new(Counting { home: LocalStore::new(Limits::default()), count: Arc::clone(&count) });
        let stack = Stack::new(rank.nccl, rank.cuda, Arc::clone(&rank.process), DEVICE);
        let layout = Layout::one_host(0, 64).expect("a layout");
        let options = NcclOptions::default().heartbeat(Duration::from_millis(50));
        let group = DeviceGroup::new(stack, layout, store, options, GroupOptions::default()).expect("a group");
        let bell = rank.process.bell();
        while rank.process.now() < Duration::from_millis(50 * 20) {
            bell.wait(bell.count(), Some(rank.process.now() + Duration::from_millis(10)));
        }
        let asked = count.load(Ordering::Relaxed);
        drop(group);
        asked
    });
    let asked = outcome.results[0].expect("an end");
    assert!((10 * 18..=21 * 18).contains(&asked), "{asked} in 20 heartbeats");
}
