//! Every collective on every element type with every reduction, of even and uneven parts, apart and in place, in every world
//! of one to nine ranks, by calls and asynchronously; the lengths take turns. Larger worlds play a third of it each, unless
//! `PHALANX_TEST_SOAK` asks for more than a short run.

use fastrand::Rng;
use phalanx_core::Group;
use phalanx_core::backend::Buffers;
use phalanx_mem::Buffer;

use crate::case::hash;
use crate::setting::Setting;
use crate::soak::{Act, Collective};

pub(crate) fn every_shape_in_every_world(setting: &Setting) {
    let is_long = std::env::var_os("PHALANX_TEST_SOAK").is_some();
    for size in 1..=9 {
        setting.run(size, |group| {
            let all = Collective::all_shapes().into_iter().enumerate();
            for (number, shape) in all.filter(|(number, _)| is_long || size < 6 || (number + size) % 3 == 0) {
                let mut draw = Rng::with_seed(hash((size * 10_000 + number) as u64));
                let longest = LENGTHS[(number + size) % LENGTHS.len()];
                let collective = Collective::new(shape, &mut draw, size, longest);
                let act = collective.act(group.rank());
                let difference = if draw.bool() { call(group, &act) } else { begin(group, &act) };
                assert_eq!(difference, None, "{collective:?} on rank {} of {size}", group.rank());
            }
        });
    }
}

fn call(group: &Group, act: &Act) -> Option<String> {
    let mut output = act.output.clone();
    let called = group.run_bytes(act.op.clone(), act.dtype, act.factor, act.input.as_deref(), &mut output);
    called.unwrap_or_else(|error| panic!("{act:?}: {error}"));
    act.right.difference(&output, None)
}

fn begin(group: &Group, act: &Act) -> Option<String> {
    let buffers =
        Buffers { input: act.input.clone().map(Buffer::from_vec), output: Buffer::from_vec(act.output.clone()) };
    let mut pending = group.submit_bytes(act.op.clone(), act.dtype, act.factor, buffers).expect("a good call");
    let ended = pending.wait(None).expect("an end, without a limit");
    let finished = ended.unwrap_or_else(|error| panic!("{act:?}: {error}"));
    act.right.difference(finished.buffers.output.as_bytes(), None)
}

/// The most elements of a buffer, by turns.
const LENGTHS: [usize; 7] = [1, 7, 2, 63, 300, 5, 1000];
