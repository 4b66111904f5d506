//! One step: each unit's shard is copied into a staging buffer, gathered one unit ahead, used, and its gradient is reduced, scattered and
//! offloaded to the host.

use std::sync::Arc;
use std::time::Duration;

use phalanx_core::{Counts, DType, Op, ReduceOp};
use phalanx_nccl::api::{Argument, Cuda, Event, EventKind, Grid, KernelId, Process, Stream};
use phalanx_nccl::group::{DeviceBuffer, DeviceWork, NcclOptions, PinnedBuffer};
use phalanx_nccl::kernels;
use phalanx_nccl::sim::{SimCuda, SimNccl, SimProcess, SimRank};

use crate::seats::{DEVICE, Group, group};

type Memory = DeviceBuffer<SimCuda>;

/// Units of the model.
pub(crate) const UNITS: usize = 4;
/// Elements of a rank's shard of a unit.
const SHARD: usize = 3;

/// A mistake in the order of things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// None of the program's own: one is planted elsewhere.
    None,
    /// The unit is used before its gather has ended: the compute stream does not wait for the collective.
    UseBeforeGather,
    /// The gather begins before the copy into its input has ended: it is submitted after the wrong stream.
    GatherBeforeCopyIn,
    /// A staging buffer is filled again while the gather before still reads it.
    StagingUsedTwice,
    /// The full parameters' memory is taken for the next unit while the compute stream still reads it.
    FullReusedEarly,
    /// The gradient is reduced before it was computed.
    ReduceBeforeGradient,
    /// The offload copies what the reduction has not written yet.
    OffloadBeforeReduce,
    /// The offload's copy goes on a stream that waits for nothing.
    OffloadOnWrongStream,
    /// The host reads the offloaded gradient without waiting for its event.
    ReadBeforeEvent,
    /// The host writes the next shard into pinned memory while the copy of the one before still reads it.
    PinnedOverwritten,
    /// Memory is freed while a kernel that uses it is still on its stream.
    FreedEarly,
}

impl Mistake {
    pub(crate) const ALL: [Mistake; 10] = [
        Mistake::UseBeforeGather,
        Mistake::GatherBeforeCopyIn,
        Mistake::StagingUsedTwice,
        Mistake::FullReusedEarly,
        Mistake::ReduceBeforeGradient,
        Mistake::OffloadBeforeReduce,
        Mistake::OffloadOnWrongStream,
        Mistake::ReadBeforeEvent,
        Mistake::PinnedOverwritten,
        Mistake::FreedEarly,
    ];
}

/// The streams and buffers of a rank.
struct Engine {
    /// Gathers and reductions have a communicator each, so that none waits behind the other.
    gathers: Group,
    reductions: Group,
    cuda: Arc<SimCuda>,
    mistake: Option<Mistake>,
    compute: Stream,
    copy_in: Stream,
    offload: Stream,
    stray: Stream,
    /// Two of each: one in use, one for the unit ahead.
    pinned: [PinnedBuffer<SimCuda>; 2],
    staging: [Memory; 2],
    full: [Memory; 2],
    /// When each may be used again.
    copied: [Event; 2],
    used: [Event; 2],
}

type Work = DeviceWork<SimNccl, SimCuda, SimProcess>;

/// A unit's gradient on its way to the host, with all memory that must stay until then.
struct Leaving {
    reduced: Work,
    there: Event,
    host: PinnedBuffer<SimCuda>,
    _device: Vec<Memory>,
}

/// The gradient shards of all units, as the host has them in the end. Nothing waits on the host in between, but for pinned memory.
pub(crate) fn step(rank: &SimRank, mistake: Option<Mistake>) -> Vec<Vec<f32>> {
    let engine = Engine::new(rank, mistake);
    let mut gathers = vec![engine.gather(rank, 0, None)];
    let mut leaving = Vec::new();
    for unit in 0..UNITS {
        if unit + 1 < UNITS {
            let last = unit.checked_sub(1).map(|last| &gathers[last]);
            gathers.push(engine.gather(rank, unit + 1, last));
        }
        if mistake != Some(Mistake::UseBeforeGather) {
            gathers[unit].fence(engine.compute).expect("on its stream");
        }
        leaving.push(engine.backward(unit));
    }
    let shards = leaving.iter().map(|leaving| engine.arrived(rank, leaving)).collect();
    // After a mistake the device may have failed, which is not what is looked for.
    let is_well = |is_ok: bool| assert!(is_ok || mistake.is_some());
    leaving.into_iter().for_each(|leaving| is_well(leaving.reduced.wait().is_ok()));
    gathers.into_iter().for_each(|gathered| is_well(gathered.wait().is_ok()));
    for stream in [engine.compute, engine.copy_in, engine.offload, engine.stray] {
        is_well(engine.cuda.synchronize_stream(stream).is_ok());
    }
    shards
}

/// What a rank's gradient shard of a unit must be: the average over ranks of twice the parameters.
pub(crate) fn expected(rank: usize, unit: usize) -> Vec<f32> {
    (0..SHARD).map(|at| 2.0 * parameter(rank, unit, at)).collect()
}

fn parameter(rank: usize, unit: usize, at: usize) -> f32 {
    (rank * 100 + unit * 10 + at) as f32
}

