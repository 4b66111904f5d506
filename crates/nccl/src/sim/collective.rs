//! What simulated communicators do to data: once all have arrived that must, bytes move as the operations say.

use std::panic::Location;

use phalanx_core::reduce::{Factor, combine, scale};

use super::comm::{Kind, Part};
use super::fault::Fault;
use super::finding::Finding;
use super::memory::User;
use super::stage::State;
use crate::api::{CudaCode, RedOp, Scalar, Span, Transfer};

impl State {
    /// A piece of work has come to the head of its stream.
    pub(super) fn arrive(&mut self, id: usize, moment: u64, _site: &'static Location<'static>) {
        let (rank, launch, handle) = {
            let fused = &mut self.engine.comms.fused[id];
            fused.has_arrived = true;
            fused.moment = moment;
            (fused.rank, fused.launch, fused.handle)
        };
        let dies = self.engine.script.find(rank, |fault| match fault {
            Fault::StickyError { launch: at, code } if at == launch => Some(CudaCode(code)),
            _ => None,
        });
        if let Some(code) = dies {
            self.engine.ranks[rank].sticky.get_or_insert(code);
            return;
        }
        if self.engine.script.has(rank, Fault::KernelNeverEnds { launch }) {
            return;
        }
        let Some((ring, member)) = self.engine.comms.handle(handle).and_then(|handle| handle.seat) else { return };
        self.post(ring, member, id);
        self.progress(ring);
    }

    /// A piece of work is off its stream. What was aborted may have used its memory until now.
    pub(super) fn leave_stream(&mut self, id: usize) {
        let fused = &self.engine.comms.fused[id];
        let Some((ring, member)) = self.engine.comms.handle(fused.handle).and_then(|handle| handle.seat) else {
            return;
        };
        if !fused.is_killed {
            return;
        }
        let size = self.engine.comms.rings[ring].members.len();
        let open: Vec<Part> = fused.parts.iter().filter(|part| !part.is_done).cloned().collect();
        for part in open {
            let (reads, writes) = part.spans(member, size);
            self.touch(id, &part, reads, false);
            self.touch(id, &part, writes, true);
        }
    }

    /// Makes the messages of a piece of work known to the other side.
    fn post(&mut self, ring: usize, member: usize, id: usize) {
        let comms = &mut self.engine.comms;
        if comms.fused[id].is_killed {
            return;
        }
        for (index, part) in comms.fused[id].parts.iter().enumerate() {
            match part.kind {
                Kind::Send => {
                    comms.rings[ring].mail.entry((member, part.other)).or_default().given.push_back((id, index));
                }
                Kind::Recv => {
                    comms.rings[ring].mail.entry((part.other, member)).or_default().wanted.push_back((id, index));
                }
                _ => {}
            }
        }
    }

    /// Moves what can be moved in a ring.
    fn progress(&mut self, ring: usize) {
        while self.next_collective(ring) {}
        let pairs: Vec<(usize, usize)> = self.engine.comms.rings[ring].mail.keys().copied().collect();
        for pair in pairs {
            while self.next_message(ring, pair) {}
        }
    }

    /// The next collective, if all have come to it and agree.
    fn next_collective(&mut self, ring: usize) -> bool {
        let comms = &self.engine.comms;
        let number = comms.rings[ring].next;
        let Some(entries) = comms.rings[ring].calls.get(number) else { return false };
        let Some(entries) = entries.iter().copied().collect::<Option<Vec<_>>>() else { return false };
        let stays = |id: usize| {
            let fused = &comms.fused[id];
            let stuck = self.engine.script.has(fused.rank, Fault::KernelNeverEnds { launch: fused.launch });
            !fused.has_arrived || fused.is_killed || stuck
        };
        if entries.iter().any(|&(id, _)| stays(id)) {
            return false;
        }
        if !self.agrees(ring, number, &entries) {
            return false;
        }
        self.engine.comms.rings[ring].next += 1;
        self.engine.comms.rings[ring].told = false;
        self.exchange(&entries);
        for (id, index) in entries {
            self.engine.comms.fused[id].parts[index].is_done = true;
            self.spoil(id, index);
        }
        true
    }

