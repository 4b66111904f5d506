//! Every place where the runner waits is there for a reason: without it something is used in no order, and that is told.

use phalanx_fsdp::device::{Edge, Mistake};
use phalanx_fsdp::hooks::F16;
use phalanx_fsdp::{Offload, Param, Policy, Reshard};
use phalanx_nccl::sim::Finding;

use crate::company::Company;
use crate::hooks::hooked;
use crate::job::Job;
use crate::model::{Block, mixed};
use crate::seats::seeds;
use crate::train::Task;

/// A job in which this edge matters.
fn job(edge: Edge) -> Job {
    let (task, policy) = (Task::new(mixed(), 2), Policy::default());
    match edge {
        Edge::CopyInAfterNarrow | Edge::NarrowAfterCopyIn => {
            Job::new(task, Company::of(2).smaller(2), policy.reshard_after_forward(Reshard::Smaller))
        }
        Edge::JoinAfterReduce | Edge::TakeAfterJoin => Job::new(task, Company::of(2).replicas(2), policy),
        Edge::HostReadsAfterCopy => Job::new(task, Company::of(2), policy.offload(Offload::Host)),
        // A shard is written though no gradient of it was read before.
        Edge::HostWritesAfterCopy => {
            let job = Job::new(task.micros(2), Company::of(2), policy.offload(Offload::Host));
            job.before(|model, _, micro| {
                if micro == 1 {
                    model.load_full(Param { unit: 0, index: 1 }, &[0.5_f32; 7]).expect("loaded");
                }
            })
        }
        // Gradients are read and forgotten while a reduction of others, which are as long, is under way.
        Edge::TakeAfterStep => {
            let task = Task::new(vec![Block::new(3, 3); 4], 2);
            let job = Job { peeks: true, ..Job::new(task.micros(2), Company::of(2), policy) };
            job.before(|model, _, micro| model.settings_mut().is_last_backward = micro == 1)
        }
        Edge::JoinAfterMeasure | Edge::NormAfterJoin => Job::new(task.clipped(0.1, 2.0), Company::of(2), policy),
        Edge::HostReadsAfterNorm => {
            Job { reads_norms: true, ..Job::new(task.clipped(0.1, 2.0), Company::of(2), policy) }
        }
        // The reduction that runs on past a backward is of a unit that has gradients already.
        Edge::TakeAfterClip => {
            let job = Job::new(task.micros(3), Company::of(2), policy);
            job.before(|model, _, micro| {
                model.settings_mut().is_last_backward = micro == 2;
                if micro == 2 {
                    model.scale_gradients(1.0).expect("scaled");
                }
            })
        }
        // A unit is gathered once more, in vain, while its gradients are being reduced.
        Edge::StepAfterCopyIn => {
            let job = Job { steps_inside: true, ..Job::new(task, Company::of(2), policy) };
            job.before(|model, _, _| {
                for unit in 1..model.unit_count() {
                    model.prefetch_in_backward(unit - 1, &[unit]).expect("a unit");
                }
            })
        }
        _ => Job::new(task, Company::of(2), policy),
    }
}

fn is_race(finding: &Finding) -> bool {
    matches!(finding, Finding::Race { .. } | Finding::UseAfterFree { .. })
}

/// In how many of how many seeds a mistake is told.
fn told(mistake: Mistake) -> (usize, usize) {
    let job = match mistake {
        Mistake::Without(edge) => job(edge),
        _ => job(Edge::CopyOutAfterGather),
    };
    let job = Job { mistake: Some(mistake), ..job };
    let found = seeds(6).filter(|seed| job.run(*seed).findings.iter().any(is_race)).count();
    (found, seeds(6).count())
}

#[test]
fn every_edge_is_needed() {
    // A part in the smaller group is kept where the last one of its length was, which has been gathered from by then. That is the pool's
    // choice, and the edge holds whatever it chooses. What is taken into memory of forgotten gradients was written to its rows after
    // that, because what was on its way is forgotten with them; the pool knows nothing of it.
    let redundant = [Edge::NarrowAfterCopyIn, Edge::TakeAfterStep];
    let others = Edge::ALL.into_iter().filter(|edge| !redundant.contains(edge));
    let told: Vec<_> = others.map(|edge| (edge, told(Mistake::Without(edge)))).collect();
    assert!(told.iter().all(|(_, (found, all))| found * 4 >= all * 3), "{told:?}");
}

#[test]
fn every_edge_of_a_reduction_is_needed_with_a_hook_too() {
    let edges = [Edge::RowsAfterTake, Edge::ReduceAfterRows, Edge::TakeAfterReduce];
    for (edge, seed) in edges.into_iter().flat_map(|edge| seeds(3).map(move |seed| (edge, seed))) {
        let job = hooked(job(edge), || Box::new(F16));
        crate::seats::clean(&job.run(seed), seed);
        let mistaken = Job { mistake: Some(Mistake::Without(edge)), ..job };
        assert!(mistaken.run(seed).findings.iter().any(is_race), "{edge:?}, seed {seed}");
    }
}

#[test]
fn shards_that_are_written_inside_backward_are_awaited() {
    let job = Job { steps_inside: true, ..job(Edge::CopyInAfterStep) };
    for seed in seeds(3) {
        crate::seats::clean(&job.run(seed), seed);
        let mistaken = Job { mistake: Some(Mistake::Without(Edge::CopyInAfterStep)), ..job.clone() };
        assert!(mistaken.run(seed).findings.iter().any(is_race), "seed {seed}");
    }
}

#[test]
fn a_copy_out_on_the_wrong_stream_is_told() {
    let (found, all) = told(Mistake::CopyOutOnCopyIn);
    assert!(found * 4 >= all * 3, "{found} of {all} seeds");
}

#[test]
fn without_a_mistake_nothing_is_told() {
    for (edge, seed) in Edge::ALL.into_iter().flat_map(|edge| seeds(2).map(move |seed| (edge, seed))) {
        crate::seats::clean(&job(edge).run(seed), seed);
    }
}
