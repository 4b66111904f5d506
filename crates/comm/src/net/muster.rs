//! The last word before a group begins: each rank says to all others, over their control connections, that it has all its
//! connections. Whoever dies or gives up before that ends a connection instead, which its peers see at once.

use std::os::fd::AsFd;
use std::time::Instant;

use rustix::event::PollFlags;

use super::gather::Lines;
use super::greeting::{Line, in_words};
use super::hello::Traffic;
use super::socket::wait_any;
use crate::secure::Tunnel;

/// A peer that was not there, and why.
pub(super) type Absence = (usize, String);

/// What is still to come of a peer.
struct Awaited<'a> {
    rank: usize,
    line: &'a mut Line,
    wire: Vec<u8>,
}

/// Says that this rank is here, and waits until all others have said so.
pub(super) fn muster(lines: &mut Lines, until: Instant) -> Result<(), Absence> {
    let controls = lines.iter_mut().enumerate().filter_map(|(rank, lines)| Some((rank, lines.as_mut()?)));
    let mut awaited = controls
        .map(|(rank, lines)| Awaited { rank, line: &mut lines[Traffic::Control as usize], wire: vec![] })
        .collect::<Vec<_>>();
    for peer in &mut awaited {
        peer.say(until).map_err(|why| (peer.rank, why))?;
    }
    while let Some(first) = awaited.first().map(|peer| peer.rank) {
        let wanted: Vec<_> = awaited.iter().map(|peer| (peer.line.socket.as_fd(), PollFlags::IN)).collect();
        let ready = wait_any(&wanted, until).map_err(|error| (first, in_words(error)))?;
        if ready.is_none() {
            return Err((first, "it does not say that it is here".to_owned()));
        }
        let mut present = vec![];
        for peer in &mut awaited {
            if peer.hear().map_err(|why| (peer.rank, why))? {
                present.push(peer.rank);
            }
        }
        awaited.retain(|peer| !present.contains(&peer.rank));
    }
    Ok(())
}

impl Awaited<'_> {
    fn say(&mut self, until: Instant) -> Result<(), String> {
        let mut wire = vec![];
        self.line.tunnel.seal(&[HERE], &mut wire).map_err(|error| error.to_string())?;
        self.line.socket.send_all(&wire, until).map_err(in_words)
    }

    /// Takes what has come, and not a byte that follows; whether that is the word.
    fn hear(&mut self) -> Result<bool, String> {
        let len = if self.line.tunnel.is_sealed() { 1 + Tunnel::OVERHEAD } else { 1 };
        let left = len - self.wire.len();
        if self.line.socket.has_input() {
            self.line.socket.recv_some(&mut self.wire, left, Instant::now()).map_err(in_words)?;
        }
        if self.wire.len() < len {
            return Ok(false);
        }
        let mut plain = vec![];
        self.line.tunnel.open(&self.wire, &mut plain).map_err(|error| error.to_string())?;
        if plain == [HERE] { Ok(true) } else { Err("it says something else than that it is here".to_owned()) }
    }
}

const HERE: u8 = b'+';
