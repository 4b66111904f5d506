//! What the doctor prints: a table for people, or one JSON object a line.

use std::io::{self, Write};

use rustix::system::uname;

use super::finding::{Finding, Level};
use crate::failure::{Failure, printed};

/// Prints each finding as soon as it is known.
#[derive(Debug)]
pub(super) struct Report {
    json: bool,
    levels: Vec<Level>,
}

impl Report {
    pub(super) fn begin(json: bool) -> Result<Report, Failure> {
        if !json {
            printed(writeln!(io::stdout().lock(), "{}\n", heading()))?;
        }
        Ok(Report { json, levels: vec![] })
    }

    pub(super) fn add(&mut self, finding: &Finding) -> Result<(), Failure> {
        self.levels.push(finding.level);
        let text = if self.json { finding.to_json().to_string() } else { rows(finding) };
        printed(writeln!(io::stdout().lock(), "{text}"))
    }

    /// The worst there was.
    pub(super) fn end(self) -> Result<Level, Failure> {
        if !self.json {
            printed(writeln!(io::stdout().lock(), "\n{}", summary(&self.levels)))?;
        }
        Ok(self.levels.into_iter().max().unwrap_or(Level::Ok))
    }
}

fn heading() -> String {
    let name = uname();
    let [system, machine] = [name.sysname(), name.machine()].map(|part| part.to_string_lossy());
    format!("phalanx {} on {} ({system} {machine})", env!("CARGO_PKG_VERSION"), name.nodename().to_string_lossy())
}

fn rows(finding: &Finding) -> String {
    let row = format!("{:<7}{:<20}{}", finding.level.name(), finding.check, finding.found);
    let advice = finding.advice.iter().flat_map(|advice| [("why", &advice.why), ("fix", &advice.how)]);
    advice.fold(row, |rows, (word, text)| format!("{rows}\n{:27}{word}  {text}", ""))
}

fn summary(levels: &[Level]) -> String {
    let count = |level| levels.iter().filter(|&&found| found == level).count();
    match (count(Level::Wrong), count(Level::Slow)) {
        (0, 0) => "nothing is wrong".to_owned(),
        (0, slow) => format!("nothing is wrong; {slow} slower than could be"),
        (wrong, slow) => format!("{wrong} wrong, {slow} slower than could be"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_below_each_other() {
        let ok = rows(&Finding::ok("open files", "4096"));
        assert_eq!(ok, "ok     open files          4096");
        let wrong = rows(&Finding::wrong("open files", "3", "too few", "ulimit -n 4096"));
        let lines: Vec<&str> = wrong.lines().collect();
        assert_eq!(lines[0], "wrong  open files          3");
        assert_eq!(lines[1].trim_start(), "why  too few");
        assert_eq!(lines[2].trim_start(), "fix  ulimit -n 4096");
        assert_eq!(lines[1].find("why"), ok.find("4096"));
    }

    #[test]
    fn the_summary_counts() {
        use Level::{Ok, Slow, Wrong};
        assert_eq!(summary(&[Ok, Ok]), "nothing is wrong");
        assert_eq!(summary(&[Ok, Slow]), "nothing is wrong; 1 slower than could be");
        assert_eq!(summary(&[Wrong, Slow, Wrong]), "2 wrong, 1 slower than could be");
    }
}
