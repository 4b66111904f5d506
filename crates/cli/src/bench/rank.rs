//! One rank of a bench: it measures case after case, as it is told, and tells what it saw. As a process of its own it is
//! told on its standard input and tells on its standard output, one JSON object a line.

use std::io::{self, BufRead, Write};

use phalanx::{Error, Group};
use serde_json::{Value, json};

use super::case::{Case, Memory};
use super::measure::{self, Pace, Seen};
use super::meeting::{Meeting, Style};
use crate::failure::Failure;

/// What a rank's process is told before all cases.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part {
    pub(super) rank: usize,
    pub(super) np: usize,
    pub(super) meeting: Meeting,
    pub(super) style: Style,
    pub(super) pace: Pace,
}

/// What a rank tells.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Said {
    /// It is in the group.
    Joined,
    Seen(Seen),
    /// Nothing more will come, for this reason.
    Failed(String),
}

/// The process of one rank, from its first line to its last.
pub(crate) fn rank() -> Result<(), Failure> {
    let mut lines = io::stdin().lock().lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    let part = serde_json::from_str(&first).ok().and_then(|told| Part::from_json(&told));
    let part = part.ok_or_else(|| Failure::Usage("a bench starts its ranks itself".to_owned()))?;
    let cases = lines.map_while(|line| Case::from_json(&serde_json::from_str(&line).ok()?));
    let say = |said: Said| writeln!(io::stdout().lock(), "{}", said.to_json()).is_ok();
    let is_well = match part.meeting.join(part.rank, part.np, part.style) {
        Ok(group) => play(&group, (part.style.memory, part.pace), cases, say),
        Err(error) => {
            // Who does not listen any more will not miss it.
            say(Said::Failed(cause(&error)));
            false
        }
    };
    if is_well { Ok(()) } else { Err(Failure::Found) }
}

/// Measures case after case; whether that went well to the end.
pub(super) fn play(
    group: &Group,
    (memory, pace): (Memory, Pace),
    cases: impl Iterator<Item = Case>,
    mut tell: impl FnMut(Said) -> bool,
) -> bool {
    if !tell(Said::Joined) {
        return false;
    }
    for case in cases {
        let said =
            measure::rank(group, &case, memory, pace).map_or_else(|error| Said::Failed(cause(&error)), Said::Seen);
        let is_well = matches!(said, Said::Seen(_));
        if !tell(said) || !is_well {
            return false;
        }
    }
    true
}

/// The first failure of a group, whoever reports it.
fn cause(error: &Error) -> String {
    match error {
        Error::Aborted(aborted) => aborted.cause.as_deref().map_or_else(|| error.to_string(), cause),
        other => other.to_string(),
    }
}

impl Part {
    pub(super) fn to_json(&self) -> Value {
        let (meeting, style, pace) = (self.meeting.to_json(), self.style.to_json(), self.pace.to_json());
        json!({ "rank": self.rank, "np": self.np, "meeting": meeting, "style": style, "pace": pace })
    }

    fn from_json(told: &Value) -> Option<Part> {
        let number = |name: &str| told[name].as_u64().map(|number| number as usize);
        let (rank, np) = (number("rank")?, number("np")?);
        let (meeting, style) = (Meeting::from_json(&told["meeting"])?, Style::from_json(&told["style"])?);
        Some(Part { rank, np, meeting, style, pace: Pace::from_json(&told["pace"])? })
    }
}

impl Said {
    fn to_json(&self) -> Value {
        match self {
            Said::Joined => json!("joined"),
            Said::Seen(seen) => json!({ "seen": seen.to_json() }),
            Said::Failed(why) => json!({ "failed": why }),
        }
    }

    /// What stands in a line that a rank has written.
    pub(super) fn of_line(line: &str) -> Said {
        let told: Value = serde_json::from_str(line).unwrap_or_default();
        match &told {
            Value::String(word) if word == "joined" => Some(Said::Joined),
            Value::Object(object) => match (object.get("seen"), object.get("failed")) {
                (Some(seen), _) => Seen::from_json(seen).map(Said::Seen),
                (_, Some(why)) => why.as_str().map(|why| Said::Failed(why.to_owned())),
                _ => None,
            },
            _ => None,
        }
        .unwrap_or_else(|| Said::Failed(format!("it says \"{line}\"")))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn parts_and_what_is_said_survive_their_journey() {
        let meeting = Meeting::Shm { door: "x".to_owned(), token: [7; 16] };
        let style =
            Style { algorithm: None, links: false, memory: Memory::Ordinary, hosts: 1, profile: None, is_bare: false };
        let pace = Pace { budget: Duration::from_secs(1), burst: Duration::from_micros(20) };
        let part = Part { rank: 1, np: 3, meeting, style, pace };
        assert_eq!(Part::from_json(&part.to_json()), Some(part));
        for said in [Said::Joined, Said::Failed("rank 1 is dead".to_owned())] {
            assert_eq!(Said::of_line(&said.to_json().to_string()), said);
        }
        assert_eq!(Said::of_line("{}"), Said::Failed("it says \"{}\"".to_owned()));
    }
}
