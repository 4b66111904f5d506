//! One rank's part of a communicator: what it has in hand, and how it goes on each time somebody asks.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use phalanx_core::ReduceOp;
use phalanx_core::store::Store;

use super::desk::{Desk, Neighbour};
use super::lot::{Called, Kind, Lot};
use super::trouble::Trouble;
use crate::api::{Cuda, DataType, Device, Event, EventKind, RedOp, Route, Scalar, Status, Stream, Transfer};
use crate::kernels::Way;

/// One rank's part of a communicator.
pub(super) struct Member<C> {
    pub(super) cuda: Arc<C>,
    pub(super) device: Device,
    pub(super) multiprocessors: i32,
    /// Where its ranks post: keys of this communicator alone.
    pub(super) store: Store,
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) is_blocking: bool,
    pub(super) phase: Phase,
    pub(super) desk: Desk,
    /// The others' desks; none for this rank's own place.
    pub(super) neighbours: Vec<Option<Neighbour>>,
    pub(super) lots: VecDeque<Lot>,
    /// The number of the next round, and who has posted it.
    pub(super) round: u64,
    pub(super) has_posted: Vec<bool>,
    /// The numbers of the next pieces of messages to each rank, and from each.
    pub(super) next_sent: Vec<u64>,
    pub(super) next_taken: Vec<u64>,
    /// Recorded after all that was done so far, and on which stream.
    pub(super) last: Event,
    pub(super) last_stream: Option<Stream>,
    pub(super) splits: u64,
    pub(super) trouble: Option<Trouble>,
    scaled: BTreeMap<i32, (Scalar, DataType)>,
    next_scaled: i32,
}

/// How far a communicator has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not all ranks have come.
    Forming,
    Open,
    /// What was called comes to its end.
    Finishing,
    /// This rank has let go of the others' desks, and waits until all have of its own.
    Leaving,
    Left,
}

/// A rank's seat in a new communicator.
pub(super) struct Seat {
    pub(super) device: Device,
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) is_blocking: bool,
    pub(super) store: Store,
    pub(super) piece: usize,
}

impl<C: Cuda> Member<C> {
    /// Takes a seat: the desk is made, and shown to the others.
    pub(super) fn join(cuda: &Arc<C>, seat: Seat) -> Result<Member<C>, Trouble> {
        let Seat { device, rank, size, is_blocking, store, piece } = seat;
        let failed = |call: &'static str| move |code| Trouble::of_cuda(&**cuda, call, code);
        let multiprocessors = cuda.device_info(device).map_err(failed("cuDeviceGetAttribute"))?.multiprocessors;
        let desk = Desk::make(&**cuda, device, size, piece)?;
        let shown = desk.export(&**cuda).and_then(|bytes| Ok(store.set(&format!("{JOINED}/{rank}"), bytes)?));
        let last = shown.and_then(|()| cuda.create_event(device, EventKind::Order).map_err(failed("cuEventCreate")));
        let last = last.inspect_err(|_| desk.free(&**cuda, device))?;
        Ok(Member {
            cuda: Arc::clone(cuda),
            device,
            multiprocessors,
            store,
            rank,
            size,
            is_blocking,
            phase: Phase::Forming,
            desk,
            neighbours: (0..size).map(|_| None).collect(),
            lots: VecDeque::new(),
            round: 0,
            has_posted: vec![false; size],
            next_sent: vec![0; size],
            next_taken: vec![0; size],
            last,
            last_stream: None,
            splits: 0,
            trouble: None,
            scaled: BTreeMap::new(),
            next_scaled: RedOp::FIRST_CREATED,
        })
    }

    /// Goes on as far as it can, and says how it stands.
    pub(super) fn poll(&mut self) -> Status {
        if self.trouble.is_none() {
            self.trouble = self.go_on().err();
        }
        match (&self.trouble, self.phase) {
            (Some(trouble), _) => trouble.status,
            (None, Phase::Open) if self.lots.is_empty() => Status::SUCCESS,
            (None, Phase::Left) => Status::SUCCESS,
            (None, _) => Status::IN_PROGRESS,
        }
    }

    /// That it can be asked for something now.
    pub(super) fn is_free(&self) -> Result<(), Trouble> {
        match &self.trouble {
            Some(trouble) => Err(trouble.clone()),
            None if self.phase != Phase::Open || !self.lots.is_empty() => {
                Err(Trouble::new(Status::INVALID_USAGE, "the communicator is in progress, or at its end"))
            }
            None => Ok(()),
        }
    }

    fn go_on(&mut self) -> Result<(), Trouble> {
        match self.phase {
            Phase::Forming => self.form(),
            Phase::Open => self.play(),
            Phase::Finishing | Phase::Leaving => self.leave(),
            Phase::Left => Ok(()),
        }
    }

