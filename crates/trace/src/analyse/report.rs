//! All that was found, in the order of its importance, for people and as JSON.

use std::fmt;

use serde_json::{Value, json};

use super::{Arrival, Finding};

/// What the dumps of all ranks say together.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// How many dumps there were.
    pub ranks: usize,
    /// How many ranks the world has, as far as the dumps say.
    pub world_size: usize,
    /// What was found, the most important first; empty when the ranks agree.
    pub findings: Vec<Finding>,
    /// When each rank came to what all had to come to.
    pub arrivals: Vec<Arrival>,
}

impl Report {
    /// Whether the ranks agree and nobody waits.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// The report as JSON: `ranks`, `world_size`, `findings` with a `verdict` each, and `arrivals`.
    pub fn to_json(&self) -> Value {
        let Report { ranks, world_size, findings, arrivals } = self;
        let findings: Vec<Value> = findings.iter().map(finding).collect();
        json!({ "ranks": ranks, "world_size": world_size, "findings": findings, "arrivals": arrivals })
    }
}

fn finding(finding: &Finding) -> Value {
    let mut object = json!(finding);
    object["verdict"] = json!(finding.to_string());
    object["culprits"] = json!(finding.culprits());
    object
}

/// A line without what a terminal would take for a command or another line: names, sites and verdicts are what a dump says.
fn plain(line: &str) -> String {
    line.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { ranks, world_size, findings, arrivals } = self;
        let dumps = if *ranks == 1 { "dump" } else { "dumps" };
        writeln!(f, "{ranks} {dumps} of a world of {world_size}")?;
        if findings.is_empty() {
            writeln!(f, "the ranks agree, and no operation that is written down waits")?;
        }
        findings.iter().try_for_each(|finding| writeln!(f, "- {}", plain(&finding.to_string())))?;
        if arrivals.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "\n{:>6} {:>12} {:>8} {:>16} {:>16}",
            "rank", "operations", "last", "mean delay ms", "others wait ms"
        )?;
        let millis = |nanoseconds: u64| nanoseconds as f64 / 1e6;
        arrivals.iter().try_for_each(|arrival| {
            let Arrival { rank, operations, last, delay_ns, caused_ns } = *arrival;
            let (mean, caused) = (millis(delay_ns / operations.max(1)), millis(caused_ns));
            writeln!(f, "{rank:>6} {operations:>12} {last:>8} {mean:>16.3} {caused:>16.3}")
        })
    }
}
