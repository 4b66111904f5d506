//! One rank: its links, the operation that it is in, and how it ended.

use std::sync::Arc;

use phalanx_core::link::{Link, Mesh};
use phalanx_core::player::{Data, PastCaches, Player, Progress, Task};
use phalanx_core::schedule::Schedule;
use phalanx_core::{Fingerprint, Result, Stuck};

use crate::board::{Board, Seat};
use crate::network::{End, Shared};
use crate::report::Ending;
use crate::scene::{Call, Scene};

pub(crate) struct Actor<'a> {
    rank: usize,
    mesh: Mesh,
    player: Player,
    /// When it ended each of the operations that it has ended.
    pub(crate) ended: Vec<u64>,
    pub(crate) playing: Option<Playing<'a>>,
    pub(crate) ending: Option<Ending>,
    /// It is not polled before this tick.
    pub(crate) asleep_until: u64,
}

/// An operation that a rank is in.
pub(crate) struct Playing<'a> {
    task: Task<'a>,
    input: Vec<u8>,
    pub(crate) output: Vec<u8>,
    /// When it began.
    pub(crate) since: u64,
}

impl<'a> Actor<'a> {
    pub(crate) fn new(rank: usize, scene: &Scene, network: &Shared, board: &Arc<Board>) -> Actor<'a> {
        let link = |peer: usize| (peer != rank).then(|| Box::new(End::new(network, rank, peer)) as Box<dyn Link>);
        let mut mesh = Mesh::new((0..scene.size()).map(link).collect()).with_checksum(scene.checksum);
        if scene.boards {
            let seat = Seat::new(board, network, rank, &scene.hosts, scene.slot_byte_len);
            mesh = mesh.with_windows(Box::new(seat));
        }
        let player = Player::default();
        Actor { rank, mesh, player, ended: vec![], playing: None, ending: None, asleep_until: 0 }
    }

    /// How many operations it has ended.
    pub(crate) fn done(&self) -> usize {
        self.ended.len()
    }

    /// How many operations it has begun.
    pub(crate) fn begun(&self) -> usize {
        self.done() + usize::from(self.playing.is_some())
    }

    pub(crate) fn begin(
        &mut self,
        call: &'a Call,
        schedule: &'a Schedule,
        given: &[u8],
        size: usize,
        now: u64,
    ) -> Result<()> {
        let task = Task {
            op: &call.op,
            dtype: call.dtype,
            factor: call.factor,
            fingerprint: Fingerprint::of(&call.op, call.dtype, size, EPOCH, self.done() as u32),
            rank: self.rank,
            size,
            schedule,
            // Each rank decides for itself.
            past_caches: if self.rank.is_multiple_of(2) {
                PastCaches::NEVER
            } else {
                PastCaches { own: 48, beside: 64, broadcast: 64 }
            },
        };
        let (input, output) = call.buffers(self.rank, size, given);
        self.player.begin(&task)?;
        self.playing = Some(Playing { task, input, output, since: now });
        Ok(())
    }

    /// Plays on; nothing is left to do outside an operation.
    pub(crate) fn poll(&mut self) -> Result<Progress> {
        let Some(playing) = &mut self.playing else {
            return Ok(Progress::Idle);
        };
        let mut data = Data { input: &playing.input, output: &mut playing.output };
        self.player.poll(&playing.task, &mut data, &mut self.mesh)
    }

    /// Whom it waits for.
    pub(crate) fn stuck(&mut self) -> Vec<Stuck> {
        let playing = self.playing.as_ref();
        playing.map_or(vec![], |playing| self.player.stuck(&playing.task, &mut self.mesh))
    }
}

const EPOCH: u32 = 1;
