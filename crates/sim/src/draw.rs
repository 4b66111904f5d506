//! Drawing a scene from a seed: the world, its temper, its fault.

use std::iter;

use fastrand::Rng;
use phalanx_core::schedule::{Ground, Pieces};
use phalanx_core::{Fingerprint, Layout};

use crate::fault::{Fault, FaultKind, LastWords, When};
use crate::odd::differ;
use crate::program::World;
use crate::scene::{Act, Call, Scene, Stall, Temper};

/// The scene of a seed's dice; without any fault when it is to be `healthy`.
pub(crate) fn scene(dice: &mut Rng, healthy: bool) -> Scene {
    let hosts = hosts(dice);
    let world = World {
        is_one_host: hosts.iter().all(|host| *host == hosts[0]),
        boards: dice.bool(),
        tight: dice.u8(..4) == 0,
        ground: ground(dice),
        layout: Layout::new(0, hosts.clone()).expect("rank 0 is one of at least one"),
    };
    let mut acts: Vec<Act> = (0..dice.usize(1..=4)).map(|_| world.act(dice)).collect();
    let fault = if healthy { None } else { fault(dice, &world, &mut acts) };
    let mismatch = matches!(fault, Some(Fault::Mismatch { .. }));
    if mismatch {
        acts.push(world.last_act(dice));
    }
    let bytes: usize = acts.iter().map(byte_len).sum();
    Scene {
        slot_byte_len: if world.tight && !mismatch { HEAD + world.ground.slot_byte_len } else { usize::MAX },
        boards: world.boards,
        temper: temper(dice, hosts.len(), bytes),
        stalls: stalls(dice, hosts.len()),
        checksum: matches!(fault, Some(Fault::Flip { .. })) || dice.u8(..4) == 0,
        spread: dice.bool(),
        hosts,
        acts,
        fault,
    }
}

/// A fault in half of the worlds of more than one rank; a mismatch changes the acts.
fn fault(dice: &mut Rng, world: &World, acts: &mut [Act]) -> Option<Fault> {
    let size = world.size();
    if size == 1 || dice.u8(..20) < 10 {
        return None;
    }
    let (rank, when) = (dice.usize(..size), when(dice));
    let other = (rank + dice.usize(1..size)) % size;
    Some(match FaultKind::ALL[dice.usize(..FaultKind::ALL.len())] {
        FaultKind::CutLink => Fault::Cut { a: rank, b: other, silent: dice.bool(), when },
        FaultKind::FlippedByte => Fault::Flip { when },
        FaultKind::KilledRank => {
            Fault::Kill { rank, end: [LastWords::Arrive, LastWords::Lost, LastWords::Silence][dice.usize(..3)], when }
        }
        FaultKind::LateRank => Fault::Late { rank },
        FaultKind::StoppedRank => Fault::Stop { rank, resumes: dice.bool(), when },
        FaultKind::Mismatch => {
            let act = dice.usize(..acts.len());
            differ(dice, world, &mut acts[act], rank)?;
            Fault::Mismatch { rank, act }
        }
    })
}

fn hosts(dice: &mut Rng) -> Vec<u32> {
    let size = dice.usize(1..=9);
    let count = if dice.u8(..5) < 3 { 1 } else { dice.u32(2..=3) };
    let scattered = dice.bool();
    let block = size.div_ceil(count as usize);
    (0..size).map(|rank| if scattered { dice.u32(..count) } else { (rank / block) as u32 }).collect()
}

fn ground(dice: &mut Rng) -> Ground {
    Ground {
        slot_byte_len: [512, 1024, 4096][dice.usize(..3)],
        small_byte_len: [0, 256, 16 << 10][dice.usize(..3)],
        segment_byte_len: [64, 512, 4096][dice.usize(..3)],
        pieces: Pieces { most: dice.usize(1..40), shortest: dice.usize(..5000), longest: dice.usize(64..9000) },
    }
}

fn temper(dice: &mut Rng, size: usize, bytes: usize) -> Temper {
    // However many bytes there are, a seed must end soon.
    let least = bytes / 1000 + 1;
    Temper {
        piece: least.max([1, 7, 64, 1000, usize::MAX][dice.usize(..5)]),
        refusal: [0, 20, 100][dice.usize(..3)],
        capacity: least.max([1, 40, 500, 1 << 16][dice.usize(..4)]),
        delay: [0, 0, 5, 60][dice.usize(..4)],
        burst: [0, 0, 200][dice.usize(..3)],
        slow: (dice.u8(..4) == 0).then(|| dice.usize(..size)),
    }
}

