//! Links and windows of ranks that share memory: rings and a board, with a bell rung once after what moved in a poll.
//!
//! A closed ring or seat means that its rank left: one that fails or panics seals the group's fate before its links close,
//! and one whose process dies closes nothing.

use std::ops::Range;
use std::sync::Arc;

use phalanx_core::link::{Borrowed, Copies, Lease, Link, LinkError, Loan, View, Wanted, Whole, Windows};
use phalanx_mem::board::{self, BoardError, Seat};
use phalanx_mem::ring::{Consumer, Producer, RingError};

use crate::bell::Bell;
use crate::caches;
use crate::scales::{Move, OrderScale, Scales, Way};

/// A link of two rings to a peer that shares memory.
pub(crate) struct MemoryLink {
    pub(crate) out: Producer,
    pub(crate) into: Consumer,
    pub(crate) peer: Arc<Bell>,
    /// Whether anything moved that the peer's bell was not rung for yet.
    has_news: bool,
    /// From how many bytes on a message is received past the caches.
    past_caches: usize,
    /// Whether the one that comes in is.
    is_past_caches: bool,
}

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
    scales: Scales,
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

impl MemoryLink {
    /// The link of these two rings to whoever has this bell.
    pub(crate) fn new(out: Producer, into: Consumer, peer: Arc<Bell>) -> MemoryLink {
        let past_caches = caches::past_by_message();
        MemoryLink { out, into, peer, has_news: false, past_caches, is_past_caches: false }
    }
}

