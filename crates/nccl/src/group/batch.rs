//! Messages over memory of the host that go together: one piece of work, in which none waits for another.

use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use phalanx_core::backend::{Buffers, Finished, Pending};
use phalanx_core::{Call, Error, Result};

use super::backend::NcclBackend;
use super::flight::{Stage, Waiting};
use super::hall::lock;
use super::job::{Held, Share};
use super::lane::Line;
use super::plan::Step;
use crate::api::{Cuda, Nccl, Process};

/// One message of a batch in its caller's hands.
struct Part {
    of: Arc<Waiting>,
    share: Share,
    at: usize,
}

impl<N: Nccl, C: Cuda, P: Process> NcclBackend<N, C, P> {
    /// Begins messages as one.
    pub(super) fn exchange(&self, messages: Vec<(Call, Buffers)>) -> Vec<Box<dyn Pending>> {
        let spare: Vec<Call> = messages.iter().map(|(call, _)| call.clone()).collect();
        spare.iter().for_each(|call| call.open(self.hall.now()));
        let begun = self.hall.check().and_then(|()| self.gather_up(messages));
        match begun {
            Ok((of, share)) => {
                let of = Arc::new(of);
                let part =
                    |at| Box::new(Part { of: Arc::clone(&of), share: Arc::clone(&share), at }) as Box<dyn Pending>;
                (0..spare.len()).map(part).collect()
            }
            Err(error) => spare.iter().map(|call| self.refused(call, error.clone())).collect(),
        }
    }

    /// All copies to the device, then all calls as one group, then all copies back.
    fn gather_up(&self, messages: Vec<(Call, Buffers)>) -> Result<(Waiting, Share)> {
        let (mut up, mut joined, mut down) = (Vec::new(), Vec::new(), Vec::new());
        let (mut only, mut held, mut checks) = (Vec::new(), Vec::new(), Vec::new());
        for (call, buffers) in messages {
            let (steps, mut own) = self.stage(&call, buffers)?;
            checks.append(&mut own.checks);
            let mut is_past = false;
            for step in steps {
                match step {
                    Step::Calls(calls) => {
                        joined.extend(calls);
                        is_past = true;
                    }
                    copy if is_past => down.push(copy),
                    copy => up.push(copy),
                }
            }
            only.push((call, Vec::new()));
            held.push(own);
        }
        up.extend((!joined.is_empty()).then_some(Step::Calls(joined)));
        up.extend(down);
        if let Some((_, steps)) = only.first_mut() {
            *steps = up;
        }
        let share = Share::new(Mutex::default());
        let all = Held { batch: Some((held, Arc::clone(&share))), checks, ..Held::device(Vec::new()) };
        Ok((self.launch(Line::Whole, only, all, None)?, share))
    }
}

impl Part {
    fn take(&self) -> Option<Result<Finished>> {
        if self.of.flight.stage() != Stage::Done {
            return None;
        }
        if let Some(error) = self.of.flight.error() {
            return Some(Err(error));
        }
        let brought = lock(&self.share).get_mut(self.at).and_then(Option::take);
        Some(brought.ok_or_else(|| Error::aborted("what a message brought was taken before")))
    }
}

impl Pending for Part {
    fn is_done(&self) -> bool {
        self.of.is_done()
    }

    fn poll(&mut self, waker: &Waker) -> Option<Result<Finished>> {
        self.of.flight.wake(waker);
        self.take()
    }

    fn wait(&mut self, limit: Option<Duration>) -> Option<Result<Finished>> {
        self.of.reach_end(limit);
        self.take()
    }
}
