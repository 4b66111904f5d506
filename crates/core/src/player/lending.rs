//! Lent memory: the ranks of a host meet, and where each has lent its own, each makes one slice final in all of it.

use std::hint::black_box;
use std::ops::Range;

use super::memory::{Memory, Parts};
use super::viewing::{bytes_of, checked, shown};
use super::{Progress, Task, corrupt, lost};
use crate::link::{Loan, Mesh, Windows};
use crate::reduce::{combine_both, combine_in_place};
use crate::schedule::{Lending, Source, Span};
use crate::{Error, Result};

/// Where a rank stands with what it lent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Standing {
    /// It has offered nothing yet.
    Away,
    /// It has lent its memory by this offer and waits for the others.
    Waits { offer: u64 },
    /// All have lent theirs, and its slice is final in all of it.
    Finished { offer: u64 },
    /// Nothing is lent: the steps are to be taken.
    #[default]
    Declined,
}

impl Standing {
    /// Goes on as far as possible: done once the slice is final everywhere, or it is known that it is not to be so.
    pub(super) fn poll(
        &mut self,
        task: &Task<'_>,
        lending: &Lending,
        memory: &mut Memory<'_, '_>,
        mesh: &mut Mesh,
    ) -> Result<Progress> {
        let windows = mesh.windows().map_err(|error| lost(task.rank, error))?;
        if let Standing::Away = self {
            *self = match lend(task, lending, memory, windows)? {
                Loan::NotNow => return Ok(Progress::Idle),
                Loan::Made => Standing::Waits { offer: windows.offers() - 1 },
                Loan::Refused => Standing::Declined,
            };
        }
        if let Standing::Waits { offer } = *self {
            *self = match have_lent(task, offer, lending, windows) {
                Ok(None) => return Ok(Progress::Idle),
                Ok(Some(true)) => {
                    finish(task, offer, lending, memory, windows)?;
                    Standing::Finished { offer }
                }
                // Each sees the same and writes nothing.
                Ok(Some(false)) => {
                    windows.forgo();
                    Standing::Declined
                }
                Err(error) => {
                    if let Error::Desync(_) = error {
                        windows.forgo();
                    }
                    return Err(error);
                }
            };
        }
        Ok(Progress::Done)
    }

    /// Whether everybody's memory was lent and its slice is final there.
    pub(super) fn is_finished(self) -> bool {
        matches!(self, Standing::Finished { .. })
    }

    /// Whether this peer is waited for.
    pub(super) fn awaits(self, peer: usize, windows: &dyn Windows) -> bool {
        let missing = |offer| windows.view(peer, offer, 0..0).is_ok_and(|view| view.is_none());
        matches!(self, Standing::Waits { offer } if missing(offer))
    }
}

/// Lets the compiler know that others than this thread have written here.
pub(super) fn written_by_peers(memory: &mut [u8]) {
    black_box(memory);
}

fn lend(task: &Task<'_>, lending: &Lending, memory: &mut Memory<'_, '_>, windows: &mut dyn Windows) -> Result<Loan> {
    let room = lending.room.map(|room| memory.write(room)).unwrap_or_default();
    windows.try_lend(&task.head(LOAN), room).map_err(|error| lost(task.rank, error))
}

/// Whether all peers have lent their memory by this offer; none while it is not known.
fn have_lent(task: &Task<'_>, offer: u64, lending: &Lending, windows: &dyn Windows) -> Result<Option<bool>> {
    let end = lending.room.map_or(0, Span::end) * task.dtype.byte_len();
    let mut all = Some(true);
    for peer in task.peers() {
        match windows.view(peer, offer, end..end).map_err(|error| lost(peer, error))? {
            None => all = None,
            Some(view) => {
                task.compare_head(peer, view.head, LOAN)?;
                if view.part.is_none() {
                    return Ok(Some(false));
                }
            }
        }
    }
    Ok(all)
}

/// Makes the slice final.
fn finish(
    task: &Task<'_>,
    offer: u64,
    lending: &Lending,
    memory: &mut Memory<'_, '_>,
    windows: &mut dyn Windows,
) -> Result<()> {
    let (slice, source) = (lending.slice, lending.source);
    if let (Source::All, 2) = (source, task.size) {
        let peer = 1 - task.rank;
        let theirs = windows.lent(peer, offer, bytes_of(task, slice.start, slice.len));
        let theirs = theirs.map_err(|error| lost(peer, error))?;
        return combine_both(task.join(true), task.dtype, memory.write(slice), theirs)
            .map_err(|error| Error::setup("reduction", error));
    }
    let is_copied_once = task.size == 2 && source != Source::All;
    let block_len = if is_copied_once { slice.len.max(1) } else { BLOCK / task.dtype.byte_len() };
    slice.blocks(block_len).try_for_each(|block| finish_block(task, (source, offer), block, memory, windows))
}

/// Makes a block final: in this rank's memory first, then from there in that of the others.
fn finish_block(
    task: &Task<'_>,
    (source, offer): (Source, u64),
    block: Span,
    memory: &mut Memory<'_, '_>,
    windows: &mut dyn Windows,
) -> Result<()> {
    let part = bytes_of(task, block.start, block.len);
    let theirs = |peer| part_of(task, windows, (peer, offer), part.clone());
    match source {
        Source::All => {
            let mut parts = Parts::new();
            for peer in task.peers() {
                parts.push(theirs(peer)?);
            }
            combine_in_place(task.join(true), task.dtype, memory.write(block), task.rank, &parts)
                .map_err(|error| Error::setup("reduction", error))?;
        }
        Source::Rank(root) if root != task.rank => {
            // What is copied on from there is to stay in the caches.
            let copy = if task.size > 2 { <[u8]>::copy_from_slice } else { memory.pulls(block.place) };
            copy(memory.write(block), theirs(root)?);
        }
        Source::Rank(_) => {}
    }
    for peer in task.peers().filter(|peer| source != Source::Rank(*peer)) {
        let theirs = windows.lent(peer, offer, part.clone()).map_err(|error| lost(peer, error))?;
        memory.pulls(block.place)(theirs, memory.read(block));
    }
    Ok(())
}

fn part_of<'a>(
    task: &Task<'_>,
    windows: &'a dyn Windows,
    (peer, offer): (usize, u64),
    part: Range<usize>,
) -> Result<&'a [u8]> {
    let view = windows.view(peer, offer, part.clone()).map_err(|error| lost(peer, error))?;
    let view = view.ok_or_else(|| corrupt(peer, "an offer that was made is not there"))?;
    shown(peer, checked(task, (peer, LOAN), view, part)?)
}

/// The place in heads of what is lent.
const LOAN: u8 = 0;
/// Bytes that are made final at a time: as many as stay in the first-level cache between the join and the copies.
const BLOCK: usize = 16 << 10;
