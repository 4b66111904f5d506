//! How far the reader of shared memory is from its writer, found out while they work.
//!
//! Cores of one cluster hand each other lines many times faster than those of different clusters or sockets do, where a way through the
//! memory is shorter. Which it is depends on the machine, on where the two run, and under a virtual machine on what its host just does. So
//! it is measured between the two, over and over: the writer fills two rooms, one for either distance, and the reader reads
//! both; each says how long it took.
//!
//! # Why a room stays
//!
//! The writer fills the rooms only when its last question is answered, and stores the next one with release when they are full. The reader reads them
//! once it has loaded a question with acquire, and answers with release when it is through; the writer loads the answer with acquire. So
//! the rooms are never touched by both.
//!
//! An answer is another process's input, and so is a question. Whatever they say, bytes are copied one way or the other.

use std::hint::black_box;
use std::ops::RangeInclusive;
use std::time::Instant;

use crate::region::{LINE, Region};
use crate::sync::Ordering;

/// How far whoever reads memory is from whoever writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Distance {
    /// Lines are handed over from cache to cache.
    Near,
    /// That takes longer than through the memory: what is written goes past the caches.
    Far,
}

/// The writer's side.
pub(crate) struct Gauge {
    start: usize,
    reach: Reach,
    /// Whether the last measurement spoke against that.
    is_doubted: bool,
    /// How many questions were asked. The first of two brings the lines to where they are in steady use; the second counts.
    asked: u64,
    /// What filling the rooms took, while a question is open.
    open: Option<Times>,
    /// How many bytes are copied before the next measurement, and before the one after.
    until_next: usize,
    pause: usize,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// Nothing gains on the way past the caches.
    Near,
    /// What is so long that the way past the caches is no detour, and so short that it does not pass through a shared cache anyway.
    Middle,
    /// All that is not quite short.
    Far,
}

/// The reader's side.
pub(crate) struct Echo {
    start: usize,
    answered: u64,
}

/// What something took in nanoseconds, with lines handed over and past the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    near: u64,
    far: u64,
}

impl Gauge {
    /// How many bytes of a region it takes.
    pub(crate) const BYTE_LEN: usize = ROOMS + 2 * ROOM;

    pub(crate) fn new(start: usize) -> Gauge {
        Gauge { start, reach: Reach::Near, is_doubted: false, asked: 0, open: None, until_next: 0, pause: FIRST_PAUSE }
    }

    /// How far so many bytes go.
    #[inline]
    pub(crate) fn distance(&self, byte_len: usize) -> Distance {
        match self.reach {
            Reach::Far if byte_len >= WORTH => Distance::Far,
            Reach::Middle if MIDDLE.contains(&byte_len) => Distance::Far,
            _ => Distance::Near,
        }
    }

    /// Whether nothing gains on the way past the caches.
    #[inline]
    pub(crate) fn is_near(&self) -> bool {
        self.reach == Reach::Near
    }

    /// Takes note that so many bytes were copied, and measures from time to time.
    #[inline]
    pub(crate) fn passed(&mut self, byte_len: usize, region: &Region) {
        if byte_len < WORTH {
        } else if byte_len < self.until_next {
            self.until_next -= byte_len;
        } else {
            self.measure(region);
        }
    }

    /// As if that had been found.
    #[cfg(test)]
    pub(crate) fn find(&mut self, reach: Reach) {
        self.reach = reach;
    }

    #[cold]
    fn measure(&mut self, region: &Region) {
        self.until_next = 0;
        if let Some(filling) = self.open {
            let answer = region.word(self.start + ANSWER).load(Ordering::Acquire);
            let Some(reading) = Times::unpack(answer, self.asked) else { return };
            self.open = None;
            if self.asked.is_multiple_of(2) {
                self.judge(Times { near: filling.near + reading.near, far: filling.far + reading.far });
                self.until_next = self.pause;
                return;
            }
        }
        self.asked += 1;
        let fill = |room: usize, distance| {
            // SAFETY: the reader has answered the last question, so it reads no room before the next, and nobody else has them.
            timed(|| unsafe { region.write(self.start + room, &[0; ROOM], distance) })
        };
        let took = Times { near: fill(NEAR, Distance::Near), far: fill(FAR, Distance::Far) };
        self.open = Some(took);
        region.word(self.start + ASKED).store(self.asked, Ordering::Release);
    }

