//! What can be found, and the one line that tells each.

use std::fmt;
use std::sync::Arc;

use phalanx_core::Ranks;
use serde::{Serialize, Serializer};

use crate::dump::{Entry, Site, State};

/// One thing that was found, most important first in a report.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Finding {
    /// Ranks called different things under one number: the first in the group makes all that follow meaningless.
    Divergence {
        /// The group.
        group: String,
        /// The number.
        sequence: u64,
        /// What differs.
        field: &'static str,
        /// The values, that of most ranks first.
        sides: Vec<Side>,
        /// Whether all of them were told, and went on together after it.
        is_over: bool,
    },
    /// Ranks wait for each other in a circle.
    Deadlock {
        /// Each waits for the next, and the last for the first.
        circle: Vec<Place>,
    },
    /// A rank has not called what others wait in.
    Absent {
        /// The group.
        group: String,
        /// The number that it did not call.
        sequence: u64,
        /// What the others called under it.
        kind: Option<String>,
        /// The rank.
        rank: usize,
        /// What it called last in the group.
        last: Option<Place>,
        /// Whether that is no longer remembered, although it called something.
        is_forgotten: bool,
        /// What it waits in itself, which is why it does not come.
        busy: Option<Place>,
        /// Who waits for it, and where: those who wait for several ranks stand there once for all.
        #[serde(serialize_with = "shared")]
        waiting: Arc<[Place]>,
    },
    /// A message waits for a peer that does nothing about it.
    Unanswered {
        /// The group.
        group: String,
        /// The message.
        place: Place,
        /// The peer, by its rank in the world.
        peer: usize,
        /// What the peer called last.
        last: Option<Place>,
    },
    /// A message is waited for that any rank may send, and none has.
    Unsent {
        /// The group.
        group: String,
        /// The message.
        place: Place,
        /// The ranks of the group that wait for nobody.
        free: Vec<usize>,
    },
    /// Both ends of a message wait in it.
    Undelivered {
        /// The group.
        group: String,
        /// The message.
        place: Place,
        /// The other end, by its rank in the world.
        peer: usize,
    },
    /// Others wait for ranks whose dumps do not say whether they have come.
    Unknown {
        /// The group.
        group: String,
        /// The ranks.
        ranks: Vec<usize>,
        /// Who waits, and where.
        waiting: Vec<Place>,
    },
    /// Others wait for ranks that do not have the group: they have left it, or came to the job later.
    NoGroup {
        /// The group.
        group: String,
        /// The ranks.
        ranks: Vec<usize>,
        /// Who waits, and where.
        waiting: Vec<Place>,
    },
    /// Ranks have no dump.
    NoDump {
        /// The ranks.
        ranks: Vec<usize>,
        /// Who waits in an operation of theirs.
        waiting: Vec<Place>,
    },
    /// What a group said of its first failure.
    Verdict {
        /// The group.
        group: String,
        /// Its words.
        verdict: String,
        /// The ranks that say so.
        ranks: Vec<usize>,
    },
    /// Operations ended in an error.
    Failed {
        /// The group.
        group: String,
        /// The kind of the error.
        error: String,
        /// The first such operation of each rank.
        places: Vec<Place>,
    },
    /// Every rank called an operation, and some have not finished it.
    Unfinished {
        /// The group.
        group: String,
        /// Who has not finished.
        waiting: Vec<Place>,
        /// Who has.
        done: Vec<usize>,
    },
    /// A rank comes after all others time and again.
    Late {
        /// The rank.
        rank: usize,
        /// In how many operations it was the last to come.
        times: u64,
        /// Of how many.
        operations: u64,
        /// For how long the others waited for it in all.
        caused_ns: u64,
        /// The time that all of it spans.
        span_ns: u64,
    },
}

/// One value and who has it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// The value.
    pub value: String,
    /// The ranks, by their ranks in the world.
    pub ranks: Vec<usize>,
    /// Where the first of them called.
    pub site: Option<Site>,
}

/// One operation of one rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Place {
    /// The rank in the world.
    pub rank: usize,
    /// The group.
    pub group: String,
    /// The operation.
    pub kind: String,
    /// Its number.
    pub sequence: u64,
    /// The tag of a message, where it is known.
    pub tag: Option<u32>,
    /// Where it was called.
    pub site: Option<Site>,
    /// How it stands.
    pub state: &'static str,
    /// Whether a failure elsewhere has ended it, and not its own time limit.
    pub is_aborted: bool,
    /// How long it had taken when the dump was taken.
    pub age_ns: Option<u64>,
}

