//! Bad calls, by table: each is refused by an error that names the argument and its value, before the backend hears of
//! it and before a number is used up.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use num_complex::Complex;
use phalanx_mem::Buffer;

use super::*;
use crate::backend::{Finished, Numbers};
use crate::{Bool, Counts, OpKind, PeerReason, ReduceOp, Reduction, Scope};

/// A backend that writes down what reaches it and ends everything well but for what goes and comes under the last tag. Each takes a
/// second of its clock.
#[derive(Default)]
struct Fake {
    numbers: Numbers,
    reached: Mutex<Vec<Call>>,
    /// How many works were waited for.
    waited: Arc<AtomicUsize>,
}

struct Ended(Option<Result<Finished>>, Arc<AtomicUsize>);

impl Backend for Fake {
    fn accepts(&self, op: &Op, dtype: DType, _: Option<Factor>) -> Result<()> {
        if dtype != DType::F8E4M3FNUZ {
            return Ok(());
        }
        Err(Error::usage(op.kind(), "dtype", dtype, "which this backend has not"))
    }

    fn number(&self, op: OpKind, _: Duration) -> Result<Number> {
        Ok(self.numbers.next(op))
    }

    fn upcoming(&self) -> u32 {
        self.numbers.upcoming()
    }

    fn submit(&self, call: Call, buffers: Buffers) -> Box<dyn Pending> {
        let end = match call.op {
            Op::Recv { tag: u32::MAX, .. } => Err(Error::usage(OpKind::Recv, "tag", u32::MAX, "must be another")),
            Op::Recv { from: Some(from), tag: LOST, .. } => Err(Error::peer(from, PeerReason::Dead, "it ended")),
            _ => Ok(Finished { buffers, source: None }),
        };
        self.reached.lock().unwrap().push(call);
        Box::new(Ended(Some(end), Arc::clone(&self.waited)))
    }

    fn run(&self, call: &Call, _: &mut Data<'_>) -> Result<Option<usize>> {
        call.end(|| self.now(), None);
        self.reached.lock().unwrap().push(call.clone());
        match call.op {
            Op::Send { tag: u32::MAX, .. } => Err(Error::aborted("the tag is the last")),
            Op::Recv { from: Some(from), tag: LOST, .. } => Err(Error::peer(from, PeerReason::Dead, "it ended")),
            _ => Ok(None),
        }
    }

    fn abort(&self, _: Error) {}

    fn now(&self) -> Duration {
        Duration::from_secs(self.reached.lock().unwrap().len() as u64)
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
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.take()
    }
}

fn group(rank: usize, size: usize) -> (Group, Arc<Fake>) {
    let fake = Arc::new(Fake::default());
    let layout = Layout::one_host(rank, size).unwrap();
    let backend = Arc::clone(&fake) as Arc<dyn Backend>;
    (Group::new(layout, backend, GroupOptions::default()), fake)
}

/// The tag under which nothing comes, because the sender is lost.
const LOST: u32 = 13;

type BadCall = fn(&Group) -> Result<()>;

