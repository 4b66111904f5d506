//! In which way shared memory is best written for whoever reads it, found out while they work.
//!
//! Cores of one cluster hand each other lines many times faster than those of different clusters or sockets do, where a way through the
//! memory is shorter, and some processors copy faster by an instruction of their own. Which it is depends on the machine, on where the two
//! run, and under a virtual machine on what its host just does. So it is measured between the two, over and over: the writer fills two
//! rooms, one line by line and one in another way, each of these in turn, and the reader reads both; each says how long it took.
//!
//! That is done twice, and the second time counts, because only then the rooms are where memory is in steady use: in the reader's own
//! cache, where the same few places are written over and over. What is written in turn has left that for one that both share, as the rooms have once
//! enough has passed between the two times.
//!
//! There only what the reader says tells how far it is. It has a line sooner from a core of its own cluster than from memory, and later from
//! any other core. To fill a room whose lines are in no cache of the writer's own takes three times as long line by line as past the caches,
//! wherever the reader is; but what is in steady use is written sooner, and a way past the caches within a cluster takes twice as long in the end.
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

/// How memory is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Line by line, which are handed over from cache to cache.
    Lines,
    /// By the processor's instruction for copies.
    Whole,
    /// Past the caches, where all else takes longer than through the memory.
    Past,
}

/// The writer's side.
pub(crate) struct Gauge {
    start: usize,
    past: Found<Reach>,
    whole: Found<bool>,
    /// How many times as long as each of them it last took line by line.
    gains: Gains,
    /// What the reader takes for what went past the caches. One time is twice as long as another, and all are of the same memory.
    from_memory: Option<f64>,
    /// How many questions were asked. The second of two counts.
    asked: u64,
    /// What filling the rooms took, while a question is open.
    open: Option<Times>,
    /// How many bytes are copied before the next question, and before the next measurement.
    until_next: usize,
    pause: usize,
    /// Whether memory is written in turn, more of it than a core's own cache holds.
    in_turn: bool,
}

/// What was found of a way, which changes when two measurements in a row speak against it: one may have been interrupted.
struct Found<T> {
    now: T,
    is_doubted: bool,
}

#[derive(Clone, Copy, Default)]
struct Gains {
    past: f64,
    whole: f64,
}

/// What was found of the way past the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// Nothing gains on the way past the caches.
    Near,
    /// What is so long that the way past the caches is no detour, and so short that it does not pass through a shared cache anyway.
    Middle,
    /// All that is not quite short. What is in turn is near or far.
    Far,
}

/// The reader's side.
pub(crate) struct Echo {
    start: usize,
    answered: u64,
}

/// What something took in nanoseconds, line by line and in the other way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    lines: u64,
    other: u64,
}

impl Gauge {
    /// How many bytes of a region it takes.
    pub(crate) const BYTE_LEN: usize = ROOMS + 2 * ROOM;
    /// More bytes than a core's own cache holds.
    pub(crate) const TURN: usize = 2 << 20;

    pub(crate) fn new(start: usize) -> Gauge {
        let (past, whole) = (Found::of(Reach::Near), Found::of(false));
        Gauge {
            start,
            past,
            whole,
            gains: Gains::default(),
            from_memory: None,
            asked: 0,
            open: None,
            until_next: 0,
            pause: FIRST_PAUSE,
            in_turn: false,
        }
    }

    /// One for memory that is written in turn, more of it than a core's own cache holds.
    pub(crate) fn in_turn(start: usize) -> Gauge {
        Gauge { in_turn: true, ..Gauge::new(start) }
    }

    /// In which way so many bytes are written.
    #[inline]
    pub(crate) fn way(&self, byte_len: usize) -> Way {
        let is_past = match self.past.now {
            Reach::Far => byte_len >= WORTH,
            Reach::Middle => MIDDLE.contains(&byte_len),
            Reach::Near => false,
        };
        match (is_past, self.whole.now && byte_len >= WORTH_WHOLE) {
            (true, true) if self.gains.past > self.gains.whole => Way::Past,
            (_, true) => Way::Whole,
            (true, false) => Way::Past,
            (false, false) => Way::Lines,
        }
    }

