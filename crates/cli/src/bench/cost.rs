//! `phalanx bench --cost`: what it costs that operations are recorded, compared and bounded, by leaving that out in the same program.

use std::io::{self, Write};
use std::time::Duration;

use super::company::{Company, Terms};
use super::measure::Measured;
use super::meeting::Style;
use super::{Options, progress_bar, quiet, report};
use crate::failure::{Failure, printed};
use crate::figures::median;
use crate::sizes;

/// Measures every case in two worlds in turns, of which one leaves all that out.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let (cases, terms) = (options.cases()?, options.terms()?);
    let mut worlds = [company(&terms, false)?, company(&terms, true)?];
    let progress = progress_bar(cases.len() * TURNS);
    let mut out = io::stdout().lock();
    printed(writeln!(out, "{HEAD}"))?;
    let mut wrong = 0;
    for case in &cases {
        progress.set_message(case.to_string());
        let mut turns = Turns::default();
        for _ in 0..TURNS {
            quiet::wait(Duration::from_secs(options.gate.into()));
            for (at, world) in worlds.iter_mut().enumerate() {
                turns.add(at, &world.measure(case)?);
            }
            progress.inc(1);
        }
        wrong += turns.wrong;
        let [with, without] = turns.medians();
        let (size, name) = (sizes::show(case.byte_len()), case.kind.name());
        let (cost, share) = ((with - without) * 1e3, (with - without) / with * 100.0);
        let row = format!("{name:<15}{size:>8}{with:>12.3}{without:>12.3}{cost:>10.0}{share:>8.1}");
        progress.suspend(|| printed(writeln!(out, "{row}")))?;
    }
    progress.finish_and_clear();
    worlds.into_iter().try_for_each(Company::end)?;
    if wrong == 0 {
        return Ok(());
    }
    printed(writeln!(out, "{}", report::verdict(wrong)))?;
    Err(Failure::Found)
}

fn company(terms: &Terms, is_bare: bool) -> Result<Company, Failure> {
    Company::start(&Terms { style: Style { is_bare, ..terms.style }, ..terms.clone() })
}

/// What both worlds saw of a case.
#[derive(Debug, Default)]
struct Turns {
    /// The median time of each turn.
    times: [Vec<f64>; 2],
    /// Wrong elements in either.
    wrong: usize,
}

impl Turns {
    fn add(&mut self, world: usize, measured: &Measured) {
        self.times[world].push(measured.quantile(0.5));
        self.wrong += measured.wrong;
    }

    fn medians(self) -> [f64; 2] {
        self.times.map(median)
    }
}

/// How often each world has its turn.
const TURNS: usize = 15;
const HEAD: &str = "operation          bytes     with us  without us   cost ns  cost %";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::measure::Seen;
    use super::*;

    #[test]
    fn wrong_elements_of_either_world_count() {
        let measured = |wrong: usize, nanos: u64| {
            let told = json!({ "wrong": wrong, "calls": 1, "bursts": [nanos] });
            Measured::of(&[Seen::from_json(&told).expect("what a rank saw")])
        };
        let mut turns = Turns::default();
        for (world, wrong, nanos) in [(0, 0, 3000), (1, 2, 1000), (0, 1, 5000), (1, 0, 2000), (0, 0, 4000)] {
            turns.add(world, &measured(wrong, nanos));
        }
        assert_eq!(turns.wrong, 3);
        assert_eq!(turns.medians(), [4.0, 1.5]);
    }
}
