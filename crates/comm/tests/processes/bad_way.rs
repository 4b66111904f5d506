//! Two ranks and a way between them that flips bits, cuts connections and resets them, at every byte: both ranks get the right
//! answer or an error, soon, and never a wrong answer. The ranks are threads, so that there is time for many ways.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use phalanx_comm::secure::JobKey;
use phalanx_comm::store::LocalStore;
use phalanx_comm::{Network, Protection};
use phalanx_core::store::{Limits, Store};
use phalanx_core::{Error, GroupOptions, ReduceOp, Result};

use crate::LATE;
use crate::relay::{CONNECTIONS, Detour, Fault, Harm, Relay};
use crate::times::{self, Times};

/// How the ranks protect what they say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guard {
    Nothing,
    Checksum,
    Key,
}

/// What became of two ranks.
struct Story {
    ends: [Result<()>; 2],
    /// How long the slower one took from the fault on.
    took: Option<Duration>,
    counts: [[usize; 2]; CONNECTIONS],
}

/// Two ranks meet and play over a relay.
fn play(guard: Guard, len: usize, fault: Option<Fault>, portion: usize) -> Story {
    let relay = Relay::start(fault, portion);
    let home = Arc::new(LocalStore::new(Limits::default()));
    let rank = |rank: usize| {
        let store = Store::new(Detour { home: Arc::clone(&home), relay: Arc::clone(&relay), is_led: rank == 1 });
        let end = take_part(rank, store, guard, len);
        (end, Instant::now())
    };
    let ends: [_; 2] = thread::scope(|scope| {
        let rank = &rank;
        [0, 1].map(|number| scope.spawn(move || rank(number))).map(|rank| rank.join().expect("no panic"))
    });
    relay.end();
    let last = ends.iter().map(|(_, when)| *when).max().expect("two");
    let took = relay.fired().map(|fired| last.saturating_duration_since(fired));
    Story { ends: ends.map(|(end, _)| end), took, counts: relay.counts() }
}

fn take_part(rank: usize, store: Store, guard: Guard, len: usize) -> Result<()> {
    let network = Network::new(rank, 2, store).shared_memory(false).checksum(guard == Guard::Checksum);
    let network = network.options(GroupOptions::default().timeout(PATIENCE));
    let network = match guard {
        Guard::Key => network.key(JobKey::from_hex(&"07".repeat(32)).expect("a key")).protection(Protection::Encrypted),
        _ => network,
    };
    let group = network.address([127, 0, 0, 1].into()).join(PATIENCE)?;
    let mut sums: Vec<u32> = (0..len as u32).map(|at| at + rank as u32).collect();
    let end = group.all_reduce(&mut sums, ReduceOp::Sum).and_then(|()| group.barrier());
    if end.is_ok() {
        assert!(sums.iter().zip(0..).all(|(sum, at): (_, u32)| *sum == 2 * at + 1), "a wrong answer");
    }
    // What has failed on one side alone is known to the other before it leaves.
    end
}

/// That the ranks ended well or with an error, and soon after the fault.
fn check(story: &Story, fault: Fault) -> Option<Duration> {
    for end in &story.ends {
        assert!(!matches!(end, Err(Error::Usage(_) | Error::Timeout(_))), "{fault:?}: {end:?}");
    }
    if let Some(took) = story.took {
        assert!(took < LATE, "{fault:?}: took {took:?}: {:?}", story.ends);
    }
    story.took
}

/// Every byte of every connection in both directions, or every so many, from one that changes.
fn everywhere(counts: [[usize; 2]; CONNECTIONS], stride: usize, harm: impl Fn() -> Harm) -> Vec<Fault> {
    let mut faults = vec![];
    for (connection, ways) in counts.into_iter().enumerate() {
        for (back, len) in [false, true].into_iter().zip(ways) {
            let start = fastrand::usize(..stride);
            faults.extend((start..len).step_by(stride).map(|at| Fault { connection, back, at, harm: harm() }));
        }
    }
    faults
}

fn healthy(guard: Guard, len: usize, portion: usize) -> [[usize; 2]; CONNECTIONS] {
    let story = play(guard, len, None, portion);
    assert_eq!(story.ends, [Ok(()), Ok(())]);
    assert!(story.counts.as_flattened().iter().all(|count| *count > 0), "the ranks did not meet by the relay");
    story.counts
}

/// Row 20: with a checksum or a key no flipped bit of a payload goes unseen.
#[test]
fn flipped_bits_never_make_a_wrong_answer() {
    for guard in [Guard::Checksum, Guard::Key] {
        let counts = healthy(guard, 1000, WHOLE);
        for _ in 0..times::runs(50) {
            let back = fastrand::bool();
            let at = fastrand::usize(..counts[0][usize::from(back)]);
            let fault = Fault { connection: 0, back, at, harm: Harm::Flip(fastrand::u8(..8)) };
            let story = play(guard, 1000, Some(fault), WHOLE);
            check(&story, fault);
            assert!(story.ends.iter().any(Result::is_err), "{fault:?} was not seen");
        }
    }
}

/// Row 21.
#[test]
fn bytes_that_come_one_at_a_time_make_no_difference() {
    for guard in [Guard::Nothing, Guard::Checksum, Guard::Key] {
        healthy(guard, 100, 1);
    }
}

/// Row 21.
#[test]
fn a_connection_cut_at_any_byte_is_an_error_on_both_sides() {
    harmed_everywhere(Guard::Nothing, 7, Harm::Cut, "a connection is cut");
}

/// Row 22.
#[test]
fn a_connection_reset_at_any_byte_is_an_error_on_both_sides() {
    harmed_everywhere(Guard::Nothing, 7, Harm::Reset, "a connection is reset");
}

/// Row 22, through the handshake of a key.
#[test]
fn an_encrypted_connection_reset_at_any_byte_is_an_error_on_both_sides() {
    harmed_everywhere(Guard::Key, 23, Harm::Reset, "an encrypted connection is reset");
}

/// Every `stride`th byte, and every byte where more is asked for than a quick look.
fn harmed_everywhere(guard: Guard, stride: usize, harm: Harm, named: &'static str) {
    let stride = if times::runs(0) > 0 { 1 } else { stride };
    let mut times = Times::of(named, "TCP");
    for fault in everywhere(healthy(guard, 10, WHOLE), stride, || harm) {
        let story = play(guard, 10, Some(fault), WHOLE);
        times.add(check(&story, fault));
    }
    times.hold(Duration::from_millis(350), LATE);
}

const PATIENCE: Duration = Duration::from_secs(20);
const WHOLE: usize = 4 << 10;