    /// Whether nothing gains on the way past the caches.
    #[inline]
    pub(crate) fn is_near(&self) -> bool {
        self.past.now == Reach::Near
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
        self.past.now = reach;
    }

    #[cold]
    fn measure(&mut self, region: &Region) {
        self.until_next = 0;
        if let Some(filling) = self.open {
            let answer = region.word(self.start + ANSWER).load(Ordering::Acquire);
            let Some(reading) = Times::unpack(answer, self.asked) else { return };
            self.open = None;
            if self.asked.is_multiple_of(2) {
                self.judge(filling, reading);
                self.until_next = self.pause;
                return;
            }
            if self.in_turn {
                self.until_next = Gauge::TURN;
                return;
            }
        }
        self.asked += 1;
        let fill = |room: usize, way| {
            // SAFETY: the reader has answered the last question, so it reads no room before the next, and nobody else has them.
            timed(|| unsafe { region.write(self.start + room, &[0; ROOM], way) })
        };
        let took = Times { lines: fill(LINES, Way::Lines), other: fill(OTHER, rival(self.asked)) };
        self.open = Some(took);
        region.word(self.start + ASKED).store(self.asked, Ordering::Release);
    }

    fn judge(&mut self, filling: Times, reading: Times) {
        let took = Times { lines: filling.lines + reading.lines, other: filling.other + reading.other };
        let gain = took.lines as f64 / took.other.max(1) as f64;
        let is_confirmed = match rival(self.asked) {
            Way::Whole => {
                self.gains.whole = gain;
                self.whole.judge(gain > if self.whole.now { LEAVE[0] } else { ENTER_WHOLE })
            }
            _ => {
                self.gains.past = gain;
                let now = self.past.now;
                let found = if self.in_turn { now.next_in_turn(self.delay(reading)) } else { now.next(gain) };
                self.past.judge(found)
            }
        };
        match is_confirmed {
            Some(true) => self.pause = (2 * self.pause).min(LONGEST_PAUSE),
            Some(false) => self.pause = FIRST_PAUSE,
            None => {}
        }
    }

    /// How many times as long as memory the lines took to be read.
    fn delay(&mut self, reading: Times) -> f64 {
        let read = reading.other.max(1) as f64;
        // One that was interrupted counts for little.
        let smoothed = |last: f64| last + (read.min(2.0 * last) - last) / SMOOTHING;
        let from_memory = self.from_memory.map_or(read, smoothed);
        self.from_memory = Some(from_memory);
        reading.lines as f64 / from_memory
    }
}

impl<T: PartialEq> Found<T> {
    fn of(now: T) -> Found<T> {
        Found { now, is_doubted: false }
    }

    /// Whether this confirms what was found, or speaks against it; neither where it changes that.
    fn judge(&mut self, found: T) -> Option<bool> {
        if found == self.now {
            self.is_doubted = false;
            return Some(true);
        }
        if self.is_doubted {
            *self = Found::of(found);
            return None;
        }
        self.is_doubted = true;
        Some(false)
    }
}

impl Reach {
    /// What is found where the way past the caches gains so much, and this was found before.
    fn next(self, gain: f64) -> Reach {
        let [middle, far] = [Reach::Middle, Reach::Far].map(|reach| if self < reach { ENTER } else { LEAVE });
        match gain {
            _ if gain > far[1] => Reach::Far,
            _ if gain > middle[0] => Reach::Middle,
            _ => Reach::Near,
        }
    }

    /// The same of what is written in turn, where lines take so many times as long to be read as memory.
    fn next_in_turn(self, delay: f64) -> Reach {
        let [enter, leave] = IN_TURN;
        if delay > if self == Reach::Far { leave } else { enter } { Reach::Far } else { Reach::Near }
    }
}

/// Which way the question with this number compares. Two questions in a row compare the same.
fn rival(asked: u64) -> Way {
    if asked.div_ceil(2).is_multiple_of(2) { Way::Whole } else { Way::Past }
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
                    let room = unsafe { region.lend(self.start + at..self.start + at + bytes.len()) };
                    black_box(&mut bytes).copy_from_slice(room);
                }
            })
        };
        let took = Times { lines: read(LINES), other: read(OTHER) };
        self.answered = asked;
        region.word(self.start + ANSWER).store(took.pack(asked), Ordering::Release);
    }
}

