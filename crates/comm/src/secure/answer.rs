//! The server's answer to a claim, 256 bytes whatever it says, so that an onlooker cannot tell a welcome from a denial.

use super::HandshakeError;
use super::hello::VERSION;

/// Said to a client that is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Which server this is: a random number of its own, by which a restarted one is told apart.
    pub instance: u64,
    /// The epoch that the server serves.
    pub epoch: u32,
}

/// Said to a client that proved the key and is not let in all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Denial {
    /// The server serves another job.
    #[error("the server serves job \"{job}\"")]
    WrongJob {
        /// The server's job.
        job: String,
    },
    /// The server serves another epoch.
    #[error("epoch is {claimed}, the server serves epoch {current}")]
    WrongEpoch {
        /// The epoch that was claimed.
        claimed: u32,
        /// The epoch that the server serves.
        current: u32,
    },
    /// The world has another size.
    #[error("world size is {claimed}, the server knows a world of {current}")]
    WrongWorld {
        /// The size that was claimed.
        claimed: u32,
        /// The size that the server knows.
        current: u32,
    },
    /// The world has no such rank.
    #[error("rank is {rank}, must be below the world size {world}")]
    RankOutOfRange {
        /// The rank that was claimed.
        rank: u32,
        /// The size of the server's world.
        world: u32,
    },
    /// The rank has been taken in this epoch.
    #[error("rank {rank} was taken in this epoch by {by}")]
    RankTaken {
        /// The rank that was claimed.
        rank: u32,
        /// Who took it.
        by: String,
    },
    /// The server has no room, or is about to end.
    #[error("the server takes no more clients: {why}")]
    Full {
        /// The limit that was reached.
        why: String,
    },
    /// A reason that this side does not know; the server is newer.
    #[error("the server gives reason {code}: {text}")]
    Other {
        /// The reason's number.
        code: u8,
        /// The reason's text.
        text: String,
    },
}

/// What the server answers.
pub(crate) type Verdict = Result<Welcome, Denial>;

/// The 256 bytes of an answer.
pub(crate) fn encode(verdict: &Verdict) -> [u8; ANSWER] {
    let mut bytes = [0; ANSWER];
    match verdict {
        Ok(Welcome { instance, epoch }) => {
            bytes[1..3].copy_from_slice(&u16::from(VERSION).to_le_bytes());
            bytes[3..11].copy_from_slice(&instance.to_le_bytes());
            bytes[11..15].copy_from_slice(&epoch.to_le_bytes());
        }
        Err(denial) => {
            let (code, [first, second], text) = denial.parts();
            let text = cut(text).as_bytes();
            bytes[0] = code;
            bytes[1..5].copy_from_slice(&first.to_le_bytes());
            bytes[5..9].copy_from_slice(&second.to_le_bytes());
            // At most MAX_TEXT, which fits a byte.
            bytes[9] = text.len() as u8;
            bytes[10..10 + text.len()].copy_from_slice(text);
        }
    }
    bytes
}

/// What 256 bytes answer.
pub(crate) fn decode(bytes: &[u8; ANSWER]) -> Result<Verdict, HandshakeError> {
    match bytes[0] {
        WELCOME => decode_welcome(bytes).map(Ok),
        code => decode_denial(code, bytes).map(Err),
    }
}

impl Denial {
    fn parts(&self) -> (u8, [u32; 2], &str) {
        match self {
            Denial::WrongJob { job } => (WRONG_JOB, [0, 0], job),
            Denial::WrongEpoch { claimed, current } => (WRONG_EPOCH, [*claimed, *current], ""),
            Denial::WrongWorld { claimed, current } => (WRONG_WORLD, [*claimed, *current], ""),
            Denial::RankOutOfRange { rank, world } => (RANK_OUT_OF_RANGE, [*rank, *world], ""),
            Denial::RankTaken { rank, by } => (RANK_TAKEN, [*rank, 0], by),
            Denial::Full { why } => (FULL, [0, 0], why),
            // A denial is never a welcome, whatever number it was given.
            Denial::Other { code, text } => ((*code).max(OTHER), [0, 0], text),
        }
    }

    fn from_parts(code: u8, [first, second]: [u32; 2], text: String) -> Denial {
        match code {
            WRONG_JOB => Denial::WrongJob { job: text },
            WRONG_EPOCH => Denial::WrongEpoch { claimed: first, current: second },
            WRONG_WORLD => Denial::WrongWorld { claimed: first, current: second },
            RANK_OUT_OF_RANGE => Denial::RankOutOfRange { rank: first, world: second },
            RANK_TAKEN => Denial::RankTaken { rank: first, by: text },
            FULL => Denial::Full { why: text },
            code => Denial::Other { code, text },
        }
    }
}

