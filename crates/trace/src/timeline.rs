//! All operations of all ranks on one clock, with what was found about each: what the page and the trace for other viewers draw.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

use crate::analyse::{Clocks, Finding, Report};
use crate::dump::{Dump, Entry};

/// Times are nanoseconds from the first call of all.
#[derive(Debug, Serialize)]
pub(crate) struct Timeline<'d> {
    pub(crate) span: u64,
    pub(crate) ranks: Vec<Lane<'d>>,
    pub(crate) groups: Vec<String>,
    pub(crate) operations: Vec<Operation<'d>>,
    pub(crate) verdicts: Vec<String>,
}

/// One rank.
#[derive(Debug, Serialize)]
pub(crate) struct Lane<'d> {
    pub(crate) rank: usize,
    pub(crate) host: Option<&'d str>,
    pub(crate) pid: Option<u32>,
}

/// One operation of one rank.
#[derive(Debug, Serialize)]
pub(crate) struct Operation<'d> {
    /// The place of its rank.
    pub(crate) lane: usize,
    /// The place of its group.
    pub(crate) group: usize,
    pub(crate) created: u64,
    pub(crate) started: Option<u64>,
    /// Where it ended, or the dump did.
    pub(crate) until: u64,
    pub(crate) entry: &'d Entry,
    /// The places of what was found about it.
    pub(crate) verdicts: Vec<usize>,
}

impl<'d> Timeline<'d> {
    pub(crate) fn of(dumps: &'d [Dump], report: &Report) -> Timeline<'d> {
        let clocks = Clocks::of_dumps(dumps);
        let first =
            dumps.iter().flat_map(|dump| dump.entries.iter().map(|entry| clocks.common(dump.rank, entry.created_ns)));
        let start = first.min().unwrap_or(0);
        let mut timeline = Timeline {
            span: 0,
            ranks: dumps.iter().map(lane).collect(),
            groups: Vec::new(),
            operations: Vec::new(),
            verdicts: report.findings.iter().map(ToString::to_string).collect(),
        };
        let (concerns, mut places) = (Concerns::of(&report.findings), BTreeMap::new());
        for (lane, dump) in dumps.iter().enumerate() {
            let view = Sight { dump, lane, clocks: &clocks, start, end: end(dump) };
            let labels: Vec<String> = dump.groups.iter().map(|group| group.label()).collect();
            for entry in &dump.entries {
                let label = &labels[entry.group];
                let next = places.len();
                let group = *places.entry(label.clone()).or_insert(next);
                timeline.operations.push(view.operation(group, entry, concerns.about(dump.rank, label, entry)));
            }
        }
        let mut groups: Vec<(String, usize)> = places.into_iter().collect();
        groups.sort_by_key(|(_, place)| *place);
        timeline.groups = groups.into_iter().map(|(label, _)| label).collect();
        timeline.span = timeline.operations.iter().map(|operation| operation.until).max().unwrap_or(0).max(1);
        timeline
    }
}

/// The places of findings by what they are about, so that not every operation is held against every finding.
struct Concerns<'r> {
    /// By rank, label of the group, number and kind.
    operations: HashMap<(usize, &'r str, u64, &'r str), Vec<usize>>,
    /// About what all ranks called, by label of the group and number.
    collectives: HashMap<(&'r str, u64), Vec<usize>>,
}

impl<'r> Concerns<'r> {
    fn of(findings: &'r [Finding]) -> Concerns<'r> {
        let mut concerns = Concerns { operations: HashMap::new(), collectives: HashMap::new() };
        for (at, finding) in findings.iter().enumerate() {
            if let Finding::Divergence { group, sequence, .. } = finding {
                concerns.collectives.entry((group.as_str(), *sequence)).or_default().push(at);
            }
            for place in finding.places() {
                let key = (place.rank, place.group.as_str(), place.sequence, place.kind.as_str());
                concerns.operations.entry(key).or_default().push(at);
            }
        }
        concerns
    }

    /// What was found about an operation of a rank, in the order of the report.
    fn about(&self, rank: usize, group: &str, entry: &Entry) -> Vec<usize> {
        let own = self.operations.get(&(rank, group, entry.sequence, entry.kind.as_str()));
        let all = self.collectives.get(&(group, entry.sequence)).filter(|_| !entry.is_message);
        // One finding may name an operation twice.
        let found: BTreeSet<usize> = own.into_iter().chain(all).flatten().copied().collect();
        found.into_iter().collect()
    }
}

/// One dump as it is seen from the start of all.
struct Sight<'c, 'd> {
    dump: &'d Dump,
    lane: usize,
    clocks: &'c Clocks,
    start: u64,
    end: u64,
}

impl<'d> Sight<'_, 'd> {
    fn operation(&self, group: usize, entry: &'d Entry, verdicts: Vec<usize>) -> Operation<'d> {
        let at = |time| self.clocks.common(self.dump.rank, time).saturating_sub(self.start);
        let end = if entry.is_pending() { self.end } else { entry.ended_ns.unwrap_or(entry.created_ns) };
        // The wall's clock may have been set back meanwhile, and a foreign dump may say anything.
        let created = at(entry.created_ns);
        let started = entry.started_ns.map(|time| at(time).max(created));
        let until = at(end).max(started.unwrap_or(created));
        Operation { lane: self.lane, group, created, started, until, entry, verdicts }
    }
}

fn lane(dump: &Dump) -> Lane<'_> {
    Lane { rank: dump.rank, host: dump.host_name.as_deref(), pid: dump.pid }
}

/// The last moment of which a dump tells.
fn end(dump: &Dump) -> u64 {
    let last = dump.entries.iter().map(|entry| entry.ended_ns.unwrap_or(entry.created_ns)).max().unwrap_or(0);
    dump.taken_ns.unwrap_or(last).max(last)
}