impl Engine {
    fn new(rank: &SimRank, mistake: Option<Mistake>) -> Engine {
        let cuda = Arc::clone(&rank.cuda);
        let stream = || cuda.create_stream(DEVICE, false).expect("a stream");
        let event = || cuda.create_event(DEVICE, EventKind::Order).expect("an event");
        let memory = |len: usize| DeviceBuffer::new(&cuda, DEVICE, len * 4).expect("memory");
        let pinned = || PinnedBuffer::new(&cuda, SHARD * 4).expect("memory");
        Engine {
            gathers: group(rank, "gathers", NcclOptions::default()).expect("a group"),
            reductions: group(rank, "reductions", NcclOptions::default()).expect("a group"),
            mistake,
            compute: stream(),
            copy_in: stream(),
            offload: stream(),
            stray: stream(),
            pinned: [pinned(), pinned()],
            staging: [memory(SHARD), memory(SHARD)],
            full: [memory(SHARD * rank.size), memory(SHARD * rank.size)],
            copied: [event(), event()],
            used: [event(), event()],
            cuda: Arc::clone(&rank.cuda),
        }
    }

    fn is(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    fn record(&self, event: Event, stream: Stream) {
        self.cuda.record_event(event, stream).expect("recorded");
    }

    fn launch(&self, kernel: KernelId, arguments: &[Argument]) {
        let grid = Grid { blocks: 1, threads: 32 };
        self.cuda.launch(kernel, grid, arguments, self.compute).expect("launched");
    }

    /// Waits on the host for one event, and for nothing else.
    fn reach(&self, rank: &SimRank, event: Event) {
        let bell = rank.process.bell();
        while !self.cuda.query_event(event).expect("asked") {
            bell.wait(bell.count(), Some(rank.process.now() + Duration::from_micros(20)));
        }
    }

    /// Copies a unit's shard in and gathers all of it; `last` is the gather that used the same buffers.
    fn gather(&self, rank: &SimRank, unit: usize, last: Option<&Work>) -> Work {
        let slot = unit % 2;
        if !self.is(Mistake::PinnedOverwritten) {
            self.reach(rank, self.copied[slot]);
        }
        let values = (0..SHARD).flat_map(|at| parameter(rank.rank, unit, at).to_le_bytes()).collect::<Vec<u8>>();
        self.pinned[slot].write(&values).expect("written");
        if let Some(last) = last.filter(|_| !self.is(Mistake::StagingUsedTwice)) {
            last.fence(self.copy_in).expect("on its stream");
        }
        let (staging, pinned) = (self.staging[slot].span(), self.pinned[slot].span());
        self.cuda.copy(staging, pinned, self.copy_in).expect("copied");
        self.record(self.copied[slot], self.copy_in);
        if !self.is(Mistake::FullReusedEarly) {
            self.cuda.wait_event(self.copy_in, self.used[slot]).expect("awaited");
        }
        let before = if self.is(Mistake::GatherBeforeCopyIn) { self.stray } else { self.copy_in };
        let op = Op::AllGather { counts: Counts::Even(SHARD) };
        let buffers = (Some(&self.staging[slot]), &self.full[slot]);
        self.gathers.submit(op, DType::F32, None, buffers, before).expect("submitted")
    }

    /// Uses a unit, and sends its gradient on its way to the host.
    fn backward(&self, unit: usize) -> Leaving {
        let slot = unit % 2;
        let full = &self.full[slot];
        let memory = |byte_len: usize| DeviceBuffer::new(&self.cuda, DEVICE, byte_len).expect("memory");
        let (gradient, shard, loss) = (memory(full.byte_len()), memory(SHARD * 4), memory(full.byte_len()));
        self.cuda.copy(gradient.span(), full.span(), self.compute).expect("copied");
        self.launch(kernels::ADD, &[Argument::Write(gradient.span()), Argument::Read(full.span())]);
        self.cuda.copy(loss.span(), gradient.span(), self.compute).expect("copied");
        self.record(self.used[slot], self.compute);
        let host = PinnedBuffer::new(&self.cuda, SHARD * 4).expect("memory");
        let before = if self.is(Mistake::ReduceBeforeGradient) { self.stray } else { self.compute };
        let op = Op::ReduceScatter { counts: Counts::Even(SHARD), reduce: ReduceOp::Avg };
        let reduced =
            self.reductions.submit(op, DType::F32, None, (Some(&gradient), &shard), before).expect("submitted");
        if !self.is(Mistake::OffloadBeforeReduce) {
            reduced.fence(self.offload).expect("on its stream");
        }
        let stream = if self.is(Mistake::OffloadOnWrongStream) { self.stray } else { self.offload };
        self.cuda.copy(host.span(), shard.span(), stream).expect("copied");
        let there = self.cuda.create_event(DEVICE, EventKind::Order).expect("an event");
        self.record(there, stream);
        let mut device = vec![gradient, shard, loss];
        if self.is(Mistake::FreedEarly) {
            device.pop();
        }
        Leaving { reduced, there, host, _device: device }
    }

    /// What has come to the host.
    fn arrived(&self, rank: &SimRank, leaving: &Leaving) -> Vec<f32> {
        if !self.is(Mistake::ReadBeforeEvent) {
            self.reach(rank, leaving.there);
        }
        let mut bytes = [0; SHARD * 4];
        leaving.host.read(&mut bytes).expect("read");
        bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect()
    }
}
