//! Faults by script: what NCCL, CUDA and machines are known to do, at the moment a test wants it.

use std::time::Duration;

/// One documented misbehaviour of one rank. Counts begin at 0 and are of that rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The call that makes this communicator never returns.
    InitNeverEnds {
        /// Which communicator.
        comm: usize,
    },
    /// This communicator stays in progress for ever.
    InProgressForEver {
        /// Which communicator.
        comm: usize,
    },
    /// A communicator reports this status after so many more questions.
    AsyncError {
        /// Which communicator.
        comm: usize,
        /// How many questions are still answered well once it is ready.
        polls: usize,
        /// The status.
        status: i32,
    },
    /// The kernel of this operation never ends.
    KernelNeverEnds {
        /// Which operation.
        launch: usize,
    },
    /// This operation is called and comes to its stream only when its communicator is aborted: a thread of the library was about to put it there.
    LaunchWaitsForAbort {
        /// Which operation.
        launch: usize,
    },
    /// Aborting this communicator never returns.
    AbortBlocks {
        /// Which communicator.
        comm: usize,
    },
    /// Aborting this communicator takes so long.
    AbortTakes {
        /// Which communicator.
        comm: usize,
        /// How long.
        time: Duration,
    },
    /// Aborting a communicator leaves what was split from it running.
    AbortMissesChildren,
    /// Destroying this communicator never returns.
    DestroyBlocks {
        /// Which communicator.
        comm: usize,
    },
    /// Destroying a communicator that was aborted never returns.
    DestroyHangsAfterAbort,
    /// This operation gives one wrong bit.
    WrongResult {
        /// Which operation.
        launch: usize,
    },
    /// This allocation of the device fails.
    OutOfMemory {
        /// Which allocation.
        allocation: usize,
    },
    /// The context dies when this operation begins, and answers every call with this code from then on.
    StickyError {
        /// Which operation.
        launch: usize,
        /// The code.
        code: i32,
    },
    /// The store does not answer this rank for a while.
    StoreStalls {
        /// From when on, on the clock of the simulation.
        from: Duration,
        /// When it answers again.
        until: Duration,
    },
    /// Memory is only freed once all that was submitted is done, as drivers do it.
    FreesWait,
    /// The device does the operations of all communicators one after the other, in the order in which they came to their streams: as where one
    /// takes all of its multiprocessors.
    OneQueue,
    /// The system has no thread for this one.
    NoThread {
        /// Which of those that are asked for.
        thread: usize,
    },
    /// The library refuses windows.
    RefusesWindows,
    /// The library opens no window, and says that all is well.
    OpensNoWindows,
    /// Communicators of this rank say that a peer failed once one of their ranks has vanished.
    TellsOfTheVanished,
    /// The rank is not heard of again once it has called this often.
    Vanishes {
        /// After how many calls.
        calls: usize,
    },
}

/// A bug planted into the group: what its own threads ask of the driver is lost, or answered too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Plant {
    /// A lane's stream does not wait for what came before the operation.
    LaneWaits,
    /// A program's stream does not wait for the end of the operation.
    Fences,
    /// Events of ends are taken for done at once.
    EndsAtOnce,
    /// The event of the end is recorded on the stream before the operation is.
    EndsFirst,
    /// A stream does not wait for an event of another process: between ranks over the transport of one host, which alone has such events.
    PeerWaits,
}

impl Plant {
    /// Every plant into groups over NCCL.
    pub const ALL: [Plant; 4] = [Plant::LaneWaits, Plant::Fences, Plant::EndsAtOnce, Plant::EndsFirst];
}

/// All faults of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Script {
    faults: Vec<(usize, Fault)>,
    plant: Option<Plant>,
}

impl Script {
    pub(super) fn add(&mut self, rank: usize, fault: Fault) {
        self.faults.push((rank, fault));
    }

    pub(super) fn plant(&mut self, plant: Plant) {
        self.plant = Some(plant);
    }

    /// Whether this bug is planted.
    pub(super) fn has_plant(&self, plant: Plant) -> bool {
        self.plant == Some(plant)
    }

    /// Whether a rank has this one.
    pub(super) fn has(&self, rank: usize, fault: Fault) -> bool {
        self.faults.contains(&(rank, fault))
    }

    /// What `pick` makes of a rank's faults.
    pub(super) fn find<T>(&self, rank: usize, pick: impl Fn(Fault) -> Option<T>) -> Option<T> {
        self.faults.iter().filter(|(of, _)| *of == rank).find_map(|(_, fault)| pick(*fault))
    }
}