    /// Opens the desks of those who have come.
    fn form(&mut self) -> Result<(), Trouble> {
        let mut is_whole = true;
        for peer in self.others() {
            if self.neighbours[peer].is_some() {
                continue;
            }
            match self.store.find(&format!("{JOINED}/{peer}"))? {
                Some(bytes) => {
                    let who = (peer, self.rank);
                    let layout = self.desk.layout();
                    self.neighbours[peer] = Some(Neighbour::open(&*self.cuda, self.device, who, layout, &bytes)?);
                }
                None => is_whole = false,
            }
        }
        if is_whole {
            self.phase = Phase::Open;
        }
        Ok(())
    }

    /// Goes on with what was called, until it has to wait for others.
    fn play(&mut self) -> Result<(), Trouble> {
        while let Some(mut lot) = self.lots.pop_front() {
            let played = self.play_lot(&mut lot);
            if !lot.is_done() || played.is_err() {
                self.lots.push_front(lot);
                return played;
            }
            self.mark(lot.stream)?;
        }
        Ok(())
    }

    fn play_lot(&mut self, lot: &mut Lot) -> Result<(), Trouble> {
        if !lot.has_begun {
            if self.last_stream.is_some_and(|stream| stream != lot.stream) {
                let waits = self.cuda.wait_event(lot.stream, self.last);
                self.driver("cuStreamWaitEvent", waits)?;
            }
            self.copy_to_itself(lot)?;
            lot.has_begun = true;
        }
        loop {
            let mut advanced = self.advance_round(lot)?;
            for peer in 0..self.size {
                advanced |= self.advance_send(lot, peer)?;
                advanced |= self.advance_recv(lot, peer)?;
            }
            if !advanced {
                return Ok(());
            }
        }
    }

    /// Notes that all so far is on this stream.
    pub(super) fn mark(&mut self, stream: Stream) -> Result<(), Trouble> {
        let recorded = self.cuda.record_event(self.last, stream);
        self.driver("cuEventRecord", recorded)?;
        self.last_stream = Some(stream);
        Ok(())
    }

    /// Takes calls, those of each stream as one lot.
    pub(super) fn take_up(&mut self, calls: Vec<(Route, Called)>) -> Result<(), Trouble> {
        self.is_free()?;
        let mut lots: Vec<Lot> = Vec::new();
        for (on, call) in calls {
            if self.cuda.stream_device(on.stream).is_err() {
                return Err(Trouble::argument("the stream is none of the driver's"));
            }
            let at = lots.iter().position(|lot| lot.stream == on.stream).unwrap_or(lots.len());
            if at == lots.len() {
                lots.push(Lot::new(on.stream, self.size));
            }
            lots[at].add(call);
        }
        self.lots.extend(lots);
        Ok(())
    }

    /// A collective that joins elements, with how it does.
    pub(super) fn joining(&self, kind: Kind, what: Transfer, op: RedOp) -> Result<Called, Trouble> {
        let way = match (op.reduce(), self.scaled.get(&op.0)) {
            (ReduceOp::PreMulSum, Some((scalar, dtype))) if *dtype == what.dtype => Way::Scale(*scalar),
            (ReduceOp::PreMulSum, _) => {
                return Err(Trouble::argument(format!("{op} is none of this communicator's for this type")));
            }
            _ => Way::Own(op),
        };
        Called::Collective(kind, what, Some(way)).checked(self.rank, self.size)
    }

    pub(super) fn create_scaled(&mut self, scalar: Scalar, dtype: DataType) -> Result<RedOp, Trouble> {
        self.is_free()?;
        if ![DataType::F16, DataType::BF16, DataType::F32, DataType::F64].contains(&dtype) {
            return Err(Trouble::argument("a factor needs floats"));
        }
        if let Scalar::Device(place) = scalar
            && Some(place.byte_len()) != dtype.byte_len()
        {
            return Err(Trouble::argument(format!("a factor of {} bytes for type {}", place.byte_len(), dtype.0)));
        }
        let op = RedOp(self.next_scaled);
        self.next_scaled += 1;
        self.scaled.insert(op.0, (scalar, dtype));
        Ok(op)
    }

    pub(super) fn destroy_scaled(&mut self, op: RedOp) -> Status {
        if self.scaled.remove(&op.0).is_some() { Status::SUCCESS } else { Status::INVALID_ARGUMENT }
    }

    /// The other ranks.
    pub(super) fn others(&self) -> impl Iterator<Item = usize> + use<C> {
        let own = self.rank;
        (0..self.size).filter(move |&peer| peer != own)
    }

    /// Another rank's desk, which is open.
    pub(super) fn neighbour(&self, peer: usize) -> Result<&Neighbour, Trouble> {
        let closed = || Trouble::new(Status::INTERNAL, format!("the desk of rank {peer} is not open"));
        self.neighbours[peer].as_ref().ok_or_else(closed)
    }

    pub(super) fn driver<T>(&self, call: &str, answer: Result<T, crate::api::CudaCode>) -> Result<T, Trouble> {
        answer.map_err(|code| Trouble::of_cuda(&*self.cuda, call, code))
    }
}

/// Where ranks show their desks.
pub(super) const JOINED: &str = "joined";
