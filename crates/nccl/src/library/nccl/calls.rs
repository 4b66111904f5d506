//! Every call that is asked of NCCL, as the installed library is called.

use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::ptr;

use super::NcclLibrary;
use super::member::{Known, Member, Shape, Slot};
use super::reach::{answer, made, room};
use super::refusal::Refusal;
use super::table::{Opaque, RawId, Simulation};
use crate::api::{
    Comm, CommConfig, DataType, Device, Growth, MemoryStat, Nccl, RedOp, Registration, Route, Scalar, Span, Status,
    Transfer, UniqueId, Version, Window,
};
use crate::register::locked;

impl Nccl for NcclLibrary {
    fn version(&self) -> Result<Version, Status> {
        Ok(self.version)
    }

    fn error_text(&self, status: Status) -> String {
        if status.is_absent() {
            return format!("NCCL {} has no such function", self.version);
        }
        // SAFETY: any number may be asked for.
        let ask = self.functions.error_string.call.map(|call| move || unsafe { call(status.0) });
        format!("{} ({})", self.text(ask), status.0)
    }

    fn last_error(&self, comm: Option<Comm>) -> String {
        if let Some(refusal) = Refusal::last() {
            return refusal.words(self.version);
        }
        let pointer = comm.and_then(|comm| self.pointer(comm).ok()).unwrap_or(ptr::null_mut());
        Refusal::clear();
        // SAFETY: a communicator that is there, or none.
        self.text(self.functions.last_error.call.map(|call| move || unsafe { call(pointer) }))
    }

    fn unique_id(&self) -> Result<UniqueId, Status> {
        let mut id = RawId([0; 128]);
        // SAFETY: room for one id.
        let status = self.ask(&self.functions.get_unique_id, &mut id, |call, id| unsafe { call(id) });
        answer(status, UniqueId(id.0))
    }

    fn init(&self, device: Device, rank: i32, size: i32, id: &UniqueId, config: &CommConfig) -> (Status, Comm) {
        let member = Member::new(Slot::new(), device, Some(Shape { rank, size }), None);
        let (id, mut image) = (RawId(id.0), self.image(config));
        self.make(member, |place| {
            // SAFETY: a place that stays, and a configuration of this version.
            self.call(&self.functions.init, |call| unsafe { call(place, size, id, rank, image.pointer()) })
        })
    }

    fn init_scalable(
        &self,
        device: Device,
        rank: i32,
        size: i32,
        ids: &[UniqueId],
        config: &CommConfig,
    ) -> (Status, Comm) {
        let member = Member::new(Slot::new(), device, Some(Shape { rank, size }), None);
        let mut raw: Vec<RawId> = ids.iter().map(|id| RawId(id.0)).collect();
        let (count, mut image) = (c_int::try_from(raw.len()).unwrap_or(c_int::MAX), self.image(config));
        self.make(member, |place| {
            self.call(&self.functions.init_scalable, |call| {
                // SAFETY: a place that stays, as many ids as are said, and a configuration of this version.
                unsafe { call(place, size, rank, count, raw.as_mut_ptr(), image.pointer()) }
            })
        })
    }

    fn split(&self, comm: Comm, colour: Option<i32>, key: i32, config: &CommConfig) -> (Status, Comm) {
        if colour.is_some_and(|colour| colour < 0) {
            return (Refusal::Unknown("colour").note(), Comm::NONE);
        }
        let Ok(parent) = self.member(comm) else { return (Status::INVALID_ARGUMENT, Comm::NONE) };
        let mut image = self.image(config);
        let (status, child) = self.derive(parent, |pointer, place| {
            self.call(&self.functions.split, |call| {
                // SAFETY: a communicator that is there, a place that stays, and a configuration of this version.
                unsafe { call(pointer, colour.unwrap_or(NO_COLOUR), key, place, image.pointer()) }
            })
        });
        if colour.is_none() {
            self.comms.take(child.number());
            return (status, Comm::NONE);
        }
        (status, child)
    }