impl Times {
    /// The answer to a question, as a word.
    fn pack(self, asked: u64) -> u64 {
        asked << (2 * TIME_BITS) | self.lines.min(MOST_TIME) << TIME_BITS | self.other.min(MOST_TIME)
    }

    /// What an answer says, if it is one to this question.
    fn unpack(answer: u64, asked: u64) -> Option<Times> {
        let is_ours = answer >> (2 * TIME_BITS) == asked << (2 * TIME_BITS) >> (2 * TIME_BITS);
        is_ours.then_some(Times { lines: answer >> TIME_BITS & MOST_TIME, other: answer & MOST_TIME })
    }
}

fn timed(work: impl FnOnce()) -> u64 {
    let began = Instant::now();
    work();
    began.elapsed().as_nanos().min(u128::from(MOST_TIME)) as u64
}

/// The fewest bytes that are worth to be copied otherwise than from cache to cache. By measurement: see docs/tuning.md.
pub(crate) const WORTH: usize = 2 << 10;
/// The fewest that are worth the start of the processor's instruction.
pub(crate) const WORTH_WHOLE: usize = 8 << 10;
/// What gains where the distance is neither short nor long. By measurement: see docs/tuning.md.
const MIDDLE: RangeInclusive<usize> = 16 << 10..=64 << 10;
/// How many times as long as the way past the caches the other must take for the middle and the long distance to be found, and to
/// be left.
const ENTER: [f64; 2] = [1.25, 3.0];
const LEAVE: [f64; 2] = [1.0, 2.0];
/// How many times as long as memory lines in turn must take to be read for the long distance to be found, and to be left. By measurement:
/// see docs/tuning.md.
const IN_TURN: [f64; 2] = [1.2, 1.0];
/// How many readings of memory are one in the end.
const SMOOTHING: f64 = 4.0;
/// The same for the processor's own instruction, which has nothing to lose but what is mistaken for a gain.
const ENTER_WHOLE: f64 = 1.1;
/// Bytes between the first measurements. Twice as many come between the next as long as nothing changes, up to the longest pause, whose
/// copies take so long that what is measured costs a hundredth of them at most.
const FIRST_PAUSE: usize = 64 << 10;
const LONGEST_PAUSE: usize = 64 << 20;

// The question, the answer, and the two rooms.
const ASKED: usize = 0;
const ANSWER: usize = LINE;
const ROOMS: usize = 2 * LINE;
const LINES: usize = ROOMS;
const OTHER: usize = ROOMS + ROOM;
/// Enough that the distance tells, and little enough to be read at once.
const ROOM: usize = 32 << 10;

