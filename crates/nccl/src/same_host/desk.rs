//! A rank's desk: memory of its device that the others have open, and the events that say what lies there.

use super::trouble::Trouble;
use crate::api::{Cuda, Device, Event, EventKind, Shared, Span, Status};

/// What lies where on a desk: two places for rounds, then two for messages to each rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Bytes of a place for rounds.
    pub(super) piece: usize,
    /// Bytes of a place for messages.
    pub(super) letter: usize,
}

impl Layout {
    pub(super) fn new(piece: usize, size: usize) -> Layout {
        Layout { piece, letter: (piece / size) & !(ALIGNMENT - 1) }
    }

    fn byte_len(self, size: usize) -> usize {
        2 * (self.piece + size * self.letter)
    }

    fn round(self, desk: Span, number: u64) -> Option<Span> {
        desk.part((number % 2) as usize * self.piece, self.piece)
    }

    fn message(self, desk: Span, to: usize, number: u64) -> Option<Span> {
        let before = 2 * self.piece + (2 * to + (number % 2) as usize) * self.letter;
        desk.part(before, self.letter)
    }
}

/// Events used in turn, as the places are.
type Turns = [Event; 2];

/// The event of a number.
pub(super) fn turn(events: &Turns, number: u64) -> Event {
    events[(number % 2) as usize]
}

/// Events for messages between two ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Letters {
    /// Recorded by whoever sends, once a piece lies on its desk.
    pub(super) sent: Turns,
    /// Recorded by whoever receives, once it has taken that.
    pub(super) taken: Turns,
}

/// A rank's own desk.
#[derive(Debug)]
pub(super) struct Desk {
    memory: Span,
    layout: Layout,
    /// Recorded once a piece of a round lies here.
    pub(super) ready: Turns,
    /// Its own events for messages to each rank, and from each.
    pub(super) letters: Vec<Letters>,
}

/// Another rank's desk, as this one has it open.
#[derive(Debug)]
pub(super) struct Neighbour {
    memory: Span,
    layout: Layout,
    pub(super) ready: Turns,
    /// The other's events for messages between the two.
    pub(super) letters: Letters,
}

impl Desk {
    /// Makes a desk for so many ranks.
    pub(super) fn make(cuda: &impl Cuda, device: Device, size: usize, piece: usize) -> Result<Desk, Trouble> {
        let failed = |call: &'static str| move |code| Trouble::of_cuda(cuda, call, code);
        let layout = Layout::new(piece, size);
        let memory = cuda.allocate(device, layout.byte_len(size)).map_err(failed("cuMemAlloc"))?;
        let mut made = Vec::new();
        let mut event = || -> Result<Event, Trouble> {
            let event = cuda.create_event(device, EventKind::Interprocess).map_err(failed("cuEventCreate"))?;
            made.push(event);
            Ok(event)
        };
        let mut turns = || -> Result<Turns, Trouble> { Ok([event()?, event()?]) };
        let mut all = || -> Result<(Turns, Vec<Letters>), Trouble> {
            let ready = turns()?;
            let letters = (0..size).map(|_| Ok(Letters { sent: turns()?, taken: turns()? }));
            Ok((ready, letters.collect::<Result<_, Trouble>>()?))
        };
        match all() {
            Ok((ready, letters)) => Ok(Desk { memory, layout, ready, letters }),
            Err(trouble) => {
                destroy(cuda, made);
                let _ = cuda.free(device, memory);
                Err(trouble)
            }
        }
    }

    /// What the others open it by.
    pub(super) fn export(&self, cuda: &impl Cuda) -> Result<Vec<u8>, Trouble> {
        let mut bytes = vec![VERSION];
        bytes.extend((self.layout.piece as u64).to_le_bytes());
        let mut put = |shared: Shared| {
            bytes.extend((shared.0.len() as u16).to_le_bytes());
            bytes.extend(shared.0);
        };
        put(cuda.export_memory(self.memory).map_err(|code| Trouble::of_cuda(cuda, "cuIpcGetMemHandle", code))?);
        for event in self.events() {
            put(cuda.export_event(event).map_err(|code| Trouble::of_cuda(cuda, "cuIpcGetEventHandle", code))?);
        }
        Ok(bytes)
    }

