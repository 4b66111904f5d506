//! The transport of one host by the loader of the driver: what it asks of the driver crosses, and all of it is given back. The stub's devices are
//! memory of this process, so ranks are threads, each with a driver of its own; what the group does is the conformance suite's matter.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use phalanx_comm::store::LocalStore;
use phalanx_core::store::{Limits, Store};
use phalanx_core::{GroupOptions, Layout, Message, ReduceOp, Reduction};
use phalanx_nccl::api::Device;
use phalanx_nccl::group::{DeviceGroup, NcclOptions, Stack};
use phalanx_nccl::library::{CudaDriver, Machine, Program, Search};
use phalanx_nccl::same_host::SameHost;

use crate::groups::parts_cross;
use crate::stub::{Stub, all_is_given_back};

const DEVICE: Device = Device(0);

#[test]
fn collectives_and_messages_cross_without_nccl() {
    for size in [1, 2, 4] {
        let (driver, store) = (Stub::cuda(), LocalStore::new(Limits::default()));
        let ran = &|rank: usize| {
            let cuda = Arc::new(CudaDriver::open(&Search::new().path(&driver.path)).expect("the driver's stub"));
            Program::new().load(&cuda, DEVICE).expect("kernels");
            let (process, store) = (Arc::new(Machine::new()), Store::new(store.clone()));
            let transport =
                SameHost::new(Arc::clone(&cuda), Arc::clone(&process), store.scope("same-host")).piece(1024);
            let transport = Arc::new(transport);
            let stack = Stack::new(Arc::clone(&transport), cuda, process, DEVICE);
            let layout = Layout::one_host(rank, size).expect("a layout");
            let options = GroupOptions::default().timeout(Duration::from_secs(30));
            let group = DeviceGroup::new(stack, layout, store, NcclOptions::default(), options).expect("a group");
            let host = group.group();
            let mut data = vec![rank as f32 + 1.0; 5000];
            host.all_reduce(&mut data, ReduceOp::Sum).expect("summed");
            let sum = (size * (size + 1) / 2) as f32;
            assert_eq!(data, vec![sum; 5000]);
            host.all_reduce(&mut data, Reduction::scaled(0.5)).expect("summed");
            assert_eq!(data, vec![sum * size as f32 / 2.0; 5000]);
            // A row for each rank, which goes in several pieces.
            let (given, mut part) =
                ((0..601 * size).map(|at| (at + rank) as i32).collect::<Vec<_>>(), vec![0_i32; 601]);
            host.reduce_scatter(&given, &mut part, ReduceOp::Sum).expect("scattered");
            let summed = |at: usize| (size * (601 * rank + at) + size * (size - 1) / 2) as i32;
            assert_eq!(part, (0..601).map(summed).collect::<Vec<_>>());
            parts_cross(host, rank, size);
            let mut own = vec![rank as u8; 3000];
            host.broadcast(&mut own, size - 1).expect("given");
            assert_eq!(own, vec![size as u8 - 1; 3000]);
            if size > 1 {
                let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
                let send = Message::Send { data: vec![rank as u32; 2000], to: next, tag: 0 };
                let recv = Message::Recv { data: vec![0; 2000], from: Some(before), tag: 0 };
                let crossed = host.batch(vec![send, recv]).expect("exchanged");
                assert_eq!(crossed[1].data, vec![before as u32; 2000]);
            }
            transport
        };
        let transports: Vec<_> = thread::scope(|scope| {
            let ranks: Vec<_> = (0..size).map(|rank| scope.spawn(move || ran(rank))).collect();
            ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
        });
        // The threads of groups give all memory, streams and events back, in their own time.
        all_is_given_back(|| driver.ask("stub_alive"));
        assert!(transports.iter().all(|transport| transport.kept() == 0));
    }
}
