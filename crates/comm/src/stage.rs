//! The stage of one rank: what a collective needs while it is played, one at a time.

use std::sync::Arc;

use phalanx_core::link::Mesh;
use phalanx_core::player::{PastCaches, Player, Task};
use phalanx_core::schedule::{Algorithm, Ground, Plan, Schedule, build, choose};
use phalanx_core::{Call, DType, Error, Layout, Op, Result};
use rustc_hash::FxHashMap;

use crate::caches;

/// The links of the collectives, and what is worth keeping from one to the next.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) mesh: Mesh,
    layout: Layout,
    ground: Ground,
    /// The algorithm to use wherever it can play the operation.
    wish: Option<Algorithm>,
    past_caches: PastCaches,
    schedules: FxHashMap<(Op, DType, bool), Arc<Schedule>>,
    scratch: Vec<u8>,
}

impl Stage {
    pub(crate) fn new(mesh: Mesh, layout: Layout, ground: Ground, wish: Option<Algorithm>) -> Stage {
        let past_caches = caches::past_caches(layout.host_mates(layout.rank()).len());
        Stage { mesh, layout, ground, wish, past_caches, schedules: FxHashMap::default(), scratch: vec![] }
    }

    /// A player for this call.
    pub(crate) fn player(&mut self, call: &Call) -> Result<Player> {
        let schedule = self.schedule(call)?;
        let task = Task {
            op: call.op.clone(),
            dtype: call.dtype,
            factor: call.factor,
            fingerprint: call.fingerprint,
            rank: self.layout.rank(),
            past_caches: self.past_caches,
        };
        let scratch = std::mem::take(&mut self.scratch);
        Player::new(schedule, task, self.layout.size(), scratch)
    }

    /// Takes the player's memory back.
    pub(crate) fn keep(&mut self, player: &mut Player) {
        self.scratch = player.take_scratch();
    }

    fn schedule(&mut self, call: &Call) -> Result<Arc<Schedule>> {
        let key = (call.op.clone(), call.dtype, call.in_place);
        if let Some(schedule) = self.schedules.get(&key) {
            return Ok(Arc::clone(schedule));
        }
        let schedule = Arc::new(self.build(call)?);
        if self.schedules.len() >= REMEMBERED {
            self.schedules.clear();
        }
        self.schedules.insert(key, Arc::clone(&schedule));
        Ok(schedule)
    }

    fn build(&self, call: &Call) -> Result<Schedule> {
        let (layout, op, dtype) = (&self.layout, &call.op, call.dtype);
        let windows = self.ground.has_windows(layout.size());
        let of_all = windows && layout.is_one_host();
        let possible = |wish: &Algorithm| wish.plays(op, dtype) && (of_all || !wish.reads_windows());
        let (algorithm, segments) = match self.wish.filter(possible) {
            Some(wish) => (wish, wish.segments(op, dtype, layout, &self.ground)),
            None => choose(op, dtype, layout, &self.ground),
        };
        if segments > MOST_SEGMENTS {
            // A rank that has only its own part does not see otherwise that the others' parts are none that anybody has. The call has its
            // number by now, which the others wait for.
            let why = format!("parts of {segments} pieces for {}, of {MOST_SEGMENTS} at most", op.kind());
            return Err(Error::setup("schedule", why));
        }
        let plan = Plan { layout, op, dtype, in_place: call.in_place, algorithm, segments, windows };
        build(&plan).ok_or_else(|| Error::setup("schedule", format!("{algorithm} cannot play {}", op.kind())))
    }
}

/// Steps are made for each before the first is played. Of the shortest pieces these are 256 GiB through windows; over links they are 2 TiB,
/// and 16 GiB by the profile with the shortest.
const MOST_SEGMENTS: usize = 1 << 22;
/// A training loop repeats the same few operations; a program that never does must not fill the memory.
const REMEMBERED: usize = 256;
