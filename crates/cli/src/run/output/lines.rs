//! Bytes cut into lines, each with its rank before it, so that no two ranks share a line.

/// The lines of one stream.
#[derive(Debug)]
pub(super) struct Lines {
    prefix: String,
    partial: Vec<u8>,
}

impl Lines {
    pub(super) fn new(prefix: String) -> Lines {
        Lines { prefix, partial: Vec::new() }
    }

    /// Adds the lines that `bytes` completes to `out`, as they are, behind the prefix; the rest waits for its end.
    pub(super) fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.partial.extend_from_slice(part);
            if part.ends_with(b"\n") {
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
        }
    }

    fn emit(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.prefix.as_bytes());
        out.extend_from_slice(&self.partial);
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
        let text = b"one\n\ntwo\xff\0\nthree";
        let expected = b"[7] one\n[7] \n[7] two\xff\0\n[7] three\n";
        assert_eq!(all(&[text]), expected);
        for cut in 0..text.len() {
            assert_eq!(all(&[&text[..cut], &text[cut..]]), expected);
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(all(&bytes), expected);
        assert_eq!(all(&[]), b"");
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