    /// Changes what was found when two measurements in a row speak against it: one may have been interrupted.
    fn judge(&mut self, took: Times) {
        let ratio = took.near as f64 / took.far.max(1) as f64;
        let [middle, far] = [Reach::Middle, Reach::Far].map(|reach| if self.reach < reach { ENTER } else { LEAVE });
        let found = match ratio {
            _ if ratio > far[1] => Reach::Far,
            _ if ratio > middle[0] => Reach::Middle,
            _ => Reach::Near,
        };
        if found == self.reach {
            (self.is_doubted, self.pause) = (false, (2 * self.pause).min(LONGEST_PAUSE));
        } else if self.is_doubted {
            (self.reach, self.is_doubted) = (found, false);
        } else {
            (self.is_doubted, self.pause) = (true, FIRST_PAUSE);
        }
    }
}

impl Echo {
    pub(crate) fn new(start: usize) -> Echo {
        Echo { start, answered: 0 }
    }

    /// Answers what is asked, if anything is.
    #[inline]
    pub(crate) fn answer(&mut self, region: &Region) {
        let asked = region.word(self.start + ASKED).load(Ordering::Acquire);
        if asked != self.answered {
            self.reply(asked, region);
        }
    }

    #[cold]
    fn reply(&mut self, asked: u64, region: &Region) {
        let mut bytes = [0; ROOM / 4];
        let mut read = |room: usize| {
            timed(|| {
                for at in (room..room + ROOM).step_by(bytes.len()) {
                    // SAFETY: the writer has asked, so it fills no room before it is answered, and nobody else has them.
                    unsafe { region.read(self.start + at, black_box(&mut bytes)) }
                }
            })
        };
        let took = Times { near: read(NEAR), far: read(FAR) };
        self.answered = asked;
        region.word(self.start + ANSWER).store(took.pack(asked), Ordering::Release);
    }
}

impl Times {
    /// The answer to a question, as a word.
    fn pack(self, asked: u64) -> u64 {
        asked << (2 * TIME_BITS) | self.near.min(MOST_TIME) << TIME_BITS | self.far.min(MOST_TIME)
    }

    /// What an answer says, if it is one to this question.
    fn unpack(answer: u64, asked: u64) -> Option<Times> {
        let is_ours = answer >> (2 * TIME_BITS) == asked << (2 * TIME_BITS) >> (2 * TIME_BITS);
        is_ours.then_some(Times { near: answer >> TIME_BITS & MOST_TIME, far: answer & MOST_TIME })
    }
}

fn timed(work: impl FnOnce()) -> u64 {
    let began = Instant::now();
    work();
    began.elapsed().as_nanos().min(u128::from(MOST_TIME)) as u64
}

/// The fewest bytes that are worth to be copied otherwise than from cache to cache. By measurement: see docs/performance.md.
pub(crate) const WORTH: usize = 2 << 10;
/// What gains where the distance is neither short nor long. By measurement: see docs/performance.md.
const MIDDLE: RangeInclusive<usize> = 16 << 10..=64 << 10;
/// How many times as long as the way past the caches the other must take for the middle and the long distance to be found, and to
/// be left.
const ENTER: [f64; 2] = [1.25, 3.0];
const LEAVE: [f64; 2] = [1.0, 2.0];
/// Bytes between the first measurements. Twice as many come between the next as long as nothing changes, up to the longest pause, whose
/// copies take so long that what is measured costs a hundredth of them at most.
const FIRST_PAUSE: usize = 64 << 10;
const LONGEST_PAUSE: usize = 64 << 20;

// The question, the answer, and the two rooms.
const ASKED: usize = 0;
const ANSWER: usize = LINE;
const ROOMS: usize = 2 * LINE;
const NEAR: usize = ROOMS;
const FAR: usize = ROOMS + ROOM;
/// Enough that the distance tells, and little enough to be read at once.
const ROOM: usize = 32 << 10;