impl Finding {
    /// The less, the more important: causes come before what follows from them.
    pub(super) fn weight(&self) -> u32 {
        match self {
            Finding::Divergence { is_over: false, .. } => 0,
            Finding::Deadlock { .. } => 1,
            // What ended their wait is the cause, and the group's verdict tells it.
            Finding::Absent { .. } | Finding::Unanswered { .. } if self.has_ended_in_anothers_failure() => 8,
            Finding::Absent { busy: None, .. } => 2,
            Finding::Unanswered { .. } | Finding::Unsent { .. } => 3,
            Finding::NoDump { waiting, .. } if !waiting.is_empty() => 4,
            Finding::Unknown { .. } | Finding::NoGroup { .. } => 5,
            Finding::Verdict { .. } => 6,
            Finding::Unfinished { .. } | Finding::Undelivered { .. } => 7,
            Finding::Absent { .. } => 8,
            Finding::Divergence { .. } => 9,
            Finding::Failed { .. } => 10,
            Finding::NoDump { .. } => 11,
            Finding::Late { .. } => 12,
        }
    }

    /// Whether nobody waits for the rank that is missing here, nor did until time was up: a failure of something else has ended every wait, so that
    /// the rank may have been on its way.
    fn has_ended_in_anothers_failure(&self) -> bool {
        match self {
            Finding::Absent { waiting, .. } => waiting.iter().all(|place| place.is_aborted),
            Finding::Unanswered { place, .. } => place.is_aborted,
            _ => false,
        }
    }

    /// The operations that this is about; those of a divergence are all under its number.
    pub(crate) fn places(&self) -> Vec<&Place> {
        match self {
            Finding::Deadlock { circle: places }
            | Finding::NoDump { waiting: places, .. }
            | Finding::Failed { places, .. }
            | Finding::Unfinished { waiting: places, .. }
            | Finding::Unknown { waiting: places, .. }
            | Finding::NoGroup { waiting: places, .. } => places.iter().collect(),
            Finding::Absent { last, busy, waiting, .. } => waiting.iter().chain(last).chain(busy).collect(),
            Finding::Unanswered { place, last, .. } => [place].into_iter().chain(last).collect(),
            Finding::Unsent { place, .. } | Finding::Undelivered { place, .. } => vec![place],
            Finding::Divergence { .. } | Finding::Verdict { .. } | Finding::Late { .. } => Vec::new(),
        }
    }

    /// The ranks that are at fault, or most likely so.
    pub fn culprits(&self) -> Vec<usize> {
        match self {
            Finding::Divergence { is_over: true, .. } => Vec::new(),
            Finding::Absent { .. } | Finding::Unanswered { .. } if self.has_ended_in_anothers_failure() => Vec::new(),
            Finding::Divergence { sides, .. } => odd(sides),
            Finding::Deadlock { circle } => circle.iter().map(|place| place.rank).collect(),
            Finding::Absent { rank, .. } | Finding::Late { rank, .. } => vec![*rank],
            Finding::Unanswered { peer, .. } => vec![*peer],
            Finding::NoDump { ranks, .. } | Finding::Unsent { free: ranks, .. } => ranks.clone(),
            Finding::Undelivered { .. }
            | Finding::Unknown { .. }
            | Finding::NoGroup { .. }
            | Finding::Verdict { .. }
            | Finding::Failed { .. }
            | Finding::Unfinished { .. } => Vec::new(),
        }
    }
}

impl Place {
    pub(super) fn of(rank: usize, group: String, entry: &Entry, age_ns: Option<u64>) -> Place {
        let (kind, sequence, site) = (entry.kind.clone(), entry.sequence, entry.site.clone());
        let (state, is_aborted) = (entry.state.name(), is_aborted(&entry.state));
        Place { rank, group, kind, sequence, tag: entry.tag, site, state, is_aborted, age_ns }
    }

    fn is_message(&self) -> bool {
        matches!(&*self.kind, "send" | "recv")
    }

