//! The fate of a group: the first failure, known to all its ranks, and the bells that tell them.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use phalanx_core::{Desync, Error, PeerReason, Result};
use phalanx_mem::{Cells, LINE, PlaceError, first};

use crate::bell::Bell;
use crate::roll::{self, Roll};
use crate::{verdict, waits};

/// What became of a group. The first failure wins, and every rank reports it.
///
/// In a segment each process has a fate of its own over the same cells. A rank writes its failure down before it tries to
/// be the first, so there is none that is known to exist and cannot be read, however a rank may die.
#[derive(Debug)]
pub(crate) struct Fate {
    cells: Cells<AtomicU64>,
    /// The first failure as this process reports it: once read, nobody can change it any more.
    known: Mutex<Option<Error>>,
    /// What a rank of this process failed of before it was known which failure was the first.
    proposal: Mutex<Option<Error>>,
    decided: Condvar,
    bells: Vec<Arc<Bell>>,
    /// What each rank has begun.
    pub(crate) roll: Roll,
    /// The bell of whoever tells other processes what this one's rank has begun, and agrees with them on a failure.
    herald: Option<Arc<Bell>>,
    /// How many collectives the rank had begun when it last waited for long.
    called: AtomicU64,
    /// How often the thread that keeps the group has gone round; never where there is none.
    rounds: AtomicU64,
    /// A rank that was lost after the group had failed.
    lost_since: Mutex<Option<Error>>,
}

/// What a rank does after a failure that the group outlives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Return {
    /// It is there again; its next collective would have this number.
    Back(u32),
    /// It has heard that all are there again, and turns back no more: when all have said so, all go on.
    Going(u32),
    /// It has left the group.
    Gone,
    /// It has given the group up, and comes back no more.
    Abandoned,
}

impl Return {
    fn word(self) -> u64 {
        match self {
            Return::Back(upcoming) => u64::from(upcoming) + 1,
            Return::Going(upcoming) => GOING | (u64::from(upcoming) + 1),
            Return::Gone => u64::MAX,
            Return::Abandoned => ABANDONED,
        }
    }

    fn of(word: u64) -> Option<Return> {
        let upcoming = (word & !GOING).checked_sub(1).and_then(|number| u32::try_from(number).ok());
        match (word, upcoming) {
            (0, _) => None,
            (ABANDONED, _) => Some(Return::Abandoned),
            (_, None) => Some(Return::Gone),
            (_, Some(upcoming)) if word & GOING == 0 => Some(Return::Back(upcoming)),
            (_, Some(upcoming)) => Some(Return::Going(upcoming)),
        }
    }

    /// Whether this is told of a rank of which that is known. The first that is known stays, but one that is back goes on, or gives the
    /// group up, or leaves it. That it leaves after that says nothing new.
    fn follows(self, known: Option<Return>) -> bool {
        match known {
            None => true,
            Some(Return::Back(_)) => !matches!(self, Return::Back(_)),
            Some(Return::Going(_) | Return::Gone | Return::Abandoned) => false,
        }
    }
}

/// That the thread of this rank does not run which keeps its group.
pub(crate) fn unkept(rank: usize) -> Error {
    Error::peer(rank, PeerReason::Unresponsive, "the thread that keeps its group does not run")
}

/// How many words the fate of `size` ranks takes.
pub(crate) fn words(size: usize) -> usize {
    LINE_WORDS + size * (verdict::WORDS + 1)
}

impl Fate {
    /// The fate of ranks that are threads of this process.
    pub(crate) fn of_threads(bells: Vec<Arc<Bell>>) -> Result<Fate, PlaceError> {
        let roll = Roll::new(Cells::on_heap(roll::words(bells.len()))?);
        Ok(Fate::new(Cells::on_heap(words(bells.len()))?, bells, roll))
    }

    /// The fate in these cells, [`words`] of them. These bells ring when it is sealed.
    pub(crate) fn new(cells: Cells<AtomicU64>, bells: Vec<Arc<Bell>>, roll: Roll) -> Fate {
        Fate {
            cells,
            known: Mutex::new(None),
            proposal: Mutex::new(None),
            decided: Condvar::new(),
            bells,
            roll,
            herald: None,
            called: AtomicU64::new(0),
            rounds: AtomicU64::new(0),
            lost_since: Mutex::new(None),
        }
    }

