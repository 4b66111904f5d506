//! Windows on a board. What was offered or done in a poll is announced by one ring of all bells.

use std::ops::Range;
use std::sync::Arc;

use phalanx_core::link::{Borrowed, Copies, Lease, LinkError, Loan, View, Wanted, Windows};
use phalanx_mem::board::{self, BoardError, Seat};

use crate::bell::Bell;
use crate::scales::{Move, OrderScale, Way, WayScales};

/// Windows on a board that all ranks share.
pub(crate) struct BoardWindows {
    seat: Seat,
    /// The bells of all ranks.
    bells: Vec<Arc<Bell>>,
    /// Whether the current operation has read peers' memory where it is.
    has_borrowed: bool,
    /// Whether there is anything that the bells were not rung for yet.
    has_news: bool,
    neighbours: Option<Box<dyn Neighbours>>,
    /// Whether what all peers can fetch is better copied.
    scales: WayScales,
    /// In which order an offer and a join are better done.
    order: OrderScale,
}

/// The peers' processes, where the system fetches from one for another.
pub(crate) trait Neighbours: Send {
    /// Whether all peers can fetch from this process.
    fn can_fetch(&mut self) -> bool;

    /// Whether the system gives them this memory of it.
    fn can_fetch_from(&mut self, part: &[u8]) -> bool;

    /// Fills `into` from this address of a rank's process.
    fn fetch(&mut self, rank: usize, address: usize, into: &mut [u8]) -> Result<(), LinkError>;

    /// That what was fetched since this was asked last came from the ranks' processes, not from others in their place.
    fn confirm(&mut self) -> Result<(), LinkError>;
}

impl BoardWindows {
    /// The windows of whoever has this seat, among ranks with these bells.
    pub(crate) fn new(seat: Seat, bells: Vec<Arc<Bell>>) -> BoardWindows {
        let scales = WayScales::new(bells.len().saturating_sub(1));
        let order = OrderScale::new();
        BoardWindows { seat, bells, has_borrowed: false, has_news: false, neighbours: None, scales, order }
    }

    /// Lets offers stay in ordinary memory that peers can fetch from.
    pub(crate) fn with_neighbours(mut self, neighbours: Box<dyn Neighbours>) -> BoardWindows {
        self.neighbours = Some(neighbours);
        self
    }

    /// Whether the peers can fetch these parts, and this lease lets them.
    fn reaches(&mut self, parts: &[&[u8]], lease: Lease) -> bool {
        let reaches =
            |peers: &mut Box<dyn Neighbours>| peers.can_fetch() && parts.iter().all(|part| peers.can_fetch_from(part));
        lease == Lease::Fetch && self.neighbours.as_mut().is_some_and(reaches)
    }
}

impl Windows for BoardWindows {
    fn begin(&mut self, past_caches: bool) {
        self.scales.begin(past_caches);
    }

    fn try_offer(&mut self, head: &[u8], parts: &[&[u8]], lease: Lease) -> Result<bool, LinkError> {
        let byte_len = parts.iter().map(|part| part.len()).sum();
        let is_choice = byte_len >= board::WORTH_FETCHING && !self.seat.shows(parts) && self.reaches(parts, lease);
        let way = if is_choice { self.scales.now_mut().choose() } else { self.scales.now_mut().rest() };
        let began = self.scales.now().start(byte_len);
        let made = self.seat.try_offer(head, parts, (lease, way == Way::Fetch)).map_err(board_error)?;
        if made {
            self.scales.now().weigh(Move::In, byte_len, began.filter(|_| way == Way::Copy));
            self.scales.now_mut().count();
        }
        self.has_news |= made;
        Ok(made)
    }

    fn try_offer_beside(
        &mut self,
        head: &[u8],
        part: &[u8],
        lease: Lease,
        wanted: Wanted,
        fill: &mut dyn FnMut(&mut [u8], View<'_>) -> bool,
    ) -> bool {
        let is_fetched = part.len() >= board::WORTH_FETCHING && self.reaches(&[part], lease);
        let (lease, viewed) = ((lease, is_fetched), (wanted.rank, wanted.offer + 1, self.order.choice()));
        let began = self.order.start(part.len());
        let made = self
            .seat
            .try_offer_beside(head, part, lease, viewed, &mut |room, view| fill(room, seen(view, wanted.part.clone())));
        if made {
            self.order.count(part.len(), began.map(|began| began.elapsed()));
        }
        self.has_news |= made;
        made
    }

    fn announce(&mut self) {
        if std::mem::take(&mut self.has_news) {
            Bell::ring_all(&self.bells);
        }
    }

    fn offers(&self) -> u64 {
        self.seat.phase()
    }

    fn behind(&self) -> Vec<usize> {
        self.seat.behind()
    }

    fn view(&self, rank: usize, offer: u64, part: Range<usize>) -> Result<Option<View<'_>>, LinkError> {
        let view = self.seat.view(rank, offer + 1).map_err(board_error)?;
        Ok(view.map(|view| seen(view, part)))
    }

