//! Every interleaving of a few ranks' requests, each carried out by the real code against the real table.
//!
//! A rank is a function of the answers it gets. So it is run anew for each step, with the answers it had so far, until it
//! asks for one it has not got; which rank's question is carried out next is the only choice there is.

use std::cell::Cell;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::slice;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use phalanx_core::store::{
    Asked, ClientId, Doubt, Home, Limits, Reply, Request, Store, StoreError, Table, Ticket, Value,
};

use crate::rendezvous::barriers::Barriers;
use crate::rendezvous::{MeetError, Meeting};

type Answer = Result<Reply, StoreError>;
type Met = Result<Vec<Vec<u8>>, MeetError>;
type Contents = Vec<(String, Vec<u8>)>;

const PATIENT: Duration = Duration::from_secs(3600);
const IMPATIENT: Duration = Duration::ZERO;

/// What a rank does: how long it waits each time it goes to a place.
#[derive(Clone)]
struct Part {
    place: Place,
    rank: usize,
    card: &'static [u8],
    patience: Vec<Duration>,
}

/// Where ranks come.
#[derive(Clone, Copy)]
enum Place {
    Meeting,
    Barrier,
}

/// Answers from what is known, and keeps the first question beyond it.
struct Script {
    known: Vec<Answer>,
    asked: Mutex<usize>,
    beyond: Arc<Mutex<Option<(Request, Duration)>>>,
}

impl Home for Script {
    fn ask(&self, request: Request, timeout: Duration) -> Answer {
        let mut asked = self.asked.lock().unwrap();
        let verb = request.verb();
        *asked += 1;
        if let Some(answer) = self.known.get(*asked - 1) {
            return answer.clone();
        }
        self.beyond.lock().unwrap().get_or_insert((request, timeout));
        Err(StoreError::Lost { verb, detail: "the script ends here".into(), doubt: Doubt::None })
    }

    fn describe(&self) -> String {
        "a script".into()
    }
}

enum Next {
    Asks(Request, Duration),
    Ended(Vec<Met>),
}

fn next(part: &Part, size: usize, known: &[Answer]) -> Next {
    let beyond = Arc::default();
    let script = Script { known: known.to_vec(), asked: Mutex::new(0), beyond: Arc::clone(&beyond) };
    let met = part.go(Store::new(script), size);
    let question = beyond.lock().unwrap().take();
    question.map_or(Next::Ended(met), |(request, timeout)| Next::Asks(request, timeout))
}

impl Part {
    fn go(&self, store: Store, size: usize) -> Vec<Met> {
        match self.place {
            Place::Meeting => {
                let meeting = Meeting::new(store, "m", self.rank, size);
                let meeting = meeting.naming(|card| String::from_utf8_lossy(card).into_owned());
                self.patience.iter().map(|patience| meeting.meet(self.card, *patience)).collect()
            }
            Place::Barrier => {
                let barriers = Barriers::new(store, self.rank, size);
                self.patience.iter().map(|patience| barriers.pass("b", *patience).map(|()| vec![])).collect()
            }
        }
    }
}

/// Whose question is carried out next. It is kept, so that a way that is begun anew runs the ranks only where it is new.
type Step = (usize, Request, Duration);

/// The ranks and their store after some choices.
struct Scene<'a> {
    parts: &'a [Part],
    size: usize,
    table: Table,
    known: Vec<Vec<Answer>>,
    /// The same, as one number each.
    heard: Vec<u64>,
    /// Who waits, and for which ticket.
    waiting: Vec<Option<Ticket>>,
    requests: usize,
}

