//! The simulated windows: what ranks of one host offer each other, under the rules of the real board.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use phalanx_core::link::{Borrowed, Lease, LinkError, Seen, View, Wanted, Windows};

use crate::network::{Shared, lock};

/// Every offer of every rank, made or still to come. Offers are kept for good: the rules are checked, not relied upon.
pub(crate) struct Board {
    offers: Vec<Vec<OnceLock<Offer>>>,
}

struct Offer {
    head: Vec<u8>,
    bytes: Vec<u8>,
    /// When peers see it.
    from: u64,
}

/// One rank's place at the board of its host.
pub(crate) struct Seat {
    board: Arc<Board>,
    network: Shared,
    me: usize,
    hosts: Vec<u32>,
    made: u64,
    /// How many offers had been made with the last one that peers read where it is; 0 while they read nothing there.
    shown: u64,
    slot_byte_len: usize,
}

impl Board {
    /// A board on which each rank can make as many offers as its schedules will.
    pub(crate) fn new(offers: impl Iterator<Item = usize>) -> Board {
        let empty = |count| (0..count).map(|_| OnceLock::new()).collect();
        Board { offers: offers.map(empty).collect() }
    }
}

impl Seat {
    pub(crate) fn new(board: &Arc<Board>, network: &Shared, me: usize, hosts: &[u32], slot_byte_len: usize) -> Seat {
        Seat {
            board: Arc::clone(board),
            network: Arc::clone(network),
            me,
            hosts: hosts.to_vec(),
            made: 0,
            shown: 0,
            slot_byte_len,
        }
    }

    fn mates(&self) -> impl Iterator<Item = usize> {
        (0..self.hosts.len()).filter(|&rank| self.hosts[rank] == self.hosts[self.me] && rank != self.me)
    }

    /// Whether an offer of so many bytes can be made now.
    fn has_room(&self, byte_len: usize) -> Result<bool, LinkError> {
        if byte_len > self.slot_byte_len {
            let text = format!("an offer of {byte_len} bytes in slots of {}", self.slot_byte_len);
            return Err(LinkError::Failed(text));
        }
        let network = lock(&self.network);
        match self.mates().find(|&mate| network.offers[mate] < self.needed()) {
            Some(mate) if network.left[mate] => Err(LinkError::Closed { rank: Some(mate) }),
            held_up => Ok(held_up.is_none()),
        }
    }

    fn show(&mut self, head: Vec<u8>, bytes: Vec<u8>) {
        let mut network = lock(&self.network);
        let from = network.arrival();
        network.shows.push(from);
        network.moved += (head.len() + bytes.len()) as u64;
        network.offers[self.me] += 1;
        let place = self.board.offers[self.me].get(self.made as usize).expect("no more offers than were planned");
        place.get_or_init(|| Offer { head, bytes, from });
        self.made += 1;
    }

    /// By chance peers read an offer where it is, as they do where the memory is of the group's making and long enough.
    fn lease(&mut self, lease: Lease) {
        if lease != Lease::None && lock(&self.network).stays() {
            self.shown = self.made;
        }
    }

    /// How many offers everybody must have made before the next one may take its slot.
    fn needed(&self) -> u64 {
        (self.made + 1 + LOOKBACK).saturating_sub(SLOTS)
    }
}

impl Windows for Seat {
    fn try_offer(&mut self, head: &[u8], parts: &[&[u8]], lease: Lease) -> Result<bool, LinkError> {
        let (head, bytes) = (head.to_vec(), parts.concat());
        let made = self.has_room(head.len() + bytes.len())?;
        if made {
            self.show(head, bytes);
            self.lease(lease);
        }
        Ok(made)
    }