/// Calls of rank 1 of 4, and what each is told.
const REFUSED: &[(&str, BadCall)] = &[
    ("all_reduce: output is 4 elements long, must be 3", |g| g.all_reduce_into(&[0_u8; 3], &mut [0; 4], SUM)),
    ("all_reduce: output is 0 elements long, must be 3", |g| g.all_reduce_into(&[0_u8; 3], &mut [], SUM)),
    ("all_reduce: op is bit_or, which is not defined for f32: bit operations need integers or bool", |g| {
        g.all_reduce(&mut [0_f32; 3], ReduceOp::BitOr)
    }),
    ("all_reduce: op is premul_sum, must come with a factor", |g| g.all_reduce(&mut [0_f32; 3], ReduceOp::PreMulSum)),
    ("all_reduce: op is premul_sum, which is not defined for i32: a factor needs floats or complex numbers", |g| {
        g.all_reduce(&mut [0_i32; 3], Reduction::scaled(2.0))
    }),
    ("all_reduce: factor is 1+2i, must be real for f64", |g| {
        g.all_reduce(&mut [0_f64; 3], Reduction::scaled(Complex::new(1.0, 2.0)))
    }),
    ("all_reduce: op is avg, which is not defined for bool: flags have no average", |g| {
        g.all_reduce_async(vec![Bool::from(true)], ReduceOp::Avg).map(drop)
    }),
    ("reduce: root is 4, must be below the group size 4", |g| g.reduce(&mut [0_u8; 3], SUM, 4)),
    ("reduce: root is 18446744073709551615, must be below the group size 4", |g| {
        g.reduce_async(vec![0_u8; 3], SUM, usize::MAX).map(drop)
    }),
    ("reduce: output is 3 elements long, must be 0", |g| g.reduce_into(&[0_u8; 3], &mut [0; 3], SUM, 0)),
    ("reduce: output is 2 elements long, must be 3", |g| g.reduce_into(&[0_u8; 3], &mut [0; 2], SUM, 1)),
    ("reduce: op is max, which is not defined for complex64: complex numbers have no order", |g| {
        g.reduce(&mut [Complex::new(0_f32, 0.0)], ReduceOp::Max, 0)
    }),
    ("broadcast: root is 4, must be below the group size 4", |g| g.broadcast(&mut [0_u8; 3], 4)),
    ("broadcast: root is 18446744073709551615, must be below the group size 4", |g| {
        g.broadcast_async(vec![0_u8; 3], usize::MAX).map(drop)
    }),
    ("all_gather: output is 7 elements long, must be 8", |g| g.all_gather(&[0_u8; 2], &mut [0; 7])),
    ("all_gather: output is 9 elements long, must be 8", |g| g.all_gather_async(vec![0_u8; 2], vec![0; 9]).map(drop)),
    ("all_gather: input is 1 elements long, must be 2", |g| {
        g.all_gather_uneven(&[0_u8; 1], &mut [0; 5], &[1, 2, 1, 1])
    }),
    ("all_gather: output is 6 elements long, must be 5", |g| {
        g.all_gather_uneven(&[0_u8; 2], &mut [0; 6], &[1, 2, 1, 1])
    }),
    ("all_gather: counts is a table of 3, must have one for each of the 4 ranks", |g| {
        g.all_gather_uneven(&[0_u8; 2], &mut [0; 4], &[1, 2, 1])
    }),
    ("all_gather: counts is 18446744073709551617 elements in all, must be at most 2305843009213693951 of f32", |g| {
        g.all_gather_uneven(&[0_f32; 1], &mut [0.0; 4], &[usize::MAX, 1, 1, 0])
    }),
    ("reduce_scatter: input is 7 elements long, must be 8", |g| g.reduce_scatter(&[0_u8; 7], &mut [0; 2], SUM)),
    ("reduce_scatter: input is 9 elements long, must be 8", |g| {
        g.reduce_scatter_async(vec![0_u8; 9], vec![0; 2], SUM).map(drop)
    }),
    ("reduce_scatter: input is 4 elements long, must be 5", |g| {
        g.reduce_scatter_uneven(&[0_u8; 4], &mut [0; 2], &[1, 2, 1, 1], SUM)
    }),
    ("reduce_scatter: output is 3 elements long, must be 2", |g| {
        g.reduce_scatter_uneven(&[0_u8; 5], &mut [0; 3], &[1, 2, 1, 1], SUM)
    }),
    ("reduce_scatter: counts is a table of 5, must have one for each of the 4 ranks", |g| {
        g.reduce_scatter_uneven(&[0_u8; 5], &mut [0; 1], &[1; 5], SUM)
    }),
    ("reduce_scatter: op is sum, which is not defined for f8e4m3fn: 8-bit floats are moved but not reduced", |g| {
        g.reduce_scatter(&[float8::F8E4M3::default(); 4], &mut [float8::F8E4M3::default()], SUM)
    }),
    ("all_to_all: input is 6 elements long, must be a multiple of the group size 4", |g| {
        g.all_to_all(&[0_u8; 6], &mut [0; 6])
    }),
    ("all_to_all: input is 6 elements long, must be a multiple of the group size 4", |g| {
        g.all_to_all_async(vec![0_u8; 6], vec![0; 6]).map(drop)
    }),
    ("all_to_all: output is 4 elements long, must be 8", |g| g.all_to_all(&[0_u8; 8], &mut [0; 4])),
    ("all_to_all: input is 5 elements long, must be 4", |g| {
        g.all_to_all_uneven(&[0_u8; 5], &[1; 4], &mut [0; 4], &[1; 4])
    }),
    ("all_to_all: output is 3 elements long, must be 4", |g| {
        g.all_to_all_uneven(&[0_u8; 4], &[1; 4], &mut [0; 3], &[1; 4])
    }),
    ("all_to_all: give is a table of 3, must have one for each of the 4 ranks", |g| {
        g.all_to_all_uneven(&[0_u8; 4], &[1, 1, 2], &mut [0; 4], &[1; 4])
    }),
    ("all_to_all: take is a table of 0, must have one for each of the 4 ranks", |g| {
        g.all_to_all_uneven(&[0_u8; 4], &[1; 4], &mut [0; 4], &[])
    }),
    ("all_to_all: take is 2 for this rank itself, must be the 1 of give", |g| {
        g.all_to_all_uneven(&[0_u8; 4], &[1; 4], &mut [0; 4], &[0, 2, 1, 1])
    }),
    ("all_to_all: take is 27670116110564327421 elements in all, must be at most 9223372036854775807 of u8", |g| {
        let half = usize::MAX / 2;
        g.all_to_all_uneven(&[0_u8; 4], &[1; 4], &mut [0; 4], &[half, half, half, 0])
    }),
    ("gather: root is 4, must be below the group size 4", |g| g.gather(&[0_u8; 2], &mut [], 4)),
    ("gather: output is 8 elements long, must be 0", |g| g.gather(&[0_u8; 2], &mut [0; 8], 0)),
    ("gather: output is 7 elements long, must be 8", |g| g.gather_async(vec![0_u8; 2], vec![0; 7], 1).map(drop)),
    ("gather: input is 2 elements long, must be 3", |g| g.gather_uneven(&[0_u8; 2], &mut [], &[1, 3, 1, 1], 0)),
    ("gather: output is 5 elements long, must be 6", |g| g.gather_uneven(&[0_u8; 3], &mut [0; 5], &[1, 3, 1, 1], 1)),
    ("gather: counts is a table of 2, must have one for each of the 4 ranks", |g| {
        g.gather_uneven(&[0_u8; 3], &mut [0; 5], &[1, 3], 1)
    }),
    ("gather: counts is 18446744073709551616 elements in all, must be at most 9223372036854775807 of u8", |g| {
        g.gather_uneven(&[0_u8; 1], &mut [], &[usize::MAX, 1, 0, 0], 0)
    }),
    ("scatter: root is 18446744073709551615, must be below the group size 4", |g| {
        g.scatter(&[], &mut [0_u8; 2], usize::MAX)
    }),
    ("scatter: input is 8 elements long, must be 0", |g| g.scatter(&[0_u8; 8], &mut [0; 2], 0)),
    ("scatter: input is 7 elements long, must be 8", |g| g.scatter_async(vec![0_u8; 7], vec![0; 2], 1).map(drop)),
    ("scatter: output is 2 elements long, must be 3", |g| g.scatter_uneven(&[], &mut [0_u8; 2], &[1, 3, 1, 1], 0)),
    ("scatter: input is 7 elements long, must be 6", |g| g.scatter_uneven(&[0_u8; 7], &mut [0; 3], &[1, 3, 1, 1], 1)),
    ("scatter: counts is 55340232221128654845 elements in all, must be at most 9223372036854775807 of u8", |g| {
        g.scatter_uneven(&[], &mut [0_u8; 1], &[usize::MAX, 0, usize::MAX, usize::MAX], 0)
    }),
    ("send: to is 4, must be below the group size 4", |g| g.send(&[0_u8; 2], 4, 0)),
    ("send: to is 18446744073709551615, must be below the group size 4", |g| {
        g.send_async(vec![0_u8; 2], usize::MAX, 0).map(drop)
    }),
    ("send: to is 1, must be another rank than the caller's own", |g| g.send(&[0_u8; 2], 1, 0)),
    ("recv: from is 4, must be below the group size 4", |g| g.recv(&mut [0_u8; 2], 4, 0).map(drop)),
    ("recv: from is 1, must be another rank than the caller's own", |g| g.recv_async(vec![0_u8; 2], 1, 0).map(drop)),
    ("recv: from is 7, must be below the group size 4", |g| {
        let messages = [(Some(2), 1), (None, 2), (Some(7), 3)];
        let recv = |(from, tag)| Message::Recv { data: vec![0_u8], from, tag };
        g.batch(messages.map(recv).into()).map(drop)
    }),
];

