//! What a player asks of the machine before it plays.

use std::ops::Range;

use super::*;
use crate::link::{Borrowed, Lease, Seen, View, Wanted, Windows};
use crate::schedule::{Algorithm, Place, Send, Source, Span};
use crate::{Counts, ErrorKind};

const OP: Op = Op::AllReduce { count: 8, reduce: ReduceOp::Sum };

/// A task of rank 0 of two.
fn task<'a>(op: &'a Op, schedule: &'a Schedule) -> Task<'a> {
    let fingerprint = Fingerprint::of(op, DType::F32, 2, 0, 0);
    let past_caches = PastCaches::NEVER;
    Task { op, dtype: DType::F32, factor: None, fingerprint, rank: 0, size: 2, schedule, past_caches }
}

fn schedule(steps: Vec<Step>) -> Schedule {
    Schedule { algorithm: Algorithm::Ring, steps, scratch: 0, lending: None }
}

fn begun(task: &Task<'_>) -> Player {
    let mut player = Player::default();
    player.begin(task).expect("memory");
    player
}

#[test]
fn memory_that_is_not_there_is_an_error() {
    for scratch in [isize::MAX as usize / 4, usize::MAX] {
        let schedule = Schedule { scratch, ..schedule(vec![]) };
        let error = Player::default().begin(&task(&OP, &schedule)).unwrap_err();
        assert!(matches!(error, Error::Setup(_)), "{error}");
    }
}

/// Its time may be up between two polls.
#[test]
fn who_waits_for_nobody_is_told_to_be_at_work() {
    let steps = vec![Step::Finish(Span { place: Place::Output, start: 0, len: 8 }); MOST_STEPS + 1];
    let schedule = schedule(steps);
    let task = task(&OP, &schedule);
    let mut player = begun(&task);
    let (mut mesh, mut output) = (Mesh::new(vec![None, None]), [0; 32]);
    let mut data = Data { input: &[], output: &mut output };
    assert_eq!(player.poll(&task, &mut data, &mut mesh), Ok(Progress::Moved));
    assert_eq!(player.stuck(&task, &mut mesh), [Stuck { peer: 0, on: Waiting::Working }]);
    assert_eq!(player.poll(&task, &mut data, &mut mesh), Ok(Progress::Done));
}

/// Windows of a rank whose next offer needs a slot that rank 1 may still be reading, and which cannot read what rank 1 offers in its process,
/// where it has offered something with this head.
struct Full {
    offered: Option<[u8; Fingerprint::BYTE_LEN]>,
}

impl Windows for Full {
    fn try_offer(&mut self, _head: &[u8], _parts: &[&[u8]], _lease: Lease) -> Result<bool, LinkError> {
        Ok(false)
    }

    fn try_offer_beside(
        &mut self,
        _head: &[u8],
        _part: &[u8],
        _lease: Lease,
        _wanted: Wanted,
        _fill: &mut dyn FnMut(&mut [u8], View<'_>) -> bool,
    ) -> bool {
        false
    }

    fn offers(&self) -> u64 {
        0
    }

    fn behind(&self) -> Vec<usize> {
        vec![1]
    }

    fn view(&self, _rank: usize, _offer: u64, _part: Range<usize>) -> Result<Option<View<'_>>, LinkError> {
        Ok(self.offered.as_ref().map(|head| View { head, part: Some(Seen::Away(8)) }))
    }

    fn fetch(&mut self, _rank: usize, _address: usize, _into: &mut [u8]) -> Result<(), LinkError> {
        Err(LinkError::Failed("reading its process: no memory".to_owned()))
    }

    fn try_settle(&mut self) -> Result<bool, LinkError> {
        Ok(true)
    }

    fn take_borrowed(&mut self) -> Borrowed {
        Borrowed::Nothing
    }

    fn readers(&self) -> Vec<usize> {
        vec![]
    }

    fn slot_byte_len(&self) -> usize {
        1 << 10
    }
}

