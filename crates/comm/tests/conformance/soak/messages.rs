//! Messages of a team: some from one rank to another, one of each of several to a rank that asks for any, or of all to all.

use std::sync::Arc;

use fastrand::Rng;
use phalanx_core::{DType, Op};

use super::act::{Act, Right, bytes, stale};
use crate::case::hash;

/// Messages that belong together.
#[derive(Clone, Debug)]
pub(super) struct Messages {
    way: Way,
    dtype: DType,
    /// Decides every element.
    stem: u64,
}

#[derive(Clone, Debug)]
enum Way {
    /// Some after the other, by tag and length, and the places of those that are asked for first, second, ...
    Post { from: usize, to: usize, messages: Vec<(u32, usize)>, order: Vec<usize> },
    /// One of each of these ranks, all of one length, under a tag of their own.
    Anybody { from: Vec<usize>, to: usize, len: usize, tag: u32 },
    /// One of each to each, of any length up to this.
    Everybody { size: usize, longest: usize },
}

impl Messages {
    /// Some messages among `size` ranks, at least two, each of at most `longest` elements. No others have the number.
    pub(super) fn draw(draw: &mut Rng, size: usize, longest: usize, number: u64) -> Messages {
        let mut ranks: Vec<usize> = (0..size).collect();
        draw.shuffle(&mut ranks);
        let (to, mut from) = (ranks[0], ranks[1..].to_vec());
        let way = match draw.u8(..4) {
            0 => Way::Everybody { size, longest: longest / size },
            1 => {
                from.truncate(draw.usize(1..size));
                Way::Anybody { from, to, len: draw.usize(..=longest), tag: FIRST_OWN_TAG + number as u32 }
            }
            _ => {
                let many = draw.usize(1..6);
                let messages: Vec<(u32, usize)> =
                    (0..many).map(|_| (draw.u32(..EVERYBODY), draw.usize(..=longest / many))).collect();
                let salt = draw.u64(..);
                let mut order: Vec<usize> = (0..many).collect();
                // Any order of the tags; with one tag, that in which they are sent.
                order.sort_by_key(|&at| (hash(salt ^ u64::from(messages[at].0)), at));
                Way::Post { from: from[0], to, messages, order }
            }
        };
        Messages { way, dtype: DType::ALL[draw.usize(..DType::ALL.len())], stem: draw.u64(..) }
    }

    /// The part of one rank: nothing where it has none.
    pub(super) fn acts(&self, rank: usize) -> Vec<Act> {
        match &self.way {
            Way::Post { from, to, messages, order } => {
                let send = |(at, &(tag, len)): (usize, &(u32, usize))| self.send(rank, *to, tag, (at, len));
                let recv = |&at: &usize| self.recv(*from, rank, messages[at].0, (at, messages[at].1));
                match rank {
                    rank if rank == *from => messages.iter().enumerate().map(send).collect(),
                    rank if rank == *to => order.iter().map(recv).collect(),
                    _ => vec![],
                }
            }
            Way::Anybody { from, to, len, tag } if rank == *to => self.recv_any(from, rank, *tag, *len),
            Way::Anybody { from, to, len, tag } if from.contains(&rank) => vec![self.send(rank, *to, *tag, (0, *len))],
            Way::Anybody { .. } => vec![],
            Way::Everybody { size, longest } => {
                let len = |from: usize, to: usize| hash(self.stem ^ (from * size + to) as u64) as usize % (longest + 1);
                let others = || (0..*size).filter(|&peer| peer != rank);
                let give = others().map(|to| self.send(rank, to, EVERYBODY, (0, len(rank, to))));
                let take = others().rev().map(|from| self.recv(from, rank, EVERYBODY, (0, len(from, rank))));
                give.chain(take).collect()
            }
        }
    }

    fn send(&self, from: usize, to: usize, tag: u32, (at, len): (usize, usize)) -> Act {
        let input = Some(self.content(from, to, (at, len)));
        let right = Right::Bytes { start: 0, bytes: vec![] };
        Act { op: Op::Send { count: len, to, tag }, dtype: self.dtype, factor: None, input, output: vec![], right }
    }

    fn recv(&self, from: usize, to: usize, tag: u32, (at, len): (usize, usize)) -> Act {
        let right = Right::Bytes { start: 0, bytes: self.content(from, to, (at, len)) };
        self.asking(Op::Recv { count: len, from: Some(from), tag }, len, right)
    }

    fn recv_any(&self, from: &[usize], to: usize, tag: u32, len: usize) -> Vec<Act> {
        let last = from.iter().max().map_or(0, |last| last + 1);
        let content = |rank| if from.contains(&rank) { self.content(rank, to, (0, len)) } else { vec![] };
        let by_rank = Arc::new((0..last).map(content).collect());
        let right = Right::Sent { by_rank };
        let ask = |_| self.asking(Op::Recv { count: len, from: None, tag }, len, right.clone());
        from.iter().map(ask).collect()
    }

    fn asking(&self, op: Op, len: usize, right: Right) -> Act {
        let output = stale(len * self.dtype.byte_len());
        Act { op, dtype: self.dtype, factor: None, input: Some(vec![]), output, right }
    }

    fn content(&self, from: usize, to: usize, (at, len): (usize, usize)) -> Vec<u8> {
        let stem = hash(self.stem ^ (from as u64) << 40 ^ (to as u64) << 20 ^ at as u64);
        bytes(stem, len * self.dtype.byte_len())
    }
}

/// The tag of messages of all to all; those below it are taken by turns.
const EVERYBODY: u32 = 3;
/// The first tag that belongs to the messages of one number.
const FIRST_OWN_TAG: u32 = 100;
