//! Links of rings. What moved in a poll is announced by one ring of the peer's bell.

use std::hint;
use std::sync::Arc;

use phalanx_core::link::{Link, LinkError, Whole, is_led};
use phalanx_mem::LINE;
use phalanx_mem::ring::{Consumer, Producer, RingError};

use crate::bell::Bell;
use crate::caches;

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

impl MemoryLink {
    /// The link of these two rings to whoever has this bell.
    pub(crate) fn new(out: Producer, into: Consumer, peer: Arc<Bell>) -> MemoryLink {
        let past_caches = caches::past_by_message();
        MemoryLink { out, into, peer, has_news: false, past_caches, is_past_caches: false }
    }

    /// Takes note of what went of the rest of a message.
    fn note(&mut self, sent: Result<usize, RingError>, rest: usize) -> Result<usize, LinkError> {
        let sent = sent.map_err(ring_error)?;
        self.has_news |= sent > 0;
        if rest <= SHORT_BYTE_LEN {
            self.out.expect_another(sent);
        }
        Ok(sent)
    }

    /// Fills the rest of a body, of which so much has come, piece by piece while the peer sends it; false where that stops for longer than a
    /// piece takes. It begins so many bytes from here, and stays in the ring so that it can still be received in parts.
    fn copy_as_it_comes(&mut self, begin: usize, mut came: usize, body: &mut [u8]) -> bool {
        let mut looks = 0;
        while came < body.len() {
            let Ok(seen) = self.into.peek(begin + body.len()) else { return false };
            let there = body.len().min(seen.len() - begin);
            if there > came {
                body[came..there].copy_from_slice(&seen[begin + came..begin + there]);
                (came, looks) = (there, 0);
            } else if looks < LOOKS {
                looks += 1;
                hint::spin_loop();
            } else {
                return false;
            }
        }
        true
    }
}

impl Link for MemoryLink {
    fn try_send(&mut self, bytes: &[u8]) -> Result<usize, LinkError> {
        self.try_send_parts([bytes, &[]])
    }

    fn try_send_parts(&mut self, [first, second]: [&[u8]; 2]) -> Result<usize, LinkError> {
        let piece = piece(first.len() + second.len(), self.out.capacity());
        let of_first = first.len().min(piece);
        let of_second = second.len().min(piece - of_first);
        let sent = self.out.try_write_parts([&first[..of_first], &second[..of_second]]);
        self.note(sent, first.len() + second.len())
    }

    fn try_send_led(&mut self, head: &[u8], body: &[u8]) -> Result<usize, LinkError> {
        let of_body = body.len().min(piece(body.len(), self.out.capacity()));
        let sent = self.out.try_write_led(head, &body[..of_body]);
        self.note(sent, head.len() + body.len())
    }

    fn try_send_frame(&mut self, head: &[u8], body: &[u8]) -> Whole {
        let byte_len = head.len() + body.len();
        let is_led = is_led(head, body.len());
        let fits = head.len() <= piece(byte_len, self.out.capacity())
            && byte_len <= WHOLE_BYTE_LEN
            && self.out.has_room(byte_len + if is_led { LINE } else { 0 });
        let mut send = || if is_led { self.try_send_led(head, body) } else { self.try_send_parts([head, body]) };
        // Any error is found again where the parts are sent.
        let Some(Ok(sent)) = fits.then(&mut send) else { return Whole::Never };
        let mut rest = &body[sent - head.len()..];
        // There is room for all. A peer that closes the ring meanwhile would have read none of it.
        while let Ok(sent @ 1..) = self.try_send(rest) {
            rest = &rest[sent..];
        }
        Whole::Moved
    }

