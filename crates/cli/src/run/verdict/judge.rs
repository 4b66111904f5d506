//! Who is to blame, and how that is put.

use std::fmt;
use std::time::Duration;

use signal_hook::consts::SIGABRT;

use super::words::{named, ranks, seconds};
use super::{Fact, Report, State};
use crate::run::process::exit::Exit;

/// Who is to blame for the end of an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// All in one line.
    pub(crate) headline: String,
    /// What the culprit, or who reports it, printed last.
    pub(crate) details: Vec<String>,
}

/// The verdict on an epoch, if a rank has failed in it.
pub(crate) fn judge(facts: &[Fact], epoch: u32) -> Option<Verdict> {
    let culprit = culprit(facts)?;
    let case = Case { culprit, facts, epoch };
    let headline = match messenger(culprit) {
        Some(report) => case.never_joined(report),
        None => case.halted().unwrap_or_default() + &case.failed(),
    };
    Some(Verdict { headline, details: case.details() })
}

/// The rank that failed first. Of several that failed almost at once, the one whose end explains those of the others. One
/// that waited for others in vain is only the messenger, so that any other failure is a cause before it. So is one that lays
/// its failure on a rank which failed, too: others hear of a panic or an error before its process has ended.
fn culprit(facts: &[Fact]) -> Option<&Fact> {
    let failed = || facts.iter().filter(|fact| fact.has_failed());
    let first = failed().min_by_key(|fact| (messenger(fact).is_some(), fact.after))?;
    let near = failed().filter(|fact| fact.after <= first.after + AT_ONCE);
    let suspect = near.min_by_key(|fact| (consequence(fact), fact.after))?;
    Some(accused(suspect, facts).unwrap_or(suspect))
}

/// The rank on which a failed one lays its failure, where that one was broken without another's doing.
fn accused<'a>(suspect: &Fact, facts: &'a [Fact]) -> Option<&'a Fact> {
    let accusation = suspect.accusation.as_ref()?;
    let named = facts.iter().filter(|fact| accusation.ranks.contains(&fact.rank));
    named.filter(|fact| fact.was_broken(accusation.gone) && fact.accusation.is_none()).min_by_key(|fact| fact.after)
}

/// How likely a failure follows from another: who is killed did not choose to end, who gives up, panics or aborts may do so
/// because of another, and who names others does.
fn consequence(fact: &Fact) -> u8 {
    match (fact.last_report(), fact.state) {
        (Some(report), _) if !report.missing.is_empty() => 2,
        (None, State::Ended(Exit::Signal(signal))) if signal != SIGABRT => 0,
        _ => 1,
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.headline)?;
        self.details.iter().try_for_each(|line| write!(f, "\n{line}"))
    }
}

/// The report of a rank that names others as missing.
fn messenger(fact: &Fact) -> Option<&Report> {
    fact.last_report().filter(|report| !report.missing.is_empty())
}

/// A failure among the facts it is judged from.
struct Case<'a> {
    culprit: &'a Fact,
    facts: &'a [Fact],
    epoch: u32,
}

