//! One thread that moves what all ranks of an epoch print. Ranks are read as fast as their output is taken: one that prints
//! faster waits in its pipe, and nothing is lost.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::Sender;
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use super::file::LogFile;
use super::lines::Lines;
use super::screen::Screen;
pub(crate) use super::screen::Stream;
use super::tail::{Remains, Tail};
use crate::run::watch::Event;

/// One stream of one rank, and where it goes.
#[derive(Debug)]
pub(crate) struct Source {
    /// Place of the rank among those of this node.
    pub(crate) local_rank: usize,
    pub(crate) stream: Stream,
    /// The end of the pipe to read from.
    pub(crate) pipe: OwnedFd,
    /// What stands before each line on the terminal; nothing if it does not go there.
    pub(crate) prefix: Option<String>,
    /// The file that gets the bytes as they are.
    pub(crate) log: Option<LogFile>,
}

/// The output of one epoch, on its way. Dropping it tells the thread that nobody writes any more.
#[derive(Debug)]
pub(crate) struct Output {
    _running: PipeWriter,
}

impl Output {
    /// Starts moving. Once this is dropped and everything written before was moved, [`Event::Drained`] is sent with what
    /// remains of each rank's standard error.
    pub(crate) fn start(sources: Vec<Source>, ranks: usize, done: Sender<Event>) -> io::Result<Output> {
        let (over, running) = io::pipe()?;
        for source in &sources {
            fcntl_setfl(&source.pipe, fcntl_getfl(&source.pipe)? | OFlags::NONBLOCK)?;
        }
        let mut pump = Pump::new(sources, ranks);
        thread::Builder::new().name("phalanx-output".to_owned()).spawn(move || {
            pump.run(&over);
            // Nobody listens any more once the launcher has given up waiting.
            let _ = done.send(Event::Drained(pump.finish()));
        })?;
        Ok(Output { _running: running })
    }
}

struct Pump {
    flows: Vec<Flow>,
    tails: Vec<Tail>,
    screen: Screen,
    buffer: Vec<u8>,
    /// Lines on their way to the screen.
    lines: Vec<u8>,
}

/// A source that is being read.
struct Flow {
    source: Source,
    lines: Option<Lines>,
}

/// What one look at a pipe came to.
#[derive(PartialEq, Eq)]
enum Read {
    Some,
    Empty,
    Closed,
}

impl Pump {
    fn new(sources: Vec<Source>, ranks: usize) -> Pump {
        let flow = |source: Source| Flow { lines: source.prefix.clone().map(Lines::new), source };
        Pump {
            flows: sources.into_iter().map(flow).collect(),
            tails: (0..ranks).map(|_| Tail::default()).collect(),
            screen: Screen::default(),
            buffer: vec![0; CHUNK],
            lines: Vec::new(),
        }
    }

    /// Moves until nobody writes any more, then what is left in the pipes. A stranger that still holds one open is not
    /// waited for.
    fn run(&mut self, over: &PipeReader) {
        while !self.await_bytes(over) {
            self.turn();
        }
        let mut turns = 0;
        while turns < LAST_TURNS && self.turn() {
            turns += 1;
        }
    }

    /// Waits until something can be read; whether that is the end.
    fn await_bytes(&self, over: &PipeReader) -> bool {
        let pipes = self.flows.iter().map(|flow| flow.source.pipe.as_fd());
        let handles: Vec<_> = [over.as_fd()].into_iter().chain(pipes).collect();
        let mut polled: Vec<PollFd<'_>> = handles.iter().map(|handle| PollFd::new(handle, PollFlags::IN)).collect();
        match poll(&mut polled, None) {
            Ok(_) => !polled[0].revents().is_empty(),
            Err(error) => error != Errno::INTR,
        }
    }

    /// Reads every pipe once; whether any had something.
    fn turn(&mut self) -> bool {
        let mut found = false;
        for mut flow in std::mem::take(&mut self.flows) {
            match self.move_once(&mut flow) {
                Read::Closed => self.end(flow),
                read => {
                    found |= read == Read::Some;
                    self.flows.push(flow);
                }
            }
        }
        found
    }

    fn move_once(&mut self, flow: &mut Flow) -> Read {
        let len = match rustix::io::read(&flow.source.pipe, &mut self.buffer[..]) {
            Ok(0) => return Read::Closed,
            Ok(len) => len,
            Err(Errno::AGAIN | Errno::INTR) => return Read::Empty,
            Err(_) => return Read::Closed,
        };
        let bytes = &self.buffer[..len];
        if let Some(lines) = &mut flow.lines {
            lines.push(bytes, &mut self.lines);
        }
        if flow.source.stream == Stream::Stderr {
            self.tails[flow.source.local_rank].push(bytes);
        }
        flow.source.log.iter_mut().for_each(|log| log.write(bytes));
        self.show(&flow.source);
        Read::Some
    }

    fn end(&mut self, flow: Flow) {
        if let Some(mut lines) = flow.lines {
            lines.finish(&mut self.lines);
        }
        self.show(&flow.source);
    }

    fn show(&mut self, source: &Source) {
        self.screen.write(source.stream, source.local_rank, &self.lines);
        self.lines.clear();
    }

    fn finish(&mut self) -> Vec<Remains> {
        for flow in std::mem::take(&mut self.flows) {
            self.end(flow);
        }
        std::mem::take(&mut self.tails).into_iter().map(Tail::finish).collect()
    }
}

const CHUNK: usize = 64 << 10;

/// Enough to empty a pipe of the largest size that needs no privilege, should a stranger go on writing.
const LAST_TURNS: usize = 32;
