//! Sharded, replicated, recomputed, accumulated and rounded: the ways of training by their losses.

use candle_core::DType;
use phalanx_candle::{Ddp, FullyShard, Policy};
use phalanx_comm::Threads;

use crate::company::Company;
use crate::training::{PLAIN, STEPS, Way, assert_equal, single, train};

fn check(what: &str, way: Way, within: f64, expected: &[f64]) {
    for world in 1..=4 {
        let company = Company::of(world);
        let ranks = company.run(|groups, all| train(FullyShard::new(groups, Policy::default()), way, Some(&all)));
        ranks.iter().for_each(|losses| assert_equal(&format!("{what} among {world}"), losses, expected, within));
    }
}

#[test]
fn one_rank_learns() {
    let losses = single(PLAIN);
    assert!(losses[0] > 2.5 && losses[STEPS - 1] < 0.8 * losses[0], "{losses:?}");
}

#[test]
fn sharded_ranks_have_the_losses_of_one() {
    let expected = single(PLAIN);
    check("sharded", PLAIN, 1e-6, &expected);
}

#[test]
fn recomputing_changes_nothing() {
    let way = Way { recomputes: true, ..PLAIN };
    let expected = single(PLAIN);
    assert_eq!(single(way), expected);
    check("recomputed", way, 1e-6, &expected);
}

#[test]
fn replicated_ranks_have_the_losses_of_one() {
    let expected = single(PLAIN);
    for world in 1..=4 {
        let ranks =
            Threads::new(world).run(|group| train(Ddp::new(group.clone()), PLAIN, Some(&group))).expect("a world");
        ranks.iter().for_each(|losses| assert_equal(&format!("replicas, {world}"), losses, &expected, 1e-6));
    }
}

#[test]
fn accumulation_and_clipping_change_nothing_but_what_they_say() {
    let way = Way { micro_batches: 2, clips: Some(0.5), ..PLAIN };
    let expected = single(Way { clips: Some(0.5), ..PLAIN });
    assert!(expected.iter().zip(single(PLAIN)).any(|(clipped, free)| (clipped - free).abs() > 1e-4));
    assert_equal("alone", &single(way), &expected, 1e-6);
    check("accumulated", way, 1e-6, &expected);
    let ranks = Threads::new(2).run(|group| train(Ddp::new(group.clone()), way, Some(&group))).expect("a world");
    ranks.iter().for_each(|losses| assert_equal("replicas", losses, &expected, 1e-6));
}

#[test]
fn sixteen_bits_stay_close() {
    let way = Way { dtype: DType::BF16, ..PLAIN };
    let expected = single(PLAIN);
    assert_equal("alone", &single(way), &expected, 2e-2);
    check("bf16", way, 2e-2, &expected);
}
