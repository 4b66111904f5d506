//! The clocks of all hosts as one. Ranks leave an operation that all must come to at nearly the same moment, so the middle of the
//! differences there is the difference of the clocks. Ranks of one host have one clock; but hosts may have one name, so that a name is believed
//! only where the differences do not speak against it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::kind;
use super::roster::{Company, Roster, Seat};
use crate::dump::{Dump, Entry};

/// How far each rank's clock is ahead of that of the lowest rank that has ended anything together with others, in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    ahead: BTreeMap<usize, i64>,
}

impl Clocks {
    pub(crate) fn of_dumps(dumps: &[Dump]) -> Clocks {
        Clocks::of(&Roster::of(dumps))
    }

    pub(super) fn of(roster: &Roster<'_>) -> Clocks {
        let mut setting = Setting::of(roster);
        // Of a rank that has ended nothing its host's name is all that is known: those that tell more come first.
        let (telling, mute): (Vec<usize>, Vec<usize>) =
            roster.dumps.keys().partition(|rank| setting.groups.contains_key(rank));
        for rank in telling.into_iter().chain(mute) {
            // Whoever nobody leads to is a beginning of its own, unless its host has a clock already.
            if !setting.clocks.ahead.contains_key(&rank) {
                let host = setting.host(rank).and_then(|host| setting.hosts.get(host));
                let ahead = host.and_then(|clocks| clocks.first().copied()).unwrap_or_default();
                setting.spread(rank, ahead);
            }
        }
        setting.clocks
    }

    /// A time of a rank by the clock of all.
    pub(crate) fn common(&self, rank: usize, time: u64) -> u64 {
        time.saturating_add_signed(self.ahead.get(&rank).map_or(0, |ahead| ahead.saturating_neg()))
    }
}

/// The clocks while they are found.
struct Setting<'r, 'd> {
    roster: &'r Roster<'d>,
    clocks: Clocks,
    /// The clocks of all hosts of one name: one, unless they are several hosts.
    hosts: BTreeMap<&'r str, BTreeSet<i64>>,
    /// For each group, by its place in the roster, when its ranks ended what; those that ended nothing are left out.
    ends: Vec<BTreeMap<usize, Ends>>,
    /// The groups in which a rank has ended anything.
    groups: BTreeMap<usize, Vec<usize>>,
    /// The ranks of each group that have ended something in it, and whose clocks do not follow from anybody's yet.
    open: Vec<Vec<usize>>,
}

/// When operations that all must come to ended on one rank, in the order of their numbers.
type Ends = Vec<(u64, u64)>;

impl<'r, 'd> Setting<'r, 'd> {
    fn of(roster: &'r Roster<'d>) -> Setting<'r, 'd> {
        let ended = |company: &Company<'_>| {
            let ended = company.seats.iter().map(|(rank, seat)| (*rank, ends(seat)));
            ended.filter(|(_, ends)| !ends.is_empty()).collect::<BTreeMap<usize, Ends>>()
        };
        let ends: Vec<BTreeMap<usize, Ends>> = roster.companies.iter().map(ended).collect();
        let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (at, ends) in ends.iter().enumerate() {
            ends.keys().for_each(|rank| groups.entry(*rank).or_default().push(at));
        }
        let open = ends.iter().map(|ends| ends.keys().copied().collect()).collect();
        Setting { roster, clocks: Clocks::default(), hosts: BTreeMap::new(), ends, groups, open }
    }

    fn host(&self, rank: usize) -> Option<&'r str> {
        self.roster.dumps.get(&rank)?.host_name.as_deref()
    }

    /// Sets the clock of a rank, and all that follow from it.
    fn spread(&mut self, rank: usize, ahead: i64) {
        self.set(rank, ahead);
        let mut led_to = VecDeque::from([rank]);
        while let Some(known) = led_to.pop_front() {
            let ours = self.clocks.ahead[&known];
            for at in self.groups.get(&known).cloned().unwrap_or_default() {
                for other in std::mem::take(&mut self.open[at]) {
                    if self.clocks.ahead.contains_key(&other) {
                        continue;
                    }
                    match difference(&self.ends[at][&known], &self.ends[at][&other]) {
                        Some(difference) => {
                            self.set(other, ours.saturating_add(difference));
                            led_to.push_back(other);
                        }
                        // One of the others may remember what it does.
                        None => self.open[at].push(other),
                    }
                }
            }
        }
    }

    /// Sets a clock as it was found; where one of its host's name is so near that it can be the same one, to that.
    fn set(&mut self, rank: usize, ahead: i64) {
        let clocks = self.host(rank).map(|host| self.hosts.entry(host).or_default());
        let ahead = clocks.map_or(ahead, |clocks| {
            let near = clocks.range(ahead.saturating_sub(NEAR_NS)..=ahead.saturating_add(NEAR_NS));
            let nearest = near.min_by_key(|clock| clock.abs_diff(ahead)).copied().unwrap_or(ahead);
            clocks.insert(nearest);
            nearest
        });
        self.clocks.ahead.insert(rank, ahead);
    }
}