const SUM: ReduceOp = ReduceOp::Sum;

/// That a call is refused with this text, as the caller's fault and to be corrected by the caller.
fn assert_refused(end: Result<()>, expected: &str) {
    let error = end.expect_err(expected);
    assert_eq!(error.to_string(), expected);
    assert_eq!((error.kind(), error.scope()), (crate::ErrorKind::Usage, Scope::Call));
}

#[test]
fn bad_calls_name_the_argument_and_its_value() {
    let (group, fake) = group(1, 4);
    for (expected, call) in REFUSED {
        assert_refused(call(&group), expected);
        assert!(fake.reached.lock().unwrap().is_empty(), "{expected}");
    }
    assert!(group.recorder().records().is_empty());
    group.barrier().unwrap();
    group.all_reduce(&mut [1.0_f32], SUM).unwrap();
    let sequences: Vec<u32> = fake.reached.lock().unwrap().iter().map(|call| call.sequence).collect();
    assert_eq!(sequences, [0, 1]);
    for kind in OpKind::ALL.into_iter().filter(|kind| *kind != OpKind::Barrier) {
        let row = |(text, _): &(&str, BadCall)| text.starts_with(&format!("{kind}: "));
        assert!(REFUSED.iter().any(row), "{kind} has no row");
    }
}

