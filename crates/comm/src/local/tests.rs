//! A process that writes nonsense into the segment while the ranks work: they may fail, and may get wrong bytes from it,
//! but neither panic nor hang.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use phalanx_core::{Group, GroupOptions, Layout, ReduceOp};
use phalanx_mem::Segment;

use super::*;
use crate::equipment::{Equipment, Sight, Style};
use crate::lasting::Rejoin;

#[test]
fn nonsense_in_the_segment_neither_breaks_nor_hangs_a_rank() {
    for seed in 0..SEEDS {
        let mut random = fastrand::Rng::with_seed(seed);
        let map = SegmentMap::new(SIZE, 0, 0, 8192).expect("a size");
        let segment = create(&map).expect("memfd");
        let groups: Vec<Group> = (0..SIZE).map(|rank| group(&segment, &map, rank, seed % 2 == 0)).collect();
        // Words far more often than payload: those are what a rank could believe.
        let words = map.board;
        let (began, done) = (Instant::now(), AtomicUsize::new(0));
        thread::scope(|scope| {
            for group in groups {
                let done = &done;
                scope.spawn(move || {
                    until_it_fails(&group, ROUNDS);
                    done.fetch_add(1, Ordering::Relaxed);
                });
            }
            while done.load(Ordering::Relaxed) < SIZE {
                let end = if random.u8(..) < 200 { words } else { map.byte_len };
                let offset = random.usize(64..end);
                let value = [random.u64(..), 0, 1, u64::MAX][random.usize(..4)].to_le_bytes();
                segment.copy_in(offset / 8 * 8, &value).expect("inside");
                thread::yield_now();
            }
        });
        assert!(began.elapsed() < TIMEOUT * 2 + LATE, "seed {seed}");
    }
}

fn group(segment: &Segment, map: &SegmentMap, rank: usize, with_windows: bool) -> Group {
    let view = Segment::open(segment.fd().try_clone_to_owned().expect("free")).expect("sealed");
    let Joined { links, windows, post, bell, fate, departures: _, reach: _, heap } =
        join(view, map, rank, with_windows).expect("free");
    let options = GroupOptions::default().timeout(TIMEOUT);
    let style = Style { options, windows: with_windows, ..Style::default() };
    let windows = Sight::of_all(windows);
    let equipment = Equipment { links, windows, post, bell, fate, presence: None, heap };
    style.group(Layout::one_host(rank, SIZE).expect("a rank"), equipment, Once)
}

/// Ranks that do not come together again.
struct Once;

impl Rejoin for Once {
    fn rejoin(&self, _: u32, _: Instant) -> phalanx_core::Result<Equipment> {
        Err(phalanx_core::Error::setup("a test", "has one round"))
    }
}

fn until_it_fails(group: &Group, rounds: usize) {
    let (next, before) = ((group.rank() + 1) % SIZE, (group.rank() + SIZE - 1) % SIZE);
    for round in 0..rounds {
        let ended = match round % 4 {
            0 => group.all_reduce(&mut [1_u32; 10], ReduceOp::Sum),
            1 => group.broadcast(&mut [1_u8; 3000], round % SIZE),
            2 => group.send(&[1_u64; 20], next, 0).and_then(|()| group.recv(&mut [0_u64; 20], before, 0).map(drop)),
            _ => group.barrier(),
        };
        if ended.is_err() {
            return;
        }
    }
}

const SIZE: usize = 3;
const SEEDS: u64 = 16;
const ROUNDS: usize = 200;
const TIMEOUT: Duration = Duration::from_millis(500);
/// What a busy machine may add.
const LATE: Duration = Duration::from_secs(5);