    /// The operation without its rank.
    fn operation(&self) -> String {
        let tag = self.tag.map(|tag| format!(" under tag {tag}")).unwrap_or_default();
        format!("{} {}{tag}{}", self.kind, self.sequence, at(self.site.as_ref()))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Divergence { group, sequence, field, sides, is_over } => {
                let told =
                    |side: &Side| format!("{} {}{}", Ranks(&side.ranks).named(), side.value, at(side.site.as_ref()));
                let (differs, sides) = (if *is_over { "differed" } else { "differs" }, list(sides.iter().map(told)));
                write!(f, "{group}: operation {sequence} {differs} in {field}: {sides}")?;
                if *is_over { f.write_str("; all were told, and have gone on since") } else { Ok(()) }
            }
            Finding::Deadlock { circle } => {
                let told = |place: &Place| format!("rank {} in {} of {}", place.rank, place.operation(), place.group);
                write!(
                    f,
                    "deadlock: each waits for the next, the last for the first: {}",
                    list(circle.iter().map(told))
                )
            }
            Finding::Absent { .. } => self.absent(f),
            Finding::Unanswered { group, place, peer, last } => unanswered(f, group, place, (*peer, last.as_ref())),
            Finding::Unsent { group, place, free } => {
                let (rank, operation, since) = (place.rank, place.operation(), since([place]));
                write!(f, "{group}: rank {rank} waits for any rank in {operation}{since}, and nobody has sent to it")?;
                if free.is_empty() { Ok(()) } else { write!(f, "; nothing holds up {}", Ranks(free).named()) }
            }
            Finding::Undelivered { group, place, peer } => {
                let (rank, operation, since) = (place.rank, place.operation(), since([place]));
                write!(f, "{group}: rank {rank} waits in {operation}, and rank {peer} at the other end of it{since}")
            }
            Finding::Unknown { group, ranks: unknown, waiting } => {
                let unknown = Ranks(unknown).named();
                write!(f, "{group}: {}; it is not known whether {unknown} called it, ", wait_in(waiting))?;
                f.write_str("because newer operations have taken its place")
            }
            Finding::NoGroup { group, ranks: without, waiting } => {
                let they = if without.len() == 1 { "it" } else { "they" };
                write!(f, "{group}: {}; {} no such group: ", wait_in(waiting), has(without))?;
                write!(f, "{they} left it, or never had it")
            }
            Finding::NoDump { ranks: missing, waiting } => no_dump(f, missing, waiting),
            Finding::Verdict { group, verdict, ranks: said } => {
                write!(f, "{group}: {verdict} (said by {})", Ranks(said).named())
            }
            Finding::Failed { group, error, places } => {
                let all: Vec<usize> = places.iter().map(|place| place.rank).collect();
                let first = places.first().map(Place::operation).unwrap_or_default();
                write!(f, "{group}: {first} ended in an error of kind {error} on {}", Ranks(&all).named())
            }
            Finding::Unfinished { group, waiting, done } => {
                let all: Vec<usize> = waiting.iter().map(|place| place.rank).collect();
                let first = waiting.first().map(Place::operation).unwrap_or_default();
                write!(f, "{group}: every rank called {first}, {} not finished it{}", has(&all), since(waiting))?;
                if done.is_empty() { Ok(()) } else { write!(f, ", {} finished it", has(done)) }
            }
            Finding::Late { rank, times, operations, caused_ns, span_ns } => {
                let (caused, span) = (seconds(*caused_ns), seconds(*span_ns));
                write!(f, "rank {rank} is late: the last in {times} of {operations} operations, ")?;
                write!(f, "the others waited {caused} of {span} for it")
            }
        }
    }
}

impl Finding {
    fn absent(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding::Absent { group, sequence, kind, rank, last, is_forgotten, busy, waiting } = self else {
            return Ok(());
        };
        let kind = kind.as_deref().unwrap_or("operation");
        let all: Vec<usize> = waiting.iter().map(|place| place.rank).collect();
        let site = at(waiting.first().and_then(|place| place.site.as_ref()));
        let wait = if self.has_ended_in_anothers_failure() { waited(&all) } else { waits(&all) };
        write!(f, "{group}: rank {rank} never called {kind} {sequence}; {wait} there{site}")?;
        let last = match last {
            Some(last) => format!("was {}", last.operation()),
            None if *is_forgotten => "is no longer remembered".to_owned(),
            None => "was nothing".to_owned(),
        };
        if self.has_ended_in_anothers_failure() {
            write!(f, " until another failure ended that; its last {last}")?;
        } else {
            write!(f, "{}; its last {last}", since(&**waiting))?;
        }
        match busy {
            Some(busy) => write!(f, ", and it waits in {} of {}", busy.operation(), busy.group),
            None => Ok(()),
        }
    }
}

