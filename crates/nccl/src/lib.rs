//! Collectives of device memory over NCCL, which is found at run time: nothing here is linked, and all of it builds and is tested
//! where there is no GPU.
//!
//! Two traits say what is asked of the libraries: [`api::Nccl`] and [`api::Cuda`]. The group stands on them alone, so it cannot
//! tell the real libraries from simulated ones.
//!
//! `unsafe` is for calling foreign functions; whoever does not call any says `forbid(unsafe_code)`.

pub mod api;
pub mod group;
pub mod kernels;
pub mod library;
pub mod sim;
