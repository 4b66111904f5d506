//! How a member offers: at once, or piece by piece while it views what its peers offered.

use smallvec::SmallVec;

use super::shape::{HEAD, Told, is_near};
use super::view::{Place, View, place};
use super::{AWAY, BoardError, LOOKBACK, REFERS, SLOTS, Seat};
use crate::gauge::Way;
use crate::region::{LINE, Region};
use crate::sync::Ordering;

/// What may become of the parts of an offer besides being copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lease {
    /// They are written again at any time.
    None,
    /// They are not written before the peers are past viewing, so that these may look at them where they are.
    View,
    /// The same, and the peers do nothing but copy them: they may also fetch them from where they cannot look.
    Fetch,
}

/// When what is viewed for an offer is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// While the offer is written.
    Beside,
    /// Once it is made.
    After,
}

impl Seat {
    /// Offers a copy of `head` and `parts`, one after the other, to all members as the next phase; false while a peer may
    /// still view what it overwrites. `head` has [`HEAD`] bytes. Parts that the `lease` lets be viewed and that lie in this member's heap are
    /// referred to instead, if they are long enough for that to pay; others that may be fetched, where the caller says that the peers can and
    /// had better, and the way through a slot is no shorter, or closed to them.
    ///
    /// # Errors
    ///
    /// [`TooLong`](BoardError::TooLong) when the bytes do not fit a slot, [`Closed`](BoardError::Closed) when this seat
    /// or one that it would wait for was left, and [`Corrupt`](BoardError::Corrupt) when a peer's number is nonsense.
    pub fn try_offer(&mut self, head: &[u8], parts: &[&[u8]], lease: (Lease, bool)) -> Result<bool, BoardError> {
        match self.reference(parts, lease) {
            Some((places, kind)) => {
                let made = self.publish(head, &[places.as_flattened()], kind)?;
                if made && kind == AWAY {
                    self.gauge.passed(length_of(parts), &self.region);
                }
                Ok(made)
            }
            None => self.publish(head, parts, 0),
        }
    }