impl BoardWindows {
    /// The windows of whoever has this seat, among ranks with these bells.
    pub(crate) fn new(seat: Seat, bells: Vec<Arc<Bell>>) -> BoardWindows {
        let scales = Scales::new(bells.len().saturating_sub(1));
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

impl Link for MemoryLink {
    fn try_send(&mut self, bytes: &[u8]) -> Result<usize, LinkError> {
        self.try_send_parts([bytes, &[]])
    }

    fn try_send_parts(&mut self, [first, second]: [&[u8]; 2]) -> Result<usize, LinkError> {
        let piece = piece(self.out.capacity());
        let of_first = first.len().min(piece);
        let of_second = second.len().min(piece - of_first);
        let sent = self.out.try_write_parts([&first[..of_first], &second[..of_second]]).map_err(ring_error)?;
        self.has_news |= sent > 0;
        if first.len() + second.len() <= SHORT_BYTE_LEN {
            self.out.expect_another(sent);
        }
        Ok(sent)
    }

    fn try_send_frame(&mut self, head: &[u8], body: &[u8]) -> Whole {
        let byte_len = head.len() + body.len();
        let fits =
            head.len() <= piece(self.out.capacity()) && byte_len <= WHOLE_BYTE_LEN && self.out.has_room(byte_len);
        // Any error is found again where the parts are sent.
        let Some(Ok(sent)) = fits.then(|| self.try_send_parts([head, body])) else { return Whole::Never };
        let mut rest = &body[sent - head.len()..];
        // There is room for all. A peer that closes the ring meanwhile would have read none of it.
        while let Ok(sent @ 1..) = self.try_send(rest) {
            rest = &rest[sent..];
        }
        Whole::Moved
    }

    fn try_recv_frame(&mut self, head: &[u8], body: &mut [u8]) -> Whole {
        let byte_len = head.len() + body.len();
        if byte_len > piece(self.into.capacity()) {
            return Whole::Never;
        }
        match self.into.peek(byte_len) {
            Ok(seen) if seen.len() < byte_len => return Whole::NotNow,
            Ok(seen) if seen.starts_with(head) => body.copy_from_slice(&seen[head.len()..byte_len]),
            // Any error is found again where the parts are received.
            _ => return Whole::Never,
        }
        self.has_news = true;
        if self.into.advance(byte_len).is_ok() { Whole::Moved } else { Whole::Never }
    }

    fn try_recv(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        let (rest, piece) = (into.len(), piece(self.into.capacity()).min(into.len()));
        // What of a message is still to come tells how long it is where it begins.
        self.is_past_caches = rest > piece && (self.is_past_caches || rest >= self.past_caches);
        let into = &mut into[..piece];
        let read = if self.is_past_caches { self.into.try_read_past_caches(into) } else { self.into.try_read(into) };
        let came = read.map_err(ring_error)?;
        self.has_news |= came > 0;
        Ok(came)
    }

    fn announce(&mut self) {
        if std::mem::take(&mut self.has_news) {
            self.peer.ring();
        }
    }
}

impl Drop for MemoryLink {
    fn drop(&mut self) {
        self.out.close();
        self.into.close();
        self.peer.ring();
    }
}

impl Windows for BoardWindows {
    fn try_offer(&mut self, head: &[u8], parts: &[&[u8]], lease: Lease) -> Result<bool, LinkError> {
        let byte_len = parts.iter().map(|part| part.len()).sum();
        let is_choice = byte_len >= board::WORTH_FETCHING && !self.seat.shows(parts) && self.reaches(parts, lease);
        let way = if is_choice { self.scales.choose() } else { self.scales.rest() };
        let began = self.scales.start(byte_len);
        let made = self.seat.try_offer(head, parts, (lease, way == Way::Fetch)).map_err(board_error)?;
        if made {
            self.scales.weigh(Move::In, byte_len, began.filter(|_| way == Way::Copy));
            self.scales.count();
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
        let began = self.scales.start(seen.len());
        copies(into, seen);
        self.scales.weigh(Move::Out, seen.len(), began);
    }

    fn fetch(&mut self, rank: usize, address: usize, into: &mut [u8]) -> Result<(), LinkError> {
        let Some(neighbours) = &mut self.neighbours else {
            return Err(LinkError::corrupt(rank, "an offer in a process that cannot be read"));
        };
        let began = self.scales.start(into.len());
        neighbours.fetch(rank, address, into)?;
        self.scales.weigh(Move::Fetched, into.len(), began);
        Ok(())
    }

    fn try_settle(&mut self) -> Result<bool, LinkError> {
        if let Some(neighbours) = &mut self.neighbours {
            // A peer does not leave before this rank has said that it is done.
            let began = self.scales.start_confirming();
            neighbours.confirm()?;
            self.scales.confirmed(began);
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

/// How much is moved at a time: the other side learns of a piece while the next one is copied, so that both copy at once.
fn piece(capacity: usize) -> usize {
    PIECE_BYTE_LEN.min(capacity / 2)
}

fn ring_error(error: RingError) -> LinkError {
    match error {
        RingError::Closed => LinkError::Left { rank: None },
        other => LinkError::corrupt(None, other.to_string()),
    }
}

fn board_error(error: BoardError) -> LinkError {
    match error {
        BoardError::Closed { member } => LinkError::Left { rank: Some(member) },
        BoardError::Corrupt { member } => LinkError::corrupt(member, "it has written nonsense on the board"),
        other => LinkError::Failed(other.to_string()),
    }
}

const PIECE_BYTE_LEN: usize = 32 << 10;
/// The longest frames that are sent in one go. A peer that sleeps is woken after the last piece.
const WHOLE_BYTE_LEN: usize = 256 << 10;
/// Of what is left of longer messages, the lines of the pieces that follow come as they are copied. By measurement: see
/// docs/tuning.md.
const SHORT_BYTE_LEN: usize = 4 * PIECE_BYTE_LEN;

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use phalanx_core::link::Mesh;
    use phalanx_mem::ring;

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

    #[test]
    fn whoever_sleeps_hears_of_what_moved_once_it_is_announced() {
        let bell = Arc::new(Bell::new().expect("memory"));
        let (out, mut theirs) = ring::pair(64).expect("memory");
        let (mut back, into) = ring::pair(64).expect("memory");
        let mut mesh = Mesh::new(vec![None, Some(Box::new(MemoryLink::new(out, into, Arc::clone(&bell))))]);
        let hears = |armed| {
            let began = Instant::now();
            bell.sleep(armed, LONG);
            began.elapsed() < LONG
        };
        let armed = bell.arm();
        assert_eq!(mesh.link(1).expect("linked").try_send_parts([b"head", b"body"]), Ok(8));
        mesh.announce();
        assert!(hears(armed));
        let (mut bytes, armed) = ([0; 8], bell.arm());
        assert_eq!((theirs.try_read(&mut bytes), &bytes), (Ok(8), b"headbody"));
        back.try_write(b"back").expect("room");
        assert_eq!(mesh.link(1).expect("linked").try_recv(&mut bytes), Ok(4));
        assert_eq!(bell.arm(), armed, "rung before");
        mesh.announce();
        assert!(hears(armed));
        let armed = bell.arm();
        mesh.announce();
        assert_eq!(bell.arm(), armed, "rung for nothing");
    }

    #[test]
    fn frames_go_and_come_whole_or_not_at_all() {
        let bells = [(); 2].map(|()| Arc::new(Bell::new().expect("memory")));
        let [(first, second), (third, fourth)] = [(); 2].map(|()| ring::pair(64).expect("memory"));
        let mut mine = MemoryLink::new(first, fourth, Arc::clone(&bells[1]));
        let mut theirs = MemoryLink::new(third, second, Arc::clone(&bells[0]));
        let recv = |theirs: &mut MemoryLink, head: &[u8], len| {
            let mut body = vec![0; len];
            (theirs.try_recv_frame(head, &mut body), body)
        };
        // What wraps around in the ring comes in parts.
        let take = |theirs: &mut MemoryLink, head: &[u8], len| match recv(theirs, head, len) {
            (Whole::Moved, came) => came,
            (whole, _) => {
                assert_eq!(whole, Whole::NotNow);
                let mut came = vec![0; head.len() + len];
                assert_eq!(theirs.try_recv(&mut came), Ok(came.len()));
                assert!(came.starts_with(head));
                came.split_off(head.len())
            }
        };
        assert_eq!(recv(&mut theirs, b"head", 4), (Whole::NotNow, vec![0; 4]));
        for round in 0..100_u8 {
            let body: Vec<u8> = (0..round % 29).map(|at| at ^ round).collect();
            assert_eq!(mine.try_send_frame(&[round; 4], &body), Whole::Moved);
            assert_ne!(recv(&mut theirs, &[!round; 4], body.len()).0, Whole::Moved);
            assert_ne!(recv(&mut theirs, &[round; 4], body.len() + 1).0, Whole::Moved);
            assert_eq!(take(&mut theirs, &[round; 4], body.len()), body);
        }
        assert_eq!(mine.try_send_frame(&[0; 4], &[0; 61]), Whole::Never, "longer than the ring");
        assert_eq!(mine.try_send_frame(&[0; 33], &[]), Whole::Never, "a head that takes more than a piece");
        assert_eq!(mine.try_send_frame(&[8; 4], &[9; 56]), Whole::Moved, "in two pieces");
        assert_eq!(recv(&mut theirs, &[8; 4], 56).0, Whole::Never, "the second may be longer in coming");
        let mut came = [0; 60];
        let (first, second) = came.split_at_mut(32);
        assert_eq!([theirs.try_recv(first), theirs.try_recv(second)], [Ok(32), Ok(28)]);
        assert_eq!(came.split_at(4), (&[8; 4][..], &[9; 56][..]));
        assert_eq!(mine.try_send_parts([&[1; 4], &[2; 28]]), Ok(32));
        assert_eq!(mine.try_send_frame(&[1; 4], &[3; 28]), Whole::Moved);
        assert_eq!(mine.try_send_frame(&[1; 4], &[]), Whole::Never, "there is no room");
        drop(mine);
        assert_eq!(theirs.try_send_frame(&[1; 4], &[]), Whole::Never);
        assert_eq!([28, 28].map(|len| take(&mut theirs, &[1; 4], len)), [[2; 28], [3; 28]], "sent before");
        assert_eq!(recv(&mut theirs, &[1; 4], 0).0, Whole::Never);
    }

    #[test]
    fn a_message_is_received_past_the_caches_from_its_first_piece_to_its_last_but_one() {
        let bell = Arc::new(Bell::new().expect("memory"));
        let (mut theirs, into) = ring::pair(64).expect("memory");
        let (out, _back) = ring::pair(64).expect("memory");
        let mut link = MemoryLink::new(out, into, bell);
        link.past_caches = 100;
        let sent: Vec<u8> = (0..200).collect();
        for message in [&sent[..100], &sent[100..199]] {
            let (mut came, mut at, mut past) = (vec![0; message.len()], 0, vec![]);
            while at < came.len() {
                theirs.try_write(&message[at..][..32.min(message.len() - at)]).expect("open");
                at += link.try_recv(&mut came[at..]).expect("open");
                past.push(link.is_past_caches);
            }
            assert_eq!(came, message);
            assert_eq!(past, if came.len() == 100 { [true, true, true, false] } else { [false; 4] });
        }
    }

    const LONG: Duration = Duration::from_secs(60);
}
