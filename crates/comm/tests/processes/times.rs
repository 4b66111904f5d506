//! How long it took until a fault was known, as often as it was tried: held against a bound, and kept as a row of a table for
//! docs/performance.md where one is asked for.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

/// The times of one fault.
#[derive(Debug)]
pub(crate) struct Times {
    fault: &'static str,
    transport: &'static str,
    runs: usize,
    times: Vec<Duration>,
}

/// How often to try a fault that is soon known: `usual` unless `PHALANX_TEST_KILLS` says otherwise.
pub(crate) fn runs(usual: usize) -> usize {
    asked_for().unwrap_or(usual)
}

/// The same for one that takes seconds: a fifteenth of it.
pub(crate) fn slow_runs(usual: usize) -> usize {
    asked_for().map_or(usual, |runs| runs.div_ceil(15))
}

fn asked_for() -> Option<usize> {
    std::env::var("PHALANX_TEST_KILLS").ok().and_then(|runs| runs.parse().ok())
}

impl Times {
    pub(crate) fn of(fault: &'static str, transport: &'static str) -> Times {
        Times { fault, transport, runs: 0, times: vec![] }
    }

    /// One try, and what each of those who tell took.
    pub(crate) fn add(&mut self, took: impl IntoIterator<Item = Duration>) {
        self.runs += 1;
        self.times.extend(took);
    }

    pub(crate) fn runs(&self) -> usize {
        self.runs
    }

    /// The median, what one in a hundred takes longer than, and the longest.
    pub(crate) fn spread(&mut self) -> [Duration; 3] {
        self.times.sort();
        let last = self.times.len() - 1;
        [50, 99, 100].map(|hundredth| self.times[(self.times.len() * hundredth / 100).min(last)])
    }

    /// Writes the row, and holds the median against what is usual and the longest against what a busy machine may take.
    pub(crate) fn hold(mut self, usual: Duration, late: Duration) {
        self.write("");
        let (fault, [median, _, longest]) = (self.fault, self.spread());
        assert!(median < usual, "{fault}: median {median:?}");
        assert!(longest < late, "{fault}: last {longest:?}");
    }

    /// Writes the row with more cells at its end.
    pub(crate) fn write(&mut self, more: &str) {
        let Some(path) = std::env::var_os("PHALANX_TEST_TABLE") else { return };
        let [median, p99, longest] = self.spread().map(readable);
        let Times { fault, transport, runs, .. } = self;
        let row = format!("| {fault} | {transport} | {runs} | {median} | {p99} | {longest} |{more}\n");
        let table = OpenOptions::new().create(true).append(true).open(path);
        table.and_then(|mut table| table.write_all(row.as_bytes())).expect("a file for the table");
    }
}

/// Three digits are enough.
pub(crate) fn readable(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        seconds => format!("{seconds:.2} s"),
    }
}