    /// Makes the next offer of this part if nothing is missing for it now and this phase of a member is there to be viewed: `fill` copies the
    /// part to the room for it while it reads the view, or, in the [other order](Order::After), has no room and only reads. False, and nothing
    /// is offered, where anything is missing or wrong, where the part would not be copied, or past the caches, which is faster by itself, and
    /// when `fill` does not copy it; [`try_offer`](Seat::try_offer) and [`view`](Seat::view) tell what it is.
    pub fn try_offer_beside(
        &mut self,
        head: &[u8],
        part: &[u8],
        lease: (Lease, bool),
        (member, phase, order): (usize, u64, Order),
        fill: &mut dyn FnMut(&mut [u8], View<'_>) -> bool,
    ) -> bool {
        let (byte_len, next) = (part.len(), self.phase + 1);
        if self.gauge.way(byte_len) == Way::Past
            || self.reference(&[part], lease).is_some()
            || self.has_room(span(head, byte_len)) != Ok(true)
        {
            return false;
        }
        let Ok(Some(made)) = self.made(member, phase) else { return false };
        let Ok(view) = self.view_of(made) else { return false };
        if order == Order::After {
            // The offer must not make the view too old: then it still is what it was, whatever the member writes meanwhile.
            return next < phase + LOOKBACK as u64
                && self.publish(head, &[part], 0) == Ok(true)
                && self.view_of(made).map(|view| fill(&mut [], view)).is_ok();
        }
        let place = self.place(byte_len);
        let start = self.shape.rest(self.member, next, place, byte_len);
        // SAFETY: no seat may view what was offered in this place any more, and none has a view of the next offer before it is made; only
        // this seat writes it, which is borrowed: *Why a view stays*.
        let room = unsafe { self.region.lend_mut(start..start + byte_len) };
        if !fill(room, view) {
            return false;
        }
        // SAFETY: as above, and the head is not in the room.
        unsafe { self.region.write(self.shape.offer(self.member, next), head, Way::Lines) };
        self.show(Told { byte_len: head.len() + byte_len, place, kind: 0 }, byte_len);
        true
    }

    /// The members that hold the next offer up, because they may still view what it overwrites.
    pub fn behind(&self) -> Vec<usize> {
        let needed = self.needed();
        let late = |&member: &usize| self.has_offered(member, needed) == Ok(false);
        (0..self.shape.members).filter(|&member| member != self.member).filter(late).collect()
    }

    pub(super) fn publish(&mut self, head: &[u8], parts: &[&[u8]], kind: u64) -> Result<bool, BoardError> {
        let rest = length_of(parts);
        let byte_len = head.len().saturating_add(rest);
        if !self.has_room(span(head, rest))? {
            return Ok(false);
        }
        let next = self.phase + 1;
        // SAFETY: no seat may view the offer in this slot any more, and only this seat writes it: *Why a view stays*.
        unsafe { self.region.write(self.shape.offer(self.member, next), head, Way::Lines) };
        let place = self.place(rest);
        let mut at = self.shape.rest(self.member, next, place, rest);
        for part in parts {
            // SAFETY: as above.
            unsafe { self.region.write(at, part, self.gauge.way(part.len())) };
            at += part.len();
        }
        self.show(Told { byte_len, place, kind }, rest);
        Ok(true)
    }

    /// Where in this member's room what follows the next head goes.
    fn place(&self, byte_len: usize) -> usize {
        match self.turn {
            _ if is_near(byte_len) => 0,
            Some(last) => self.shape.place_behind(last, byte_len),
            None => self.shape.own_place(self.phase + 1),
        }
    }

    /// Lets the peers see the next offer, which is written as is told, with so many bytes behind its head.
    fn show(&mut self, told: Told, rest: usize) {
        let (next, byte_len) = (self.phase + 1, told.byte_len);
        self.region.word(self.shape.told(self.member, next)).store(told.pack(), Ordering::Relaxed);
        self.region.word(self.shape.number(self.member, next)).store(next, Ordering::Release);
        self.phase = next;
        if let Some(last) = &mut self.turn
            && !is_near(rest)
        {
            *last = (told.place + rest).next_multiple_of(LINE);
        }
        if told.kind != 0 {
            self.referred = Some((self.referred.map_or(next, |(first, _)| first), next));
        }
        self.expect_another(byte_len);
        self.gauge.passed(byte_len, &self.region);
        self.echo.answer(&self.region);
    }

    /// Says which lines the next offer is written to if it is as long as the last: they come back from whoever has read them while
    /// the peers look at the last one. A long offer fetches its own as it is copied, and so many at once are in the way of what the peers
    /// offer; what goes past the caches needs none.
    fn expect_another(&self, byte_len: usize) {
        let next = self.phase + 1;
        let is_short = byte_len <= SHORT_OFFER && self.gauge.way(byte_len) == Way::Lines;
        let rest = if is_short { byte_len.saturating_sub(HEAD) } else { 0 };
        let (start, offer) = (self.shape.rest(self.member, next, 0, 0), self.shape.offer(self.member, next));
        let is_near = is_near(rest);
        self.region.expect_writes(start..offer + HEAD + if is_near { rest } else { 0 });
        if !is_near {
            let start = self.shape.rest(self.member, next, self.place(rest), rest);
            self.region.expect_writes(start..start + rest);
        }
    }

    /// Where the parts are that stay where they are, and of which kind such an offer is; none if they are to be copied.
    fn reference(&self, parts: &[&[u8]], (lease, fetched): (Lease, bool)) -> Option<(SmallVec<[Place; 8]>, u64)> {
        let byte_len = HEAD.saturating_add(length_of(parts));
        if lease != Lease::None
            && byte_len >= WORTH_REFERRING
            && let Some(places) = self.places(parts)
        {
            return Some((places, REFERS));
        }
        let is_shorter = self.gauge.is_near() || byte_len > self.shape.slot_byte_len;
        if lease == Lease::Fetch && fetched && byte_len >= WORTH_FETCHING && is_shorter {
            // Exposed: the peers see what is there although no code of this process shows it to them.
            let address = |part: &&[u8]| place(part.as_ptr().expose_provenance(), part.len());
            return Some((parts.iter().map(address).collect(), AWAY));
        }
        None
    }

    /// Whether the peers see these parts where they are, in this member's heap.
    pub fn shows(&self, parts: &[&[u8]]) -> bool {
        self.places(parts).is_some()
    }

    /// Where the parts are in this member's heap; none unless all are there.
    fn places(&self, parts: &[&[u8]]) -> Option<SmallVec<[Place; 8]>> {
        let heap = self.shared_heap()?;
        parts.iter().map(|part| heap.offset_of(part).map(|start| place(start, part.len()))).collect()
    }

    /// This member's heap, if the peers see what is in it.
    pub(super) fn shared_heap(&self) -> Option<&Region> {
        let heap = self.heaps.get(self.member);
        #[cfg(not(loom))]
        let heap = heap.filter(|heap| heap.is_shared());
        heap
    }

    /// Whether an offer of so many bytes can be made now.
    fn has_room(&mut self, byte_len: usize) -> Result<bool, BoardError> {
        let slot_byte_len = self.shape.slot_byte_len;
        if self.left {
            return Err(BoardError::Closed { member: self.member });
        }
        if byte_len > slot_byte_len {
            return Err(BoardError::TooLong { byte_len, slot_byte_len });
        }
        self.may_overwrite()
    }

    /// The phase that all peers must have reached before the next offer overwrites what they may view until then.
    fn needed(&self) -> u64 {
        (self.phase + 1 + LOOKBACK as u64).saturating_sub(SLOTS as u64)
    }

    /// Whether all peers are past viewing what the next offer overwrites. Looks only at peers not known to be.
    fn may_overwrite(&mut self) -> Result<bool, BoardError> {
        let needed = self.needed();
        for peer in 0..self.shape.members {
            if peer == self.member || self.seen[peer] >= needed {
                continue;
            }
            if !self.awaits(peer, needed)? {
                return Ok(false);
            }
            self.seen[peer] = needed;
        }
        Ok(true)
    }
}

/// The bytes that an offer takes of its slot: what follows a head begins behind the longest.
/// A head that is longer than its place fits no slot, nor does a shorter one with something behind it, which would begin in its place.
fn span(head: &[u8], rest: usize) -> usize {
    match head.len() {
        HEAD => HEAD.saturating_add(rest),
        len if len < HEAD && rest == 0 => len,
        _ => usize::MAX,
    }
}

fn length_of(parts: &[&[u8]]) -> usize {
    parts.iter().fold(0, |sum: usize, part| sum.saturating_add(part.len()))
}

/// The longest offer after which room for another is fetched whole. By measurement: see docs/tuning.md.
const SHORT_OFFER: usize = 16 << 10;
/// Shorter ones are copied: to have said that they were read costs the peers more.
const WORTH_REFERRING: usize = 4 << 10;
/// Shorter offers than this are copied rather than fetched, which takes a call of the system for each part. By measurement: see
/// docs/tuning.md.
pub const WORTH_FETCHING: usize = 16 << 10;