    fn try_offer_beside(
        &mut self,
        head: &[u8],
        part: &[u8],
        _lease: Lease,
        wanted: Wanted,
        fill: &mut dyn FnMut(&mut [u8], View<'_>) -> bool,
    ) -> bool {
        let Wanted { rank, offer, part: wanted } = wanted;
        let Ok(Some(view)) = self.view(rank, offer, wanted.clone()) else { return false };
        if self.has_room(head.len() + part.len()) != Ok(true) {
            return false;
        }
        // Either order may be taken at any time.
        if self.made.is_multiple_of(2) {
            let may_view_after = self.made < offer + LOOKBACK;
            if may_view_after {
                self.show(head.to_vec(), part.to_vec());
                fill(&mut [], self.view(rank, offer, wanted).expect("as before").expect("as before"));
            }
            return may_view_after;
        }
        let mut room = vec![0; part.len()];
        let made = fill(&mut room, view);
        if made {
            assert_eq!(room, part, "the room is filled with what is offered");
            self.show(head.to_vec(), room);
        }
        made
    }

    fn offers(&self) -> u64 {
        self.made
    }

    fn behind(&self) -> Vec<usize> {
        let network = lock(&self.network);
        self.mates().filter(|&mate| network.offers[mate] < self.needed()).collect()
    }

    fn view(&self, rank: usize, offer: u64, part: Range<usize>) -> Result<Option<View<'_>>, LinkError> {
        if self.hosts.get(rank) != Some(&self.hosts[self.me]) {
            return Err(LinkError::Failed(format!("rank {rank} lives on another host")));
        }
        if offer >= self.made || offer + LOOKBACK < self.made {
            let text = format!("offer {offer} viewed after {} of one's own", self.made);
            return Err(LinkError::Failed(text));
        }
        let network = lock(&self.network);
        match self.board.offers[rank].get(offer as usize).and_then(OnceLock::get) {
            Some(offer) if rank == self.me || offer.from <= network.now => {
                Ok(Some(View { head: &offer.head, part: offer.bytes.get(part).map(Seen::Here) }))
            }
            None if network.left[rank] => Err(LinkError::Closed { rank: Some(rank) }),
            _ => Ok(None),
        }
    }

    fn fetch(&mut self, rank: usize, _address: usize, _into: &mut [u8]) -> Result<(), LinkError> {
        Err(LinkError::Failed(format!("rank {rank} shows what it offers")))
    }

    fn try_settle(&mut self) -> Result<bool, LinkError> {
        lock(&self.network).done_with[self.me] = self.made;
        let settled = self.readers().is_empty();
        if settled {
            self.shown = 0;
        }
        Ok(settled)
    }

    fn take_borrowed(&mut self) -> Borrowed {
        Borrowed::Nothing
    }

    fn readers(&self) -> Vec<usize> {
        let network = lock(&self.network);
        self.mates().filter(|&mate| !network.left[mate] && network.done_with[mate] < self.shown).collect()
    }

    fn slot_byte_len(&self) -> usize {
        self.slot_byte_len
    }
}

/// How many of its offers a rank keeps at a time.
const SLOTS: u64 = 6;
/// How many of the latest offers a rank may view.
const LOOKBACK: u64 = 3;

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;
    use crate::network::Network;
    use crate::scene::Temper;

    /// Two ranks of one host, each of which has offered the same number of times until the first has something to be read where it is.
    fn two() -> ([Seat; 2], Shared) {
        let temper = Temper { piece: 1, refusal: 0, capacity: 1, delay: 0, burst: 0, slow: None };
        let network: Shared = Arc::new(Network::new(2, temper, Rng::with_seed(0)).into());
        let board = Arc::new(Board::new([64, 64].into_iter()));
        let mut seats = [0, 1].map(|rank| Seat::new(&board, &network, rank, &[0, 0], 64));
        while seats[0].shown == 0 {
            assert_eq!(seats[0].try_offer(&[1], &[], Lease::View), Ok(true));
            assert_eq!(seats[1].try_offer(&[2], &[], Lease::None), Ok(true));
        }
        (seats, network)
    }

    #[test]
    fn an_operation_ends_once_the_peers_have_read_what_is_read_where_it_is() {
        let ([mut giver, mut reader], _) = two();
        assert_eq!((giver.try_settle(), giver.readers()), (Ok(false), vec![1]));
        assert_eq!(reader.try_settle(), Ok(true), "its own offers were copied");
        assert_eq!((giver.try_settle(), giver.readers()), (Ok(true), vec![]));
    }

    #[test]
    fn nobody_waits_for_a_reader_that_has_left() {
        let ([mut giver, _], network) = two();
        assert_eq!(giver.try_settle(), Ok(false));
        lock(&network).leave(1, false);
        assert_eq!(giver.try_settle(), Ok(true));
    }
}