    fn shrink(&self, comm: Comm, without: &[i32], config: &CommConfig, after_error: bool) -> (Status, Comm) {
        let Ok(parent) = self.member(comm) else { return (Status::INVALID_ARGUMENT, Comm::NONE) };
        let (mut image, mut without) = (self.image(config), without.to_vec());
        let count = c_int::try_from(without.len()).unwrap_or(c_int::MAX);
        self.derive(parent, |pointer, place| {
            self.call(&self.functions.shrink, |call| {
                let (without, flags) = (without.as_mut_ptr(), c_int::from(after_error));
                // SAFETY: as in `split`, and as many ranks as are said, which the library sorts where they are.
                unsafe { call(pointer, without, count, place, image.pointer(), flags) }
            })
        })
    }

    fn grow(&self, who: Growth<'_>, size: i32, config: &CommConfig) -> (Status, Comm) {
        let mut image = self.image(config);
        let mut run = |pointer, id: Option<&RawId>, rank, place| {
            let id = id.map_or(ptr::null(), ptr::from_ref);
            self.call(&self.functions.grow, |call| {
                // SAFETY: as in `split`, or no communicator, and an id or none.
                unsafe { call(pointer, size, id, rank, place, image.pointer()) }
            })
        };
        match who {
            Growth::Member { comm, id } => {
                let Ok(parent) = self.member(comm) else { return (Status::INVALID_ARGUMENT, Comm::NONE) };
                let id = id.map(|id| RawId(id.0));
                self.derive(parent, |pointer, place| run(pointer, id.as_ref(), KEEPS_ITS_RANK, place))
            }
            Growth::Newcomer { device, rank, id } => {
                let member = Member::new(Slot::new(), device, Some(Shape { rank, size }), None);
                self.make(member, |place| run(ptr::null_mut(), Some(&RawId(id.0)), rank, place))
            }
        }
    }

    fn unique_id_of(&self, comm: Comm) -> Result<UniqueId, Status> {
        let (pointer, mut id) = (self.pointer(comm)?, RawId([0; 128]));
        // SAFETY: a communicator that is there, and room for one id.
        let status = self.ask(&self.functions.unique_id_of, &mut id, |call, id| unsafe { call(pointer, id) });
        answer(status, UniqueId(id.0))
    }

    fn count(&self, comm: Comm) -> Result<i32, Status> {
        self.number(comm, &self.functions.count)
    }

    fn rank(&self, comm: Comm) -> Result<i32, Status> {
        self.number(comm, &self.functions.rank)
    }

    fn device(&self, comm: Comm) -> Result<Device, Status> {
        self.number(comm, &self.functions.device).map(Device)
    }

    fn async_error(&self, comm: Comm) -> Result<Status, Status> {
        self.state(&*self.member(comm)?)
    }

    fn finalize(&self, comm: Comm) -> Status {
        self.of(comm, &self.functions.finalize)
    }

    fn destroy(&self, comm: Comm) -> Status {
        self.end(comm, &self.functions.destroy)
    }

    fn abort(&self, comm: Comm) -> Status {
        self.end(comm, &self.functions.abort)
    }

    fn revoke(&self, comm: Comm) -> Status {
        let run = |pointer| {
            // SAFETY: a communicator that is there; no flags exist yet.
            self.call(&self.functions.revoke, |call| unsafe { call(pointer, 0) })
        };
        self.pointer(comm).map_or_else(|status| status, run)
    }

    fn group_start(&self) -> Status {
        // SAFETY: it takes nothing.
        self.call(&self.functions.group_start, |call| unsafe { call() })
    }

    fn group_end(&self) -> Status {
        // SAFETY: it takes nothing.
        self.call(&self.functions.group_end, |call| unsafe { call() })
    }