/// Every operation with parts of `len` elements.
fn operations(size: usize, len: usize) -> Vec<Op> {
    let (counts, uneven) = (Counts::Even(len), Counts::uneven(&vec![len; size]));
    let (count, reduce, root, tag) = (len, SUM, size / 2, 0);
    let each = |counts: Counts| {
        [
            Op::AllGather { counts: counts.clone() },
            Op::ReduceScatter { counts: counts.clone(), reduce },
            Op::AllToAll { give: counts.clone(), take: counts.clone() },
            Op::Gather { counts: counts.clone(), root },
            Op::Scatter { counts, root },
        ]
    };
    let mut all = vec![
        Op::AllReduce { count, reduce },
        Op::Reduce { count, reduce, root },
        Op::Broadcast { count, root },
        Op::Barrier,
    ];
    all.extend(each(counts).into_iter().chain(each(uneven)));
    if size > 1 {
        all.extend([
            Op::Send { count, to: 1, tag },
            Op::Recv { count, from: Some(1), tag },
            Op::Recv { count, from: None, tag },
        ]);
    }
    all
}

/// Calls an untyped operation with buffers of this many bytes, blocking and not.
fn call(
    group: &Group,
    op: &Op,
    dtype: DType,
    factor: Option<Factor>,
    input: Option<usize>,
    output: usize,
) -> Result<()> {
    let zeros = vec![0; input.unwrap_or(0)];
    let blocking = group.run_bytes(op.clone(), dtype, factor, input.map(|_| &*zeros), &mut vec![0; output]);
    let buffers = Buffers { input: input.map(Buffer::zeroed), output: Buffer::zeroed(output) };
    let asynchronous = group.submit_bytes(op.clone(), dtype, factor, buffers);
    let [blocking, asynchronous] = [blocking.map(drop), asynchronous.map(drop)];
    assert_eq!(blocking, asynchronous, "{op:?}");
    blocking
}

#[test]
fn nothing_and_one_element_are_legal_everywhere() {
    for (size, len) in [1, 2, 5].into_iter().flat_map(|size| [0, 1].map(|len| (size, len))) {
        for op in operations(size, len) {
            let ((group, fake), need) = (group(0, size), op.need(0, size));
            call(&group, &op, DType::U8, None, Some(need.input), need.output).unwrap();
            if let Some(data) = op.need_in_place(0, size) {
                call(&group, &op, DType::U8, None, None, data).unwrap();
            }
            assert!(fake.reached.lock().unwrap().len() >= 2, "{op:?}");
        }
    }
}

#[test]
fn every_buffer_of_another_length_is_refused() {
    let size = 4;
    for rank in 0..size {
        for op in operations(size, 3).iter().filter(|op| !op.is_message() || rank != 1) {
            let ((group, fake), kind, need) = (group(rank, size), op.kind(), op.need(rank, size));
            let wrong = |right: usize| {
                [0, 1, right.wrapping_sub(1), right + 1, right * 2]
                    .into_iter()
                    .filter(move |len| *len != right && *len < 1000)
            };
            let text = |argument, len, right| format!("{kind}: {argument} is {len} elements long, must be {right}");
            for len in wrong(need.input) {
                let end = call(&group, op, DType::I16, None, Some(len * 2), need.output * 2);
                assert_refused(end, &text("input", len, need.input));
            }
            for len in wrong(need.output) {
                let end = call(&group, op, DType::I16, None, Some(need.input * 2), len * 2);
                assert_refused(end, &text("output", len, need.output));
            }
            match op.need_in_place(rank, size) {
                Some(right) => wrong(right).for_each(|len| {
                    assert_refused(call(&group, op, DType::I16, None, None, len * 2), &text("output", len, right));
                }),
                None => assert_refused(
                    call(&group, op, DType::I16, None, None, need.output * 2),
                    &format!("{kind}: input is absent, must be given: this operation has no form in place"),
                ),
            }
            let text =
                |argument| format!("{kind}: {argument} is 7 bytes long, must be a multiple of the 2 bytes of i16");
            assert_refused(call(&group, op, DType::I16, None, Some(7), need.output * 2), &text("input"));
            assert_refused(call(&group, op, DType::I16, None, Some(need.input * 2), 7), &text("output"));
            assert!(fake.reached.lock().unwrap().is_empty());
        }
    }
}