    /// Whether a collective can go on; what differs is found once.
    fn agrees(&mut self, ring: usize, number: usize, entries: &[(usize, usize)]) -> bool {
        let parts: Vec<(usize, &Part)> = entries
            .iter()
            .map(|&(id, index)| (self.engine.comms.fused[id].rank, &self.engine.comms.fused[id].parts[index]))
            .collect();
        let (first_rank, first) = parts[0];
        let hangs =
            |part: &Part| part.kind != first.kind || part.byte_len() != first.byte_len() || part.other != first.other;
        let differs =
            |part: &Part| hangs(part) || part.what.dtype != first.what.dtype || part.op.reduce() != first.op.reduce();
        let Some(&(rank, part)) =
            parts.iter().find(|(_, part)| hangs(part)).or_else(|| parts.iter().find(|(_, part)| differs(part)))
        else {
            return true;
        };
        let moves = !hangs(part);
        let (ours, theirs) = (first.words(first_rank), part.words(rank));
        if !self.engine.comms.rings[ring].told {
            self.found.push(Finding::Mismatch { number, ours, theirs, moves });
            self.engine.comms.rings[ring].told = true;
        }
        moves
    }

    /// Moves the data of one collective of all members.
    fn exchange(&mut self, entries: &[(usize, usize)]) {
        let size = entries.len();
        let parts: Vec<Part> =
            entries.iter().map(|&(id, index)| self.engine.comms.fused[id].parts[index].clone()).collect();
        let mut given: Vec<Vec<u8>> = Vec::with_capacity(size);
        for (member, (&(id, _), part)) in entries.iter().zip(&parts).enumerate() {
            let (reads, _) = part.spans(member, size);
            let bytes = self.take(id, part, reads);
            given.push(self.scaled(id, part, bytes));
        }
        for (member, (&(id, _), part)) in entries.iter().zip(&parts).enumerate() {
            let (_, writes) = part.spans(member, size);
            if let Some(bytes) = part.outcome(member, &given) {
                self.put(id, part, writes, &bytes);
            }
        }
    }

    /// The next message of a pair, if both sides have come.
    fn next_message(&mut self, ring: usize, pair: (usize, usize)) -> bool {
        let Some(mail) = self.engine.comms.rings[ring].mail.get(&pair) else { return false };
        let (Some(&given), Some(&wanted)) = (mail.given.front(), mail.wanted.front()) else { return false };
        let part = |(id, index): (usize, usize)| self.engine.comms.fused[id].parts[index].clone();
        let (send, recv) = (part(given), part(wanted));
        if send.byte_len() != recv.byte_len() {
            if !self.engine.comms.rings[ring].told {
                let (ours, theirs) = (send.words(pair.0), recv.words(pair.1));
                self.found.push(Finding::Mismatch { number: 0, ours, theirs, moves: false });
                self.engine.comms.rings[ring].told = true;
            }
            return false;
        }
        if let Some(mail) = self.engine.comms.rings[ring].mail.get_mut(&pair) {
            mail.given.pop_front();
            mail.wanted.pop_front();
        }
        let bytes = self.take(given.0, &send, send.what.send);
        self.put(wanted.0, &recv, recv.what.recv, &bytes);
        for (id, index) in [given, wanted] {
            self.engine.comms.fused[id].parts[index].is_done = true;
        }
        self.spoil(wanted.0, wanted.1);
        true
    }

    /// Reads what a member gives.
    fn take(&mut self, id: usize, part: &Part, span: Span) -> Vec<u8> {
        if self.touch(id, part, span, false) {
            self.engine.memory.read(span).to_vec()
        } else {
            vec![0; span.byte_len()]
        }
    }

    /// Writes what a member gets.
    fn put(&mut self, id: usize, part: &Part, span: Span, bytes: &[u8]) {
        if span.byte_len() == bytes.len() && self.touch(id, part, span, true) {
            self.engine.memory.write(span).copy_from_slice(bytes);
        }
    }

    fn touch(&mut self, id: usize, part: &Part, span: Span, writes: bool) -> bool {
        let fused = &self.engine.comms.fused[id];
        let stream = &self.engine.streams[fused.stream];
        let (actor, order, moment, rank) = (stream.actor, &stream.order, fused.moment, fused.rank);
        let user = User { rank, actor, order, moment, what: part.kind.name(), site: part.site };
        let fits = self.engine.memory.touch(span, writes, user, &mut self.found);
        if !fits {
            self.engine.ranks[rank].sticky.get_or_insert(CudaCode::ILLEGAL_ADDRESS);
        }
        fits
    }

