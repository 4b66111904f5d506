//! What a process costs, as the system tells it in `/proc`.

use std::fs;
use std::io::{self, ErrorKind};
use std::time::Duration;

use rustix::param::clock_ticks_per_second;

use crate::failure::Failure;

/// What a process has cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Burden {
    /// Memory that it has now, in bytes.
    pub(crate) resident: u64,
    /// The most memory that it ever had, in bytes.
    pub(crate) peak: u64,
    /// Processor time, its own and the system's on its behalf.
    pub(crate) processor: Duration,
    /// Files and sockets that it has open.
    pub(crate) descriptors: usize,
}

impl Burden {
    /// What this process has cost so far.
    pub(crate) fn own() -> Result<Burden, Failure> {
        Burden::of(std::process::id()).map_err(|error| Failure::Stopped(format!("what this process has cost: {error}")))
    }

    pub(crate) fn of(process: u32) -> io::Result<Burden> {
        let status = fs::read_to_string(format!("/proc/{process}/status"))?;
        let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
        let descriptors = fs::read_dir(format!("/proc/{process}/fd"))?.count();
        let missing = || io::Error::new(ErrorKind::InvalidData, format!("/proc/{process}: a field is missing"));
        Ok(Burden {
            resident: kibibytes(&status, "VmRSS:").ok_or_else(missing)? << 10,
            peak: kibibytes(&status, "VmHWM:").ok_or_else(missing)? << 10,
            processor: processor(&stat).ok_or_else(missing)?,
            descriptors,
        })
    }
}

fn kibibytes(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().next()?.parse().ok()
}

/// User and system time, which are the 14th and 15th field; the second, a name, may hold spaces and brackets.
fn processor(stat: &str) -> Option<Duration> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut times = rest.split_whitespace().skip(11).map(str::parse::<u64>);
    let ticks = times.next()?.ok()? + times.next()?.ok()?;
    Some(Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_beside_odd_names() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 150 50 0 0 20 0";
        assert_eq!(processor(stat), Some(Duration::from_secs_f64(200.0 / clock_ticks_per_second() as f64)));
        assert_eq!(processor("7 (a) S 1"), None);
        assert_eq!(kibibytes("Name:\tx\nVmHWM:\t  1234 kB\n", "VmHWM:"), Some(1234));
        assert_eq!(kibibytes("Name:\tx\n", "VmHWM:"), None);
    }

    #[test]
    fn this_process_has_a_burden() {
        let burden = Burden::own().expect("a process");
        assert!(burden.peak >= burden.resident && burden.resident > 0 && burden.descriptors >= 3, "{burden:?}");
    }
}
