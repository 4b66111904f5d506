//! Sharded training over the loader: ranks are threads, each with libraries of its own, over stubs that move data and carry `f32`.

use std::sync::Arc;
use std::thread;

use phalanx_comm::store::LocalStore;
use phalanx_core::store::{Limits, Store};
use phalanx_fsdp::{Offload, Policy, Reshard};
use phalanx_nccl::api::Device;
use phalanx_nccl::group::Stack;
use phalanx_nccl::library::{CudaDriver, Machine, NcclLibrary, Program, Search};

use crate::halved::halved;
use crate::stub::Stub;

#[test]
fn a_model_is_trained_over_libraries_that_are_found() {
    let policies = [Policy::default(), Policy::default().reshard_after_forward(Reshard::No).offload(Offload::Host)];
    for (size, policy) in (1..=3).flat_map(|size| policies.iter().map(move |policy| (size, policy))) {
        let (nccl, driver, store) = (Stub::nccl(22_809), Stub::cuda(), LocalStore::new(Limits::default()));
        nccl.tell("stub_meet", 1);
        let train = |rank: usize| {
            let cuda = Arc::new(CudaDriver::open(&Search::new().path(&driver.path)).expect("the driver's stub"));
            let nccl =
                NcclLibrary::open(&Search::new().path(&nccl.path), Some(Arc::clone(&cuda))).expect("NCCL's stub");
            Program::new().load(&cuda, Device(0)).expect("kernels");
            let stack = Stack::new(Arc::new(nccl), cuda, Arc::new(Machine::new()), Device(0));
            let (got, wanted) = halved(stack, (rank, size), &Store::new(store.clone()), policy).expect("no error");
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