    fn try_recv_frame(&mut self, head: &[u8], body: &mut [u8]) -> Whole {
        let lead = if is_led(head, body.len()) { self.into.gap_behind(head.len()) } else { 0 };
        let begin = head.len() + lead;
        let byte_len = begin + body.len();
        if head.len() + body.len() > WHOLE_BYTE_LEN || byte_len > self.into.before_the_wrap() {
            return Whole::Never;
        }
        // Any error is found again where the parts are received.
        let Ok(seen) = self.into.peek(byte_len) else { return Whole::Never };
        if seen.len() < byte_len.min(begin + 1) {
            return Whole::NotNow;
        }
        if !seen.starts_with(head) {
            return Whole::Never;
        }
        // What is short is there by now: it is not to pay for another look.
        let came = body.len().min(seen.len() - begin);
        body[..came].copy_from_slice(&seen[begin..begin + came]);
        if came < body.len() && !self.copy_as_it_comes(begin, came, body) {
            return Whole::Never;
        }
        self.has_news = true;
        if self.into.advance(byte_len).is_ok() { Whole::Moved } else { Whole::Never }
    }

    fn try_recv_led(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        if self.into.try_skip_to_line().map_err(ring_error)? { self.try_recv(into) } else { Ok(0) }
    }

    fn try_recv(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        let (rest, piece) = (into.len(), LONG_PIECE.min(self.into.capacity() / 2).min(into.len()));
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

/// How much is sent at a time of what is left of a message: the other side learns of a piece while the next one is copied, so that both
/// copy at once.
fn piece(left: usize, capacity: usize) -> usize {
    let piece = if left <= SHORT_BYTE_LEN { SHORT_PIECE } else { LONG_PIECE };
    piece.min(capacity / 2)
}

fn ring_error(error: RingError) -> LinkError {
    match error {
        RingError::Closed => LinkError::Left { rank: None },
        other => LinkError::corrupt(None, other.to_string()),
    }
}

const SHORT_PIECE: usize = 16 << 10;
const LONG_PIECE: usize = 32 << 10;
/// The longest frames that are sent in one go, and received so. A peer that sleeps is woken after the last piece.
const WHOLE_BYTE_LEN: usize = 256 << 10;
/// Of what is left of longer messages, the lines of the pieces that follow come as they are copied, and pieces are long ones. By
/// measurement: see docs/tuning.md.
const SHORT_BYTE_LEN: usize = 128 << 10;
/// How often the next piece of such a frame is looked for: a few microseconds, in which a sender that has its core is through with one.
const LOOKS: u32 = 200;

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use phalanx_core::link::{LONG_BODY, Mesh};
    use phalanx_mem::ring;

    use super::*;

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
                assert_eq!(whole, Whole::Never);
                let (mut came, mut at) = (vec![0; head.len() + len], 0);
                while at < came.len() {
                    at += theirs.try_recv(&mut came[at..]).expect("it was sent");
                }
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
        assert_eq!(take(&mut theirs, &[8; 4], 56), [9; 56]);
        assert_eq!(mine.try_send_parts([&[1; 4], &[2; 28]]), Ok(32));
        assert_eq!(mine.try_send_frame(&[1; 4], &[3; 28]), Whole::Moved);
        assert_eq!(mine.try_send_frame(&[1; 4], &[]), Whole::Never, "there is no room");
        drop(mine);
        assert_eq!(theirs.try_send_frame(&[1; 4], &[]), Whole::Never);
        assert_eq!([28, 28].map(|len| take(&mut theirs, &[1; 4], len)), [[2; 28], [3; 28]], "sent before");
        assert_eq!(recv(&mut theirs, &[1; 4], 0).0, Whole::Never);
    }