#[test]
fn every_reduction_of_a_type_it_is_not_defined_for_is_refused() {
    let (group, _) = group(1, 4);
    for (reduce, dtype) in ReduceOp::ALL.into_iter().flat_map(|op| DType::ALL.map(|dtype| (op, dtype))) {
        let factor = (reduce == ReduceOp::PreMulSum).then_some(Factor::Real(2.0));
        let (counts, count, root) = (Counts::Even(1), 4, 1);
        let ops =
            [Op::AllReduce { count, reduce }, Op::Reduce { count, reduce, root }, Op::ReduceScatter { counts, reduce }];
        for op in ops {
            let need = op.need(1, 4);
            let [input, output] = [need.input, need.output].map(|len| len * dtype.byte_len());
            let end = call(&group, &op, dtype, factor, Some(input), output);
            match reduce.supports(dtype) {
                Ok(()) => end.unwrap(),
                Err(refused) => assert_refused(
                    end,
                    &format!("{}: op is {reduce}, which is not defined for {dtype}: {}", op.kind(), refused.why),
                ),
            }
        }
    }
}

#[test]
fn a_factor_goes_with_its_reduction_and_nothing_else() {
    let (group, fake) = group(0, 4);
    for op in operations(4, 1) {
        let (kind, need) = (op.kind(), op.need(0, 4));
        let (input, output, factor) = (Some(need.input * 8), need.output * 8, Some(Factor::Real(0.5)));
        let what = op.reduce().map_or(kind.name(), ReduceOp::name);
        let end = call(&group, &op, DType::F64, factor, input, output);
        assert_refused(end, &format!("{kind}: factor is given, which {what} has no use for"));
    }
    assert!(fake.reached.lock().unwrap().is_empty());
}

#[test]
fn nobody_receives_in_a_group_of_one() {
    let (group, _) = group(0, 1);
    let expected = "recv: from is any, which needs another rank in the group";
    assert_refused(group.recv(&mut [0_u8], None, 0).map(drop), expected);
    assert_refused(group.recv_async(vec![0_u8], None, 0).map(drop), expected);
}

#[test]
fn a_batch_waits_for_all_of_it_although_one_fails() {
    let (group, fake) = group(0, 3);
    let recv = |from, tag| Message::Recv { data: vec![0_u8], from: Some(from), tag };
    let error = group.batch(vec![recv(1, u32::MAX), recv(2, 0), recv(1, 0)]).unwrap_err();
    assert_eq!(error.to_string(), "recv: tag is 4294967295, must be another");
    assert_eq!(fake.waited.load(Ordering::Relaxed), 3);
}

/// Tells the rank to which an object could not go of that, by another object.
#[derive(Default)]
struct Teller(Mutex<Vec<Result<()>>>);

impl Alarm for Teller {
    fn failed(&self, group: &Group, error: &Error) {
        self.0.lock().unwrap().push(group.send_bytes(error.to_string().as_bytes(), 1, 0));
    }
}

#[test]
fn an_alarm_may_send_an_object_where_one_could_not_go() {
    let teller = Arc::new(Teller::default());
    let options = GroupOptions::default().timeout(Duration::from_secs(5)).alarm(Arc::clone(&teller) as Arc<dyn Alarm>);
    let group = Group::new(Layout::one_host(0, 2).unwrap(), Arc::new(Fake::default()), options);
    let error = group.send_bytes(&[1], 1, u32::MAX).unwrap_err();
    assert_eq!(error, Error::aborted("the tag is the last"));
    assert_eq!(*teller.0.lock().unwrap(), [Ok(())]);
}

