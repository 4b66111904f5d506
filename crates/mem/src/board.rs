//! A board of one host: each member offers bytes in its own slots, and its peers look at them where they are.
//! Never waits: a false or absent answer means "not now".
//!
//! # Why a view stays
//!
//! A member's phase is the number of its offers. Offer `k` (from 1 on) lies in slot `(k - 1) % SLOTS`, which says so by a
//! word, its number. The only offer that overwrites it is `k + SLOTS`, which its owner makes at phase `k + SLOTS - 1`. That
//! a member's phase is at least `k` is seen from the number in that slot: it is `k`, or a later one of the same slot.
//!
//! What an offer has besides its head lies in the member's room, in the place of its slot or, [in turn](Slots::are_in_turn), behind the offer before,
//! from the start again where that would be past the end. That overwrites nothing later than offer `k` either: such a room has space for
//! `SLOTS + 1` of the longest. `SLOTS` offers in a row take that of `SLOTS` of them at most, and what one leaves at the end for the start is less
//! than one.
//!
//! 1. A reader at phase `r` may view offer `k` only while `r - LOOKBACK < k <= r`, that is, while `r < k + LOOKBACK`.
//! 2. An owner at phase `q` offers only once every reader's phase `r` has `r + SLOTS >= q + 1 + LOOKBACK`. For the offer
//!    that overwrites `k`, `q = k + SLOTS - 1`: it waits for `r >= k + LOOKBACK`, when by 1 nobody may view `k` again.
//! 3. A view borrows its seat, and a phase rises only by an offer, which borrows the seat mutably. So the views that were
//!    allowed at an earlier phase have ended before the phase rises.
//! 4. A number is stored with release, when the phase rises to it, and loaded with acquire. By 3 the reads of a view happen before the reader's next
//!    phase is stored, and by 2 the owner loaded that phase before it overwrites. In the other direction, the bytes of
//!    offer `k` and their length were written before phase `k` was stored, and a view loads a phase of at least `k`
//!    before it reads them.
//!
//! This holds for any `SLOTS` and `LOOKBACK`. What `SLOTS` is for is progress: the slowest member has `r >= q` for all
//! others, so with `SLOTS > LOOKBACK` it can always offer and the board never locks up. A member can be at most
//! `SLOTS - LOOKBACK` phases ahead of any other; `SLOTS = 2 * LOOKBACK` lets it run as far ahead as it may look back.
//!
//! # What is read where it is
//!
//! An offer whose parts lie in the member's heap may refer to them instead of being copied. A slot then holds where they
//! are, and the views of its parts are of the heap. Their owner promises not to write them before the peers are past
//! viewing: a peer is once it has made `LOOKBACK` further offers, or has said by its word `done` that it reads nothing of
//! the phases so far any more. [`try_settle`](Seat::try_settle) says that and asks it of the others.
//!
//! What lies elsewhere in the member's process can be referred to by its addresses, where the peers may have the system
//! fetch it from there. The same promise holds.
//!
//! A member that cannot keep it, because the operation failed that its offers are of, says before it breaks it from which phase on its
//! offers are given up. Whoever looks at that word after it has read some, and finds no phase of its own there, has read what was offered.
//!
//! A member may also lend a part of its heap to be written (`board::lend`), and then waits until all peers are done with it.
//!
//! # What is believed of peers
//!
//! In a segment a peer's numbers and lengths are another process's input. Each is read once, or again with the first
//! reading forgotten. A number further ahead than above, a length longer than
//! a slot and a reference to outside the heap are [`Corrupt`](BoardError::Corrupt). A seat's own phase is never read back. What [`view`](Seat::view) lends
//! from a segment stays unchanged only while the peer's process follows the protocol: see `Segment`, *Who is trusted
//! with a segment*.

#[cfg(not(loom))]
mod lend;
#[cfg(all(test, loom))]
mod loom_model;
mod offer;
mod shape;
#[cfg(all(test, not(loom)))]
mod tests;
mod view;

use std::cell::Cell;
use std::ops::Range;