impl Scene<'_> {
    fn new(parts: &[Part], size: usize) -> Scene<'_> {
        let (known, waiting) = (vec![vec![]; parts.len()], vec![None; parts.len()]);
        let heard = vec![0; parts.len()];
        Scene { parts, size, table: Table::new(Limits::default()), known, heard, waiting, requests: 0 }
    }

    fn next(&self, part: usize) -> Next {
        next(&self.parts[part], self.size, &self.known[part])
    }

    /// Who could go on now, and how.
    fn ready(&self) -> Vec<Step> {
        let step = |part| match self.next(part) {
            Next::Asks(request, timeout) => Some((part, request, timeout)),
            Next::Ended(_) => None,
        };
        (0..self.parts.len()).filter(|part| self.waiting[*part].is_none()).filter_map(step).collect()
    }

    fn go_on(&mut self, (part, request, timeout): Step) {
        let (verb, keys) = (request.verb(), request.keys().cloned().collect());
        self.requests += 1;
        match self.table.ask(ClientId(part as u64), request) {
            Asked::Answered(answer) => {
                self.answer(part, answer.map_err(|refusal| StoreError::Refused { verb, refusal }))
            }
            Asked::Waiting(ticket) if timeout > Duration::ZERO => self.waiting[part] = Some(ticket),
            Asked::Waiting(ticket) => {
                assert!(self.table.cancel(ticket));
                let (detail, doubt) = ("the store of this model".to_owned(), Doubt::None);
                self.answer(part, Err(StoreError::Timeout { verb, after: timeout, keys, detail, doubt }));
            }
        }
        while let Some((ClientId(client), ticket, answer)) = self.table.woken() {
            let woken = client as usize;
            assert_eq!(self.waiting[woken].take(), Some(ticket));
            self.answer(woken, Ok(answer.expect("nothing here is refused")));
        }
    }

    fn answer(&mut self, part: usize, answer: Answer) {
        let told = match &answer {
            Ok(Reply::Values(values)) => {
                format!("{:?}", values.iter().map(|value| value.as_deref()).collect::<Vec<_>>())
            }
            other => format!("{other:?}"),
        };
        let mut hasher = DefaultHasher::new();
        (self.heard[part], told).hash(&mut hasher);
        self.heard[part] = hasher.finish();
        self.known[part].push(answer);
    }

    fn contents(&mut self) -> Contents {
        let Asked::Answered(Ok(Reply::Keys(mut keys))) = self.table.ask(ClientId(99), Request::ListKeys) else {
            panic!("keys are listed")
        };
        keys.sort();
        let request = Request::Get { keys: keys.clone(), wait: false };
        let Asked::Answered(Ok(Reply::Values(values))) = self.table.ask(ClientId(99), request) else {
            panic!("values are told")
        };
        let values = values.into_iter().map(|value| value.map(Value::into_vec).unwrap_or_default());
        keys.iter().map(|key| key.to_string()).zip(values).collect()
    }

    /// All that the future depends on, and who waits: else the end of those who wait for each other would be the state before it.
    fn fingerprint(&mut self) -> (Vec<u64>, Vec<bool>, Contents) {
        (self.heard.clone(), self.waiting.iter().map(Option::is_some).collect(), self.contents())
    }

    fn ends(&self) -> Vec<Vec<Met>> {
        let end = |part| match self.next(part) {
            Next::Ended(met) => met,
            Next::Asks(request, _) => panic!("part {part} is stuck at {request:?}"),
        };
        (0..self.parts.len()).map(end).collect()
    }
}

/// Plays all orders of the parts' requests and hands every end to `check`, with the store's contents and how much was asked.
fn explore(parts: &[Part], size: usize, check: impl Fn(&[Vec<Met>], &[(String, Vec<u8>)], usize)) -> usize {
    let mut seen = HashSet::new();
    let ends = Cell::new(0);
    let mut open: Vec<Vec<Step>> = vec![vec![]];
    while let Some(mut path) = open.pop() {
        let mut scene = Scene::new(parts, size);
        path.iter().for_each(|step| scene.go_on(step.clone()));
        while seen.insert(scene.fingerprint()) {
            let ready = scene.ready();
            let Some((first, others)) = ready.split_first() else {
                ends.set(ends.get() + 1);
                check(&scene.ends(), &scene.contents(), scene.requests);
                break;
            };
            open.extend(others.iter().map(|step| [&path[..], slice::from_ref(step)].concat()));
            // The first way is gone at once; the others are begun anew.
            scene.go_on(first.clone());
            path.push(first.clone());
        }
    }
    assert!(ends.get() > 0);
    seen.len()
}

fn parts(size: usize, patience: &[Duration]) -> Vec<Part> {
    const CARDS: [&[u8]; 3] = [b"zero", b"", b"two"];
    let part = |rank| Part { place: Place::Meeting, rank, card: CARDS[rank], patience: patience.to_vec() };
    (0..size).map(part).collect()
}