    /// Seals the group's fate for `rank` unless it is sealed already, and returns what the caller reports: the failure
    /// itself when it is the first, otherwise that the group was aborted and by what.
    ///
    /// Where processes have to agree first, this waits for that, but not for long.
    pub(crate) fn seal(&self, rank: usize, error: Error) -> Error {
        if let Some(herald) = &self.herald
            && self.propose(error.clone())
        {
            let rounds = self.rounds();
            herald.ring();
            let is_kept = || rounds == 0 || self.rounds() != rounds;
            if !self.is_decided_within(AGREEMENT) {
                match (is_kept(), &error) {
                    // Nobody is lost, so that all can be told the same.
                    (true, Error::Desync(_)) => drop(self.is_decided_within(STANDSTILL)),
                    (true, _) => {}
                    // Without the keeper it is not known whether the others gave this rank up before.
                    (false, _) if self.stands_still(is_kept) => return self.decide(rank, unkept(rank)),
                    (false, _) => drop(self.is_decided_within(AGREEMENT)),
                }
            }
        }
        self.decide(rank, error)
    }

    /// Whether nothing is decided for so long that the thread which would ask the others does not run.
    fn stands_still(&self, is_kept: impl Fn() -> bool) -> bool {
        let until = Instant::now() + STANDSTILL;
        // Looks as well as time: a process that was stopped as a whole has let time pass.
        let mut looks = (0..).take_while(|look| *look < FEWEST_LOOKS || Instant::now() < until);
        looks.all(|_| !self.is_decided_within(AGREEMENT) && !is_kept())
    }