#[cfg(not(loom))]
pub use lend::Loan;
pub use offer::{Lease, Order, WORTH_FETCHING};
pub use shape::HEAD;
use shape::{KIND_SHIFT, Shape, Told, is_near};
use view::Kind;
pub use view::{Seen, View};

use crate::gauge::{Echo, Gauge};
use crate::region::{PlaceError, Region};
use crate::sync::{Ordering, fence};
#[cfg(not(loom))]
use crate::{Segment, claims::Purpose};

/// How many of its offers a member keeps at a time.
pub const SLOTS: usize = 6;

/// How many of the latest phases a member may view.
pub const LOOKBACK: usize = 3;

/// How long the offers of a board may be, and where they lie. A number of bytes stands for offers in the same few places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// The bytes of the longest offer.
    pub byte_len: usize,
    /// Whether offers lie behind one another. Where that is more than a core's own cache holds, whoever offers finds the lines in a cache that
    /// it shares with the peers, instead of in those of the peers that have read them.
    pub are_in_turn: bool,
}

impl From<usize> for Slots {
    fn from(byte_len: usize) -> Slots {
        Slots { byte_len, are_in_turn: false }
    }
}

/// The seats of a board on the heap, one for each of `members`.
///
/// # Errors
///
/// When there is no member, a slot has 4 GiB or more, or memory is out.
pub fn seats(members: usize, slots: impl Into<Slots>) -> Result<Vec<Seat>, PlaceError> {
    let shape = Shape::new(members, slots.into())?;
    let regions = Region::shared_on_heap(shape.byte_len, members)?;
    regions.into_iter().enumerate().map(|(member, region)| Seat::new(region, shape, member)).collect()
}

/// How many bytes of a segment a board takes, or none if no memory is that long, a slot has 4 GiB or more, or there is no member.
pub fn byte_len(members: usize, slots: impl Into<Slots>) -> Option<usize> {
    Shape::new(members, slots.into()).ok().map(|shape| shape.byte_len)
}

/// One member's place at a board. Dropping it leaves.
pub struct Seat {
    region: Region,
    shape: Shape,
    member: usize,
    phase: u64,
    seen: Box<[u64]>,
    left: bool,
    /// The heaps of all members, or none.
    heaps: Vec<Region>,
    /// The phases of the first and the last offer that refers to this member's memory and may still be read there.
    referred: Option<(u64, u64)>,
    /// Whether a peer's memory was viewed, or told where it is.
    has_borrowed: Cell<bool>,
    /// The phase up to which this member has said that it is done, and whether it was asked since whether it has.
    done: u64,
    has_done: bool,
    /// The phase in which a part of this member's heap was lent that peers may still write, and which.
    lent: Option<(u64, Range<usize>)>,
    /// Where in this member's room the last offer ended, if they lie there in turn.
    turn: Option<usize>,
    /// How far the next member is, which stands for all, and whoever asks this one the same.
    gauge: Gauge,
    echo: Echo,
}

impl Seat {
    /// The seat of `member` at the board at `offset` of a segment, whose bytes there must be as created.
    ///
    /// # Errors
    ///
    /// When there is no such member, the offset is not a multiple of [`LINE`](crate::LINE), the part is not inside the
    /// segment or in use, or the seat was taken before.
    #[cfg(not(loom))]
    pub fn in_segment(
        segment: std::sync::Arc<Segment>,
        offset: usize,
        member: usize,
        members: usize,
        slots: impl Into<Slots>,
    ) -> Result<Seat, PlaceError> {
        let slots = slots.into();
        let shape = Shape::new(members, slots)?;
        if member >= members {
            return Err(PlaceError::NoSuchMember { member, members });
        }
        let end = offset.checked_add(shape.byte_len).ok_or(PlaceError::TooLong)?;
        let purpose = Purpose::Board { members, slots };
        Seat::new(Region::in_segment(segment, offset..end, purpose, member)?, shape, member)
    }

