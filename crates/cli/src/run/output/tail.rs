//! The last lines of a rank's standard error, and the first panic among them all. Of a line that was written over, what was
//! written last.

use std::collections::VecDeque;

/// What is kept of a rank's standard error for the verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Remains {
    /// The last lines, without their ends.
    pub(crate) tail: Vec<String>,
    /// The first panic that was printed: later ones mostly follow from it.
    pub(crate) panic: Option<Panic>,
}

/// Where a panic was, and what it said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Panic {
    pub(crate) place: String,
    pub(crate) message: String,
}

/// The end of a stream, as it goes by.
#[derive(Debug, Default)]
pub(super) struct Tail {
    partial: Vec<u8>,
    lines: VecDeque<Vec<u8>>,
    byte_len: usize,
    panic: Option<Panic>,
    /// Whether what comes next is written over the line so far, unless it is the line's end.
    is_returned: bool,
    /// Whether the next line is the message of the panic.
    is_message_next: bool,
}

impl Tail {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let text = part.strip_suffix(b"\n").or_else(|| part.strip_suffix(b"\r")).unwrap_or(part);
            if self.is_returned && !text.is_empty() {
                self.partial.clear();
            }
            let room = MOST_BYTES.saturating_sub(self.partial.len());
            self.partial.extend_from_slice(&text[..text.len().min(room)]);
            self.is_returned = part.ends_with(b"\r");
            if part.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    pub(super) fn finish(mut self) -> Remains {
        if !self.partial.is_empty() {
            self.end_line();
        }
        let text = |line: &Vec<u8>| String::from_utf8_lossy(line).into_owned();
        Remains { tail: self.lines.iter().map(text).collect(), panic: self.panic }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.partial);
        self.look_for_panic(&line);
        self.byte_len += line.len();
        self.lines.push_back(line);
        while self.lines.len() > MOST_LINES || self.byte_len > MOST_BYTES {
            self.byte_len -= self.lines.pop_front().map_or(0, |line| line.len());
        }
    }

    fn look_for_panic(&mut self, line: &[u8]) {
        if self.is_message_next {
            self.is_message_next = false;
            if let Some(panic) = &mut self.panic {
                panic.message = String::from_utf8_lossy(line).into_owned();
            }
        } else if self.panic.is_none()
            && let Some((_, place)) = String::from_utf8_lossy(line).split_once(" panicked at ")
        {
            let place = place.trim_end_matches(':').to_owned();
            self.panic = Some(Panic { place, message: String::new() });
            self.is_message_next = true;
        }
    }
}

const MOST_LINES: usize = 20;
const MOST_BYTES: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn remains(text: &str) -> Remains {
        let mut tail = Tail::default();
        text.as_bytes().chunks(7).for_each(|chunk| tail.push(chunk));
        tail.finish()
    }

    #[test]
    fn the_last_lines_are_kept() {
        let text: String = (0..100).map(|line| format!("line {line}\n")).collect();
        let expected: Vec<String> = (80..100).map(|line| format!("line {line}")).collect();
        assert_eq!(remains(&text).tail, expected);
        assert_eq!(remains("only\r\nhalf").tail, ["only", "half"]);
        assert_eq!(remains(""), Remains::default());
    }

    #[test]
    fn of_a_progress_bar_the_last_is_kept() {
        let bar: String = (0..10_000).map(|done| format!("\r{done} of 9999")).collect();
        assert_eq!(remains(&bar).tail, ["9999 of 9999"]);
        assert_eq!(remains(&format!("{bar}\nend")).tail, ["9999 of 9999", "end"]);
        assert_eq!(remains("1\r22\r\r\n3\r").tail, ["22", "3"]);
    }

    #[test]
    fn no_line_is_longer_than_what_is_kept_of_all() {
        let long = "x".repeat(3 * MOST_BYTES);
        assert_eq!(remains(&long).tail, ["x".repeat(MOST_BYTES)]);
        let lines = format!("{}\n", "y".repeat(3000)).repeat(10);
        assert_eq!(remains(&lines).tail.len(), 2);
    }

    #[test]
    fn the_first_panic_is_kept_however_much_follows() {
        let trace = "   0: frame\n".repeat(50);
        let text = format!(
            "thread 'x' (12) panicked at src/a.rs:3:5:\nthe cause\n{trace}thread 'main' panicked at src/b.rs:1:1:\nlater\n"
        );
        let panic = remains(&text).panic.unwrap();
        assert_eq!((panic.place.as_str(), panic.message.as_str()), ("src/a.rs:3:5", "the cause"));
        assert_eq!(remains("it panicked").panic, None);
    }
}
