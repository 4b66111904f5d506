//! `phalanx store watch`: what becomes of a key, or of all keys that begin alike.
//!
//! Stores do not tell of changes, so it looks again and again. A value that changes and changes back in between is missed.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use clap::Args;
use phalanx_core::store::Store;

use super::command::Target;
use super::{ask, content};
use crate::failure::{Failure, printed};
use crate::run::process::signals;
use crate::seconds::seconds;

/// Print what is set, changed and deleted, until SIGINT, SIGTERM, SIGHUP or SIGQUIT
///
/// The store is asked every --interval; what changes and changes back in between is missed.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Options {
    #[command(flatten)]
    target: Target,

    /// Keys that begin so; all keys unless given
    #[arg(default_value = "")]
    prefix: String,

    /// How often the store is asked
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = seconds)]
    interval: Duration,
}

/// Keys with their values, at one moment.
type Seen = BTreeMap<String, Vec<u8>>;

/// Watches.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let ended = end()?;
    let store = ask::connect(&options.target)?;
    let mut seen = Seen::new();
    loop {
        let now = look(&store, &options.prefix)?;
        let mut out = io::stdout().lock();
        let written = changes(&seen, &now).iter().try_for_each(|line| writeln!(out, "{line}"));
        match written.and_then(|()| out.flush()) {
            // Nobody is left to watch for.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => printed(written)?,
        }
        seen = now;
        if ended.recv_timeout(options.interval.max(SHORTEST)) != Err(RecvTimeoutError::Timeout) {
            return Ok(());
        }
    }
}

/// Receives once a signal asks for the end.
fn end() -> Result<mpsc::Receiver<i32>, Failure> {
    let failed = |error: io::Error| Failure::Stopped(format!("signal handlers: {error}"));
    let mut signals = signals::listen(&signals::ending()).map_err(failed)?;
    let (sender, receiver) = mpsc::channel();
    let forward = move || signals.forever().try_for_each(|signal| sender.send(signal));
    thread::Builder::new().name("phalanx-signals".to_owned()).spawn(forward).map_err(failed)?;
    Ok(receiver)
}

fn look(store: &Store, prefix: &str) -> Result<Seen, Failure> {
    let mut seen = Seen::new();
    for key in store.list_keys()?.into_iter().filter(|key| key.starts_with(prefix)) {
        // It may be gone by now.
        if let Some(value) = store.find(&key)? {
            seen.insert(key, value);
        }
    }
    Ok(seen)
}

fn changes(before: &Seen, now: &Seen) -> Vec<String> {
    let changed = now.iter().filter(|(key, value)| before.get(*key) != Some(value));
    let changed = changed.map(|(key, value)| format!("{} = {}", content::key(key), content::value(value)));
    let gone = before.keys().filter(|key| !now.contains_key(*key));
    changed.chain(gone.map(|key| format!("{} is gone", content::key(key)))).collect()
}

const SHORTEST: Duration = Duration::from_millis(10);

const EXAMPLES: &str = "\
Examples:
  phalanx store watch 127.0.0.1:29500                         every key
  phalanx store watch 127.0.0.1:29500 loss/ --interval 2      the keys that begin with loss/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_what_differs() {
        let seen = |pairs: &[(&str, &str)]| -> Seen {
            pairs.iter().map(|(key, value)| (key.to_string(), value.as_bytes().to_vec())).collect()
        };
        let before = seen(&[("a", "1"), ("b", "2"), ("c", "3")]);
        let now = seen(&[("a", "1"), ("b", "4"), ("d", "5")]);
        assert_eq!(changes(&before, &now), ["b = \"4\"", "d = \"5\"", "c is gone"]);
        assert!(changes(&now, &now).is_empty());
    }
}
