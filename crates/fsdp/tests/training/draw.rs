//! Models, companies and policies drawn by a seed.

use phalanx_fsdp::{Policy, Reshard};

use crate::company::Company;
use crate::model::Block;

/// A chain of one to five blocks, some of which are narrower than any world.
pub(crate) fn blocks(random: &mut fastrand::Rng) -> Vec<Block> {
    let (count, mut width) = (random.usize(1..6), random.usize(1..9));
    let block = |_| {
        let inputs = width;
        width = if random.u8(..3) == 0 { inputs } else { random.usize(1..9) };
        let has_again = width == inputs && random.bool();
        let trains_weight = has_again || random.u8(..4) > 0;
        Block { inputs, outputs: width, trains_bias: random.u8(..3) > 0, trains_weight, has_again, compute: None }
    };
    (0..count).map(block).collect()
}

pub(crate) fn company(random: &mut fastrand::Rng) -> Company {
    let companies = [
        Company::of(1),
        Company::of(2),
        Company::of(3),
        Company::of(4),
        Company::of(4).smaller(2),
        Company::of(2).smaller(1).replicas(2),
        Company::of(2).replicas(3),
    ];
    companies[random.usize(..companies.len())]
}

/// When units are freed, and how far ahead they are gathered.
pub(crate) fn policy(random: &mut fastrand::Rng, company: &Company) -> Policy {
    let reshards = [Reshard::Yes, Reshard::No, Reshard::Smaller];
    let reshard = reshards[random.usize(..if company.smaller.is_some() { 3 } else { 2 })];
    let policy = Policy::default().reshard_after_forward(reshard);
    policy.forward_prefetch(random.usize(..4)).backward_prefetch(random.usize(..4))
}
