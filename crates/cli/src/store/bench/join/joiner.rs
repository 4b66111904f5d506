//! One client that joins: it says hello, counts itself, waits until all have come, and is done. No socket is seen here.

use phalanx_core::store::{Key, Reply, Request, Value};

use super::voice::{Heard, Voice};

/// How far a client has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Not known to the server yet.
    Outside,
    /// The server has answered it.
    Inside,
    /// Everybody has come.
    Met,
    /// Gone again.
    Left,
}

/// One client.
#[derive(Debug)]
pub(super) struct Joiner {
    voice: Voice,
    inbox: Vec<u8>,
    size: i64,
    step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Greeting,
    Greeted,
    Counting,
    Opening,
    Waiting,
    Met,
}

impl Joiner {
    /// A client that has not said anything.
    pub(super) fn new(voice: Voice) -> Joiner {
        Joiner { voice, inbox: Vec::new(), size: 0, step: Step::Greeting }
    }

    /// Begins the conversation.
    pub(super) fn greet(&mut self, out: &mut Vec<u8>) {
        self.voice.greet(out);
    }

    /// Counts itself as one of `size`; only a greeted client can.
    pub(super) fn arrive(&mut self, size: usize, out: &mut Vec<u8>) -> Result<(), String> {
        debug_assert_eq!(self.step, Step::Greeted);
        self.size = i64::try_from(size).unwrap_or(i64::MAX);
        self.step = Step::Counting;
        self.voice.ask(&Request::Add { key: Key::from(ARRIVED), delta: 1 }, out)
    }

    /// Takes bytes of the server and appends to `out` what it says to them.
    pub(super) fn receive(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        self.inbox.extend_from_slice(bytes);
        while let Some(heard) = self.voice.hear(&mut self.inbox, out)? {
            self.proceed(&heard, out)?;
        }
        Ok(())
    }

    pub(super) fn stage(&self) -> Stage {
        match self.step {
            Step::Greeting => Stage::Outside,
            Step::Greeted | Step::Counting | Step::Opening | Step::Waiting => Stage::Inside,
            Step::Met => Stage::Met,
        }
    }

    fn proceed(&mut self, heard: &Heard, out: &mut Vec<u8>) -> Result<(), String> {
        let (request, next) = match (self.step, heard) {
            (Step::Greeting, Heard::Greeting) => (None, Step::Greeted),
            // Whoever completes the number opens the door for everybody.
            (Step::Counting, Heard::Reply(Reply::Number(sum))) if *sum == self.size => (Some(open()), Step::Opening),
            (Step::Counting, Heard::Reply(Reply::Number(_))) | (Step::Opening, Heard::Reply(Reply::Done)) => {
                (Some(wait()), Step::Waiting)
            }
            (Step::Waiting, Heard::Reply(Reply::Done)) => (None, Step::Met),
            (step, heard) => return Err(format!("{heard:?} while {step:?}")),
        };
        self.step = next;
        request.map_or(Ok(()), |request| self.voice.ask(&request, out))
    }
}

fn open() -> Request {
    Request::Set { pairs: vec![(Key::from(DONE), Value::from(&b"1"[..]))] }
}

fn wait() -> Request {
    Request::Wait { keys: vec![Key::from(DONE)] }
}

const ARRIVED: &str = "/bench/arrived";
const DONE: &str = "/bench/done";

#[cfg(test)]
mod tests {
    use super::*;

    const PONG: [u8; 4] = [1, 0, 0, 0];
    const GRANTED: [u8; 1] = [0];

    fn greeted() -> Joiner {
        let mut joiner = Joiner::new(Voice::clear());
        let mut out = Vec::new();
        joiner.greet(&mut out);
        assert_eq!(out, [&[0, 0xCE, 0xF7, 0x85, 0x3C][..], &[13, 1, 0, 0, 0]].concat());
        assert_eq!(joiner.stage(), Stage::Outside);
        joiner.receive(&PONG[..3], &mut out).expect("a part");
        assert_eq!(joiner.stage(), Stage::Outside);
        joiner.receive(&PONG[3..], &mut out).expect("the rest");
        assert_eq!(joiner.stage(), Stage::Inside);
        joiner
    }

    fn said(joiner: &mut Joiner, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        joiner.receive(bytes, &mut out).expect("understood");
        out
    }

    #[test]
    fn one_of_many_counts_itself_and_waits() {
        let mut joiner = greeted();
        let mut out = Vec::new();
        joiner.arrive(3, &mut out).expect("said");
        assert_eq!((out[0], out.len()), (4, 1 + 8 + ARRIVED.len() + 8));
        let wait = said(&mut joiner, &2_i64.to_le_bytes());
        assert_eq!((wait[0], wait.len()), (6, 1 + 8 + 8 + DONE.len()));
        assert_eq!(joiner.stage(), Stage::Inside);
        assert!(said(&mut joiner, &GRANTED).is_empty());
        assert_eq!(joiner.stage(), Stage::Met);
    }

    #[test]
    fn the_last_one_opens_the_door() {
        let mut joiner = greeted();
        joiner.arrive(3, &mut Vec::new()).expect("said");
        let set = said(&mut joiner, &3_i64.to_le_bytes());
        assert_eq!(set[0], 1);
        assert!(set.ends_with(&[b'1', 13, 1, 0, 0, 0]), "{set:?}");
        assert_eq!(said(&mut joiner, &PONG)[0], 6);
        said(&mut joiner, &GRANTED);
        assert_eq!(joiner.stage(), Stage::Met);
    }

    #[test]
    fn what_was_not_asked_for_is_an_error() {
        assert!(greeted().receive(&GRANTED, &mut Vec::new()).is_err());
        let mut joiner = Joiner::new(Voice::clear());
        joiner.greet(&mut Vec::new());
        assert!(joiner.receive(&[2, 0, 0, 0], &mut Vec::new()).is_err());
    }
}
