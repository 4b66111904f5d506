//! `phalanx bench --cost`: what it costs that operations are recorded, compared and bounded, by leaving that out in the same program.

use std::io::{self, Write};
use std::time::Duration;

use super::company::{Company, Terms};
use super::meeting::Style;
use super::{Options, progress_bar, quiet};
use crate::failure::Failure;
use crate::sizes;

/// Measures every case in two worlds in turns, of which one leaves all that out.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let (cases, terms) = (options.cases()?, options.terms()?);
    let mut worlds = [company(&terms, false)?, company(&terms, true)?];
    let progress = progress_bar(cases.len() * TURNS);
    let mut out = io::stdout().lock();
    writeln!(out, "{HEAD}")?;
    for case in &cases {
        progress.set_message(case.to_string());
        let mut times = [vec![], vec![]];
        for _ in 0..TURNS {
            quiet::wait(Duration::from_secs(options.gate.into()));
            for (world, times) in worlds.iter_mut().zip(&mut times) {
                times.push(world.measure(case)?.quantile(0.5));
            }
            progress.inc(1);
        }
        let [with, without] = times.map(|times| median(&times));
        let (size, name) = (sizes::show(case.byte_len()), case.kind.name());
        let (cost, share) = ((with - without) * 1e3, (with - without) / with * 100.0);
        progress.suspend(|| writeln!(out, "{name:<15}{size:>8}{with:>12.3}{without:>12.3}{cost:>10.0}{share:>8.1}"))?;
    }
    progress.finish_and_clear();
    worlds.into_iter().try_for_each(Company::end)
}

fn company(terms: &Terms, is_bare: bool) -> Result<Company, Failure> {
    Company::start(&Terms { style: Style { is_bare, ..terms.style }, ..terms.clone() })
}

fn median(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// How often each world has its turn.
const TURNS: usize = 15;
const HEAD: &str = "operation          bytes     with us  without us   cost ns  cost %";