fn parts_at_barriers(size: usize, patience: &[Duration]) -> Vec<Part> {
    parts(size, patience).into_iter().map(|part| Part { place: Place::Barrier, ..part }).collect()
}

fn all_cards(size: usize) -> Met {
    Ok(parts(size, &[]).iter().map(|part| part.card.to_vec()).collect())
}

#[test]
fn patient_ranks_always_meet_and_leave_little_behind() {
    for (size, times) in [(1, 3), (2, 3), (3, 1)] {
        let states = explore(&parts(size, &vec![PATIENT; times]), size, |ends, contents, requests| {
            ends.iter().flatten().for_each(|met| assert_eq!(*met, all_cards(size)));
            assert!(contents.len() <= 3, "{contents:?}");
            assert!(requests <= times * (3 * size + 5), "{requests} requests");
        });
        assert!(states > 3 * times * size, "{size} ranks: {states} states");
    }
}

#[test]
fn impatient_ranks_all_meet_or_all_fail_alike() {
    for impatient in [vec![0], vec![1], vec![0, 1], vec![2, 0]] {
        let size = if impatient.contains(&2) { 3 } else { 2 };
        let mut parts = parts(size, &[PATIENT]);
        impatient.iter().for_each(|&rank| parts[rank].patience = vec![IMPATIENT]);
        let (met, failed) = (Cell::new(0), Cell::new(0));
        explore(&parts, size, |ends, _, _| {
            ends.iter().for_each(|end| assert_eq!(end, &ends[0]));
            match &ends[0][0] {
                Err(MeetError::Missing { missing, by, .. }) => {
                    assert!(impatient.contains(by) && !missing.contains(by) && !missing.is_empty());
                    failed.set(failed.get() + 1);
                }
                other => {
                    assert_eq!(*other, all_cards(size));
                    met.set(met.get() + 1);
                }
            }
        });
        assert!(met.get() > 0 && failed.get() > 0, "{impatient:?}: {met:?} met, {failed:?} failed");
    }
}

#[test]
fn after_a_meeting_that_failed_all_can_meet_again() {
    let parts = parts(2, &[IMPATIENT, PATIENT]);
    explore(&parts, 2, |ends, contents, _| {
        assert_eq!(ends[0], ends[1]);
        assert_eq!(ends[0][1], all_cards(2));
        assert!(contents.len() <= 3, "{contents:?}");
    });
}

#[test]
fn of_two_that_come_as_one_rank_at_most_one_meets() {
    let mut parts = parts(2, &[PATIENT]);
    parts.push(Part { place: Place::Meeting, rank: 1, card: b"impostor", patience: vec![PATIENT] });
    let (alike, late) = (Cell::new(0), Cell::new(0));
    explore(&parts, 2, |ends, _, _| {
        let is_twice = |end: &Vec<Met>| matches!(&end[0], Err(MeetError::Twice { rank: 1, .. }));
        match ends.iter().filter(|end| is_twice(end)).count() {
            3 => alike.set(alike.get() + 1),
            // All had met before the second came.
            1 => {
                assert!(ends[0][0].is_ok() && ends[1..].iter().any(is_twice));
                late.set(late.get() + 1);
            }
            other => panic!("{other} of 3 know of the second: {ends:?}"),
        }
    });
    assert!(alike.get() > 0 && late.get() > 0);
}

#[test]
fn a_barrier_can_be_used_again_while_others_still_leave_it() {
    for (size, times) in [(1, 3), (2, 2), (3, 1)] {
        let states = explore(&parts_at_barriers(size, &vec![PATIENT; times]), size, |ends, contents, _| {
            ends.iter().flatten().for_each(|met| assert_eq!(*met, Ok(vec![])));
            assert!(contents.is_empty(), "{contents:?}");
        });
        assert!(states > 3 * times * size, "{size} ranks: {states} states");
    }
}

#[test]
fn after_a_barrier_that_failed_all_come_to_the_same_again() {
    let mut parts = parts_at_barriers(2, &[PATIENT, PATIENT]);
    parts[0].patience[0] = IMPATIENT;
    explore(&parts, 2, |ends, contents, _| {
        assert_eq!(ends[0], ends[1]);
        assert_eq!(ends[0][1], Ok(vec![]), "{ends:?}");
        assert!(contents.is_empty(), "{contents:?}");
    });
}
