//! Windows among neighbours, who are some of the group's ranks: a board counts them by their seats.

use std::ops::Range;
use std::sync::Arc;

use phalanx_core::link::{Borrowed, Copies, Lease, LinkError, View, Wanted, Windows};

use super::ending::Ending;
use crate::memory::BoardWindows;
use crate::net::Standing;

/// The windows of some ranks, whose end means what their standing says.
pub(super) struct NeighbourWindows {
    board: BoardWindows,
    /// The rank at each seat.
    ranks: Vec<usize>,
    endings: Vec<Ending>,
}

impl NeighbourWindows {
    /// The windows of `ranks`, which have these seats at the board. `standings` are those of all ranks of the group.
    pub(super) fn new(board: BoardWindows, ranks: Vec<usize>, standings: &[Arc<Standing>]) -> NeighbourWindows {
        let endings = ranks.iter().map(|&rank| Ending::new(rank, Arc::clone(&standings[rank]))).collect();
        NeighbourWindows { board, ranks, endings }
    }

    fn of_ranks(&self, seats: Vec<usize>) -> Vec<usize> {
        seats.into_iter().map(|seat| self.ranks[seat]).collect()
    }

    fn seat_of(&self, rank: usize) -> Result<usize, LinkError> {
        let seat = self.ranks.iter().position(|&known| known == rank);
        seat.ok_or_else(|| LinkError::Failed(format!("there is no window to rank {rank}")))
    }

    /// `not_now` while a neighbour has ended and it may still be said why.
    fn judged<R>(&self, end: Result<R, LinkError>, not_now: R) -> Result<R, LinkError> {
        match end {
            Err(LinkError::Left { rank: Some(seat) }) => self.endings[seat].judge().map(|()| not_now),
            other => other.map_err(|error| self.named(error)),
        }
    }

    /// What is said of a seat, said of its rank.
    fn named(&self, error: LinkError) -> LinkError {
        match error {
            LinkError::Corrupt { rank: Some(seat), detail } => LinkError::corrupt(self.ranks[seat], detail),
            other => other,
        }
    }
}

impl Windows for NeighbourWindows {
    fn begin(&mut self, past_caches: bool) {
        self.board.begin(past_caches);
    }

    fn try_offer(&mut self, head: &[u8], parts: &[&[u8]], lease: Lease) -> Result<bool, LinkError> {
        let made = self.board.try_offer(head, parts, lease);
        self.judged(made, false)
    }

    fn try_offer_beside(
        &mut self,
        head: &[u8],
        part: &[u8],
        lease: Lease,
        wanted: Wanted,
        fill: &mut dyn FnMut(&mut [u8], View<'_>) -> bool,
    ) -> bool {
        let seat = self.seat_of(wanted.rank);
        seat.is_ok_and(|seat| self.board.try_offer_beside(head, part, lease, Wanted { rank: seat, ..wanted }, fill))
    }

    fn announce(&mut self) {
        self.board.announce();
    }

    fn offers(&self) -> u64 {
        self.board.offers()
    }

    fn behind(&self) -> Vec<usize> {
        self.of_ranks(self.board.behind())
    }

    fn view(&self, rank: usize, offer: u64, part: Range<usize>) -> Result<Option<View<'_>>, LinkError> {
        self.judged(self.board.view(self.seat_of(rank)?, offer, part), None)
    }

    fn copy(&self, copies: Copies, into: &mut [u8], seen: &[u8]) {
        self.board.copy(copies, into, seen);
    }

    fn fetch(&mut self, rank: usize, address: usize, into: &mut [u8]) -> Result<(), LinkError> {
        let seat = self.seat_of(rank)?;
        self.board.fetch(seat, address, into).map_err(|error| self.named(error))
    }

    fn try_settle(&mut self) -> Result<bool, LinkError> {
        let settled = self.board.try_settle();
        self.judged(settled, false)
    }

    fn take_back(&mut self) -> Result<(), LinkError> {
        self.board.take_back()
    }

    fn take_borrowed(&mut self) -> Borrowed {
        match self.board.take_borrowed() {
            Borrowed::GivenUp(seat) => Borrowed::GivenUp(self.ranks[seat]),
            other => other,
        }
    }

    fn readers(&self) -> Vec<usize> {
        self.of_ranks(self.board.readers())
    }

    fn slot_byte_len(&self) -> usize {
        self.board.slot_byte_len()
    }
}