    fn group_simulate_end(&self) -> Result<f32, Status> {
        let mut told = Simulation {
            size: size_of::<Simulation>(),
            magic: SIMULATION_MAGIC,
            version: self.version.code(),
            microseconds: -1.0,
        };
        // SAFETY: the structure that it fills, with its size and version.
        let status = self.ask(&self.functions.group_simulate_end, &mut told, |call, told| unsafe { call(told) });
        answer(status, told.microseconds)
    }

    fn all_reduce(&self, what: Transfer, op: RedOp, on: Route) -> Status {
        let Transfer { count, dtype, .. } = what;
        self.submit(on, |comm, stream, _| {
            let (send, recv) = rooms(what, count, count)?;
            // SAFETY: memory that holds what is moved, a communicator and a stream that are there.
            self.issue(&self.functions.all_reduce, |call| unsafe {
                call(send, recv, count, dtype.0, op.0, comm, stream)
            })
        })
    }

    fn broadcast(&self, what: Transfer, root: i32, on: Route) -> Status {
        let Transfer { count, dtype, .. } = what;
        self.submit(on, |comm, stream, shape| {
            let (send, recv) = rooms(what, where_so(shape.rank == root, count), count)?;
            // SAFETY: as in `all_reduce`; what is given matters on the root.
            self.issue(&self.functions.broadcast, |call| unsafe {
                call(send, recv, count, dtype.0, root, comm, stream)
            })
        })
    }

    fn reduce(&self, what: Transfer, op: RedOp, root: i32, on: Route) -> Status {
        let Transfer { count, dtype, .. } = what;
        self.submit(on, |comm, stream, shape| {
            let (send, recv) = rooms(what, count, where_so(shape.rank == root, count))?;
            self.issue(&self.functions.reduce, |call| {
                // SAFETY: as in `all_reduce`; what is taken matters on the root.
                unsafe { call(send, recv, count, dtype.0, op.0, root, comm, stream) }
            })
        })
    }

    fn all_gather(&self, what: Transfer, on: Route) -> Status {
        let Transfer { count, dtype, .. } = what;
        self.submit(on, |comm, stream, shape| {
            let (send, recv) = rooms(what, count, shape.all(count))?;
            // SAFETY: as in `all_reduce`.
            self.issue(&self.functions.all_gather, |call| unsafe { call(send, recv, count, dtype.0, comm, stream) })
        })
    }

    fn reduce_scatter(&self, what: Transfer, op: RedOp, on: Route) -> Status {
        let Transfer { count, dtype, .. } = what;
        self.submit(on, |comm, stream, shape| {
            let (send, recv) = rooms(what, shape.all(count), count)?;
            // SAFETY: as in `all_reduce`.
            self.issue(&self.functions.reduce_scatter, |call| unsafe {
                call(send, recv, count, dtype.0, op.0, comm, stream)
            })
        })
    }

    fn send(&self, what: Transfer, peer: i32, on: Route) -> Status {
        let Transfer { send, count, dtype, .. } = what;
        self.submit(on, |comm, stream, _| {
            let send = room(send, dtype, count)?;
            // SAFETY: as in `all_reduce`.
            self.issue(&self.functions.send, |call| unsafe { call(send, count, dtype.0, peer, comm, stream) })
        })
    }

    fn recv(&self, what: Transfer, peer: i32, on: Route) -> Status {
        let Transfer { recv, count, dtype, .. } = what;
        self.submit(on, |comm, stream, _| {
            let recv = room(recv, dtype, count)?;
            // SAFETY: as in `all_reduce`.
            self.issue(&self.functions.recv, |call| unsafe { call(recv, count, dtype.0, peer, comm, stream) })
        })
    }

