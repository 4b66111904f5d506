//! How fast messages go between two ranks of this host, as the library itself sends them.

use std::time::Duration;

use super::finding::{Finding, amount};
use crate::bench::{Exchange, Transport, pair};
use crate::failure::Failure;

/// A way between two ranks, and what is expected of it on any machine that has nothing else to do.
#[derive(Debug)]
pub(super) struct Way {
    check: &'static str,
    transport: Transport,
    /// The most microseconds for a short message.
    most_micros: f64,
    /// The least gigabytes a second for a long one.
    least_rate: f64,
}

pub(super) const SHARED_MEMORY: Way =
    Way { check: "messages over shm", transport: Transport::Shm, most_micros: 20.0, least_rate: 0.5 };
pub(super) const LOOPBACK: Way =
    Way { check: "messages over tcp", transport: Transport::Tcp, most_micros: 200.0, least_rate: 0.25 };

/// What two ranks see, the short messages first, or why there is nothing to see.
pub(super) fn measure(way: &Way) -> Result<Vec<Exchange>, String> {
    pair(way.transport, &[SHORT, LONG], TIME).map_err(|failure| match failure {
        Failure::Stopped(why) | Failure::Usage(why) => why,
        other => format!("{other:?}"),
    })
}

pub(super) fn judge(way: &Way, seen: &Result<Vec<Exchange>, String>) -> Finding {
    let (short, long) = match seen.as_deref() {
        Ok([short, long]) => (short, long),
        Ok(other) => return failed(way, &format!("{} sizes were measured", other.len())),
        Err(why) => return failed(way, why),
    };
    let rate = long.bytes as f64 / long.micros.max(f64::MIN_POSITIVE) / 1e3;
    let size = amount(long.bytes as u64);
    let found = format!("{:.1} us for {} bytes, {rate:.1} GB/s each way for {size}", short.micros, short.bytes);
    let wrong = short.wrong + long.wrong;
    if wrong > 0 {
        let why = format!("{wrong} bytes came as others than they went");
        return Finding::wrong(way.check, found, &why, "test this machine's memory");
    }
    if short.micros > way.most_micros || rate < way.least_rate {
        let why =
            format!("a quiet machine needs at most {} us, and has {} GB/s at least", way.most_micros, way.least_rate);
        let how = "end what else runs here, or give each rank a core of its own (phalanx run --pin)";
        return Finding::slow(way.check, found, &why, how);
    }
    Finding::ok(way.check, found)
}

fn failed(way: &Way, why: &str) -> Finding {
    Finding::wrong(way.check, "two ranks could not exchange messages", why, "mend what is said above, then look again")
}

const SHORT: usize = 8;
const LONG: usize = 16 << 20;
const TIME: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn seen(short: f64, long: f64, wrong: usize) -> Result<Vec<Exchange>, String> {
        let exchange = |bytes, micros| Exchange { bytes, micros, wrong };
        Ok(vec![exchange(SHORT, short), exchange(LONG, long)])
    }

    #[test]
    fn latency_and_bandwidth_are_told_and_judged() {
        let fast = judge(&SHARED_MEMORY, &seen(0.5, 4194.304, 0));
        assert_eq!(fast, Finding::ok("messages over shm", "0.5 us for 8 bytes, 4.0 GB/s each way for 16 MiB"));
        assert_eq!(judge(&SHARED_MEMORY, &seen(50.0, 4194.0, 0)).level, Level::Slow);
        assert_eq!(judge(&SHARED_MEMORY, &seen(0.5, 62_910.0, 0)).level, Level::Slow);
        assert_eq!(judge(&LOOPBACK, &seen(50.0, 41_940.0, 0)).level, Level::Ok);
    }

    #[test]
    fn wrong_bytes_and_no_bytes_at_all_are_wrong() {
        assert_eq!(judge(&LOOPBACK, &seen(0.5, 4194.0, 1)).level, Level::Wrong);
        let failed = judge(&LOOPBACK, &Err("rank 1 failed".to_owned()));
        assert_eq!((failed.level, failed.advice.expect("advice").why), (Level::Wrong, "rank 1 failed".to_owned()));
    }
}