    #[test]
    fn a_frame_is_received_whole_while_it_is_sent_and_in_parts_where_its_sender_stops() {
        let bell = Arc::new(Bell::new().expect("memory"));
        let [out, back] = [(); 2].map(|()| ring::pair(512 << 10).expect("memory"));
        let mut mine = MemoryLink::new(out.0, back.1, Arc::clone(&bell));
        let mut theirs = MemoryLink::new(back.0, out.1, bell);
        let body: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
        let mut came = vec![0; body.len()];
        assert_eq!(mine.try_send_frame(b"one!", &body), Whole::Moved);
        assert_eq!(theirs.try_recv_frame(b"one!", &mut came), Whole::Moved, "of many pieces");
        assert!(came == body);
        let first = mine.try_send_led(b"two!", &body).expect("open") - 4;
        assert!(first < body.len());
        assert_eq!(theirs.try_recv_frame(b"two!", &mut came), Whole::Never, "its sender has stopped");
        let in_parts = |theirs: &mut MemoryLink, head: &[u8; 4], came: &mut [u8]| {
            let (mut theirs_head, mut at) = ([0; 4], 0);
            assert_eq!((theirs.try_recv(&mut theirs_head), &theirs_head), (Ok(4), head));
            while at < came.len() {
                let into = &mut came[at..];
                at += if at == 0 { theirs.try_recv_led(into) } else { theirs.try_recv(into) }.expect("open");
            }
        };
        thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let mut rest = &body[first..];
                while !rest.is_empty() {
                    rest = &rest[mine.try_send(rest).expect("open")..];
                }
                while mine.try_send_frame(b"last", &body[..LAST]) != Whole::Moved {}
            });
            let mut came = vec![0; body.len()];
            in_parts(&mut theirs, b"two!", &mut came);
            assert!(came == body);
            let mut came = vec![0; LAST];
            let whole = loop {
                match theirs.try_recv_frame(b"last", &mut came) {
                    Whole::NotNow => {}
                    whole => break whole,
                }
            };
            if whole == Whole::Never {
                // Its sender has stopped for long, as others have the cores.
                in_parts(&mut theirs, b"last", &mut came);
            }
            assert!(came == body[..LAST]);
            sender.join().expect("no panic");
        });
    }

    #[test]
    fn long_bodies_arrive_however_each_side_moves_them() {
        let bell = Arc::new(Bell::new().expect("memory"));
        let ([out, back], mut random) = ([(); 2].map(|()| ring::pair(64 << 10).expect("memory")), fastrand::Rng::new());
        let mut mine = MemoryLink::new(out.0, back.1, Arc::clone(&bell));
        let mut theirs = MemoryLink::new(back.0, out.1, bell);
        for round in 0..1000_u32 {
            let (head, body) = (round.to_le_bytes(), vec![round as u8; random.usize(LONG_BODY - 2..16_000)]);
            let sent = match random.bool() {
                true => mine.try_send_frame(&head, &body),
                false if body.len() < LONG_BODY => moved(mine.try_send_parts([&head, &body]), 4 + body.len()),
                false => moved(mine.try_send_led(&head, &body), 4 + body.len()),
            };
            assert_eq!(sent, Whole::Moved, "there is room");
            let mut came = vec![0; body.len()];
            if random.bool() || theirs.try_recv_frame(&head, &mut came) != Whole::Moved {
                let (mut theirs_head, at) = ([0; 4], random.usize(1..body.len()));
                assert_eq!((theirs.try_recv(&mut theirs_head), theirs_head), (Ok(4), head));
                let (first, rest) = came.split_at_mut(at);
                let first = if body.len() < LONG_BODY { theirs.try_recv(first) } else { theirs.try_recv_led(first) };
                assert_eq!([first, theirs.try_recv(rest)], [Ok(at), Ok(body.len() - at)]);
            }
            assert!(came == body, "frame {round}");
        }
        assert_eq!(theirs.try_recv_led(&mut [0; LONG_BODY]), Ok(0), "nothing is there");
        let moved = mine.try_send_led(b"head", &[1; LONG_BODY]);
        assert_eq!((moved, theirs.try_recv(&mut [0; 4])), (Ok(4 + LONG_BODY), Ok(4)));
        drop(mine);
        assert_eq!(theirs.try_recv_led(&mut [0; LONG_BODY]), Ok(LONG_BODY));
        assert_eq!(theirs.try_recv_led(&mut [0; LONG_BODY]), Err(LinkError::Left { rank: None }));
    }

    fn moved(sent: Result<usize, LinkError>, all: usize) -> Whole {
        if sent == Ok(all) { Whole::Moved } else { Whole::NotNow }
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
    /// So that it does not wrap around in its ring.
    const LAST: usize = 64 << 10;
}
