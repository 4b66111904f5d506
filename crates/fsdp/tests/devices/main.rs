//! The engine on simulated devices: the same model as the tests on the host, its computation as kernels, over streams that one seed plays.

mod after;
mod card;
mod clip;
#[path = "../training/company.rs"]
#[allow(dead_code, reason = "some of it is for the tests on the host")]
mod company;
#[path = "../training/draw.rs"]
mod draw;
mod halved;
mod hooks;
mod job;
mod kernels;
mod memory;
mod mistakes;
#[path = "../training/model.rs"]
mod model;
mod one_queue;
mod overlap;
mod parity;
mod policies;
mod random;
mod refusals;
#[path = "../../../nccl/tests/jobs/seats.rs"]
#[allow(dead_code, reason = "groups are made in another way here")]
mod seats;
#[path = "../training/train.rs"]
#[allow(dead_code, reason = "some of it is for the tests on the host")]
mod train;
mod twice;