    fn all_to_all(&self, what: Transfer, on: Route) -> Status {
        let Transfer { count, dtype, .. } = what;
        self.submit(on, |comm, stream, shape| {
            let (send, recv) = rooms(what, shape.all(count), shape.all(count))?;
            // SAFETY: as in `all_reduce`.
            self.issue(&self.functions.all_to_all, |call| unsafe { call(send, recv, count, dtype.0, comm, stream) })
        })
    }

    fn gather(&self, what: Transfer, root: i32, on: Route) -> Status {
        let Transfer { count, dtype, .. } = what;
        self.submit(on, |comm, stream, shape| {
            let (send, recv) = rooms(what, count, where_so(shape.rank == root, shape.all(count)))?;
            // SAFETY: as in `reduce`.
            self.issue(&self.functions.gather, |call| unsafe { call(send, recv, count, dtype.0, root, comm, stream) })
        })
    }

    fn scatter(&self, what: Transfer, root: i32, on: Route) -> Status {
        let Transfer { count, dtype, .. } = what;
        self.submit(on, |comm, stream, shape| {
            let (send, recv) = rooms(what, where_so(shape.rank == root, shape.all(count)), count)?;
            // SAFETY: as in `broadcast`.
            self.issue(&self.functions.scatter, |call| unsafe { call(send, recv, count, dtype.0, root, comm, stream) })
        })
    }

    fn create_pre_mul_sum(&self, scalar: Scalar, dtype: DataType, comm: Comm) -> Result<RedOp, Status> {
        let (pointer, mut op) = (self.pointer(comm)?, 0);
        // Aligned for every type that it may hold.
        let mut host = match scalar {
            Scalar::Host(bytes) => u64::from_ne_bytes(bytes),
            Scalar::Device(_) => 0,
        };
        let (scalar, residence) = match scalar {
            Scalar::Host(_) => (ptr::from_mut(&mut host).cast(), RESIDES_ON_HOST),
            Scalar::Device(span) => (room(span, dtype, 1)?, RESIDES_ON_DEVICE),
        };
        let status = self.ask(&self.functions.create_pre_mul_sum, &mut op, |call, op| {
            // SAFETY: room for one number, and one element: in eight bytes here, or in memory that holds one.
            unsafe { call(op, scalar, dtype.0, residence, pointer) }
        });
        answer(status, RedOp(op))
    }

    fn destroy_op(&self, op: RedOp, comm: Comm) -> Status {
        let run = |pointer| {
            // SAFETY: a communicator that is there, which knows its reductions.
            self.call(&self.functions.destroy_op, |call| unsafe { call(op.0, pointer) })
        };
        self.pointer(comm).map_or_else(|status| status, run)
    }

    fn allocate(&self, device: Device, byte_len: usize) -> Result<Span, Status> {
        let mut address: Opaque = ptr::null_mut();
        // SAFETY: room for an address.
        let run = || self.ask(&self.functions.allocate, &mut address, |call, at| unsafe { call(at, byte_len) });
        let status = self.on(device, run)?;
        let span = Span::new(address.addr() as u64, byte_len);
        answer(status, ())?;
        locked(&self.allocations).insert(span.address(), (device, byte_len));
        Ok(span)
    }

    fn free(&self, span: Span) -> Status {
        let mut allocations = locked(&self.allocations);
        let Some((device, _)) = allocations.get(&span.address()).copied().filter(|(_, len)| *len == span.byte_len())
        else {
            return Refusal::Unknown("memory").note();
        };
        allocations.remove(&span.address());
        drop(allocations);
        let address = ptr::without_provenance_mut(span.address() as usize);
        // SAFETY: what `allocate` gave, and nobody has freed.
        let run = || self.call(&self.functions.free, |call| unsafe { call(address) });
        self.on(device, run).unwrap_or_else(|status| status)
    }

