//! `phalanx bench --tune`: where one algorithm becomes better than another on this machine, as a profile. Which limits there are
//! is known elsewhere.

use std::io::{self, Write};

use indicatif::ProgressBar;
use phalanx::schedule::{Algorithm, Profile};

use super::case::Case;
use super::company::{Company, Terms};
use super::kind::Kind;
use super::meeting::{Style, Transport};
use super::{Options, progress_bar, quiet};
use crate::failure::{Failure, printed};
use crate::sizes;

/// Measures, and prints the profile with what it stands on as comments.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    options.check_reduction()?;
    let terms = options.terms()?;
    let bench = Bench { options, terms, progress: progress_bar(0) };
    let mut profile = Profile::default();
    let mut notes = vec![format!(
        "# {} ranks, {}, {} {}: median microseconds of all_reduce",
        options.np,
        options.transport.name(),
        options.op,
        options.dtype
    )];
    let windows = matches!(options.transport, Transport::Shm | Transport::Threads) && options.np > 2;
    if windows {
        let [small, large] = [Algorithm::AtOnce, Algorithm::Direct];
        profile = profile.small_in_windows(bench.crossover([small, large], false, &mut notes)?);
    }
    if options.np > 1 {
        let [small, large] = [Algorithm::Doubling, Algorithm::Ring];
        profile = profile.small_over_links(bench.crossover([small, large], true, &mut notes)?);
        profile = profile.segment(bench.segment(profile, &mut notes)?);
    }
    bench.progress.finish_and_clear();
    let mut out = io::stdout().lock();
    let written = notes.iter().try_for_each(|note| writeln!(out, "{note}"));
    printed(written.and_then(|()| write!(out, "{profile}")))
}

struct Bench<'a> {
    options: &'a Options,
    terms: Terms,
    progress: ProgressBar,
}

impl Bench<'_> {
    /// Up to how many bytes the first of two algorithms is the better one.
    fn crossover(&self, algorithms: [Algorithm; 2], links: bool, notes: &mut Vec<String>) -> Result<usize, Failure> {
        let [small, large] = algorithms;
        let times = |algorithm| {
            let style = Style { algorithm: Some(algorithm), links, ..self.terms.style };
            self.medians(style, &SIZES)
        };
        let (by_small, by_large) = (times(small)?, times(large)?);
        for ((size, small_time), large_time) in SIZES.iter().zip(&by_small).zip(&by_large) {
            let size = sizes::show(*size);
            notes.push(format!("# {size:>5}  {small} {small_time:.2}  {large} {large_time:.2}"));
        }
        Ok(crossover(&SIZES, &by_small, &by_large))
    }

    /// The best length of the pieces of a long ring.
    fn segment(&self, profile: Profile, notes: &mut Vec<String>) -> Result<usize, Failure> {
        let mut best = (f64::INFINITY, profile.segment_byte_len());
        for segment in SEGMENTS {
            let profile = Some(profile.segment(segment));
            let style = Style { algorithm: Some(Algorithm::Ring), links: true, profile, ..self.terms.style };
            let micros = self.medians(style, &[LONG])?.first().copied().unwrap_or(f64::INFINITY);
            notes.push(format!("# {:>5}  ring in pieces of {} {micros:.2}", sizes::show(LONG), sizes::show(segment)));
            // A piece that is no better for sure stays as small as it can be.
            if micros < best.0 * SURELY {
                best = (micros, segment);
            }
        }
        Ok(best.1)
    }

    /// The median time of each size, in a world of this style.
    fn medians(&self, style: Style, sizes: &[usize]) -> Result<Vec<f64>, Failure> {
        let Options { np, dtype, op, .. } = *self.options;
        let mut company = Company::start(&Terms { style, ..self.terms.clone() })?;
        self.progress.inc_length(sizes.len() as u64);
        let mut median = |&bytes: &usize| {
            let case = Case::new(Kind::AllReduce, bytes, np.into(), dtype, op);
            self.progress.set_message(case.to_string());
            quiet::wait(std::time::Duration::from_secs(self.options.gate.into()));
            let measured = company.measure(&case)?;
            self.progress.inc(1);
            match measured.wrong {
                0 => Ok(measured.quantile(0.5)),
                wrong => Err(Failure::Stopped(format!("{case}: {wrong} elements were wrong"))),
            }
        };
        let medians = sizes.iter().map(&mut median).collect::<Result<_, Failure>>()?;
        company.end()?;
        Ok(medians)
    }
}

/// The size up to which to take the first of two algorithms, so that over all sizes the least time is lost, in proportion.
fn crossover(sizes: &[usize], small: &[f64], large: &[f64]) -> usize {
    let lost = |taken: f64, other: f64| (taken / other.min(taken)).ln();
    let loss = |count: usize| -> f64 {
        let each = small.iter().zip(large).enumerate();
        each.map(|(at, (small, large))| if at < count { lost(*small, *large) } else { lost(*large, *small) }).sum()
    };
    let best = (0..=sizes.len()).min_by(|a, b| loss(*a).total_cmp(&loss(*b))).unwrap_or_default();
    best.checked_sub(1).map_or(0, |last| sizes[last])
}

const SIZES: [usize; 10] =
    [256, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10];
const SEGMENTS: [usize; 5] = [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20];
/// Long enough to be cut into any of these.
const LONG: usize = 16 << 20;
/// A difference that is less than noise is none.
const SURELY: f64 = 0.97;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crossover_loses_the_least_time() {
        let sizes = [1, 2, 4, 8];
        assert_eq!(crossover(&sizes, &[1.0, 2.0, 5.0, 9.0], &[2.0, 3.0, 4.0, 4.0]), 2);
        assert_eq!(crossover(&sizes, &[1.0; 4], &[2.0; 4]), 8);
        assert_eq!(crossover(&sizes, &[2.0; 4], &[1.0; 4]), 0);
        // One odd measurement does not move it.
        assert_eq!(crossover(&sizes, &[1.0, 1.0, 1.0, 9.0], &[2.0, 0.9, 2.0, 4.0]), 4);
    }
}
