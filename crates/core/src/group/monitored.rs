//! The monitored barrier: rank 0 waits for all others and can say who is missing. It is made of messages, so it works where
//! a collective would hang, and is no faster than rank 0 can hear everybody.

use std::ops::RangeInclusive;
use std::time::Duration;

use phalanx_mem::Buffer;

use super::Group;
use crate::backend::{Buffers, Finished};
use crate::error::{Chain, Stuck, Timeout, Waiting};
use crate::work::Work;
use crate::{DType, Error, Op, OpKind, Result, Site};

impl Group {
    /// The tags that the group keeps for itself: no message of a program has one of these.
    pub const OWN_TAGS: RangeInclusive<u32> = 0xFFFE_0000..=0xFFFE_FFFF;

    /// Returns when every rank has called it. When one has not come within the [timeout](Group::timeout) of rank 0, the
    /// group ends with a [`Timeout`](Error::Timeout) that names the first of the missing ranks, or with `wait_all` all of
    /// them, on every rank that came. When rank 0 itself does not come, the others say so after twice their own timeout.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn step(group: &phalanx_core::Group) -> phalanx_core::Result<()> {
    /// group.within(Duration::from_secs(60)).monitored_barrier(true)
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [every operation](Group#errors). Who gives up gets the [`Timeout`](Error::Timeout) itself, the others [`Aborted`](Error::Aborted) with
    /// it as the cause.
    #[track_caller]
    pub fn monitored_barrier(&self, wait_all: bool) -> Result<()> {
        let site = Site::caller();
        if self.rank() == 0 {
            self.hear_all(wait_all, site)?;
            let told = (1..self.size()).map(|to| self.whisper(to, RELEASE, site)).collect::<Result<Vec<_>>>()?;
            return told.into_iter().try_for_each(Work::wait);
        }
        let heard = self.listen(0, RELEASE, site)?;
        let said = self.whisper(0, HERE, site)?;
        // Rank 0 may come as late as its timeout allows, and then waits as long again.
        let patience = self.timeout().saturating_mul(2);
        match heard.wait_timeout(patience) {
            Ok(end) => end.and_then(|()| said.wait()),
            Err(_) => Err(self.give_up(patience, vec![0])),
        }
    }

    /// Waits for the word of every other rank.
    fn hear_all(&self, wait_all: bool, site: Site) -> Result<()> {
        let deadline = self.shared.backend.now().saturating_add(self.timeout());
        let hear = |from| Ok((from, self.listen(from, HERE, site)?));
        let coming = (1..self.size()).map(hear).collect::<Result<Vec<_>>>()?;
        let mut missing = vec![];
        for (from, work) in coming {
            let left = deadline.saturating_sub(self.shared.backend.now());
            match work.wait_timeout(left) {
                Ok(end) => end?,
                Err(_) => missing.push(from),
            }
            if !wait_all && !missing.is_empty() {
                break;
            }
        }
        match missing.is_empty() {
            true => Ok(()),
            false => Err(self.give_up(self.timeout(), missing)),
        }
    }

    /// Ends the group because these ranks have not come, so that all others hear of it.
    fn give_up(&self, after: Duration, missing: Vec<usize>) -> Error {
        let sequence = self.shared.backend.upcoming();
        let stuck = missing.into_iter().map(|peer| Stuck { peer, on: Waiting::Arriving }).collect();
        let error =
            Error::Timeout(Box::new(Timeout { op: OpKind::Barrier, sequence, after, stuck, chain: Chain::Direct }));
        self.shared.backend.abort(error.clone());
        self.failed(error)
    }

    fn whisper(&self, to: usize, tag: u32, site: Site) -> Result<Work<()>> {
        self.post_word(Op::Send { count: 0, to, tag }, site)
    }

    fn listen(&self, from: usize, tag: u32, site: Site) -> Result<Work<()>> {
        self.post_word(Op::Recv { count: 0, from: Some(from), tag }, site)
    }

    /// Begins a message without content, whose own timeout only comes when nobody waits for it any more.
    fn post_word(&self, op: Op, site: Site) -> Result<Work<()>> {
        let kind = op.kind();
        let mut call = self.number(op, DType::U8, None, false, site)?;
        call.timeout = self.timeout().saturating_mul(4);
        let buffers = Buffers { input: Some(Buffer::default()), output: Buffer::default() };
        Ok(Work::new(kind, self.submit(call, buffers), |_: Finished| ()))
    }
}

/// From another rank to rank 0.
const HERE: u32 = *Group::OWN_TAGS.start();
/// From rank 0 to another rank.
const RELEASE: u32 = HERE + 1;
