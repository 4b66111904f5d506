//! What the user sees of a training: a bar, a line now and then, and in the end a sample and each rank's memory; or JSON. Who looks away ends
//! nothing: the training goes on without.

use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use super::laps::Lap;
use crate::failure::tell;

/// What is shown while ranks train.
pub(super) struct Show {
    bar: ProgressBar,
    is_json: bool,
    /// Steps from one line to the next.
    stride: u64,
    steps: u64,
    /// The last step that was shown: after a restart some come again.
    last: u64,
    /// Whether nobody reads standard output any more.
    is_closed: bool,
}

impl Show {
    pub(super) fn new(steps: u64, is_json: bool) -> Show {
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg} {eta} left");
        let bar = ProgressBar::new(steps).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Show { bar, is_json, stride: steps.div_ceil(10), steps, last: 0, is_closed: false }
    }

    /// A step was made.
    pub(super) fn lap(&mut self, lap: &Lap, told: &Value) -> io::Result<()> {
        self.bar.set_position(lap.step);
        self.bar.set_message(line(lap));
        let is_again = lap.step <= self.last;
        self.last = lap.step;
        if self.is_json {
            return self.print(&told.to_string());
        }
        if is_again {
            self.print(&format!("again from step {}", lap.step))?;
        }
        match lap.step.is_multiple_of(self.stride) || lap.step == 1 || lap.step == self.steps {
            true => self.print(&format!("step {:>6}  {}", lap.step, line(lap))),
            false => Ok(()),
        }
    }

    /// All steps were made.
    pub(super) fn summary(&mut self, told: &Value) -> io::Result<()> {
        if self.is_json {
            return self.print(&told.to_string());
        }
        let bytes = |key: &str| megabytes(told[key].as_u64().unwrap_or_default());
        self.print(&format!("\n{}\n", told["sample"].as_str().unwrap_or_default().trim_end()))?;
        self.print(&format!(
            "{} parameters; each rank keeps {} of parameters, gradients and optimizer state, and had {} more in passing at most",
            told["params"],
            bytes("state_bytes_per_rank"),
            bytes("passing_bytes_per_rank"),
        ))?;
        let peaks = told["peak_rss_bytes_by_rank"].as_array().into_iter().flatten().enumerate();
        let peaks: Vec<String> =
            peaks.map(|(rank, peak)| format!("rank {rank} {}", megabytes(peak.as_u64().unwrap_or_default()))).collect();
        self.print(&format!("most memory of each process: {}", peaks.join(", ")))
    }

    /// Something else that a rank said. Nobody is left to tell when standard error is gone.
    pub(super) fn word(&self, line: &str) {
        let _ = self.bar.suspend(|| writeln!(io::stderr().lock(), "{line}"));
    }

    pub(super) fn end(&mut self) {
        self.bar.finish_and_clear();
    }

    fn print(&mut self, line: &str) -> io::Result<()> {
        if self.is_closed {
            return Ok(());
        }
        match self.bar.suspend(|| writeln!(io::stdout().lock(), "{line}")) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.close();
                Ok(())
            }
            written => written,
        }
    }

    /// Prints no more. That is no news where all steps were made.
    fn close(&mut self) {
        self.is_closed = true;
        let Show { last, steps, .. } = *self;
        if (1..steps).contains(&last) {
            let told = format!("standard output was closed at step {last} of {steps}: training goes on without it");
            self.bar.suspend(|| tell(&told));
        }
    }
}

fn line(lap: &Lap) -> String {
    let Lap { loss, tokens_per_s, comm_wait_ms, step_ms, memory_bytes, .. } = lap;
    let memory = megabytes(*memory_bytes);
    format!(
        "loss {loss:.3}  {tokens_per_s:.0} tokens/s  {step_ms:.0} ms, {comm_wait_ms:.1} of them waiting  {memory} at rank 0"
    )
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