fn decode_welcome(bytes: &[u8; ANSWER]) -> Result<Welcome, HandshakeError> {
    let theirs = u16::from_le_bytes(field(bytes, 1));
    if theirs != u16::from(VERSION) {
        return Err(HandshakeError::Version { theirs, ours: VERSION.into() });
    }
    Ok(Welcome { instance: u64::from_le_bytes(field(bytes, 3)), epoch: u32::from_le_bytes(field(bytes, 11)) })
}

fn decode_denial(code: u8, bytes: &[u8; ANSWER]) -> Result<Denial, HandshakeError> {
    let numbers = [u32::from_le_bytes(field(bytes, 1)), u32::from_le_bytes(field(bytes, 5))];
    let len = usize::from(bytes[9]);
    let malformed = |what: &str| HandshakeError::Answer { detail: format!("reason {code} with {what}") };
    let text = bytes[10..].get(..len).filter(|_| len <= MAX_TEXT);
    let text = text.ok_or_else(|| malformed("a text that is too long"))?;
    let text = str::from_utf8(text).map_err(|_| malformed("a text that is none"))?;
    // The text ends up in messages and logs, where a line is a line.
    let text = text.replace(char::is_control, "?");
    Ok(Denial::from_parts(code, numbers, text))
}

/// As much of `text` as fits, in whole letters.
fn cut(text: &str) -> &str {
    let end = (0..=MAX_TEXT.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or_default()]
}

/// The bytes of a field, whose place is a constant within the answer.
fn field<const N: usize>(bytes: &[u8; ANSWER], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

/// The length of every answer.
pub(crate) const ANSWER: usize = 256;
const MAX_TEXT: usize = 200;

// Numbers on the wire, never changed and never reused.
const WELCOME: u8 = 0;
const WRONG_JOB: u8 = 1;
const WRONG_EPOCH: u8 = 2;
const WRONG_WORLD: u8 = 3;
const RANK_OUT_OF_RANGE: u8 = 4;
const RANK_TAKEN: u8 = 5;
const FULL: u8 = 6;
/// The first number that has no meaning yet.
const OTHER: u8 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Verdict> {
        let by = "10.0.0.7, session 00".to_owned();
        vec![
            Ok(Welcome { instance: u64::MAX - 1, epoch: 7 }),
            Err(Denial::WrongJob { job: "other".to_owned() }),
            Err(Denial::WrongEpoch { claimed: 3, current: 4 }),
            Err(Denial::WrongWorld { claimed: 8, current: 16 }),
            Err(Denial::RankOutOfRange { rank: 9, world: 8 }),
            Err(Denial::RankTaken { rank: 2, by }),
            Err(Denial::Full { why: "10000 connections".to_owned() }),
            Err(Denial::Other { code: 200, text: "newer".to_owned() }),
        ]
    }

    #[test]
    fn every_answer_comes_back() {
        for verdict in all() {
            assert_eq!(decode(&encode(&verdict)).expect("well formed"), verdict);
        }
    }

    #[test]
    fn a_denial_is_never_a_welcome() {
        let denial = Denial::Other { code: WELCOME, text: String::new() };
        assert!(decode(&encode(&Err(denial))).expect("well formed").is_err());
    }

    #[test]
    fn long_texts_are_cut_between_letters_and_control_characters_replaced() {
        let long = Err(Denial::Full { why: format!("{}ä", "x".repeat(MAX_TEXT - 1)) });
        let cut = Denial::Full { why: "x".repeat(MAX_TEXT - 1) };
        assert_eq!(decode(&encode(&long)).expect("well formed"), Err(cut));
        let lines = Err(Denial::Full { why: "a\nb\x1b[1m".to_owned() });
        assert_eq!(decode(&encode(&lines)).expect("well formed"), Err(Denial::Full { why: "a?b?[1m".to_owned() }));
    }

    #[test]
    fn malformed_answers_are_refused() {
        let with = |at: usize, value: u8| {
            let mut bytes = encode(&Err(Denial::Full { why: "full".to_owned() }));
            bytes[at] = value;
            decode(&bytes)
        };
        assert!(matches!(with(9, 201), Err(HandshakeError::Answer { .. })));
        assert!(matches!(with(9, 255), Err(HandshakeError::Answer { .. })));
        assert!(matches!(with(10, 0xFF), Err(HandshakeError::Answer { .. })));
        let mut welcome = encode(&Ok(Welcome { instance: 1, epoch: 1 }));
        welcome[2] = 1;
        assert!(matches!(decode(&welcome), Err(HandshakeError::Version { theirs: 257, ours: 1 })));
    }
}
