//! Sharded training over the loader: ranks are threads, each with libraries of its own, over stubs that move data and carry `f32`; and without
//! NCCL, by the transport of one host.

use std::sync::Arc;
use std::thread;

use phalanx_comm::store::LocalStore;
use phalanx_core::store::{Limits, Store};
use phalanx_fsdp::{Offload, Policy, Reshard};
use phalanx_nccl::api::{Device, Nccl};
use phalanx_nccl::group::Stack;
use phalanx_nccl::library::{CudaDriver, Machine, NcclLibrary, Program, Search};
use phalanx_nccl::same_host::SameHost;

use crate::halved::halved;
use crate::stub::Stub;

const DEVICE: Device = Device(0);

/// A rank's driver, its process, and its way to the store of all.
type Rank = (Arc<CudaDriver>, Arc<Machine>, Store);

/// Trains in worlds of several sizes under several policies, where `library` makes what a rank has in NCCL's place.
fn trained<N: Nccl>(library: impl Fn(&Rank) -> N + Sync) {
    let policies = [Policy::default(), Policy::default().reshard_after_forward(Reshard::No).offload(Offload::Host)];
    for (size, policy) in (1..=3).flat_map(|size| policies.iter().map(move |policy| (size, policy))) {
        let (driver, store) = (Stub::cuda(), LocalStore::new(Limits::default()));
        let train = |rank: usize| {
            let cuda = Arc::new(CudaDriver::open(&Search::new().path(&driver.path)).expect("the driver's stub"));
            Program::new().load(&cuda, DEVICE).expect("kernels");
            let own = (cuda, Arc::new(Machine::new()), Store::new(store.clone()));
            let nccl = library(&own);
            let (cuda, process, store) = own;
            let stack = Stack::new(Arc::new(nccl), cuda, process, DEVICE);
            let (got, wanted) = halved(stack, (rank, size), &store, policy).expect("no error");
            assert!(got == wanted, "rank {rank} of {size}, {policy:?}");
        };
        thread::scope(|scope| {
            for rank in 0..size {
                let train = &train;
                scope.spawn(move || train(rank));
            }
        });
    }
}

#[test]
fn a_model_is_trained_over_libraries_that_are_found() {
    let nccl = Stub::nccl(22_809);
    nccl.tell("stub_meet", 1);
    trained(|(cuda, ..)| {
        NcclLibrary::open(&Search::new().path(&nccl.path), Some(Arc::clone(cuda))).expect("NCCL's stub")
    });
}

#[test]
fn a_model_is_trained_without_nccl() {
    trained(|(cuda, process, store)| {
        SameHost::new(Arc::clone(cuda), Arc::clone(process), store.scope("same-host")).piece(1024)
    });
}