    fn events(&self) -> impl Iterator<Item = Event> + '_ {
        let letters = self.letters.iter().flat_map(|letters| letters.sent.into_iter().chain(letters.taken));
        self.ready.into_iter().chain(letters)
    }

    /// Where the piece of a round lies.
    pub(super) fn round(&self, number: u64) -> Result<Span, Trouble> {
        self.layout.round(self.memory, number).ok_or_else(too_short)
    }

    /// Where a piece of a message to a rank lies.
    pub(super) fn message(&self, to: usize, number: u64) -> Result<Span, Trouble> {
        self.layout.message(self.memory, to, number).ok_or_else(too_short)
    }

    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    /// Gives it back; nobody has it open any more.
    pub(super) fn free(&self, cuda: &impl Cuda, device: Device) {
        destroy(cuda, self.events());
        if let Err(code) = cuda.free(device, self.memory) {
            log::debug!("a desk is not freed: {code}");
        }
    }
}

impl Neighbour {
    /// Opens the desk of another rank by what that has exported, for `own` of so many ranks with such a layout.
    pub(super) fn open(
        cuda: &impl Cuda,
        device: Device,
        (rank, own): (usize, usize),
        layout: Layout,
        mut bytes: &[u8],
    ) -> Result<Neighbour, Trouble> {
        let garbled = || Trouble::argument(format!("what rank {rank} says of its desk is of no version that is known"));
        let (&version, rest) = bytes.split_first().ok_or_else(garbled)?;
        let (piece, rest) = rest.split_first_chunk().ok_or_else(garbled)?;
        bytes = rest;
        let piece = u64::from_le_bytes(*piece);
        if version != VERSION {
            return Err(garbled());
        }
        if piece != layout.piece as u64 {
            let words = format!("rank {rank} has pieces of {piece} bytes, and this rank of {}", layout.piece);
            return Err(Trouble::argument(words));
        }
        let mut parts = Vec::new();
        while let Some((len, rest)) = bytes.split_first_chunk() {
            let (part, rest) = rest.split_at_checked(u16::from_le_bytes(*len).into()).ok_or_else(garbled)?;
            parts.push(Shared(part.to_vec()));
            bytes = rest;
        }
        // Its memory, two events of rounds, and four for messages with this rank.
        let at = 3 + 4 * own;
        let (Some([memory, first, second]), Some(letters)) = (parts.get(..3), parts.get(at..at + 4)) else {
            return Err(garbled());
        };
        let refused = |call: &'static str| {
            move |code| {
                let text = cuda.error_text(code);
                let why = format!(
                    "{call}: {text}: is rank {rank} another process of this host, on a card that this one reaches?"
                );
                Trouble::new(Status::UNHANDLED_CUDA, why)
            }
        };
        let memory = cuda.import_memory(device, memory).map_err(refused("cuIpcOpenMemHandle"))?;
        let mut opened = Vec::new();
        for shared in [first, second].into_iter().chain(letters) {
            match cuda.import_event(device, shared) {
                Ok(event) => opened.push(event),
                Err(code) => {
                    destroy(cuda, opened);
                    let _ = cuda.close_memory(memory);
                    return Err(refused("cuIpcOpenEventHandle")(code));
                }
            }
        }
        let turns = |at: usize| [opened[at], opened[at + 1]];
        let letters = Letters { sent: turns(2), taken: turns(4) };
        Ok(Neighbour { memory, layout, ready: turns(0), letters })
    }

    /// Where its piece of a round lies.
    pub(super) fn round(&self, number: u64) -> Result<Span, Trouble> {
        self.layout.round(self.memory, number).ok_or_else(too_short)
    }

    /// Where its piece of a message to `own` lies.
    pub(super) fn message(&self, own: usize, number: u64) -> Result<Span, Trouble> {
        self.layout.message(self.memory, own, number).ok_or_else(too_short)
    }

    /// Lets go of it.
    pub(super) fn close(&self, cuda: &impl Cuda) {
        let Letters { sent, taken } = self.letters;
        destroy(cuda, self.ready.into_iter().chain(sent).chain(taken));
        if let Err(code) = cuda.close_memory(self.memory) {
            log::debug!("a desk is not let go of: {code}");
        }
    }
}

/// Gives events back. One that the driver does not take is one that a dead context has lost.
pub(super) fn destroy(cuda: &impl Cuda, events: impl IntoIterator<Item = Event>) {
    for event in events {
        if let Err(code) = cuda.destroy_event(event) {
            log::debug!("an event is not destroyed: {code}");
        }
    }
}

fn too_short() -> Trouble {
    Trouble::new(Status::INTERNAL, "a desk is shorter than its layout")
}

/// Of what is said of a desk.
const VERSION: u8 = 1;
/// Places begin where anything may lie.
const ALIGNMENT: usize = 16;
