//! A backend of a program's own, written with this crate alone.

use std::task::Waker;
use std::time::{Duration, Instant};

use phalanx::backend::{Backend, Buffers, Finished, Number, Numbers, Pending};
use phalanx::player::Data;
use phalanx::{Call, Error, Group, GroupOptions, Layout, OpKind, ReduceOp, Result};

/// Carries out what a rank does alone.
struct Alone {
    numbers: Numbers,
    began: Instant,
}

struct Ended(Option<Result<Finished>>);

impl Alone {
    fn play(&self, call: &Call, input: Option<&[u8]>, output: &mut [u8]) {
        if let Some(input) = input.filter(|_| !call.in_place) {
            output[..input.len()].copy_from_slice(input);
        }
        call.end(|| self.now(), None);
    }
}

impl Backend for Alone {
    fn number(&self, op: OpKind, _: Duration) -> Result<Number> {
        Ok(self.numbers.next(op))
    }

    fn upcoming(&self) -> u32 {
        self.numbers.upcoming()
    }

    fn submit(&self, call: Call, mut buffers: Buffers) -> Box<dyn Pending> {
        let Buffers { input, output } = &mut buffers;
        self.play(&call, input.as_ref().map(|input| input.as_bytes()), output.as_bytes_mut());
        Box::new(Ended(Some(Ok(Finished { buffers, source: None }))))
    }

    fn run(&self, call: &Call, data: &mut Data<'_>) -> Result<Option<usize>> {
        self.play(call, Some(data.input), data.output);
        Ok(None)
    }

    fn abort(&self, _: Error) {}

    fn now(&self) -> Duration {
        self.began.elapsed()
    }
}

impl Pending for Ended {
    fn is_done(&self) -> bool {
        true
    }

    fn poll(&mut self, _: &Waker) -> Option<Result<Finished>> {
        self.0.take()
    }

    fn wait(&mut self, _: Option<Duration>) -> Option<Result<Finished>> {
        self.0.take()
    }
}

#[test]
fn a_backend_needs_nothing_but_this_crate() -> Result<()> {
    let backend = std::sync::Arc::new(Alone { numbers: Numbers::default(), began: Instant::now() });
    let group = Group::new(Layout::one_host(0, 1)?, backend, GroupOptions::default());
    let mut data = [1.0_f32, 2.0];
    group.all_reduce(&mut data, ReduceOp::Sum)?;
    assert_eq!(data, [1.0, 2.0]);
    let (input, output) = group.all_gather_async(vec![phalanx::bf16::ONE], vec![phalanx::bf16::ZERO])?.wait()?;
    assert_eq!(input, output);
    assert_eq!(group.recorder().records().len(), 2);
    Ok(())
}
