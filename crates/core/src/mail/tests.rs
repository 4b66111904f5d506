//! Messages over a pipe in memory that gives and takes a few bytes at a time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::*;
use crate::ErrorKind;
use crate::link::{Link, LinkError, Whole};
use crate::player::Data;

#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    closed: bool,
}

struct End {
    out: Arc<Mutex<Pipe>>,
    into: Arc<Mutex<Pipe>>,
    step: usize,
}

impl Link for End {
    fn try_send(&mut self, bytes: &[u8]) -> Result<usize, LinkError> {
        let mut pipe = self.out.lock().unwrap();
        if pipe.closed {
            return Err(LinkError::Closed { rank: None });
        }
        let some = bytes.len().min(self.step).min(64_usize.saturating_sub(pipe.bytes.len()));
        pipe.bytes.extend(&bytes[..some]);
        Ok(some)
    }

    fn try_send_frame(&mut self, head: &[u8], body: &[u8]) -> Whole {
        let mut pipe = self.out.lock().unwrap();
        if pipe.closed || pipe.bytes.len() + head.len() + body.len() > 64 {
            return Whole::Never;
        }
        pipe.bytes.extend(head.iter().chain(body));
        Whole::Moved
    }

    fn try_recv_frame(&mut self, head: &[u8], body: &mut [u8]) -> Whole {
        let pipe = &mut self.into.lock().unwrap().bytes;
        if pipe.len() < head.len() + body.len() {
            return Whole::NotNow;
        }
        if !pipe.iter().zip(head).all(|(came, due)| came == due) {
            return Whole::Never;
        }
        let came = pipe.drain(..head.len() + body.len()).skip(head.len());
        body.iter_mut().zip(came).for_each(|(slot, byte)| *slot = byte);
        Whole::Moved
    }

    fn try_recv(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        let mut pipe = self.into.lock().unwrap();
        if pipe.closed && pipe.bytes.is_empty() {
            return Err(LinkError::Closed { rank: None });
        }
        let some = into.len().min(self.step).min(pipe.bytes.len());
        into.iter_mut().zip(pipe.bytes.drain(..some)).for_each(|(slot, byte)| *slot = byte);
        Ok(some)
    }

    /// A byte stands between a head and the body that it leads.
    fn try_send_led(&mut self, head: &[u8], body: &[u8]) -> Result<usize, LinkError> {
        if self.out.lock().unwrap().bytes.len() + head.len() + 1 >= 64 {
            return self.try_send(&[]);
        }
        self.out.lock().unwrap().bytes.extend(head.iter().chain(&[GAP]));
        Ok(head.len() + self.try_send(body)?)
    }

    fn try_recv_led(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        let gap = (!into.is_empty()).then(|| self.into.lock().unwrap().bytes.pop_front()).flatten();
        match gap {
            Some(byte) if byte != GAP => Err(LinkError::corrupt(None, "a body begins where none was led")),
            _ => self.try_recv(into),
        }
    }
}

const GAP: u8 = 0xee;

/// Two ranks with a pipe between them, which moves at most `step` bytes at a time.
struct Two {
    mail: [Mail; 2],
    mesh: [Mesh; 2],
    pipes: [Arc<Mutex<Pipe>>; 2],
}

impl Two {
    fn new(step: usize) -> Two {
        Two::protected(step, true)
    }

    fn protected(step: usize, checksum: bool) -> Two {
        let pipes = [Arc::default(), Arc::default()];
        let end = |rank: usize| -> Box<dyn Link> {
            Box::new(End { out: Arc::clone(&pipes[rank]), into: Arc::clone(&pipes[1 - rank]), step })
        };
        let mesh = [
            Mesh::new(vec![None, Some(end(0))]).with_checksum(checksum),
            Mesh::new(vec![Some(end(1)), None]).with_checksum(checksum),
        ];
        Two { mail: [0, 1].map(|rank| Mail::new(rank, 2, 5)), mesh, pipes }
    }

