//! One seed from its dice to its report.

use fastrand::Rng;
use phalanx_core::Layout;

use crate::mutation::Mutation;
use crate::plant::plant;
use crate::report::Report;
use crate::stage::Stage;
use crate::{data, draw};

/// Plays one seed. With a mutation there is no fault but the planted bug, so that every violation is its doing.
///
/// The same seed and mutation give the same report, on every machine.
pub fn run(seed: u64, mutation: Option<Mutation>) -> Report {
    let mut dice = Rng::with_seed(seed);
    let scene = draw::scene(&mut dice.fork(), mutation.is_some());
    let layout = Layout::new(0, scene.hosts.clone()).expect("rank 0 is one of at least one");
    let mut schedules = scene.schedules(&layout);
    let inputs: Vec<_> = scene.acts.iter().map(|act| data::inputs(&mut dice, act)).collect();
    let planted = mutation.and_then(|mutation| plant(mutation, &scene, &layout, &mut schedules, &mut dice.fork()));
    let outcome = Stage::new(&scene, &schedules, &inputs, dice).play();
    Report {
        seed,
        mutation,
        planted,
        endings: outcome.endings,
        violation: outcome.violation,
        struck: outcome.struck,
        answers: outcome.answers,
        ticks: outcome.ticks,
        bytes: outcome.bytes,
        scene,
    }
}
