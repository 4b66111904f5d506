//! Collectives, a piece a round: onto the own desk, posted, and taken from everybody's once all have posted.

use super::desk::turn;
use super::lot::{Collective, Kind, Lot};
use super::member::Member;
use super::post::Post;
use super::trouble::Trouble;
use crate::api::{Cuda, DataType, RedOp, Span, Status, Stream};
use crate::kernels::{Join, Way};

/// The part of a collective that one round does.
struct Piece {
    /// Elements of each row: the first, and how many.
    first: usize,
    count: usize,
    /// Bytes of an element.
    width: usize,
    /// Elements of a whole row.
    row: usize,
    /// From one row to the next on the desk, where there are several.
    pitch: usize,
}

impl Piece {
    fn byte_len(&self) -> usize {
        self.count * self.width
    }

    /// This piece of a row of memory.
    fn of(&self, span: Span, row: usize) -> Result<Span, Trouble> {
        part(span, (row * self.row + self.first) * self.width, self.byte_len())
    }
}

impl<C: Cuda> Member<C> {
    /// Goes on with the first collective; whether that did something.
    pub(super) fn advance_round(&mut self, lot: &mut Lot) -> Result<bool, Trouble> {
        let Some(collective) = lot.collectives.front_mut() else { return Ok(false) };
        let piece = self.piece(collective)?;
        let post = Post { number: self.round, what: format!("{}, from {}", collective.words(), piece.first) };
        if !collective.is_posted {
            self.lay(collective, &piece, lot.stream)?;
            let recorded = self.cuda.record_event(turn(&self.desk.ready, self.round), lot.stream);
            self.driver("cuEventRecord", recorded)?;
            if self.size > 1 {
                post.put(&self.store, &row(self.rank))?;
            }
            self.has_posted.fill(false);
            collective.is_posted = true;
            return Ok(true);
        }
        for peer in self.others() {
            if !self.has_posted[peer] {
                self.has_posted[peer] = post.is_put_by(peer, &self.store, &row(peer))?;
                if !self.has_posted[peer] {
                    return Ok(false);
                }
            }
        }
        self.take(collective, &piece, lot.stream)?;
        self.round += 1;
        collective.done += piece.count;
        collective.is_posted = false;
        if collective.done == collective.what.count {
            lot.collectives.pop_front();
        }
        Ok(true)
    }

    fn piece(&self, of: &Collective) -> Result<Piece, Trouble> {
        let width = of.what.dtype.byte_len().ok_or_else(|| unknown(of.what.dtype))?;
        let layout = self.desk.layout();
        let pitch = if of.kind == Kind::ReduceScatter { layout.letter } else { layout.piece };
        let count = (of.what.count - of.done).min(pitch / width);
        Ok(Piece { first: of.done, count, width, row: of.what.count, pitch })
    }

    /// Lays what the others need onto the own desk.
    fn lay(&self, of: &Collective, piece: &Piece, stream: Stream) -> Result<(), Trouble> {
        let desk = self.desk.round(self.round)?;
        let rows = match of.kind {
            Kind::Broadcast(root) if root != self.rank => 0,
            Kind::ReduceScatter => self.size,
            _ => 1,
        };
        for row in 0..rows {
            let (into, from) = (part(desk, row * piece.pitch, piece.byte_len())?, piece.of(of.what.send, row)?);
            match of.way {
                Some(Way::Scale(_)) => self.launch(of, into, &[from], of.way, stream)?,
                // One by one: the driver copies no rows at once that lie 2 GiB apart.
                _ => self.copy(into, from, stream)?,
            }
        }
        Ok(())
    }

    /// Takes what this rank needs from everybody's desk, after everybody has laid it there: also where it needs nothing, because only whoever
    /// has waited for all may use its own place again.
    fn take(&self, of: &Collective, piece: &Piece, stream: Stream) -> Result<(), Trouble> {
        for peer in self.others() {
            let ready = turn(&self.neighbour(peer)?.ready, self.round);
            self.driver("cuStreamWaitEvent", self.cuda.wait_event(stream, ready))?;
        }
        match of.kind {
            Kind::AllReduce => self.fold(of, piece, 0, stream),
            Kind::Reduce(root) if root == self.rank => self.fold(of, piece, 0, stream),
            Kind::ReduceScatter => self.fold(of, piece, self.rank, stream),
            Kind::Reduce(_) => Ok(()),
            Kind::Broadcast(root) => self.copy(piece.of(of.what.recv, 0)?, self.laid(root, piece, 0)?, stream),
            Kind::AllGather => (0..self.size).try_for_each(|rank| {
                let from = self.laid(rank, piece, 0)?;
                self.copy(piece.of(of.what.recv, rank)?, from, stream)
            }),
        }
    }

    /// Joins a row of all desks.
    fn fold(&self, of: &Collective, piece: &Piece, row: usize, stream: Stream) -> Result<(), Trouble> {
        let parts = (0..self.size).map(|rank| self.laid(rank, piece, row)).collect::<Result<Vec<_>, _>>()?;
        let way = if let Some(Way::Scale(_)) = of.way { Some(Way::Own(RedOp::SUM)) } else { of.way };
        self.launch(of, piece.of(of.what.recv, 0)?, &parts, way, stream)
    }

    /// A row of what a rank has laid onto its desk.
    fn laid(&self, rank: usize, piece: &Piece, row: usize) -> Result<Span, Trouble> {
        let desk =
            if rank == self.rank { self.desk.round(self.round) } else { self.neighbour(rank)?.round(self.round) };
        part(desk?, row * piece.pitch, piece.byte_len())
    }

    fn launch(
        &self,
        of: &Collective,
        into: Span,
        parts: &[Span],
        way: Option<Way>,
        stream: Stream,
    ) -> Result<(), Trouble> {
        let dtype = of.what.dtype;
        let kernel = Join::kernel(dtype).ok_or_else(|| unknown(dtype))?;
        let count = into.byte_len() / dtype.byte_len().unwrap_or(1);
        let launch = Join { into, parts, way: way.unwrap_or(Way::Own(RedOp::SUM)), count };
        let grid = launch.grid(self.multiprocessors);
        let launched = self.cuda.launch(kernel, grid, &launch.arguments(), stream);
        launched.map_err(|code| {
            let text = self.cuda.error_text(code);
            let why = format!("cuLaunchKernel: {text}: the kernels of this crate must have been loaded");
            Trouble::new(Status::UNHANDLED_CUDA, why)
        })
    }

    /// Copies, unless both are the same place.
    pub(super) fn copy(&self, to: Span, from: Span, stream: Stream) -> Result<(), Trouble> {
        if to == from || to.is_empty() {
            return Ok(());
        }
        self.driver("cuMemcpyAsync", self.cuda.copy(to, from, stream))
    }
}

pub(super) fn part(span: Span, offset: usize, byte_len: usize) -> Result<Span, Trouble> {
    span.part(offset, byte_len).ok_or_else(|| Trouble::new(Status::INTERNAL, "a piece reaches past its memory"))
}

fn unknown(dtype: DataType) -> Trouble {
    Trouble::argument(format!("type {} is not known", dtype.0))
}

/// Where a rank posts its rounds.
fn row(rank: usize) -> String {
    format!("round/{rank}")
}