    fn copy(&self, copies: Copies, into: &mut [u8], seen: &[u8]) {
        let began = self.scales.now().start(seen.len());
        copies(into, seen);
        self.scales.now().weigh(Move::Out, seen.len(), began);
    }

    fn fetch(&mut self, rank: usize, address: usize, into: &mut [u8]) -> Result<(), LinkError> {
        let Some(neighbours) = &mut self.neighbours else {
            return Err(LinkError::corrupt(rank, "an offer in a process that cannot be read"));
        };
        let began = self.scales.now().start(into.len());
        neighbours.fetch(rank, address, into)?;
        self.scales.now().weigh(Move::Fetched, into.len(), began);
        Ok(())
    }

    fn try_settle(&mut self) -> Result<bool, LinkError> {
        if let Some(neighbours) = &mut self.neighbours {
            // A peer does not leave before this rank has said that it is done.
            let began = self.scales.now().start_confirming();
            neighbours.confirm()?;
            self.scales.now().confirmed(began);
        }
        let settled = self.seat.try_settle().map_err(board_error)?;
        if self.seat.take_borrowed() {
            // Whoever waits until its memory is its own again may sleep.
            (self.has_borrowed, self.has_news) = (true, true);
        }
        // It waits for those as well who never look at it. Two ranks have looked at each other's, or have nothing to wait for.
        self.has_news |= self.seat.take_done() && self.bells.len() > 2;
        Ok(settled)
    }

    fn try_lend(&mut self, head: &[u8], room: &mut [u8]) -> Result<Loan, LinkError> {
        let loan = self.seat.try_lend(head, room).map_err(board_error)?;
        self.has_news |= loan != Loan::NotNow;
        Ok(loan)
    }

    fn lent(&mut self, rank: usize, offer: u64, part: Range<usize>) -> Result<&mut [u8], LinkError> {
        self.seat.lent(rank, offer + 1, part).map_err(board_error)
    }

    fn forgo(&mut self) {
        self.seat.forgo();
    }

    fn take_back(&mut self) -> Result<(), LinkError> {
        self.seat.take_back().map_err(|error| LinkError::Failed(error.to_string()))
    }

    fn take_borrowed(&mut self) -> Borrowed {
        match std::mem::take(&mut self.has_borrowed) {
            true => self.seat.given_up_by().map_or(Borrowed::Kept, Borrowed::GivenUp),
            false => Borrowed::Nothing,
        }
    }

    fn readers(&self) -> Vec<usize> {
        self.seat.readers()
    }

    fn slot_byte_len(&self) -> usize {
        self.seat.slot_byte_len()
    }
}

impl Drop for BoardWindows {
    fn drop(&mut self) {
        self.seat.leave();
        Bell::ring_all(&self.bells);
    }
}

fn seen(view: board::View<'_>, part: Range<usize>) -> View<'_> {
    View { head: view.head(), part: view.part(part) }
}

fn board_error(error: BoardError) -> LinkError {
    match error {
        BoardError::Closed { member } => LinkError::Left { rank: Some(member) },
        BoardError::Corrupt { member } => LinkError::corrupt(member, "it has written nonsense on the board"),
        other => LinkError::Failed(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The owner of what peers read where it is waits for those as well that read something else.
    #[test]
    fn that_a_rank_is_done_is_announced_where_more_than_two_may_wait_for_it() {
        for size in [2, 3] {
            let bells: Vec<_> = (0..size).map(|_| Arc::new(Bell::new().expect("memory"))).collect();
            let seats = phalanx_mem::board::seats(size, 64).expect("memory");
            let mut all: Vec<_> = seats.into_iter().map(|seat| BoardWindows::new(seat, bells.clone())).collect();
            for windows in &mut all {
                assert_eq!(windows.try_offer(&[7; board::HEAD], &[], Lease::View), Ok(true));
                windows.announce();
            }
            let armed = bells[0].arm();
            assert_eq!(all[1].try_settle(), Ok(true));
            all[1].announce();
            assert_eq!(bells[0].arm() != armed, size > 2, "{size} ranks");
            let armed = bells[0].arm();
            assert_eq!(all[1].try_settle(), Ok(true));
            all[1].announce();
            assert_eq!(bells[0].arm(), armed, "it was said before");
        }
    }
}