    /// Waits for the decision which failure was the first.
    fn is_decided_within(&self, limit: Duration) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.decided.wait_timeout_while(known, limit, |_| !first::is_said(self.winner())));
        first::is_said(self.winner())
    }

    /// Puts a failure forward to be the first; false when there is one already. Ranks that were lost in the same way are one
    /// failure.
    pub(crate) fn propose(&self, error: Error) -> bool {
        let is_open = !first::is_said(self.winner());
        if is_open {
            let mut proposal = self.proposal.lock().unwrap_or_else(PoisonError::into_inner);
            *proposal = Some(match proposal.take() {
                Some(first) => joined(first, &error),
                None => error,
            });
        }
        is_open
    }

    /// What was put forward, while nothing is decided.
    pub(crate) fn proposal(&self) -> Option<Error> {
        let proposal = self.proposal.lock().unwrap_or_else(PoisonError::into_inner).clone();
        proposal.filter(|_| !first::is_said(self.winner()))
    }

    /// Seals the fate like [`seal`](Fate::seal) without asking anybody.
    pub(crate) fn decide(&self, rank: usize, error: Error) -> Error {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever holds the lock and finds nothing said writes cells that nobody reads yet.
        let is_first = !first::is_said(self.winner())
            && first::say(self.winner(), self.slot(rank), rank, &verdict::encode(&error));
        // Whatever the caller does to its buffers from here on, peers that see it see the verdict too.
        fence(Ordering::SeqCst);
        if !is_first {
            let first = self.learn(&mut known);
            // Others may have agreed on what this rank put forward, or on more of the kind.
            let is_ours =
                self.herald.is_some() && joined(first.clone(), &error) == first && first.kind() == error.kind();
            return if is_ours { first } else { first.in_its_wake() };
        }
        *known = Some(error.clone());
        drop(known);
        self.decided.notify_all();
        self.tell();
        error
    }

    /// That the group still stands.
    pub(crate) fn check(&self) -> Result<()> {
        if !first::is_said(self.winner()) {
            return Ok(());
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        Err(self.learn(&mut known).in_its_wake())
    }

    /// What the ranks disagree about, if that is what the group failed of.
    #[inline]
    pub(crate) fn quarrel(&self) -> Option<Desync> {
        if !first::is_said(self.winner()) {
            return None;
        }
        match self.check() {
            Err(Error::Desync(desync)) => Some(*desync),
            _ => None,
        }
    }

    /// The first failure, if there is one.
    pub(crate) fn first_failure(&self) -> Option<Error> {
        let is_said = first::is_said(self.winner());
        is_said.then(|| self.learn(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Has `herald` tell other processes what this one's rank has begun.
    pub(crate) fn with_herald(self, herald: Arc<Bell>) -> Fate {
        Fate { herald: Some(herald), ..self }
    }

    /// Says that the rank waits for long in what it has begun, so that the others soon know of it.
    pub(crate) fn call(&self) {
        let Some(herald) = &self.herald else { return };
        let latest = self.roll.latest();
        if self.called.swap(latest, Ordering::AcqRel) != latest {
            herald.ring();
        }
    }

    /// Says that the thread that keeps the group goes round.
    pub(crate) fn go_round(&self) {
        self.rounds.fetch_add(1, Ordering::Relaxed);
    }

    /// How often that thread has gone round.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Writes down what the rank says of a wait, and has the others soon know of it.
    pub(crate) fn say_wait(&self, rank: usize, words: [u64; waits::WORDS]) {
        self.roll.set_wait(rank, words);
        self.herald.iter().for_each(|herald| herald.ring());
    }

    /// How many collectives the rank had begun when it last waited for long.
    pub(crate) fn called(&self) -> u64 {
        self.called.load(Ordering::Acquire)
    }

    /// Says that a rank was lost, where the group may have failed before and still come together again.
    pub(crate) fn mourn(&self, lost: Error) {
        let mut since = self.lost_since.lock().unwrap_or_else(PoisonError::into_inner);
        since.get_or_insert(lost);
        drop(since);
        self.tell();
    }

    /// The rank that was lost after the group had failed.
    pub(crate) fn lost_since(&self) -> Option<Error> {
        self.lost_since.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says that a rank has come back after a failure, and which number its next collective would have.
    pub(crate) fn come_back(&self, rank: usize, upcoming: u32) {
        self.say_return(rank, Return::Back(upcoming));
    }

    /// Says that a rank goes on with the others, unless it has given the group up meanwhile.
    pub(crate) fn go_on(&self, rank: usize, upcoming: u32) {
        self.say_return(rank, Return::Going(upcoming));
    }

    /// Says that a rank has given the group up, which may have failed before: nobody needs to wait until it comes back. One that goes on
    /// with the others does so all the same.
    pub(crate) fn abandon(&self, rank: usize) {
        self.say_return(rank, Return::Abandoned);
    }

    /// Writes down what this process's rank does after a failure, and has the others soon know of it.
    fn say_return(&self, rank: usize, said: Return) {
        self.note_return(rank, said);
        self.herald.iter().for_each(|herald| herald.ring());
    }

    /// Writes down what a rank is known to do after a failure.
    pub(crate) fn note_return(&self, rank: usize, said: Return) {
        let Some(word) = self.returns().get(rank) else { return };
        let note = |known| said.follows(Return::of(known)).then(|| said.word());
        let _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, note);
        self.tell();
    }

    /// What each rank does after a failure, as far as is known.
    pub(crate) fn returned(&self) -> impl Iterator<Item = Option<Return>> + '_ {
        self.returns().iter().map(|word| Return::of(word.load(Ordering::Acquire)))
    }

    /// Wakes all ranks, so that they look.
    pub(crate) fn tell(&self) {
        Bell::ring_all(&self.bells);
    }

    /// The first failure, which was said.
    fn learn(&self, known: &mut Option<Error>) -> Error {
        known.get_or_insert_with(|| self.read()).clone()
    }

    fn read(&self) -> Error {
        match first::speaker(self.winner()) {
            Some(rank) if rank < self.size() => {
                let slot = self.slot(rank);
                let words = std::array::from_fn(|at| slot[at].load(Ordering::Relaxed));
                verdict::decode(&words).unwrap_or_else(|| Error::peer(rank, PeerReason::Corrupt, UNREADABLE))
            }
            _ => Error::aborted(UNREADABLE),
        }
    }

    fn size(&self) -> usize {
        (self.cells.len() - LINE_WORDS) / (verdict::WORDS + 1)
    }

    fn winner(&self) -> &AtomicU64 {
        &self.cells[0]
    }

    fn returns(&self) -> &[AtomicU64] {
        &self.cells[LINE_WORDS + self.size() * verdict::WORDS..]
    }

    fn slot(&self, rank: usize) -> &[AtomicU64] {
        let start = LINE_WORDS + rank * verdict::WORDS;
        &self.cells[start..start + verdict::WORDS]
    }
}

/// Whether a number comes before another. Numbers wrap.
pub(crate) fn is_before(sequence: u32, other: u32) -> bool {
    other.wrapping_sub(sequence).wrapping_sub(1) < u32::MAX / 2
}

/// A failure with whom another names too, where in both ranks were lost in the same way.
fn joined(failure: Error, other: &Error) -> Error {
    match (failure, other) {
        (Error::Peer(peer), Error::Peer(other)) if peer.reason == other.reason => peer.and(other.ranks()).into(),
        (failure, _) => failure,
    }
}

/// The winner has a line of its own, because everybody looks at it all the time.
const LINE_WORDS: usize = LINE / size_of::<u64>();
const ABANDONED: u64 = u64::MAX - 1;
const GOING: u64 = 1 << 40;
/// How long a rank waits for others to say which failure was the first.
const AGREEMENT: Duration = Duration::from_millis(160);
/// How long it waits for the thread that would ask them, or for their answer where none of them is lost, on a machine that does much else.
const STANDSTILL: Duration = Duration::from_millis(1400);
const FEWEST_LOOKS: u32 = 4;
const UNREADABLE: &str = "the group failed of something that cannot be read";

#[cfg(test)]
pub(crate) mod tests {
    use std::thread;

    use super::*;

    fn fate(size: usize) -> Fate {
        let bells = (0..size).map(|_| Arc::new(Bell::new().expect("memory"))).collect();
        Fate::of_threads(bells).expect("memory")
    }

    fn dead(rank: usize) -> Error {
        Error::peer(rank, PeerReason::Dead, "planted")
    }

    #[test]
    fn the_first_failure_is_everybodys() {
        let fate = fate(3);
        assert_eq!(fate.check(), Ok(()));
        assert_eq!(fate.seal(1, dead(0)), dead(0));
        assert_eq!(fate.seal(2, dead(1)), Error::aborted_by(dead(0)));
        assert_eq!(fate.check(), Err(Error::aborted_by(dead(0))));
    }

    /// What a rank says that disagrees with a peer.
    pub(crate) fn desync(rank: usize, peer: usize) -> Error {
        let (field, ours, theirs) = ("op", "barrier".to_owned(), "reduce".to_owned());
        Error::Desync(Box::new(Desync { sequence: 3, rank, peer, field, ours, theirs, moved: true, site: None }))
    }

    /// Two ranks may find it at once, and agree on which of the two is told. That may take its time.
    #[test]
    fn a_disagreement_is_told_as_all_agree_however_late() {
        let bell = Arc::new(Bell::new().expect("memory"));
        let fate = fate(2).with_herald(bell);
        thread::scope(|scope| {
            let told = scope.spawn(|| fate.seal(0, desync(0, 1)));
            while fate.proposal().is_none() {
                thread::yield_now();
            }
            let began = Instant::now();
            while began.elapsed() < 2 * AGREEMENT {
                fate.go_round();
                thread::yield_now();
            }
            fate.decide(1, desync(1, 0));
            assert_eq!(told.join().expect("no panic"), desync(1, 0));
        });
    }

    #[test]
    fn a_fate_that_lies_is_told_as_such_and_does_not_change() {
        let liar = fate(3);
        liar.cells[0].store(3, Ordering::Release);
        let told = Error::aborted_by(Error::peer(2, PeerReason::Corrupt, UNREADABLE));
        assert_eq!(liar.check(), Err(told.clone()));
        liar.cells[0].store(0, Ordering::Release);
        assert_eq!(liar.check(), Ok(()));
        liar.cells[0].store(1, Ordering::Release);
        assert_eq!(liar.check(), Err(told));
        for speaker in [4, u64::MAX] {
            let liar = fate(3);
            liar.cells[0].store(speaker, Ordering::Release);
            assert_eq!(liar.check(), Err(Error::aborted(UNREADABLE)));
        }
    }

    #[test]
    fn who_is_back_gives_up_or_leaves_or_goes_on_and_stays_with_that() {
        let all = [
            Return::Back(0),
            Return::Back(u32::MAX),
            Return::Going(0),
            Return::Going(u32::MAX),
            Return::Gone,
            Return::Abandoned,
        ];
        assert!(all.iter().all(|said| Return::of(said.word()) == Some(*said)));
        assert_eq!(Return::of(GOING), Some(Return::Gone));
        let fate = fate(3);
        let said = || fate.returned().collect::<Vec<_>>();
        (0..3).for_each(|rank| fate.come_back(rank, 7));
        fate.abandon(0);
        fate.go_on(0, 8);
        fate.go_on(1, 8);
        fate.abandon(1);
        (0..3).for_each(|rank| fate.note_return(rank, Return::Gone));
        fate.go_on(2, 8);
        assert_eq!(said(), [Some(Return::Abandoned), Some(Return::Going(8)), Some(Return::Gone)]);
    }

    #[test]
    fn two_processes_agree_on_the_first() {
        use phalanx_mem::Segment;

        let byte_len = words(2) * size_of::<u64>();
        let segment = Segment::create(byte_len).expect("memfd");
        let view = || {
            let view = Segment::open(segment.fd().try_clone_to_owned().expect("free")).expect("sealed");
            Fate { cells: Cells::in_segment(Arc::new(view), 0, words(2)).expect("free"), ..fate(2) }
        };
        let views = [view(), view()];
        let said: Vec<Error> = std::thread::scope(|scope| {
            let say = |rank: usize| views[rank].seal(rank, dead(rank));
            let ranks = [0, 1].map(|rank| scope.spawn(move || say(rank)));
            ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
        });
        let winner = said.iter().position(|error| *error == dead(0) || *error == dead(1)).expect("a first");
        assert_eq!(said[winner], dead(winner));
        assert_eq!(said[1 - winner], Error::aborted_by(dead(winner)));
        assert!(views.iter().all(|view| view.check() == Err(Error::aborted_by(dead(winner)))));
    }
}