    /// Lets offers refer to what lies in the members' heaps: `heaps[member]` of the segment, of equal length.
    ///
    /// # Errors
    ///
    /// When a heap is not inside the segment, or its part is in use for anything else, such as by a peer that has the same
    /// segment: each member must have mapped it for itself.
    #[cfg(not(loom))]
    pub fn with_heaps(
        mut self,
        segment: &std::sync::Arc<Segment>,
        starts: impl IntoIterator<Item = usize>,
        byte_len: usize,
    ) -> Result<Seat, PlaceError> {
        let view = |(member, start): (usize, usize)| {
            let range = start..start.checked_add(byte_len).ok_or(PlaceError::TooLong)?;
            let own = (Purpose::Heap, crate::heap::OWNER + 1);
            let (purpose, role) = if member == self.member { own } else { (Purpose::PeersHeap, 0) };
            Region::in_segment(std::sync::Arc::clone(segment), range, purpose, role)
        };
        self.heaps = starts.into_iter().enumerate().map(view).collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// The number of offers made from this seat.
    pub fn phase(&self) -> u64 {
        self.phase
    }

    /// Which member sits here.
    pub fn member(&self) -> usize {
        self.member
    }

    /// The number of members.
    pub fn members(&self) -> usize {
        self.shape.members
    }

    /// How many bytes an offer may have.
    pub fn slot_byte_len(&self) -> usize {
        self.shape.slot_byte_len
    }

    /// Says that this member reads and writes nothing of the phases so far any more, and asks whether all peers have said so that may
    /// still read what this member's offers refer to, or write what it lent.
    ///
    /// # Errors
    ///
    /// [`Closed`](BoardError::Closed) when a member left before it was done with what this one has lent it.
    pub fn try_settle(&mut self) -> Result<bool, BoardError> {
        self.region.word(self.shape.done(self.member)).store(self.phase, Ordering::Release);
        self.has_done |= self.done != self.phase;
        self.done = self.phase;
        let quit = |&member: &usize| self.has_left(member) && self.owes(member);
        if self.lent.is_some()
            && let Some(member) = (0..self.shape.members).find(quit)
        {
            return Err(BoardError::Closed { member });
        }
        let settled = !(0..self.shape.members).any(|member| self.is_read_by(member));
        if settled {
            (self.referred, self.lent) = (None, None);
        }
        Ok(settled)
    }

    /// Whether anything was viewed that peers keep where it is since this was asked last.
    pub fn take_borrowed(&self) -> bool {
        self.has_borrowed.take()
    }

    /// Whether this member has said of more phases that it is done with them since this was asked last.
    pub fn take_done(&mut self) -> bool {
        std::mem::take(&mut self.has_done)
    }

    /// The members that may still read what this member's offers refer to.
    pub fn readers(&self) -> Vec<usize> {
        (0..self.shape.members).filter(|&member| self.is_read_by(member)).collect()
    }

    /// Says that what this member's offers refer to may change from now on, though peers may not have read it yet: whoever sees a change
    /// that this process makes after this finds it said.
    pub(super) fn give_up(&self) {
        let Some((since, _)) = self.referred.filter(|_| !self.readers().is_empty()) else { return };
        self.region.word(self.shape.given_up(self.member)).store(since, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// A peer that had given up what this member may have read of it so far.
    pub fn given_up_by(&self) -> Option<usize> {
        fence(Ordering::Acquire);
        let is_given_up = |&member: &usize| {
            let since = self.region.word(self.shape.given_up(member)).load(Ordering::Relaxed);
            member != self.member && (1..=self.phase).contains(&since)
        };
        (0..self.shape.members).find(is_given_up)
    }

    fn is_read_by(&self, member: usize) -> bool {
        let Some((_, last)) = self.referred.filter(|_| member != self.member) else { return false };
        // Whoever has left was done before, if it ever was.
        let left = self.has_left(member);
        is_reading(self.is_done_with(member, last), left, self.owes(member))
    }

    /// Whether a member is not done with what was lent.
    fn owes(&self, member: usize) -> bool {
        self.lent.as_ref().is_some_and(|(phase, _)| !self.is_done_with(member, *phase))
    }

    /// Whether a member has said that it is done with the phases up to this one.
    fn is_done_with(&self, member: usize, phase: u64) -> bool {
        self.region.word(self.shape.done(member)).load(Ordering::Acquire) >= phase
    }

    fn has_left(&self, member: usize) -> bool {
        self.region.word(self.shape.left(member)).load(Ordering::Acquire) != 0
    }

    /// What `member` offered as its `phase`-th offer, from 1 on; none if it has not yet.
    ///
    /// # Errors
    ///
    /// [`OutOfTurn`](BoardError::OutOfTurn) unless the phase is one of the latest [`LOOKBACK`] of this seat,
    /// [`Closed`](BoardError::Closed) when the member left before, and [`Corrupt`](BoardError::Corrupt) when its number
    /// or length is nonsense.
    pub fn view(&self, member: usize, phase: u64) -> Result<Option<View<'_>>, BoardError> {
        self.made(member, phase)?.map(|made| self.view_of(made)).transpose()
    }

    /// A member's offer, if it may be viewed now and is made.
    #[inline]
    fn made(&self, member: usize, phase: u64) -> Result<Option<Made>, BoardError> {
        self.check_turn(phase)?;
        if member >= self.shape.members {
            return Err(BoardError::NoSuchMember { member, members: self.shape.members });
        }
        if !self.awaits(member, phase)? {
            return Ok(None);
        }
        let told = Told::unpack(self.region.word(self.shape.told(member, phase)).load(Ordering::Relaxed));
        Ok(Some(Made { member, phase, told }))
    }

    /// The view of an offer, while it may be viewed.
    #[inline]
    fn view_of(&self, made: Made) -> Result<View<'_>, BoardError> {
        let Made { member, phase, told: Told { byte_len, place, kind } } = made;
        self.check_turn(phase)?;
        let kind = self.kind(member, kind).ok_or(BoardError::Corrupt { member })?;
        let rest_len = byte_len.saturating_sub(HEAD);
        if byte_len > self.shape.slot_byte_len || !(is_near(rest_len) || place + rest_len <= self.shape.room_byte_len) {
            return Err(BoardError::Corrupt { member });
        }
        if !matches!(kind, Kind::Here) {
            self.has_borrowed.set(true);
        }
        let head_len = byte_len.min(HEAD);
        let head = self.shape.offer(member, phase);
        let rest = self.shape.rest(member, phase, place, rest_len);
        // SAFETY: this offer was made, and is not overwritten while this seat is borrowed: *Why a view stays*.
        let head = unsafe { self.region.lend(head..head + head_len) };
        // SAFETY: as above.
        let rest = unsafe { self.region.lend(rest..rest + rest_len) };
        Ok(View { head, rest, kind })
    }

    /// That a phase is among those that may be viewed.
    #[inline]
    fn check_turn(&self, phase: u64) -> Result<(), BoardError> {
        let is_in_turn = phase > 0 && phase <= self.phase && phase + LOOKBACK as u64 > self.phase;
        if is_in_turn { Ok(()) } else { Err(BoardError::OutOfTurn { phase, own: self.phase }) }
    }

    /// Where the parts of a member's offer of this kind are; none if they cannot be there.
    fn kind(&self, member: usize, kind: u64) -> Option<Kind<'_>> {
        match kind {
            0 => Some(Kind::Here),
            // This member's own memory is lent to whoever has it.
            _ if member == self.member => None,
            REFERS => self.heaps.get(member).map(Kind::Heap),
            AWAY => Some(Kind::Away),
            _ => None,
        }
    }