impl Case<'_> {
    fn failed(&self) -> String {
        let fact = self.culprit;
        let after = seconds(fact.after);
        let what = match (fact.last_report(), fact.panic(), &fact.memory) {
            (_, _, Some(evidence)) => format!("failed: out of memory after {after}: {}, and {evidence}", self.exit()),
            (_, Some(panic), _) => format!("failed: panicked at {} after {after}: {}", panic.place, panic.message),
            (Some(report), ..) => format!("gave up after {after}: {}", first_line(&report.message)),
            (None, None, None) => format!("failed: {} after {after}", self.exit()),
        };
        let before = self.failure_before();
        format!("rank {} {what} ({}){before}{}{}", fact.rank, self.place(), self.leavers(), self.others())
    }

    /// The words for what happened to the culprit before, where it does not say itself why it ended.
    fn failure_before(&self) -> String {
        match (&self.culprit.accusation, self.culprit.last_report(), self.culprit.panic()) {
            (Some(accusation), None, None) => {
                format!("; before, its group failed: {}", first_line(&accusation.failure))
            }
            _ => String::new(),
        }
    }

    /// The words for ranks that had ended well by then, where what failed may have followed from that: the others worked still.
    /// One that leaves tells so before its process ends.
    fn leavers(&self) -> String {
        let until = self.culprit.after + AT_ONCE;
        let has_left = |fact: &&Fact| matches!(fact.state, State::Ended(exit) if exit.is_well()) && fact.after <= until;
        let left: Vec<&Fact> = self.facts.iter().filter(has_left).collect();
        let first = left.iter().map(|fact| fact.after).min().filter(|_| consequence(self.culprit) > 0);
        let Some(first) = first.map(seconds) else { return String::new() };
        let numbers: Vec<usize> = left.iter().map(|fact| fact.rank).collect();
        let when = if left.len() == 1 { " after" } else { ", the first after" };
        format!("; {} ended with {}{when} {first}", named(&numbers), Exit::Code(0))
    }

    /// The words for ranks that answered nobody, where what failed may have followed from that.
    fn halted(&self) -> Option<String> {
        let halted: Vec<&Fact> = self.facts.iter().filter(|fact| fact.state == State::Halted).collect();
        let first = halted.first().filter(|_| consequence(self.culprit) > 0)?;
        let numbers: Vec<usize> = halted.iter().map(|fact| fact.rank).collect();
        let place =
            if halted.len() == 1 { format!(" (host {}, pid {})", first.host, first.pid) } else { String::new() };
        Some(format!("{} did not go on, halted by a signal{place}; ", named(&numbers)))
    }

    /// The words for a world that did not come together.
    fn never_joined(&self, report: &Report) -> String {
        let (missing, all) = (&report.missing, self.facts.len());
        let came = all.saturating_sub(missing.len());
        let states: Vec<String> = missing.iter().map(|rank| self.state_of(*rank)).collect();
        format!(
            "{} never joined the world within {}: {came} of {all} ranks came (missing: {}); {} (told by rank {}, epoch {})",
            named(missing),
            seconds(self.culprit.after),
            ranks(missing),
            states.join(", "),
            self.culprit.rank,
            self.epoch,
        )
    }

    /// What a missing rank was doing.
    fn state_of(&self, rank: usize) -> String {
        let Some(fact) = self.facts.iter().find(|fact| fact.rank == rank) else {
            return format!("of rank {rank} nothing is known");
        };
        let place = format!("host {}, pid {}", fact.host, fact.pid);
        match fact.state {
            State::Stopped(_) => format!("rank {rank} was still running ({place})"),
            State::Halted => format!("rank {rank} was halted by a signal ({place})"),
            State::Ended(exit) => format!("rank {rank} had ended with {exit} after {} ({place})", seconds(fact.after)),
        }
    }

    fn exit(&self) -> String {
        match self.culprit.state {
            State::Ended(exit @ Exit::Code(126 | 127)) => format!("{exit}, as of a program that cannot be started"),
            State::Ended(exit) | State::Stopped(Some(exit)) => exit.to_string(),
            State::Stopped(None) | State::Halted => "stopped".to_owned(),
        }
    }

    fn place(&self) -> String {
        format!("host {}, pid {}, epoch {}", self.culprit.host, self.culprit.pid, self.epoch)
    }

    fn others(&self) -> String {
        let others = || self.facts.iter().filter(|fact| fact.rank != self.culprit.rank);
        let failed = others().filter(|fact| fact.has_failed()).count();
        let stopped = others().filter(|fact| matches!(fact.state, State::Stopped(_))).count();
        let stopped = match stopped {
            0 => String::new(),
            1 => "; 1 other rank was stopped".to_owned(),
            _ => format!("; {stopped} other ranks were stopped"),
        };
        let failed = match failed {
            0 => String::new(),
            1 => "; 1 other rank failed after it".to_owned(),
            _ => format!("; {failed} other ranks failed after it"),
        };
        stopped + &failed
    }

    /// What it printed last, indented, and where the rest is.
    fn details(&self) -> Vec<String> {
        let fact = self.culprit;
        let message =
            messenger(fact).map(|report| format!("  rank {} says: {}", fact.rank, first_line(&report.message)));
        let title = match (&fact.log, fact.remains.tail.is_empty()) {
            (Some(log), true) => Some(format!("  its output is in {}", log.display())),
            (Some(log), false) => {
                Some(format!("  rank {} wrote last on standard error ({}):", fact.rank, log.display()))
            }
            (None, false) => Some(format!("  rank {} wrote last on standard error:", fact.rank)),
            (None, true) => None,
        };
        let tail = fact.remains.tail.iter().map(|line| format!("    {line}"));
        message.into_iter().chain(title).chain(tail).collect()
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Failures this close together have one cause.
const AT_ONCE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests;
