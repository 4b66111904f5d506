//! Groups over NCCL in a world: on simulated cards, and asked for where there is neither a library nor a card.
#![cfg(feature = "nccl")]

use std::sync::Arc;

use phalanx::nccl::api::Device;
use phalanx::nccl::group::{NcclOptions, Stack};
use phalanx::nccl::library::Search;
use phalanx::nccl::sim::Simulation;
use phalanx::{Backends, ErrorKind, Joining, NcclMaker, ReduceOp, Store, Wiring, World, WorldOptions};
use phalanx_comm::store::LocalStore;

#[test]
fn a_worlds_group_is_on_the_device() {
    // A world of one: what the ranks of a larger one meet through is the same for every backend, and is tested with `comm`.
    let outcome = Simulation::new(1, 7).run(|rank| {
        let stack = Stack::new(rank.nccl, rank.cuda, rank.process, Device(0));
        let maker = NcclMaker::new(stack, NcclOptions::default());
        let world = alone(Backends::new().register("nccl", Arc::new(maker)).expect("free"));
        let group = world.wire(&Wiring::default().device("cuda")).expect("a group");
        let mut data = [3_i64; 4];
        group.all_reduce(&mut data, ReduceOp::Avg).expect("averaged");
        group.barrier().expect("all came");
        (data, world.groups().into_iter().map(|formed| formed.backend).collect::<Vec<_>>())
    });
    assert_eq!(outcome.results, [Some(([3; 4], vec!["nccl".to_owned()]))]);
    assert_eq!((outcome.findings.len(), outcome.left_over.len()), (0, 0));
}

#[test]
fn without_a_library_a_group_on_the_device_is_refused_and_the_host_goes_on() {
    let nowhere = Search::new().path("/nowhere/of/this/name");
    let maker = NcclMaker::installed(nowhere, Some(0), NcclOptions::default());
    let world = alone(Backends::new().register("nccl", Arc::new(maker)).expect("free"));
    let error = world.wire(&Wiring::default().device("cuda")).expect_err("there is none");
    assert_eq!(error.kind(), ErrorKind::Setup);
    let words = "the CUDA driver: cannot be used; tried /nowhere/of/this/name: ";
    assert!(error.to_string().starts_with(words), "{error}");
    let group = world.wire(&Wiring::default()).expect("the host's");
    group.barrier().expect("all came");
}

#[test]
fn a_world_that_is_joined_has_it_by_name_and_by_device() {
    let path = std::env::temp_dir().join(format!("phalanx-nccl-{}", std::process::id()));
    let url = format!("file://{}?rank=0&world_size=1", path.display());
    let world = Joining::url(&url).expect("a place").join().expect("a world");
    for wiring in [Wiring::default().device("cuda"), Wiring::default().backend("nccl")] {
        // Where there is a card, there is a group on it.
        match world.wire(&wiring) {
            Ok(group) => group.barrier().expect("all came"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Setup, "{error}"),
        }
    }
    drop(world);
    std::fs::remove_file(path).expect("the store's file");
}

fn alone(backends: Backends) -> World {
    let backends = backends.devices("cpu:host,cuda:nccl").expect("known");
    World::join(Store::new(LocalStore::default()), &WorldOptions::new(0, 1).backends(backends)).expect("a world")
}