    /// Leaves the board: peers can still view what was offered, and no longer wait for more.
    pub fn leave(&mut self) {
        self.left = true;
        self.region.word(self.shape.left(self.member)).store(1, Ordering::Release);
    }

    fn new(region: Region, shape: Shape, member: usize) -> Result<Seat, PlaceError> {
        let stored = [shape.number(member, 1), shape.left(member)];
        if stored.iter().any(|&word| region.word(word).load(Ordering::Relaxed) != 0) {
            return Err(PlaceError::Used);
        }
        let seen = vec![0; shape.members].into_boxed_slice();
        Ok(Seat {
            region,
            shape,
            member,
            phase: 0,
            seen,
            left: false,
            heaps: vec![],
            referred: None,
            has_borrowed: Cell::new(false),
            done: 0,
            has_done: false,
            lent: None,
            turn: shape.is_in_turn.then_some(0),
            gauge: if shape.is_in_turn { Gauge::in_turn } else { Gauge::new }(shape.gauge(member)),
            echo: Echo::new(shape.gauge((member + shape.members - 1) % shape.members)),
        })
    }

    /// Whether a member has made an offer; an error when it has left and never will.
    #[inline]
    fn awaits(&self, member: usize, phase: u64) -> Result<bool, BoardError> {
        if self.has_offered(member, phase)? {
            return Ok(true);
        }
        if !self.has_left(member) {
            return Ok(false);
        }
        // What was offered just before leaving may have come after the first look.
        if self.has_offered(member, phase)? { Ok(true) } else { Err(BoardError::Closed { member }) }
    }