    /// Polls both ranks until nothing moves.
    fn run(&mut self) {
        while self.mail[0].poll(&mut self.mesh[0], None) | self.mail[1].poll(&mut self.mesh[1], None) {}
    }

    fn send(&mut self, tag: u32, text: &[u8]) -> Ticket {
        let checksum = self.mesh[0].checksum();
        self.mail[0].send(1, tag, DType::U8, Body::Owned(Buffer::copied_from(text)), checksum)
    }

    fn recv(&mut self, from: Option<usize>, tag: u32, len: usize) -> Ticket {
        self.mail[1].recv(from, tag, DType::U8, Body::Owned(Buffer::zeroed(len)))
    }

    fn send_at_once(&mut self, tag: u32, text: &[u8]) -> Whole {
        self.mail[0].send_at_once(&mut self.mesh[0], 1, tag, DType::U8, text)
    }

    /// What came at once, or why nothing did.
    fn recv_at_once(&mut self, tag: u32, len: usize) -> Result<Vec<u8>, Whole> {
        let mut body = vec![0; len];
        match self.mail[1].recv_at_once(&mut self.mesh[1], 0, tag, DType::U8, &mut body) {
            Whole::Moved => Ok(body),
            not => Err(not),
        }
    }

    fn recv_lent(&mut self, tag: u32, len: usize) -> Ticket {
        self.mail[1].recv(Some(0), tag, DType::U8, Body::Lent(len))
    }

    fn received(&mut self, ticket: Ticket) -> Vec<u8> {
        let delivery = self.mail[1].take(ticket).expect("has come").expect("is right");
        assert_eq!(delivery.peer, 0);
        delivery.buffer.expect("owned").as_bytes().to_vec()
    }
}

#[test]
fn messages_are_matched_by_tag_and_keep_their_order() {
    for step in [1, 7, 64] {
        let mut two = Two::new(step);
        for (tag, text) in [(1, &b"first"[..]), (2, b"other"), (1, b"again")] {
            two.send(tag, text);
        }
        let other = two.recv(Some(0), 2, 5);
        two.run();
        assert_eq!(two.received(other), b"other");
        let (first, again) = (two.recv(None, 1, 5), two.recv(Some(0), 1, 5));
        two.run();
        assert_eq!(two.received(first), b"first");
        assert_eq!(two.received(again), b"again");
    }
}

#[test]
fn a_long_message_and_an_empty_one_arrive_whole() {
    for checksum in [true, false] {
        let mut two = Two::protected(13, checksum);
        let text: Vec<u8> = (0..10_000).map(|at| at as u8).collect();
        let (long, empty) = (two.recv(Some(0), 0, text.len()), two.recv(Some(0), 0, 0));
        let sent = two.send(0, &text);
        two.send(0, b"");
        two.run();
        assert_eq!(two.received(long), text);
        assert_eq!(two.received(empty), b"");
        assert!(two.mail[0].take(sent).unwrap().is_ok());
        let late = two.send(3, b"");
        two.run();
        let kept = two.recv(None, 3, 0);
        two.run();
        assert_eq!(two.received(kept), b"");
        assert!(two.mail[0].take(late).unwrap().is_ok());
    }
}

#[test]
fn a_message_of_another_length_is_refused_and_the_next_one_is_right() {
    let mut two = Two::new(9);
    let short = two.recv(Some(0), 0, 3);
    two.send(0, b"four");
    two.send(0, b"ok");
    two.run();
    let error = two.mail[1].take(short).unwrap().unwrap_err();
    assert_eq!(error.to_string(), "operation 0: rank 1 called with count 3, rank 0 with count 4");
    assert_eq!(error.scope(), crate::Scope::Call);
    let next = two.recv(Some(0), 0, 2);
    two.run();
    assert_eq!(two.received(next), b"ok");
}