fn stalls(dice: &mut Rng, size: usize) -> Vec<Stall> {
    let count = [0, 0, 1, 3][dice.usize(..4)];
    // The first tick that is played is 1.
    let stall = || Stall { rank: dice.usize(..size), at: 1 + early(dice), ticks: dice.u64(1..5000) };
    iter::repeat_with(stall).take(count).collect()
}

fn when(dice: &mut Rng) -> When {
    match dice.u8(..3) {
        0 => When::Tick(early(dice)),
        _ => When::Moved(dice.u64(..1000)),
    }
}

/// A tick, sooner rather than later, and often the first.
fn early(dice: &mut Rng) -> u64 {
    let bits = dice.u32(..12);
    dice.u64(..1 << bits)
}

/// Bytes of all buffers.
fn byte_len(act: &Act) -> usize {
    let need = |(rank, call): (usize, &Call)| {
        let need = call.op.need(rank, act.calls.len());
        need.input.max(need.output) * call.dtype.byte_len()
    };
    act.calls.iter().enumerate().map(need).sum()
}

/// The fingerprint before every offer.
const HEAD: usize = Fingerprint::BYTE_LEN;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use phalanx_core::schedule::Algorithm;
    use phalanx_core::{DType, Op, ReduceOp};

    use super::*;

    fn scenes() -> Vec<Scene> {
        (0..6000).map(|seed| scene(&mut Rng::with_seed(seed), false)).collect()
    }

    #[test]
    fn the_seeds_come_past_everything() {
        let scenes = scenes();
        let calls = || scenes.iter().flat_map(|scene| &scene.acts).map(Act::usual);
        let plays: BTreeSet<_> = calls().map(|call| (call.op.kind(), call.algorithm)).collect();
        let dtypes: BTreeSet<_> = calls().map(|call| call.dtype).collect();
        let reductions: BTreeSet<_> = calls().filter_map(|call| call.op.reduce()).map(ReduceOp::name).collect();
        let known: BTreeSet<_> = calls()
            .flat_map(|call| Algorithm::ALL.map(|algorithm| (call, algorithm)))
            .filter(|(call, algorithm)| algorithm.plays(&call.op, call.dtype))
            .map(|(call, algorithm)| (call.op.kind(), algorithm))
            .collect();
        assert_eq!(plays, known, "every algorithm plays every operation that it can");
        assert_eq!((dtypes.len(), reductions.len()), (DType::ALL.len(), ReduceOp::ALL.len()));
        let sizes: BTreeSet<_> = scenes.iter().map(Scene::size).collect();
        assert_eq!(sizes, (1..=9).collect());
        let healthy = scenes.iter().filter(|scene| scene.fault.is_none()).count();
        assert!((2400..4200).contains(&healthy), "{healthy} of 6000 have no fault");
    }

    #[test]
    fn some_seeds_disagree_about_the_tables_of_an_all_to_all_but_never_a_rank_with_itself() {
        let (mut even, mut given, mut taken) = (0, 0, 0);
        for (act, odd) in scenes().iter().flat_map(|scene| &scene.acts).filter_map(|act| Some((act, act.odd?))) {
            // The same rank's tables as they were: those of its peers are the other half of them.
            let table = |rank: usize| match &act.calls[rank].op {
                Op::AllToAll { give, take } => Some((give, take)),
                _ => None,
            };
            let ranks = 0..act.calls.len();
            let Some(tables) = ranks.clone().map(table).collect::<Option<Vec<_>>>() else { continue };
            let (give, take) = tables[odd];
            assert_eq!(give.of(odd), take.of(odd), "{act}");
            let peers = || ranks.clone().filter(|&peer| peer != odd);
            let gives = peers().filter(|&peer| give.of(peer) != tables[peer].1.of(odd)).count();
            let takes = peers().filter(|&peer| take.of(peer) != tables[peer].0.of(odd)).count();
            match (give.is_even(), gives, takes) {
                (true, gives, takes) if gives + takes > 0 => even += 1,
                (false, 1, 0) => given += 1,
                (false, 0, 1) => taken += 1,
                (_, gives, takes) => assert_eq!((gives, takes), (0, 0), "{act}"),
            }
        }
        assert!(even > 0 && given > 0 && taken > 0, "{even} of even parts, {given} of gifts, {taken} of what is taken");
    }

    #[test]
    fn no_stall_is_over_before_the_first_tick() {
        let stalls: Vec<Stall> = scenes().into_iter().flat_map(|scene| scene.stalls).collect();
        assert!(stalls.iter().any(|stall| stall.at == 1));
        assert!(stalls.iter().all(|stall| stall.at >= 1));
    }
}