    /// Whether a member's phase is at least this one, by one look.
    #[inline]
    fn has_offered(&self, member: usize, phase: u64) -> Result<bool, BoardError> {
        if phase == 0 || (member == self.member && phase <= self.phase) {
            return Ok(true);
        }
        let number = self.region.word(self.shape.number(member, phase)).load(Ordering::Acquire);
        if number > self.phase + RUN_AHEAD { Err(BoardError::Corrupt { member }) } else { Ok(number >= phase) }
    }
}

/// An offer that was seen to be made. What its member tells of it is read once, whatever it writes there later.
#[derive(Clone, Copy, Debug)]
struct Made {
    member: usize,
    phase: u64,
    told: Told,
}

/// Whether a member counts as one that may still read what is referred to, or write what is lent. One that left does neither, but if it was not
/// done before with what was lent, that is not whole: it counts until that is told.
fn is_reading(done: bool, left: bool, owes: bool) -> bool {
    !done && (!left || owes)
}

/// An offer and a view in one piece, whatever of it is the head.
#[cfg(test)]
impl Seat {
    fn offer(&mut self, bytes: &[u8]) -> Result<bool, BoardError> {
        let (head, part) = bytes.split_at(bytes.len().min(HEAD));
        self.try_offer(head, &[part], (Lease::None, false))
    }

    fn whole(&self, member: usize, phase: u64) -> Result<Option<Vec<u8>>, BoardError> {
        Ok(self.view(member, phase)?.map(|view| [view.head, view.rest].concat()))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Why an offer or a view cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BoardError {
    /// The offer does not fit a slot.
    #[error("an offer of {byte_len} bytes where slots have {slot_byte_len}")]
    TooLong {
        /// The length of the offer.
        byte_len: usize,
        /// The length of a slot.
        slot_byte_len: usize,
    },
    /// The phase is not among the latest ones of the seat that asked.
    #[error("phase {phase} cannot be viewed at phase {own}")]
    OutOfTurn {
        /// The phase asked for.
        phase: u64,
        /// The phase of the seat.
        own: u64,
    },
    /// There is no such member.
    #[error("member {member} of a board of {members}")]
    NoSuchMember {
        /// The member asked for.
        member: usize,
        /// The number of members.
        members: usize,
    },
    /// The member left the board before it offered what is waited for.
    #[error("member {member} has left the board")]
    Closed {
        /// The member that left.
        member: usize,
    },
    /// The member's phase or length is none that it could have.
    #[error("member {member} of the board has written nonsense")]
    Corrupt {
        /// The member whose words are wrong.
        member: usize,
    },
}

/// Said with the length of an offer that holds where its parts are, not the parts.
const REFERS: u64 = 2 << KIND_SHIFT;
/// The same, with addresses of the member's process.
const AWAY: u64 = 1 << KIND_SHIFT;
const RUN_AHEAD: u64 = (SLOTS - LOOKBACK) as u64;
const _: () = assert!(LOOKBACK >= 1 && SLOTS > LOOKBACK, "the slowest member can always offer");
