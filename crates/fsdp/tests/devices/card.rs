//! The engine without a kernel of the program's own, over whatever libraries: simulated ones here, those of a card where there is one.

use std::sync::Arc;

use phalanx_comm::store::LocalStore;
use phalanx_core::DType;
use phalanx_core::store::{Limits, Store};
use phalanx_fsdp::{Offload, Policy};
use phalanx_nccl::group::Stack;
use phalanx_nccl::library::{CudaDriver, Machine};
use phalanx_nccl::sim::Simulation;

use crate::halved::halved;
use crate::seats::{DEVICE, clean, seeds};
use place::{compiler, device, nccl, programs, search};

#[path = "../../../nccl/tests/jobs/place.rs"]
mod place;

fn policies() -> Vec<Policy> {
    let plain = Policy::default;
    let all = [plain(), plain().compute(DType::BF16).reduce(DType::F32), plain().compute(DType::F16)];
    all.into_iter().flat_map(|policy| [policy.clone(), policy.offload(Offload::Host)]).collect()
}

#[test]
fn weights_that_are_their_own_gradients_are_halved_each_step() {
    for (world, policy) in (1..=3).flat_map(|world| policies().into_iter().map(move |policy| (world, policy))) {
        for seed in seeds(1) {
            let policy = policy.clone();
            let outcome = Simulation::new(world, seed).run(move |rank| {
                let stack = Stack::new(rank.nccl, rank.cuda, rank.process, DEVICE);
                halved(stack, (rank.rank, rank.size), &rank.store, &policy)
            });
            clean(&outcome, seed);
            for end in outcome.results {
                let (got, wanted) = end.expect("an end").expect("no error");
                assert!(got == wanted, "world {world}, seed {seed}");
            }
        }
    }
}

#[test]
#[ignore = "needs a card with NCCL"]
fn weights_are_halved_on_a_card() {
    let cuda = Arc::new(CudaDriver::open(&search()).expect("the driver"));
    let Some(nccl) = nccl(&cuda).map(Arc::new) else { return };
    let compiler = compiler();
    for program in programs(compiler.as_ref()) {
        place::load(&program, &cuda);
        for policy in policies() {
            let (nccl, cuda, process) = (Arc::clone(&nccl), Arc::clone(&cuda), Arc::new(Machine::new()));
            let store = Store::new(LocalStore::new(Limits::default()));
            let (got, wanted) =
                halved(Stack::new(nccl, cuda, process, device()), (0, 1), &store, &policy).expect("no error");
            assert!(got == wanted, "{program:?}, {policy:?}");
        }
    }
}
