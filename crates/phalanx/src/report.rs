//! What a rank leaves for its launcher: when it cannot join, why and who is to blame; when a group of it fails, because of whom.
//!
//! The first has the shape of torchrun's error files, so that torchrun prints it too. The second is for our launcher alone: torchrun takes whoever
//! wrote first for the one that failed first, and those who suffer from a rank may well write before it ends.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use phalanx_core::{Error, PeerReason};
use serde_json::{Value, json};

/// Writes the report where the launcher asks for one. That it cannot be written is only logged: the error itself counts.
pub(crate) fn leave(error: &Error, rank: Option<usize>) {
    if let Some(path) = FILES.iter().find_map(|name| asked(name)) {
        let report = report(error, rank, SystemTime::now());
        write_or_log(&path, &report);
        *LEFT.lock().unwrap_or_else(PoisonError::into_inner) = Some((path, report.to_string()));
    }
}

/// Removes what this process reported of an attempt to join, now that another has succeeded: whatever ends the rank later, it is not that.
pub(crate) fn take_back() {
    let Some((path, report)) = LEFT.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
    // What was written there since is of something else.
    if fs::read(&path).is_ok_and(|now| now == report.as_bytes())
        && let Err(failure) = fs::remove_file(&path)
    {
        log::warn!("the error report {} cannot be removed: {failure}", path.display());
    }
}

/// Writes where our launcher asks for it that a group has failed, and which of the launcher's ranks that is laid on.
pub(crate) fn accuse(error: &Error, ranks: &[usize]) {
    if let Some(path) = asked(OURS) {
        write_or_log(&path, &accusation(error, ranks));
    }
}

fn asked(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn write_or_log(path: &Path, report: &Value) {
    if let Err(failure) = write(path, report) {
        log::warn!("the error report {} cannot be written: {failure}", path.display());
    }
}

fn accusation(error: &Error, ranks: &[usize]) -> Value {
    json!({ "failure": error.to_string(), "accused": ranks, "gone": tells_of_an_end(error) })
}

/// Whether the ranks that an error is laid on are said to have ended or left. One that did not come or does not answer may be well until it is
/// asked to end, so that how it ends then says nothing.
fn tells_of_an_end(error: &Error) -> bool {
    match error {
        Error::Peer(peer) => matches!(peer.reason, PeerReason::Dead | PeerReason::Left),
        Error::Aborted(aborted) => aborted.cause.as_deref().is_some_and(tells_of_an_end),
        _ => false,
    }
}

fn report(error: &Error, rank: Option<usize>, now: SystemTime) -> Value {
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let missing: &[usize] = if let Error::Setup(setup) = error { &setup.missing } else { &[] };
    let extra = json!({ "timestamp": seconds.to_string(), "rank": rank });
    json!({ "message": { "message": error.to_string(), "extraInfo": extra }, "missing": missing })
}

/// Whole or not at all: the launcher may read at any moment.
fn write(path: &Path, report: &Value) -> io::Result<()> {
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(format!(".{}", std::process::id()));
    let draft = path.with_file_name(name);
    let written = fs::write(&draft, report.to_string()).and_then(|()| fs::rename(&draft, path));
    written.inspect_err(|_| drop(fs::remove_file(&draft)))
}

const OURS: &str = "PHALANX_ERROR_FILE";
const FILES: [&str; 2] = [OURS, "TORCHELASTIC_ERROR_FILE"];

/// The last report of this process, and its file. A process has one, as it has one environment.
static LEFT: Mutex<Option<(PathBuf, String)>> = Mutex::new(None);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use phalanx_core::{Chain, OpKind, Stuck, Timeout, Waiting};

    use super::*;

    #[test]
    fn a_report_has_torchs_shape_and_the_missing_ranks() {
        let error = Error::absent("joining the world", "rank 2 \"did\" not come", vec![2]);
        let report = report(&error, Some(1), UNIX_EPOCH + Duration::from_secs(1_700_000_000));
        let message = "joining the world: rank 2 \"did\" not come";
        let extra = json!({ "timestamp": "1700000000", "rank": 1 });
        assert_eq!(report, json!({ "message": { "message": message, "extraInfo": extra }, "missing": [2] }));
    }

    #[test]
    fn an_accusation_is_no_report() {
        let error = Error::setup("store", "no route");
        assert_eq!(accusation(&error, &[2]), json!({ "failure": "store: no route", "accused": [2], "gone": false }));
    }

    #[test]
    fn ranks_have_gone_that_ended_or_left_and_not_those_that_are_waited_for() {
        let peer = |reason| Error::peer(2, reason, "planted");
        let timeout = Timeout {
            op: OpKind::Barrier,
            sequence: 3,
            after: Duration::from_secs(5),
            stuck: vec![Stuck { peer: 2, on: Waiting::Arriving }],
            chain: Chain::Direct,
        };
        for (error, expected) in [
            (peer(PeerReason::Dead), true),
            (peer(PeerReason::Left), true),
            (peer(PeerReason::Unresponsive), false),
            (peer(PeerReason::Corrupt), false),
            (Error::Timeout(Box::new(timeout)), false),
            (Error::absent("group", "rank 2 did not come", vec![2]), false),
        ] {
            assert_eq!(accusation(&error, &[2])["gone"], expected, "{error}");
            assert_eq!(accusation(&error.clone().in_its_wake(), &[2])["gone"], expected, "{error}");
        }
    }

    #[test]
    fn a_report_is_written_whole_over_what_was_there() {
        let directory = std::env::temp_dir().join(format!("phalanx-report-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("error.json");
        let error = Error::setup("store", "no route");
        for rank in [None, Some(3)] {
            let report = report(&error, rank, UNIX_EPOCH);
            write(&path, &report).unwrap();
            assert_eq!(serde_json::from_str::<Value>(&fs::read_to_string(&path).unwrap()).unwrap(), report);
        }
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        assert!(write(&directory.join("absent/error.json"), &json!(0)).is_err());
        fs::remove_dir_all(&directory).unwrap();
    }
}
