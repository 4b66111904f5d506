//! Collectives of device memory over NCCL, which is found at run time: nothing here is linked, and all of it builds and is tested
//! where there is no GPU.
//!
//! Two traits say what is asked of the libraries: [`api::Nccl`] and [`api::Cuda`]. The group stands on them alone, so it cannot
//! tell the real libraries from simulated ones.
//!
//! Here two simulated ranks add up what they have on their devices, and the seed decides in which order everything happens:
//!
//! ```
//! use phalanx_core::{DType, GroupOptions, Layout, Op, ReduceOp, Result};
//! use phalanx_nccl::api::{Cuda, Device};
//! use phalanx_nccl::group::{DeviceBuffer, DeviceGroup, NcclOptions, Stack};
//! use phalanx_nccl::sim::{SimRank, Simulation};
//!
//! fn program(rank: SimRank) -> Result<()> {
//!     let device = Device(0);
//!     let stack = Stack::new(rank.nccl, rank.cuda.clone(), rank.process, device);
//!     let layout = Layout::one_host(rank.rank, rank.size)?;
//!     let group = DeviceGroup::new(stack, layout, rank.store, NcclOptions::default(), GroupOptions::default())?;
//!     let stream = rank.cuda.create_stream(device, false).expect("a stream");
//!     let gradient = DeviceBuffer::new(&rank.cuda, device, 4 * 1024)?;
//!     rank.cuda.fill(gradient.span(), 0, stream).expect("filled");
//!     let op = Op::AllReduce { count: 1024, reduce: ReduceOp::Avg };
//!     let work = group.submit(op, DType::F32, None, (None, &gradient), stream)?;
//!     work.fence(stream)?; // what is submitted to the stream from now on sees the average
//!     work.wait()
//! }
//!
//! let outcome = Simulation::new(2, 7).run(program);
//! assert_eq!(outcome.results, [Some(Ok(())), Some(Ok(()))]);
//! assert!(outcome.findings.is_empty());
//! ```
//!
//! `unsafe` is for calling foreign functions and for memory that somebody else vouches for; whoever has neither says `forbid(unsafe_code)`.

mod adopt;
pub mod api;
pub mod conformance;
pub mod group;
pub mod kernels;
pub mod library;
mod register;
pub mod same_host;
pub mod sim;