/// Keeps whom alarms and hooks are told of.
#[derive(Default)]
struct Named(Mutex<Vec<usize>>);

impl Alarm for Named {
    fn failed(&self, _: &Group, error: &Error) {
        self.0.lock().unwrap().extend(error.culprits());
    }
}

#[test]
fn errors_name_ranks_by_their_numbers_in_the_world() {
    let named = Arc::new(Named::default());
    let options = || GroupOptions::default().members([4, 9, 2]);
    for options in [options(), options().alarm(Arc::clone(&named) as Arc<dyn Alarm>)] {
        let group = Group::new(Layout::one_host(0, 3).unwrap(), Arc::new(Fake::default()), options);
        let error = group.recv(&mut [0], 1, LOST).unwrap_err();
        assert_eq!(error.to_string(), "rank 9 is dead: it ended");
        let error = group.recv_async(vec![0], 2, LOST).unwrap().wait().unwrap_err();
        assert_eq!(error.to_string(), "rank 2 is dead: it ended");
    }
    assert_eq!(*named.0.lock().unwrap(), [9, 2], "alarms are told as the caller is");
}

#[test]
fn a_handle_has_its_own_bound_and_the_group_its_one_count() {
    let (group, fake) = group(0, 2);
    let soon = group.within(Duration::from_secs(3));
    assert_eq!((soon.timeout(), group.timeout()), (Duration::from_secs(3), Duration::from_secs(30 * 60)));
    soon.barrier().unwrap();
    group.barrier().unwrap();
    drop(soon.clone().within(Duration::ZERO).barrier_async().unwrap());
    let reached = fake.reached.lock().unwrap().iter().map(|call| (call.sequence, call.timeout)).collect::<Vec<_>>();
    assert_eq!(reached, [(0, soon.timeout()), (1, group.timeout()), (2, Duration::ZERO)]);
    assert_eq!(group.recorder().records().len(), 3);
}

#[test]
fn the_parts_of_a_call_have_its_time_together() {
    let (group, fake) = group(0, 2);
    group.within(Duration::from_secs(5)).send_bytes(b"what comes, and the bytes", 1, 0).unwrap();
    let timeouts: Vec<u64> = fake.reached.lock().unwrap().iter().map(|call| call.timeout.as_secs()).collect();
    assert_eq!(timeouts, [5, 4]);
}

#[test]
fn a_factor_that_is_no_number_is_like_itself_and_no_other() {
    let (group, _) = group(0, 2);
    let exchange = |factors: [f64; 2]| {
        let mut data = [[1_f32; 2]; 2];
        group.coalesce(|all| {
            data.iter_mut().zip(factors).for_each(|(data, factor)| all.all_reduce(data, Reduction::scaled(factor)));
        })
    };
    exchange([f64::NAN; 2]).unwrap();
    assert!(exchange([f64::NAN, 1.0]).is_err());
}

#[test]
fn a_memory_for_more_operations_than_there_is_room_for_is_made_as_they_come() {
    let recorder = Recorder::new(usize::MAX);
    assert!(recorder.records().is_empty());
}

#[test]
fn the_group_is_left_with_its_last_handle() {
    let (group, fake) = group(0, 2);
    let (held, other) = (Arc::downgrade(&fake), group.within(Duration::ZERO));
    drop((fake, group));
    assert!(held.upgrade().is_some());
    drop(other);
    assert!(held.upgrade().is_none());
}

#[test]
fn calls_over_other_memory_are_checked_and_numbered_alike() {
    let (group, fake) = group(1, 4);
    let op = || Op::AllGather { counts: Counts::Even(3) };
    let told = |end: Result<Call>| end.expect_err("refused").to_string();
    let short = told(group.call_elsewhere(op(), DType::F32, None, Some(3), 11));
    assert_eq!(short, "all_gather: output is 11 elements long, must be 12");
    let unknown = told(group.call_elsewhere(op(), DType::F8E4M3FNUZ, None, Some(3), 12));
    assert_eq!(unknown, "all_gather: dtype is f8e4m3fnuz, which this backend has not");
    assert_eq!(fake.upcoming(), 0);
    let call = group.call_elsewhere(op(), DType::F32, None, Some(3), 12).expect("right");
    call.end(Duration::default, None);
    assert_eq!((call.sequence, fake.upcoming(), group.recorder().records().len()), (0, 1, 1));
    assert!(fake.reached.lock().unwrap().is_empty());
}