#[test]
fn beyond_the_limit_the_sender_waits_until_somebody_asks() {
    let mut two = Two::new(64);
    let [alice, bob] = two.mail;
    two.mail = [alice, bob.with_kept_limit(100)];
    let asked = two.recv(Some(0), 9, 1);
    let big = two.send(1, &[7; 5000]);
    two.run();
    assert!(two.mail[0].take(big).is_none());
    assert_eq!(two.mail[0].stuck(big), [Stuck { peer: 1, on: Waiting::Taking }]);
    assert_eq!(two.mail[1].stuck(asked), [Stuck { peer: 0, on: Waiting::Giving }]);
    let wanted = two.recv(Some(0), 1, 5000);
    two.run();
    assert_eq!(two.received(wanted), [7; 5000]);
    assert!(two.mail[0].take(big).unwrap().is_ok());
}

#[test]
fn a_flipped_byte_and_a_lost_peer_are_told() {
    let mut two = Two::new(64);
    let ticket = two.recv(Some(0), 0, 5);
    two.send(0, b"hello");
    assert!(two.mail[0].poll(&mut two.mesh[0], None));
    *two.pipes[0].lock().unwrap().bytes.get_mut(34).unwrap() ^= 4;
    two.run();
    let error = two.mail[1].take(ticket).unwrap().unwrap_err();
    assert_eq!(error.to_string(), "rank 0 sent corrupt data: checksum of a frame does not match");

    let mut two = Two::new(64);
    let (sure, any) = (two.recv(Some(0), 0, 5), two.recv(None, 1, 5));
    two.send(2, b"kept");
    two.mail[0].poll(&mut two.mesh[0], None);
    two.pipes[0].lock().unwrap().closed = true;
    two.run();
    for ticket in [sure, any] {
        assert_eq!(two.mail[1].take(ticket).unwrap().unwrap_err().kind(), ErrorKind::Peer);
    }
    let kept = two.recv(Some(0), 2, 4);
    assert_eq!(two.received(kept), b"kept");
}

#[test]
fn what_a_peer_sent_before_it_left_comes_although_nothing_can_be_sent_to_it() {
    let mut two = Two::protected(64, false);
    // As much as the pipe holds.
    let sent = [0, 1].map(|tag| two.send(tag, b""));
    two.mail[0].poll(&mut two.mesh[0], None);
    assert!(sent.into_iter().all(|sent| two.mail[0].take(sent).is_some_and(|end| end.is_ok())));
    for pipe in &two.pipes {
        pipe.lock().unwrap().closed = true;
    }
    let answer = |mail: &mut Mail| mail.send(0, 0, DType::U8, Body::Owned(Buffer::zeroed(1)), false);
    let (refused, first) = (answer(&mut two.mail[1]), two.recv(Some(0), 0, 0));
    two.run();
    assert_eq!(two.mail[1].take(refused).unwrap().unwrap_err().kind(), ErrorKind::Peer);
    assert_eq!(two.received(first), b"");
    let again = answer(&mut two.mail[1]);
    assert_eq!(two.mail[1].take(again).unwrap().unwrap_err().kind(), ErrorKind::Peer);
    let (second, third) = (two.recv(Some(0), 1, 0), two.recv(Some(0), 2, 1));
    two.run();
    assert_eq!(two.received(second), b"");
    assert_eq!(two.mail[1].take(third).unwrap().unwrap_err().kind(), ErrorKind::Peer);
}

#[test]
fn nobody_waits_for_a_rank_that_left() {
    let mut two = Two::new(64);
    let asked = two.recv(Some(0), 3, 4);
    let unasked = two.send(1, &[7; 5000]);
    two.run();
    two.mail[1].leave();
    two.send(3, b"last");
    two.run();
    assert!(two.mail[0].take(unasked).unwrap().is_ok());
    assert_eq!(two.received(asked), b"last");
}