    fn register(&self, comm: Comm, span: Span) -> Result<Registration, Status> {
        let member = self.member(comm)?;
        let (pointer, handle) = (made(&member)?, Slot::new());
        let address = ptr::without_provenance_mut(span.address() as usize);
        let run = || {
            self.call(&self.functions.register, |call| {
                // SAFETY: a communicator that is there, memory and its length, and a place that stays.
                unsafe { call(pointer, address, span.byte_len(), handle.place()) }
            })
        };
        answer(self.on(member.device, run)?, ())?;
        Ok(Registration::new(self.registrations.enter(Known { comm, handle })))
    }

    fn deregister(&self, comm: Comm, registration: Registration) -> Status {
        self.forget(comm, registration.number(), &self.registrations, &self.functions.deregister)
    }

    fn register_window(&self, comm: Comm, span: Span, symmetric: bool) -> (Status, Option<Window>) {
        let there = self.member(comm).and_then(|member| Ok((made(&member)?, member.device)));
        let (pointer, device) = match there {
            Ok(there) => there,
            Err(status) => return (status, None),
        };
        let handle = Slot::new();
        let address = ptr::without_provenance_mut(span.address() as usize);
        let run = || {
            self.call(&self.functions.register_window, |call| {
                // SAFETY: a communicator that is there, memory and its length, and a place that stays.
                unsafe { call(pointer, address, span.byte_len(), handle.place(), c_int::from(symmetric)) }
            })
        };
        let status = self.on(device, run).unwrap_or_else(|status| status);
        let begun = status.is_success() || status.is_in_progress();
        (status, begun.then(|| Window::new(self.windows.enter(Known { comm, handle }))))
    }

    fn is_open(&self, window: Window) -> bool {
        self.windows.find(window.number()).is_some_and(|known| !known.handle.get().is_null())
    }

    fn deregister_window(&self, comm: Comm, window: Window) -> Status {
        if !self.is_open(window) && self.windows.find(window.number()).is_some_and(|known| known.comm == comm) {
            // Of one that it did not open, the library knows nothing.
            self.windows.take(window.number());
            return Status::SUCCESS;
        }
        self.forget(comm, window.number(), &self.windows, &self.functions.deregister_window)
    }

    fn suspend(&self, comm: Comm) -> Status {
        let run = |pointer| {
            // SAFETY: a communicator that is there.
            self.call(&self.functions.suspend, |call| unsafe { call(pointer, SUSPEND_MEMORY) })
        };
        self.pointer(comm).map_or_else(|status| status, run)
    }

    fn resume(&self, comm: Comm) -> Status {
        self.of(comm, &self.functions.resume)
    }

    fn memory_stat(&self, comm: Comm, stat: MemoryStat) -> Result<u64, Status> {
        let (pointer, mut value) = (self.pointer(comm)?, 0);
        let status = self.ask(&self.functions.memory_stat, &mut value, |call, value| {
            // SAFETY: a communicator that is there, and room for one number.
            unsafe { call(pointer, stat.0, value) }
        });
        answer(status, value)
    }
}

/// Memory for so many elements that are sent, and so many that are received.
fn rooms(what: Transfer, sent: usize, received: usize) -> Result<(*mut c_void, *mut c_void), Status> {
    Ok((room(what.send, what.dtype, sent)?, room(what.recv, what.dtype, received)?))
}

/// How many elements matter to a rank.
fn where_so(matters: bool, count: usize) -> usize {
    if matters { count } else { 0 }
}

/// `NCCL_SPLIT_NOCOLOR`.
const NO_COLOUR: c_int = -1;
/// The rank that a member of a growing communicator gives.
const KEEPS_ITS_RANK: c_int = -1;
/// `ncclScalarDevice`.
const RESIDES_ON_DEVICE: c_int = 0;
/// `ncclScalarHostImmediate`.
const RESIDES_ON_HOST: c_int = 1;
/// `NCCL_SUSPEND_MEM`.
const SUSPEND_MEMORY: c_int = 1;
/// The magic number of `ncclSimInfo_t`.
const SIMULATION_MAGIC: u32 = 0x7468_5283;
