//! The group as one of a world's backends: asked for by the kind of device.

use std::sync::Arc;

use phalanx_comm::rendezvous::{World, WorldOptions};
use phalanx_comm::store::LocalStore;
use phalanx_comm::{Backends, Wiring};
use phalanx_core::ReduceOp;
use phalanx_core::store::Store;
use phalanx_nccl::group::{NcclMaker, NcclOptions, Stack};
use phalanx_nccl::sim::Simulation;

use crate::seats::{DEVICE, clean};

#[test]
fn a_worlds_group_is_on_the_device() {
    // A world of one: what the ranks of a larger one meet through is the same for every backend, and is tested with `comm`.
    let outcome = Simulation::new(1, 7).run(|rank| {
        let stack = Stack::new(Arc::clone(&rank.nccl), Arc::clone(&rank.cuda), Arc::clone(&rank.process), DEVICE);
        let maker = NcclMaker::new(stack, NcclOptions::default());
        let backends = Backends::new().register("nccl", Arc::new(maker)).expect("free");
        let backends = backends.devices("cpu:host,cuda:nccl").expect("known");
        let options = WorldOptions::new(0, 1).backends(backends);
        let world = World::join(Store::new(LocalStore::default()), &options).expect("a world");
        let group = world.wire(&Wiring::default().device("cuda")).expect("a group");
        let mut data = [3_i64; 4];
        group.all_reduce(&mut data, ReduceOp::Avg).expect("averaged");
        group.barrier().expect("all came");
        (data, world.groups().into_iter().map(|formed| formed.backend).collect::<Vec<_>>())
    });
    assert_eq!(outcome.results, [Some(([3; 4], vec!["nccl".to_owned()]))]);
    clean(&outcome, 7);
}