/// Whatever a peer sends, there is a typed error or nothing yet: no panic, no endless loop, no memory beyond the limit.
#[test]
fn any_bytes_at_all_are_survived() {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..3000 {
        let mut two = Two::new(64);
        let [alice, bob] = two.mail;
        two.mail = [alice, bob.with_kept_limit(4096)];
        let tickets = [two.recv(Some(0), 0, 16), two.recv(None, 3, 0)];
        let honest = fingerprint(5, 0, random.u32(0..4), DType::U8, random.usize(0..40)).encode();
        let mut bytes: Vec<u8> =
            honest.iter().copied().chain(std::iter::repeat_with(|| random.u8(..)).take(32)).collect();
        for _ in 0..random.usize(0..4) {
            let at = random.usize(0..bytes.len());
            bytes[at] = random.u8(..);
        }
        two.pipes[0].lock().unwrap().bytes.extend(bytes);
        two.run();
        for ticket in tickets {
            // The checksum of a message that was made up does not match, so nothing but an empty one can be right.
            if let Some(Ok(delivery)) = two.mail[1].take(ticket) {
                assert!(delivery.buffer.is_some_and(|buffer| buffer.is_empty()));
            }
        }
    }
}

#[test]
fn lent_bytes_move_only_while_they_are_shown() {
    for step in [1, 7, 64] {
        let mut two = Two::new(step);
        let text: Vec<u8> = (0..300).map(|at| at as u8).collect();
        let checksum = two.mesh[0].checksum();
        let sent = two.mail[0].send(1, 0, DType::U8, Body::Lent(text.len()), checksum);
        let came = two.recv_lent(0, text.len());
        two.run();
        assert!(two.pipes[0].lock().unwrap().bytes.is_empty());
        let (mut ends, mut room) = ([None, None], vec![0; text.len()]);
        while ends.iter().any(Option::is_none) {
            let mut sending = Data { input: &text, output: &mut [] };
            let mut receiving = Data { input: &[], output: &mut room };
            for (rank, ticket, data) in [(0, sent, &mut sending), (1, came, &mut receiving)] {
                two.mail[rank].poll(&mut two.mesh[rank], Some(Shown { ticket, data }));
                ends[rank] = ends[rank].take().or(two.mail[rank].take(ticket));
            }
        }
        assert!(ends.into_iter().flatten().all(|end| end.unwrap().buffer.is_none()));
        assert_eq!(room, text);
    }
}

#[test]
fn whoever_has_to_show_its_room_is_told_when_a_message_comes() {
    let mut two = Two::new(64);
    let came = two.recv_lent(4, 3);
    two.run();
    assert!(!two.mail[1].has_news());
    two.send(4, b"abc");
    two.run();
    assert!(two.mail[1].has_news() && two.mail[1].take(came).is_none());
    let mut room = [0; 3];
    let mut data = Data { input: &[], output: &mut room };
    two.mail[1].poll(&mut two.mesh[1], Some(Shown { ticket: came, data: &mut data }));
    assert!(two.mail[1].take(came).unwrap().is_ok());
    assert_eq!(&room, b"abc");
}

#[test]
fn a_message_that_came_before_its_room_was_lent_is_given_to_be_copied() {
    let mut two = Two::new(64);
    // Somebody waits for another message, so that this one is taken in.
    two.recv(Some(0), 9, 1);
    two.send(1, b"early");
    two.run();
    let came = two.recv_lent(1, 5);
    assert_eq!(two.received(came), b"early");
    let short = two.recv_lent(2, 1);
    two.send(2, b"too long");
    two.run();
    assert_eq!(two.mail[1].take(short).unwrap().unwrap_err().scope(), crate::Scope::Call);
}

