//! What a company does, decided by a seed alone: who is in which team, and one deed after the other.

use fastrand::Rng;
use phalanx_core::{DType, OpKind, ReduceOp};

use super::act::Act;
use super::collective::Collective;
use super::messages::Messages;
use crate::case::hash;

/// The plan of one company.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    seed: u64,
    /// The members of each team, in the order of their ranks there. The first has all members in their own order.
    pub(super) teams: Vec<Vec<usize>>,
}

/// Something that a team does.
#[derive(Clone, Debug)]
pub(super) struct Deed {
    pub(super) team: usize,
    task: Task,
}

#[derive(Clone, Debug)]
enum Task {
    Collective(Collective),
    Messages(Messages),
}

impl Plan {
    /// How many deeds a company does.
    pub(super) const DEEDS: u64 = 500;

    pub(super) fn new(seed: u64) -> Plan {
        let size = SIZES[Rng::with_seed(hash(seed)).usize(..SIZES.len())];
        Plan::of_size(seed, size)
    }

    pub(super) fn of_size(seed: u64, size: usize) -> Plan {
        let mut draw = Rng::with_seed(hash(hash(seed)));
        let mut team = |least: usize| {
            let mut team: Vec<usize> = (0..size).collect();
            draw.shuffle(&mut team);
            team.truncate(draw.usize(least..=size));
            team
        };
        let teams = vec![(0..size).collect(), team(size), team(1), team(size.min(2))];
        Plan { seed, teams }
    }

    /// How many members there are.
    pub(super) fn size(&self) -> usize {
        self.teams[0].len()
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// The deed of this number.
    pub(super) fn deed(&self, number: u64) -> Deed {
        let mut draw = Rng::with_seed(hash(hash(self.seed) ^ number));
        let team = draw.usize(..self.teams.len());
        let size = self.teams[team].len();
        let longest = LENGTHS[draw.usize(..LENGTHS.len())];
        let task = match draw.u8(..5) {
            0 if size > 1 => Task::Messages(Messages::draw(&mut draw, size, longest, number)),
            _ => Task::Collective(Collective::draw(&mut draw, size, longest)),
        };
        Deed { team, task }
    }
}

impl Deed {
    /// What this rank of the team calls.
    pub(super) fn acts(&self, rank: usize) -> Vec<Act> {
        match &self.task {
            Task::Collective(collective) => vec![collective.act(rank)],
            Task::Messages(messages) => messages.acts(rank),
        }
    }
}

/// Small companies more often: they do more in the same time.
const SIZES: [usize; 14] = [1, 2, 2, 2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 9];
/// The most elements of a buffer, long ones seldom.
const LENGTHS: [usize; 20] =
    [2, 2, 2, 7, 7, 40, 40, 40, 40, 300, 300, 300, 3000, 3000, 3000, 3000, 3000, 3000, 30_000, 250_000];

#[test]
fn a_seed_says_the_same_twice_and_its_deeds_are_of_every_kind() {
    let acts = |number: u64| {
        let plan = Plan::new(3);
        let deed = plan.deed(number);
        let ranks = 0..plan.teams[deed.team].len();
        ranks.flat_map(|rank| deed.acts(rank)).collect::<Vec<Act>>()
    };
    assert_eq!(format!("{:?}", acts(5)), format!("{:?}", acts(5)));
    let all: Vec<Act> = (0..Plan::DEEDS).flat_map(acts).collect();
    for kind in OpKind::ALL {
        assert!(all.iter().any(|act| act.op.kind() == kind), "no {kind}");
    }
    for dtype in DType::ALL {
        assert!(all.iter().any(|act| act.dtype == dtype), "no {dtype}");
    }
    for reduce in ReduceOp::ALL {
        assert!(all.iter().any(|act| act.op.reduce() == Some(reduce)), "no {reduce}");
    }
}