#[test]
fn who_cannot_lend_yet_waits_for_whoever_holds_its_offer_up() {
    let [given, data] = [Place::Input, Place::Output].map(|place| place.span(0, 8));
    // At the root of a broadcast: its first step needs nobody.
    let steps = vec![Step::Copy { from: given, into: data }];
    let lending = Lending { room: None, slice: data.piece(0, 2), source: Source::Rank(0) };
    let schedule = Schedule { algorithm: Algorithm::Direct, steps, scratch: 0, lending: Some(lending) };
    let task = task(&OP, &schedule);
    let mut player = begun(&task);
    let mut mesh = Mesh::new(vec![None, None]).with_windows(Box::new(Full { offered: None }));
    let mut output = [0; 32];
    let mut data = Data { input: &[1; 32], output: &mut output };
    assert_eq!(player.poll(&task, &mut data, &mut mesh), Ok(Progress::Idle));
    assert_eq!(player.stuck(&task, &mut mesh), [Stuck { peer: 1, on: Waiting::Giving }]);
}

#[test]
fn whose_process_runs_another_program_is_told_as_lost() {
    let told = Error::peer(2, PeerReason::Dead, "its process runs another program");
    assert_eq!(lost(1, LinkError::Adrift { rank: 2 }), told);
}

/// Whoever went on without the peer would leave out a rank that is in order.
#[test]
fn what_a_rank_lacks_itself_is_not_told_as_its_peers_death() {
    let span = Place::Output.span(0, 8);
    let nothing = schedule(vec![]);
    let offered = Some(Task { rank: 1, ..task(&OP, &nothing) }.head(1));
    let steps = [
        Step::Move { send: Some(Send { to: 1, span }), recv: None },
        Step::Offer { spans: vec![span], lease: Lease::View },
        Step::Pull { from: 1, offer: 0, start: 0, into: span },
    ];
    for (step, windows) in steps.into_iter().zip([None, None, Some(Full { offered })]) {
        let schedule = schedule(vec![step]);
        let task = task(&OP, &schedule);
        let mut player = begun(&task);
        let (mesh, mut output) = (Mesh::new(vec![None, None]), [0; 32]);
        let mut mesh = match windows {
            Some(windows) => mesh.with_windows(Box::new(windows)),
            None => mesh,
        };
        let mut data = Data { input: &[], output: &mut output };
        let error = player.poll(&task, &mut data, &mut mesh).expect_err("it lacks something");
        assert!(error.kind() == ErrorKind::Setup && error.culprits().is_empty(), "{error}");
    }
}

/// What the page of the wire says of such offers.
#[test]
fn an_offer_of_an_all_to_all_says_how_much_each_rank_gives_each() {
    let all_to_all = |counts: Counts| Op::AllToAll { give: counts.clone(), take: counts };
    let (op, nothing) = (all_to_all(Counts::Even(3)), schedule(vec![]));
    let ours = task(&op, &nothing);
    let theirs = Task { rank: 1, ..ours };
    let head = Fingerprint::decode(&ours.head(1)).expect("a fingerprint");
    assert_eq!((head.count, head.splits, head.offer), (3, 0, 1));
    assert_eq!(theirs.compare_head(0, &ours.head(1), 1), Ok(()));
    let tables = Fingerprint::of(&all_to_all(Counts::uneven(&[1, 2])), DType::F32, 2, 0, 0);
    assert_eq!((tables.count, tables.splits), (0, 0x811C_9DC5));
}

/// One that noticed nothing of a disagreement before this operation may count its peers' offers from another one on.
#[test]
fn an_offer_at_another_place_in_its_operation_is_refused() {
    let nothing = schedule(vec![]);
    let (ours, theirs) = (task(&OP, &nothing), Task { rank: 1, ..task(&OP, &nothing) });
    assert_eq!(ours.compare_head(1, &theirs.head(2), 2), Ok(()));
    let error = ours.compare_head(1, &theirs.head(2), 3).expect_err("the second is no third");
    assert_eq!(error.to_string(), "operation 0: rank 0 called with offer 3, rank 1 with offer 2");
}