/// Each of three sends to the next what no pipe holds, and asks for nothing before that has gone.
#[test]
fn a_circle_of_ranks_that_send_first_comes_round() {
    let pipes: [[Arc<Mutex<Pipe>>; 3]; 3] = Default::default();
    let mut ranks = [0, 1, 2].map(|rank| {
        let end = |peer: usize| -> Box<dyn Link> {
            Box::new(End { out: Arc::clone(&pipes[rank][peer]), into: Arc::clone(&pipes[peer][rank]), step: 64 })
        };
        let links = (0..3).map(|peer| (peer != rank).then(|| end(peer))).collect();
        (Mail::new(rank, 3, 5), Mesh::new(links))
    });
    let text = |rank: usize| vec![rank as u8; 1000];
    let sent = [0, 1, 2].map(|rank| {
        let body = Body::Owned(Buffer::copied_from(&text(rank)));
        ranks[rank].0.send((rank + 1) % 3, 8, DType::U8, body, false)
    });
    while ranks.iter_mut().fold(false, |moved, (mail, mesh)| mail.poll(mesh, None) | mail.take_in(mesh) | moved) {}
    for (rank, (mail, _)) in ranks.iter_mut().enumerate() {
        assert!(mail.take(sent[rank]).is_some_and(|end| end.is_ok()), "{rank} has sent");
        let before = (rank + 2) % 3;
        let came = mail.recv(Some(before), 8, DType::U8, Body::Owned(Buffer::zeroed(1000)));
        let came = mail.take(came).expect("was kept").expect("is right");
        assert_eq!(came.buffer.expect("owned").as_bytes(), text(before));
    }
}

#[test]
fn what_nobody_asks_for_is_left_where_it_is_until_a_rank_has_waited() {
    let mut two = Two::new(64);
    // A look at a peer that has sent nothing changes nothing.
    assert!(!two.mail[1].take_in(&mut two.mesh[1]));
    two.send(1, b"early");
    two.run();
    assert!(!two.pipes[0].lock().unwrap().bytes.is_empty());
    assert!(two.mail[1].take_in(&mut two.mesh[1]));
    let came = two.recv(Some(0), 1, 5);
    assert_eq!(two.received(came), b"early");
}

/// It would be copied twice, and has all the time until somebody asks.
#[test]
fn what_nobody_asks_for_is_left_where_it_is_while_something_goes_to_its_sender() {
    let mut two = Two::new(64);
    let text = [7; 1000];
    two.send(1, &text);
    let back = Body::Owned(Buffer::copied_from(&text));
    let back = two.mail[1].send(0, 2, DType::U8, back, two.mesh[1].checksum());
    let asked = two.mail[0].recv(Some(1), 2, DType::U8, Body::Owned(Buffer::zeroed(text.len())));
    two.run();
    assert!(two.mail[1].take(back).expect("has gone").is_ok());
    assert!(two.mail[0].take(asked).expect("has come").is_ok());
    assert_eq!(two.pipes[0].lock().unwrap().bytes.len(), 64, "nothing was taken");
    let came = two.recv(Some(0), 1, text.len());
    two.run();
    assert_eq!(two.received(came), text);
}

/// Whoever waits for something else would take it for that.
#[test]
fn a_message_that_nobody_asked_for_is_nobodys_progress() {
    let mut two = Two::new(64);
    let text = [7; 1000];
    two.send(1, &text);
    for _ in 0..20 {
        two.mail[0].poll(&mut two.mesh[0], None);
        assert!(!two.mail[1].poll(&mut two.mesh[1], None));
        two.mail[1].take_in(&mut two.mesh[1]);
    }
    let came = two.recv(Some(0), 1, text.len());
    assert_eq!(two.received(came), text);
}

#[test]
fn short_messages_that_nobody_asks_for_are_bounded_too() {
    let mut two = Two::protected(64, false);
    let [alice, bob] = two.mail;
    two.mail = [alice, bob.with_kept_limit(4096)];
    two.recv(Some(0), 9, 1);
    let sent: Vec<_> = (0..10_000).map(|_| two.send(1, b"")).collect();
    two.run();
    let gone = sent.iter().filter(|&&sent| two.mail[0].take(sent).is_some()).count();
    assert!((16..30).contains(&gone), "{gone} have gone");
    // Whoever asks has them all, in their order.
    for _ in 0..10_000 {
        let came = two.recv(Some(0), 1, 0);
        two.run();
        assert_eq!(two.received(came), b"");
    }
}

