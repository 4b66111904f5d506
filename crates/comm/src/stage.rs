//! The stage of one rank: what a collective needs while it is played, one at a time.

use indexmap::{Equivalent, IndexMap};
use phalanx_core::link::Mesh;
use phalanx_core::player::{Data, PastCaches, Player, Progress, Task};
use phalanx_core::schedule::{Algorithm, Ground, Plan, Schedule, build, choose};
use phalanx_core::{Call, DType, Error, Fingerprint, Layout, Op, Result, Stuck};
use rustc_hash::FxBuildHasher;

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
    schedules: IndexMap<(Op, DType, bool), Schedule, FxBuildHasher>,
    /// The place of the schedule that was played last: mostly the next call has the same.
    last: usize,
    player: Player,
}

/// What a schedule depends on.
#[derive(Hash)]
struct Form<'a> {
    op: &'a Op,
    dtype: DType,
    in_place: bool,
}

/// A collective that is played.
#[derive(Debug)]
pub(crate) struct Playing<'a> {
    task: Task<'a>,
    player: &'a mut Player,
    pub(crate) mesh: &'a mut Mesh,
}

impl Stage {
    pub(crate) fn new(mesh: Mesh, layout: Layout, ground: Ground, wish: Option<Algorithm>) -> Stage {
        let past_caches = caches::past_caches(layout.host_mates(layout.rank()).len());
        let (schedules, player) = (IndexMap::default(), Player::default());
        Stage { mesh, layout, ground, wish, past_caches, schedules, last: 0, player }
    }

    /// Begins this call.
    #[inline]
    pub(crate) fn begin<'a>(&'a mut self, call: &'a Call) -> Result<Playing<'a>> {
        let form = Form { op: &call.op, dtype: call.dtype, in_place: call.in_place };
        if !self.schedules.get_index(self.last).is_some_and(|(last, _)| form.equivalent(last)) {
            self.last = self.find(call, &form)?;
        }
        let schedule = &self.schedules[self.last];
        let task = Task {
            op: &call.op,
            dtype: call.dtype,
            factor: call.factor,
            fingerprint: call.fingerprint,
            rank: self.layout.rank(),
            size: self.layout.size(),
            schedule,
            past_caches: self.past_caches,
        };
        self.player.begin(&task)?;
        Ok(Playing { task, player: &mut self.player, mesh: &mut self.mesh })
    }

    /// The place of a call's schedule.
    fn find(&mut self, call: &Call, form: &Form<'_>) -> Result<usize> {
        if let Some(place) = self.schedules.get_index_of(form) {
            return Ok(place);
        }
        let schedule = self.build(call)?;
        if self.schedules.len() >= REMEMBERED {
            self.schedules.clear();
        }
        Ok(self.schedules.insert_full((form.op.clone(), form.dtype, form.in_place), schedule).0)
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

impl Equivalent<(Op, DType, bool)> for Form<'_> {
    #[inline]
    fn equivalent(&self, (op, dtype, in_place): &(Op, DType, bool)) -> bool {
        (self.op, self.dtype, self.in_place) == (op, *dtype, *in_place)
    }
}

impl Playing<'_> {
    /// Plays on: see [`Player::poll`].
    #[inline]
    pub(crate) fn poll(&mut self, data: &mut Data<'_>) -> Result<Progress> {
        self.player.poll(&self.task, data, self.mesh)
    }

    /// The transfers that it waits for: see [`Player::stuck`].
    pub(crate) fn stuck(&mut self) -> Vec<Stuck> {
        self.player.stuck(&self.task, self.mesh)
    }

    /// The fingerprint that came last, and from whom.
    pub(crate) fn heard(&self) -> Option<(usize, Fingerprint)> {
        self.player.heard(&self.task)
    }
}

/// Steps are made for each before the first is played. Of the shortest pieces these are 256 GiB through windows; over links they are 2 TiB,
/// and 16 GiB by the profile with the shortest.
const MOST_SEGMENTS: usize = 1 << 22;
/// A training loop repeats the same few operations; a program that never does must not fill the memory.
const REMEMBERED: usize = 256;
