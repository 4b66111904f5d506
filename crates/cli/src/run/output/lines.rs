//! Bytes cut into lines, each with its rank before it, so that no two ranks share a line. What a progress bar shows, which
//! writes over itself from one carriage return to the next, is cut there as well, and seen before its line ends.

/// The lines of one stream.
#[derive(Debug)]
pub(super) struct Lines {
    prefix: String,
    partial: Vec<u8>,
    /// Whether what came last ended in a carriage return: a line feed that comes next belongs to it.
    is_returned: bool,
}

impl Lines {
    pub(super) fn new(prefix: String) -> Lines {
        Lines { prefix, partial: Vec::new(), is_returned: false }
    }

    /// Adds the lines that `bytes` completes to `out`, as they are, behind the prefix; the rest waits for its end.
    pub(super) fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for part in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            if self.is_returned && self.partial.is_empty() && part == b"\n" {
                self.end_late(out);
                continue;
            }
            self.partial.extend_from_slice(part);
            if part.ends_with(b"\n") || part.ends_with(b"\r") {
                self.emit(out);
            } else if self.partial.len() >= LONGEST {
                self.finish(out);
            }
        }
    }

    /// Adds what is left over, and ends its line.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.partial.is_empty() {
            self.partial.push(b'\n');
            self.emit(out);
        } else if self.is_returned {
            self.end_late(out);
        }
    }

    /// Ends the line of what was shown already.
    fn end_late(&mut self, out: &mut Vec<u8>) {
        out.push(b'\n');
        self.is_returned = false;
    }

    fn emit(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.prefix.as_bytes());
        out.extend_from_slice(&self.partial);
        self.is_returned = self.partial.ends_with(b"\r");
        self.partial.clear();
        self.partial.shrink_to(KEPT);
    }
}

/// A line that is longer is broken: what waits for its end is bounded.
const LONGEST: usize = 1 << 20;

/// Room that stays between lines.
const KEPT: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pieces: &[&[u8]]) -> Vec<u8> {
        let (mut lines, mut out) = (Lines::new("[7] ".to_owned()), Vec::new());
        pieces.iter().for_each(|piece| lines.push(piece, &mut out));
        lines.finish(&mut out);
        out
    }

    #[test]
    fn lines_are_whole_however_they_come() {
        is_however_cut(b"one\n\ntwo\xff\0\nthree", b"[7] one\n[7] \n[7] two\xff\0\n[7] three\n");
        is_however_cut(b"one\r\n\r\ntwo\r\n", b"[7] one\r\n[7] \r\n[7] two\r\n");
        assert_eq!(all(&[]), b"");
    }

    #[test]
    fn a_progress_bar_is_seen_before_its_line_ends() {
        let mut lines = Lines::new("[7] ".to_owned());
        let mut shown = |bytes: &[u8]| {
            let mut out = Vec::new();
            lines.push(bytes, &mut out);
            out
        };
        assert_eq!(shown(b"\r 0%"), b"[7] \r");
        assert_eq!(shown(b"\r50%\r100%"), b"[7]  0%\r[7] 50%\r");
        assert_eq!(shown(b"\n"), b"[7] 100%\n");
        assert_eq!(shown(b"1\r"), b"[7] 1\r");
        is_however_cut(b"1\r2\r\n3\r", b"[7] 1\r[7] 2\r\n[7] 3\r\n");
    }

    fn is_however_cut(text: &[u8], expected: &[u8]) {
        for cut in 0..text.len() {
            assert_eq!(all(&[&text[..cut], &text[cut..]]), expected);
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(all(&bytes), expected);
    }

    #[test]
    fn a_line_without_end_is_broken_rather_than_kept() {
        let mut lines = Lines::new(String::new());
        let mut out = Vec::new();
        (0..LONGEST / 1024 + 1).for_each(|_| lines.push(&[b'x'; 1024], &mut out));
        assert_eq!(out.len(), LONGEST + 1);
        assert_eq!(lines.partial.len(), 1024);
    }
}
