//! What a player asks of the machine before it plays.

use super::*;
use crate::schedule::Algorithm;

#[test]
fn memory_that_is_not_there_is_an_error() {
    let op = Op::AllReduce { count: 8, reduce: ReduceOp::Sum };
    let fingerprint = Fingerprint::of(&op, DType::F32, 2, 0, 0);
    let task = Task { op, dtype: DType::F32, factor: None, fingerprint, rank: 0, past_caches: usize::MAX };
    for scratch in [isize::MAX as usize / 4, usize::MAX] {
        let schedule = Schedule { algorithm: Algorithm::Ring, steps: vec![], scratch, lending: None };
        let error = Player::new(Arc::new(schedule), task.clone(), 2, vec![]).unwrap_err();
        assert!(matches!(error, Error::Setup(_)), "{error}");
    }
}
