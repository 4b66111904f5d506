//! One visitor: heard, told, and seen off, without ever waiting for it.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use rustix::event::PollFlags;
use rustix::net::{Shutdown, shutdown};

use super::door::{Newcomer, Stream};
use super::request::{self, Heard, LONGEST_HEAD, Page, Status};

/// The page at a path, for somebody on this host or on the network.
pub(crate) type Pages = dyn Fn(&str, bool) -> Option<Page> + Send;

/// A connection that was accepted.
pub(super) struct Visitor {
    stream: Box<dyn Stream>,
    is_of_this_host: bool,
    stage: Stage,
    deadline: Instant,
}

enum Stage {
    Hearing(Vec<u8>),
    Telling {
        answer: Vec<u8>,
        told: usize,
    },
    /// All is told. What it still says is let go by, because to close before would take back what it has not read yet.
    Parting {
        left: usize,
    },
}

impl Visitor {
    pub(super) fn new((stream, is_of_this_host): Newcomer, deadline: Instant) -> Visitor {
        Visitor { stream, is_of_this_host, stage: Stage::Hearing(Vec::new()), deadline }
    }

    /// When it has to be gone.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// What has to happen before it can go on.
    pub(super) fn awaits(&self) -> PollFlags {
        match self.stage {
            Stage::Telling { .. } => PollFlags::OUT,
            Stage::Hearing(_) | Stage::Parting { .. } => PollFlags::IN,
        }
    }

    /// Goes on as far as that is possible now; whether it stays.
    pub(super) fn proceed(&mut self, pages: &Pages) -> bool {
        loop {
            match self.step(pages) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
    }

    /// One read or write; whether there is more to do.
    fn step(&mut self, pages: &Pages) -> io::Result<bool> {
        match &mut self.stage {
            Stage::Hearing(heard) => {
                let mut bytes = [0; 2048];
                let room = (LONGEST_HEAD - heard.len()).min(bytes.len());
                let count = self.stream.read(&mut bytes[..room])?;
                heard.extend_from_slice(&bytes[..count]);
                if let Some(answer) = answer(heard, pages, self.is_of_this_host) {
                    self.stage = Stage::Telling { answer, told: 0 };
                }
                Ok(count > 0)
            }
            Stage::Telling { answer, told } => {
                *told += self.stream.write(&answer[*told..])?;
                if *told == answer.len() {
                    shutdown(&self.stream, Shutdown::Write)?;
                    self.stage = Stage::Parting { left: MOST_IGNORED };
                }
                Ok(true)
            }
            Stage::Parting { left } => {
                let count = self.stream.read(&mut [0; 2048])?;
                *left = left.saturating_sub(count);
                Ok(count > 0 && *left > 0)
            }
        }
    }
}

impl AsFd for Visitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// What to say to what was heard, once that can be known.
fn answer(heard: &[u8], pages: &Pages, is_of_this_host: bool) -> Option<Vec<u8>> {
    match request::hear(heard) {
        Heard::Part => None,
        Heard::Whole { path, wants_body } => Some(match pages(&path, is_of_this_host) {
            Some(page) => request::answer(&page, wants_body),
            None => request::refusal(Status::NotFound),
        }),
        Heard::Refused(status) => Some(request::refusal(status)),
    }
}

/// More than this nobody says after a request that has no body.
const MOST_IGNORED: usize = 64 << 10;
