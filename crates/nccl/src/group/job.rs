//! What a worker carries out: the steps of one operation and the memory that it keeps until their end was observed.

use std::sync::{Arc, Mutex};

use phalanx_core::backend::{Buffers, Finished};
use phalanx_core::{Fingerprint, Result, fnv};

use super::flight::Flight;
use super::hall::lock;
use super::memory::{DeviceBuffer, PinnedBuffer};
use super::nan::Check;
use super::plan::Step;
use super::registered::Introduction;
use crate::api::{Comm, Cuda};

/// One operation on its way to a stream.
pub(super) struct Job<C: Cuda> {
    pub(super) flight: Arc<Flight>,
    pub(super) steps: Vec<Step>,
    pub(super) held: Held<C>,
    /// What is asked of the communicator itself, before its steps.
    pub(super) errand: Option<Errand>,
    /// Its collectives, as all ranks must have called them.
    pub(super) prints: Vec<Fingerprint>,
    /// How many had come to its lane by then.
    pub(super) pushed: usize,
}

/// Something that is asked of a communicator.
pub(super) enum Errand {
    /// To be split.
    Split(Split),
    /// To know memory.
    Introduce(Introduction),
}

/// What a rank asks of a split of the communicator.
#[derive(Clone)]
pub(super) struct Split {
    /// None of a rank that is no member of the new group.
    pub(super) colour: Option<i32>,
    /// The rank's place in it.
    pub(super) key: i32,
    /// Where the new communicator is put.
    pub(super) child: Arc<Mutex<Option<Comm>>>,
}

/// Memory that an operation uses.
pub(super) struct Held<C: Cuda> {
    pub(super) device: Vec<DeviceBuffer<C>>,
    pub(super) host: Vec<PinnedBuffer<C>>,
    /// The program's memory, where it is the host's: what comes back goes there.
    pub(super) staged: Option<Buffers>,
    /// A copy of what all ranks must have got alike.
    pub(super) copy: Option<PinnedBuffer<C>>,
    /// What is looked through for NaN first.
    pub(super) checks: Vec<Check<C>>,
    /// What messages of a batch use, each for itself, and where what they bring is put.
    pub(super) batch: Option<(Vec<Held<C>>, Share)>,
}

/// What messages of a batch brought, each for whoever waits for it.
pub(super) type Share = Arc<Mutex<Vec<Option<Finished>>>>;

impl<C: Cuda> Held<C> {
    /// Memory of the device alone.
    pub(super) fn device(device: Vec<DeviceBuffer<C>>) -> Held<C> {
        Held { device, host: Vec::new(), staged: None, copy: None, checks: Vec::new(), batch: None }
    }

    /// What the caller gets, once the end was observed.
    pub(super) fn settle(&mut self) -> Result<Finished> {
        if let Some((messages, share)) = &mut self.batch {
            let brought = messages.iter_mut().map(|held| held.settle().map(Some)).collect::<Result<_>>()?;
            *lock(share) = brought;
        }
        let mut buffers = self.staged.take().unwrap_or_default();
        if let Some(output) = self.host.last().filter(|_| !buffers.output.is_empty()) {
            output.read(buffers.output.as_bytes_mut())?;
        }
        Ok(Finished { buffers, source: None })
    }

    /// A hash of what all ranks must have got alike.
    pub(super) fn digest(&self) -> Option<u64> {
        let copy = self.copy.as_ref()?;
        let mut bytes = vec![0; copy.span().byte_len()];
        copy.read(&mut bytes).ok()?;
        // No adversary chooses the data, and every flipped bit changes it.
        Some(fnv::hash64(bytes))
    }
}
