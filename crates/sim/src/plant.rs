//! Planting bugs in schedules, as data: the core plays what it is given and knows nothing of this.

use fastrand::Rng;
use phalanx_core::Layout;
use phalanx_core::Op;
use phalanx_core::schedule::{Algorithm, Schedule};

use crate::mutation::Mutation;
use crate::scene::{Act, Call, Scene};
use crate::tamper::Bench;

/// Plants the bug in one act of the scene, and says where; none where no act has a place for it.
pub(crate) fn plant(
    mutation: Mutation,
    scene: &Scene,
    layout: &Layout,
    schedules: &mut [Vec<Schedule>],
    dice: &mut Rng,
) -> Option<String> {
    let mut order: Vec<usize> = (0..scene.acts.len()).collect();
    dice.shuffle(&mut order);
    order.into_iter().find_map(|index| {
        let (act, schedules) = (&scene.acts[index], &mut schedules[index]);
        let place = match mutation {
            Mutation::WrongRoot => play_for_another_root(act, layout, schedules),
            Mutation::MissingBarrierStep => leave_barrier_early(act, schedules, dice),
            _ => change_one_rank(mutation, act, schedules, dice),
        };
        place.map(|place| format!("in operation {index}, {place}"))
    })
}

/// Rooted operations whose ranks all have a whole buffer: a broadcast can be made one, a reduction must be in place.
fn play_for_another_root(act: &Act, layout: &Layout, schedules: &mut [Schedule]) -> Option<String> {
    let size = layout.size();
    let another = |call: &Call| {
        let op = match call.op {
            Op::Broadcast { count, root } if count > 0 && size > 1 => Op::Broadcast { count, root: (root + 1) % size },
            Op::Reduce { count, reduce, root } if count > 0 && size > 1 && call.in_place => {
                Op::Reduce { count, reduce, root: (root + 1) % size }
            }
            _ => return None,
        };
        Some(Call { op, in_place: true, ..call.clone() })
    };
    let calls: Option<Vec<Call>> = act.calls.iter().map(another).collect();
    for (rank, call) in calls?.iter().enumerate() {
        schedules[rank] = call.schedule(&layout.seen_from(rank));
    }
    Some("all ranks".to_owned())
}

fn leave_barrier_early(act: &Act, schedules: &mut [Schedule], dice: &mut Rng) -> Option<String> {
    if act.usual().op != Op::Barrier {
        return None;
    }
    if schedules[0].algorithm == Algorithm::Direct {
        let rank = dice.usize(..schedules.len());
        let looks = (1..schedules[rank].steps.len()).collect::<Vec<_>>();
        let step = dice.choice(looks)?;
        schedules[rank].steps.remove(step);
        return Some(format!("rank {rank}, step {step}"));
    }
    let step = dice.choice(0..schedules[0].steps.len())?;
    schedules.iter_mut().for_each(|schedule| {
        schedule.steps.remove(step);
    });
    Some(format!("all ranks, step {step}"))
}

/// Chooses among all places where the bug fits.
fn change_one_rank(mutation: Mutation, act: &Act, schedules: &mut [Schedule], dice: &mut Rng) -> Option<String> {
    let size = schedules.len();
    let mut fits = vec![];
    for (rank, schedule) in schedules.iter().enumerate() {
        let bench = Bench::new(&act.calls[rank], rank, size, schedule);
        fits.extend((0..schedule.steps.len()).filter_map(|step| Some((rank, step, bench.change(mutation, step)?))));
    }
    let fit = dice.usize(..fits.len().max(1));
    let (rank, step, changed) = fits.into_iter().nth(fit)?;
    schedules[rank] = changed;
    Some(format!("rank {rank}, step {step}"))
}