fn shared<S: Serializer>(places: &Arc<[Place]>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(&**places)
}

/// Whether an operation was ended by what happened elsewhere: to a peer, or in another operation.
fn is_aborted(state: &State) -> bool {
    matches!(state, State::Failed(error) if ["peer", "aborted"].contains(&&**error))
}

/// That a message waits, or did, for a peer, and what that called last.
fn unanswered(
    f: &mut fmt::Formatter<'_>,
    group: &str,
    place: &Place,
    (peer, last): (usize, Option<&Place>),
) -> fmt::Result {
    let (rank, operation) = (place.rank, place.operation());
    if place.is_aborted {
        write!(f, "{group}: rank {rank} waited for rank {peer} in {operation} until another failure ended that")?;
    } else {
        write!(f, "{group}: rank {rank} waits for rank {peer} in {operation}{}", since([place]))?;
    }
    write!(f, "; rank {peer} {}", last_of(last))
}

/// That ranks have no dump, and the first operation in which others wait for them.
fn no_dump(f: &mut fmt::Formatter<'_>, missing: &[usize], waiting: &[Place]) -> fmt::Result {
    write!(f, "{} no dump", has(missing))?;
    let Some(first) = waiting.first() else { return Ok(()) };
    let (operation, group) = (first.operation(), &first.group);
    // Messages have numbers of their own on every rank.
    if first.is_message() {
        let them = if missing.len() == 1 { "it" } else { "one of them" };
        return write!(f, ", and rank {} waits for {them} in {operation} of {group}{}", first.rank, since([first]));
    }
    let is_it =
        |place: &&Place| (&place.group, &place.kind, place.sequence) == (&first.group, &first.kind, first.sequence);
    let same: Vec<&Place> = waiting.iter().filter(is_it).collect();
    let all: Vec<usize> = same.iter().map(|place| place.rank).collect();
    write!(f, "; {} in {operation} of {group}{}", waits(&all), since(same))
}

/// Who has another value than most; all, where no value has more ranks than each other one.
fn odd(sides: &[Side]) -> Vec<usize> {
    let is_tied = matches!(sides, [first, second, ..] if first.ranks.len() == second.ranks.len());
    sides.iter().skip(usize::from(!is_tied)).flat_map(|side| side.ranks.iter().copied()).collect()
}

fn has(all: &[usize]) -> String {
    format!("{} {}", Ranks(all).named(), if all.len() == 1 { "has" } else { "have" })
}

fn waits(all: &[usize]) -> String {
    format!("{} {}", Ranks(all).named(), if all.len() == 1 { "waits" } else { "wait" })
}

fn waited(all: &[usize]) -> String {
    format!("{} waited", Ranks(all).named())
}

/// Who waits, in what, and since when.
fn wait_in(places: &[Place]) -> String {
    let all: Vec<usize> = places.iter().map(|place| place.rank).collect();
    let operation = places.first().map(Place::operation).unwrap_or_default();
    format!("{} in {operation}{}", waits(&all), since(places))
}

fn at(site: Option<&Site>) -> String {
    site.map(|site| format!(" (at {site})")).unwrap_or_default()
}

/// For how long the one that waits longest had waited.
fn since<'a>(places: impl IntoIterator<Item = &'a Place>) -> String {
    let longest = places.into_iter().filter_map(|place| place.age_ns).max();
    longest.map(|age| format!(" since {}", seconds(age))).unwrap_or_default()
}

fn last_of(last: Option<&Place>) -> String {
    let told = |last: &Place| format!("last called {} of {}, which is {}", last.operation(), last.group, last.state);
    last.map_or("has called nothing".to_owned(), told)
}

fn seconds(nanoseconds: u64) -> String {
    format!("{:.3} s", nanoseconds as f64 / 1e9)
}

fn list(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(", ")
}
