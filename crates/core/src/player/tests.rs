//! What a player asks of the machine before it plays.

use super::*;
use crate::schedule::{Algorithm, Place, Span};

fn task() -> Task {
    let op = Op::AllReduce { count: 8, reduce: ReduceOp::Sum };
    let fingerprint = Fingerprint::of(&op, DType::F32, 2, 0, 0);
    Task { op, dtype: DType::F32, factor: None, fingerprint, rank: 0, past_caches: usize::MAX }
}

#[test]
fn memory_that_is_not_there_is_an_error() {
    for scratch in [isize::MAX as usize / 4, usize::MAX] {
        let schedule = Schedule { algorithm: Algorithm::Ring, steps: vec![], scratch, lending: None };
        let error = Player::new(Arc::new(schedule), task(), 2, vec![]).unwrap_err();
        assert!(matches!(error, Error::Setup(_)), "{error}");
    }
}

/// Its time may be up between two polls.
#[test]
fn who_waits_for_nobody_is_told_to_be_at_work() {
    let steps = vec![Step::Finish(Span { place: Place::Output, start: 0, len: 8 }); MOST_STEPS + 1];
    let schedule = Schedule { algorithm: Algorithm::Ring, steps, scratch: 0, lending: None };
    let mut player = Player::new(Arc::new(schedule), task(), 2, vec![]).expect("memory");
    let (mut mesh, mut output) = (Mesh::new(vec![None, None]), [0; 32]);
    let mut data = Data { input: &[], output: &mut output };
    assert_eq!(player.poll(&mut data, &mut mesh), Ok(Progress::Moved));
    assert_eq!(player.stuck(&mut mesh), [Stuck { peer: 0, on: Waiting::Working }]);
    assert_eq!(player.poll(&mut data, &mut mesh), Ok(Progress::Done));
}

/// One that noticed nothing of a disagreement before this operation may count its peers' offers from another one on.
#[test]
fn an_offer_at_another_place_in_its_operation_is_refused() {
    let (ours, theirs) = (task(), Task { rank: 1, ..task() });
    assert_eq!(ours.compare_head(1, &theirs.head(2), 2), Ok(()));
    let error = ours.compare_head(1, &theirs.head(2), 3).expect_err("the second is no third");
    assert_eq!(error.to_string(), "operation 0: rank 0 called with offer 3, rank 1 with offer 2");
}