/// A link on which a peer has said everything before anybody looks.
#[test]
fn a_peer_with_much_to_say_does_not_hold_a_poll_up() {
    let mut two = Two::protected(usize::MAX, false);
    two.recv(Some(0), 9, 1);
    let frames = (0..10_000).flat_map(|number| fingerprint(5, number, 1, DType::U8, 0).encode());
    two.pipes[0].lock().unwrap().bytes.extend(frames);
    let mut polls = 0;
    while two.mail[1].poll(&mut two.mesh[1], None) {
        polls += 1;
    }
    assert!((10..100).contains(&polls), "{polls} polls");
}

#[test]
fn messages_that_go_or_come_at_once_keep_their_places_among_the_others() {
    for step in [1, 64] {
        let mut two = Two::protected(step, false);
        assert_eq!(two.recv_at_once(1, 1), Err(Whole::NotNow));
        assert_eq!(two.send_at_once(1, b"a"), Whole::Moved);
        assert_eq!(two.recv_at_once(1, 1), Ok(b"a".to_vec()));
        // Whichever of both ways it went, it comes in either.
        two.send(1, b"b");
        two.run();
        assert_eq!(two.recv_at_once(1, 1), Ok(b"b".to_vec()));
        assert_eq!(two.send_at_once(1, b"c"), Whole::Moved);
        let ordinary = two.recv(Some(0), 1, 1);
        assert_eq!(two.recv_at_once(1, 1), Err(Whole::Never), "another was asked for before");
        two.run();
        assert_eq!(two.received(ordinary), b"c");
        assert_eq!(two.send_at_once(1, b""), Whole::Moved);
        assert_eq!(two.recv_at_once(1, 0), Ok(vec![]));
    }
}

#[test]
fn what_something_stands_before_does_not_go_at_once() {
    let mut two = Two::protected(40, false);
    let long = two.send(1, &[7; 40]);
    assert_eq!(two.send_at_once(1, b"b"), Whole::Never, "the first one has not gone");
    assert!(two.mail[0].poll(&mut two.mesh[0], None));
    assert!(two.mail[1].take_in(&mut two.mesh[1]));
    assert_eq!(two.recv_at_once(1, 40), Err(Whole::Never), "half of it is taken in");
    while two.mail[0].poll(&mut two.mesh[0], None) | two.mail[1].take_in(&mut two.mesh[1]) {}
    assert!(two.mail[0].take(long).expect("it went").is_ok());
    assert_eq!(two.send_at_once(1, b"b"), Whole::Moved);
    assert_eq!(two.recv_at_once(1, 1), Err(Whole::Never), "the first one is kept");
    let (first, second) = (two.recv(Some(0), 1, 40), two.recv(Some(0), 1, 1));
    two.run();
    assert_eq!((two.received(first), two.received(second)), (vec![7; 40], b"b".to_vec()));
}

#[test]
fn what_is_not_just_what_was_asked_for_does_not_come_at_once_and_stays() {
    let mut two = Two::protected(64, false);
    assert_eq!(two.send_at_once(1, b"ab"), Whole::Moved);
    for (tag, len) in [(2, 2), (1, 1)] {
        assert_eq!(two.recv_at_once(tag, len), Err(Whole::Never), "tag {tag}, {len} bytes");
    }
    let mut body = [0; 2];
    let other = two.mail[1].recv_at_once(&mut two.mesh[1], 0, 1, DType::I8, &mut body);
    assert_eq!((other, body), (Whole::Never, [0; 2]));
    assert_eq!(two.recv_at_once(1, 2), Ok(b"ab".to_vec()));
    two.pipes[0].lock().unwrap().closed = true;
    assert_eq!(two.send_at_once(1, b"c"), Whole::Never);
    let mut checked = Two::new(64);
    assert_eq!(checked.send_at_once(1, b"d"), Whole::Never, "frames end with a checksum");
    assert_eq!(checked.recv_at_once(1, 1), Err(Whole::Never));
}
