//! The end of a rank's part: nothing of its own is under way, it lets go of the others' desks, and its own is freed once all have let go of it.

use super::desk::destroy;
use super::member::{JOINED, Member, Phase};
use super::trouble::Trouble;
use crate::api::Cuda;

impl<C: Cuda> Member<C> {
    /// Begins the end. What is not yet on its stream does not come there any more.
    pub(super) fn begin_to_leave(&mut self) {
        // A part of what was called may be on its stream. Where even that cannot be noted, the device is dead.
        let marked = self.lots.pop_front().map_or(Ok(()), |lot| self.mark(lot.stream));
        self.trouble = marked.err();
        self.lots.clear();
        if self.phase != Phase::Left {
            self.phase = Phase::Finishing;
        }
    }

    /// Goes on with it.
    pub(super) fn leave(&mut self) -> Result<(), Trouble> {
        if self.phase == Phase::Finishing {
            if !self.driver("cuEventQuery", self.cuda.query_event(self.last))? {
                return Ok(());
            }
            for neighbour in self.neighbours.iter_mut().filter_map(Option::take) {
                neighbour.close(&*self.cuda);
            }
            self.store.set(&left(self.rank), [1])?;
            self.phase = Phase::Leaving;
        }
        for peer in self.others() {
            if self.store.find(&left(peer))?.is_none() {
                return Ok(());
            }
        }
        self.desk.free(&*self.cuda, self.device);
        destroy(&*self.cuda, [self.last]);
        self.phase = Phase::Left;
        self.store.delete(&format!("{JOINED}/{}", self.rank))?;
        Ok(())
    }
}

fn left(rank: usize) -> String {
    format!("left/{rank}")
}