fn ends(seat: &Seat<'_>) -> Ends {
    let ended = |entries: &Vec<&Entry>| {
        entries.last().filter(|entry| kind::is_meeting(&entry.kind)).and_then(|entry| entry.ended_ns)
    };
    seat.collectives.iter().filter_map(|(sequence, entries)| Some((*sequence, ended(entries)?))).collect()
}

/// How much later one rank says that the operations of all ended than another.
fn difference(known: &Ends, unknown: &Ends) -> Option<i64> {
    let (mut differences, mut theirs): (Vec<i64>, _) = (Vec::new(), unknown.iter().peekable());
    for (sequence, one) in known {
        while theirs.next_if(|(earlier, _)| earlier < sequence).is_some() {}
        if let Some((_, other)) = theirs.next_if(|(same, _)| same == sequence) {
            differences.push(i64::try_from(i128::from(*other) - i128::from(*one)).ok()?);
        }
    }
    differences.sort_unstable();
    differences.get(differences.len() / 2).copied()
}

/// Ranks of one host leave an operation no further apart than this, as a rule; clocks of hosts that are as near make nobody late.
const NEAR_NS: i64 = 5_000_000;

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::dump::{Identity, State, TracedGroup};

    const SECOND: u64 = 1_000_000_000;

    /// A rank on this host that ended an operation of all at these times; none yet, where there are none.
    fn rank(rank: usize, host_name: &str, ends: &[u64]) -> Dump {
        let identity = Identity { rank, world_size: 3, host_name: host_name.to_owned(), pid: 7 };
        let mut dump = Dump::new(identity, SystemTime::UNIX_EPOCH);
        dump.groups.push(TracedGroup { name: "world".to_owned(), ..TracedGroup::default() });
        let pending = ends.is_empty().then_some(None);
        dump.entries = (0..).zip(ends.iter().copied().map(Some).chain(pending)).map(entry).collect();
        dump
    }

    fn entry((sequence, ended_ns): (u64, Option<u64>)) -> Entry {
        Entry {
            group: 0,
            record: sequence,
            sequence,
            kind: "barrier".to_owned(),
            is_message: false,
            dtype: None,
            reduce: None,
            peer: None,
            tag: None,
            input: 0,
            output: 0,
            even: true,
            site: None,
            created_ns: 0,
            started_ns: None,
            ended_ns,
            state: if ended_ns.is_some() { State::Done } else { State::Started },
            timeout_ns: None,
            is_ahead: false,
        }
    }

    fn ahead(dumps: &[Dump]) -> Vec<i64> {
        Clocks::of_dumps(dumps).ahead.into_values().collect()
    }

    #[test]
    fn hosts_of_one_name_have_clocks_of_their_own() {
        let late = [100 * SECOND, 101 * SECOND];
        let dumps = [rank(0, "localhost", &[SECOND, 2 * SECOND]), rank(1, "localhost", &late)];
        assert_eq!(ahead(&dumps), [0, 99 * SECOND as i64]);
    }

    #[test]
    fn ranks_of_one_host_have_one_clock_whoever_leaves_a_little_later() {
        let dumps = [rank(0, "a", &[SECOND]), rank(1, "a", &[SECOND + 1000]), rank(2, "b", &[SECOND + 1000])];
        assert_eq!(ahead(&dumps), [0, 0, 1000]);
    }

    #[test]
    fn who_has_ended_nothing_has_the_clock_of_its_host() {
        let dumps = [rank(0, "b", &[]), rank(1, "a", &[SECOND]), rank(2, "b", &[3 * SECOND])];
        let two = 2 * SECOND as i64;
        assert_eq!(ahead(&dumps), [two, 0, two]);
    }

    /// Each rank by itself: a look at all others for each of so many takes minutes.
    #[test]
    fn very_many_ranks_that_have_ended_nothing_are_looked_at_once_each() {
        const RANKS: usize = 50_000;
        let dumps: Vec<Dump> = (0..RANKS).map(|at| rank(at, &format!("host{at}"), &[])).collect();
        assert_eq!(ahead(&dumps), vec![0; RANKS]);
    }
}