const TIME_BITS: u32 = 24;
const MOST_TIME: u64 = (1 << TIME_BITS) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_answered_once_and_the_next_one_waits_for_that() {
        let (mut gauge, mut echo, region) = both();
        let word = |at| region.word(at).load(Ordering::Relaxed);
        echo.answer(&region);
        assert_eq!(word(ANSWER), 0, "nothing was asked");
        gauge.passed(WORTH - 1, &region);
        assert_eq!(word(ASKED), 0, "little passed");
        gauge.passed(WORTH, &region);
        gauge.passed(WORTH, &region);
        assert_eq!(word(ASKED), 1, "without an answer no more is asked");
        echo.answer(&region);
        assert_eq!(word(ANSWER) >> (2 * TIME_BITS), 1);
        gauge.passed(WORTH, &region);
        assert_eq!(word(ASKED), 2);
        echo.answer(&region);
        gauge.passed(WORTH, &region);
        assert!(gauge.open.is_none() && gauge.until_next >= FIRST_PAUSE, "judged");
        gauge.passed(gauge.until_next - 1, &region);
        assert_eq!(word(ASKED), 2, "not yet");
        gauge.passed(WORTH, &region);
        assert_eq!(word(ASKED), 3);
    }

    #[test]
    fn what_was_found_changes_when_two_measurements_in_a_row_say_so() {
        let (mut gauge, ..) = both();
        let times = |near, far| Times { near, far };
        let mut after = |near, far| {
            gauge.judge(times(near, far));
            gauge.reach
        };
        assert_eq!([after(125, 100), after(1000, 100)], [Reach::Near; 2], "once");
        assert_eq!([after(100, 100), after(126, 100)], [Reach::Near; 2], "not in a row");
        assert_eq!([after(126, 100), after(101, 100), after(300, 100)], [Reach::Middle; 3]);
        assert_eq!(
            [after(301, 100), after(301, 100), after(201, 100), after(0, 100)],
            [Reach::Middle, Reach::Far, Reach::Far, Reach::Far]
        );
        assert_eq!([after(200, 100), after(99, 100), after(99, 100)], [Reach::Middle, Reach::Middle, Reach::Near]);
    }

    #[test]
    fn how_far_it_is_depends_on_the_length() {
        let (mut gauge, ..) = both();
        let mut far = |reach| {
            gauge.find(reach);
            let lengths = [0, WORTH - 1, WORTH, 16 << 10, 64 << 10, 128 << 10];
            lengths.map(|byte_len| gauge.distance(byte_len) == Distance::Far)
        };
        assert_eq!(far(Reach::Near), [false; 6]);
        assert_eq!(far(Reach::Middle), [false, false, false, true, true, false]);
        assert_eq!(far(Reach::Far), [false, false, true, true, true, true]);
    }

    #[test]
    fn pauses_grow_while_nothing_changes() {
        let (mut gauge, ..) = both();
        let mut pause_after = |near, far| {
            gauge.judge(Times { near, far });
            gauge.pause
        };
        assert_eq!([pause_after(1, 1), pause_after(1, 1)], [2 * FIRST_PAUSE, 4 * FIRST_PAUSE]);
        assert_eq!(pause_after(9, 1), FIRST_PAUSE);
        assert_eq!((0..60).map(|_| pause_after(1, 1)).last(), Some(LONGEST_PAUSE));
    }

    #[test]
    fn an_answer_to_something_else_is_none() {
        let times = Times { near: 7, far: u64::MAX };
        let asked = u64::MAX / 3;
        assert_eq!(Times::unpack(times.pack(asked), asked), Some(Times { near: 7, far: MOST_TIME }));
        assert_eq!(Times::unpack(times.pack(asked), asked + 1), None);
        assert_eq!(Times::unpack(0, 1), None);
    }

    fn both() -> (Gauge, Echo, Region) {
        let region = Region::shared_on_heap(Gauge::BYTE_LEN, 1).expect("memory").remove(0);
        (Gauge::new(0), Echo::new(0), region)
    }
}