const TIME_BITS: u32 = 24;
const MOST_TIME: u64 = (1 << TIME_BITS) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    /// Filling took no time, so that what reading took is all.
    const FILLED: Times = Times { lines: 0, other: 0 };

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
    fn in_turn_as_much_passes_between_the_two_questions_of_a_measurement_as_the_cores_hold() {
        let (_, mut echo, region) = both();
        let mut gauge = Gauge::in_turn(0);
        let asked = || region.word(ASKED).load(Ordering::Relaxed);
        gauge.passed(WORTH, &region);
        echo.answer(&region);
        gauge.passed(WORTH, &region);
        gauge.passed(Gauge::TURN - 1, &region);
        assert_eq!(asked(), 1);
        gauge.passed(WORTH, &region);
        echo.answer(&region);
        gauge.passed(WORTH, &region);
        assert!(asked() == 2 && gauge.until_next >= FIRST_PAUSE, "judged");
    }

    #[test]
    fn in_turn_the_reader_alone_tells_how_far_it_is() {
        let mut gauge = Gauge::in_turn(0);
        gauge.asked = 2;
        let mut after = |lines| {
            gauge.judge(Times { lines: 900, other: 100 }, Times { lines, other: 100 });
            gauge.past.now
        };
        assert_eq!([after(70), after(120), after(120)], [Reach::Near; 3]);
        assert_eq!([after(121), after(121), after(101), after(101)], [Reach::Near, Reach::Far, Reach::Far, Reach::Far]);
        assert_eq!([after(100), after(101), after(100), after(100)], [Reach::Far, Reach::Far, Reach::Far, Reach::Near]);
        assert_eq!(gauge.gains.past, 1000.0 / 200.0, "what the processor's own way is compared with");
    }

    #[test]
    fn one_reading_of_memory_that_was_interrupted_counts_for_little() {
        let mut gauge = Gauge::in_turn(0);
        let mut after = |other| gauge.delay(Times { lines: 1000, other });
        assert_eq!([after(1000), after(1000), after(70_000)], [1.0, 1.0, 0.8]);
        assert!((0..100).map(|_| after(500)).last().is_some_and(|delay| (1.99..2.01).contains(&delay)));
    }

    #[test]
    fn what_was_found_changes_when_two_measurements_in_a_row_say_so() {
        let (mut gauge, ..) = both();
        gauge.asked = 2;
        let mut after = |lines, other| {
            gauge.judge(FILLED, Times { lines, other });
            gauge.past.now
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
            lengths.map(|byte_len| gauge.way(byte_len) == Way::Past)
        };
        assert_eq!(far(Reach::Near), [false; 6]);
        assert_eq!(far(Reach::Middle), [false, false, false, true, true, false]);
        assert_eq!(far(Reach::Far), [false, false, true, true, true, true]);
    }

    #[test]
    fn the_processors_own_way_is_taken_where_it_gains_and_the_one_past_the_caches_does_not_gain_more() {
        let (mut gauge, ..) = both();
        let mut after = |asked, lines| {
            gauge.asked = asked;
            (0..2).for_each(|_| gauge.judge(FILLED, Times { lines, other: 100 }));
            [WORTH_WHOLE - 1, WORTH_WHOLE, 32 << 10, 1 << 20].map(|byte_len| gauge.way(byte_len))
        };
        assert_eq!(
            [1, 2, 3, 4, 5, 6, 7, 8].map(|asked| rival(asked) == Way::Whole),
            [false, false, true, true, false, false, true, true]
        );
        let (lines, whole, past) = (Way::Lines, Way::Whole, Way::Past);
        assert_eq!(after(4, 109), [lines; 4]);
        assert_eq!(after(4, 130), [lines, whole, whole, whole]);
        assert_eq!(after(2, 129), [lines, whole, whole, whole], "the other gains more");
        assert_eq!(after(2, 150), [lines, whole, past, whole], "only in the middle");
        assert_eq!(after(2, 400), [past; 4]);
        assert_eq!(after(4, 500), [past, whole, whole, whole]);
        assert_eq!(after(2, 100), [lines, whole, whole, whole]);
        assert_eq!(after(4, 99), [lines; 4]);
    }

    #[test]
    fn pauses_grow_while_nothing_changes() {
        let (mut gauge, ..) = both();
        gauge.asked = 2;
        let mut pause_after = |lines, other| {
            gauge.judge(FILLED, Times { lines, other });
            gauge.pause
        };
        assert_eq!([pause_after(1, 1), pause_after(1, 1)], [2 * FIRST_PAUSE, 4 * FIRST_PAUSE]);
        assert_eq!(pause_after(9, 1), FIRST_PAUSE);
        assert_eq!((0..60).map(|_| pause_after(1, 1)).last(), Some(LONGEST_PAUSE));
    }

    #[test]
    fn an_answer_to_something_else_is_none() {
        let times = Times { lines: 7, other: u64::MAX };
        let asked = u64::MAX / 3;
        assert_eq!(Times::unpack(times.pack(asked), asked), Some(Times { lines: 7, other: MOST_TIME }));
        assert_eq!(Times::unpack(times.pack(asked), asked + 1), None);
        assert_eq!(Times::unpack(0, 1), None);
    }

    fn both() -> (Gauge, Echo, Region) {
        let region = Region::shared_on_heap(Gauge::BYTE_LEN, 1).expect("memory").remove(0);
        (Gauge::new(0), Echo::new(0), region)
    }
}