    /// What a member gives, multiplied where its reduction says so.
    fn scaled(&mut self, id: usize, part: &Part, mut bytes: Vec<u8>) -> Vec<u8> {
        let Some(index) = usize::try_from(part.op.0).ok().and_then(|op| op.checked_sub(FIRST_CREATED)) else {
            return bytes;
        };
        let handle = self.engine.comms.handle(self.engine.comms.fused[id].handle);
        let created = handle.and_then(|handle| handle.ops.get(index).copied().flatten());
        let (Some((scalar, dtype)), Some(ours)) = (created, part.what.dtype.element()) else { return bytes };
        let element = match scalar {
            Scalar::Host(bytes) => bytes[..dtype.byte_len().unwrap_or(8)].to_vec(),
            Scalar::Device(span) => self.take(id, part, span),
        };
        if let Ok(factor) = Factor::from_element(ours, &element) {
            let _ = scale(ours, &mut bytes, &factor);
        }
        bytes
    }

    /// Puts a wrong bit into a result, where the script says so.
    fn spoil(&mut self, id: usize, index: usize) {
        let fused = &self.engine.comms.fused[id];
        let (rank, launch, span) = (fused.rank, fused.launch, fused.parts[index].what.recv);
        if self.engine.script.has(rank, Fault::WrongResult { launch })
            && let Some(byte) = self.engine.memory.write(span).first_mut()
        {
            *byte ^= 1;
        }
    }
}

impl Part {
    /// Bytes of the elements that its count says.
    pub(super) fn byte_len(&self) -> usize {
        self.what.count * self.what.dtype.byte_len().unwrap_or(1)
    }

    /// What one of so many members reads and writes.
    pub(super) fn spans(&self, member: usize, size: usize) -> (Span, Span) {
        let one = self.byte_len();
        let of = |span: Span, byte_len: usize| span.part(0, byte_len).unwrap_or(Span::new(1, byte_len));
        let is_root = member == self.other;
        let Transfer { send, recv, .. } = self.what;
        match self.kind {
            Kind::AllReduce => (of(send, one), of(recv, one)),
            Kind::Broadcast => (if is_root { of(send, one) } else { Span::EMPTY }, of(recv, one)),
            Kind::Reduce => (of(send, one), if is_root { of(recv, one) } else { Span::EMPTY }),
            Kind::AllGather => (of(send, one), of(recv, one * size)),
            Kind::ReduceScatter => (of(send, one * size), of(recv, one)),
            Kind::Send | Kind::Recv => (send, recv),
        }
    }

    /// What a member gets of what all gave; none where it gets nothing.
    fn outcome(&self, member: usize, given: &[Vec<u8>]) -> Option<Vec<u8>> {
        let one = self.byte_len();
        match self.kind {
            Kind::AllReduce => Some(self.joined(given.iter().map(|bytes| &bytes[..]).collect())),
            Kind::Reduce if member == self.other => Some(self.joined(given.iter().map(|bytes| &bytes[..]).collect())),
            Kind::Broadcast => Some(given[self.other].clone()),
            Kind::AllGather => Some(given.concat()),
            Kind::ReduceScatter => Some(self.joined(given.iter().map(|bytes| &bytes[member * one..][..one]).collect())),
            _ => None,
        }
    }

    fn joined(&self, parts: Vec<&[u8]>) -> Vec<u8> {
        let mut into = vec![0; self.byte_len()];
        if let Some(dtype) = self.what.dtype.element() {
            let _ = combine(self.op.reduce(), dtype, &mut into, &parts);
        }
        into
    }

    fn words(&self, rank: usize) -> String {
        let Part { kind, what: Transfer { count, dtype, .. }, op, other, site, .. } = self;
        let name = kind.name();
        format!("rank {rank} calls {name} of {count} of type {} with {op} and rank {other} at {site}", dtype.0)
    }
}

/// The number of the first reduction that a communicator creates.
pub(super) const FIRST_CREATED: usize = RedOp::FIRST_CREATED as usize;
