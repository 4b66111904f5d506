//! Numbers and strings one after another, as cards and outcomes are written. What is read is another process's input.

/// The unread rest of some bytes. Every method is `None` where the bytes do not hold what is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    /// A number that indexes something here.
    pub(crate) fn index(&mut self) -> Option<usize> {
        self.u32()?.try_into().ok()
    }

    /// Bytes after their length.
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.index()?;
        self.take(len)
    }

    /// Text after its length.
    pub(crate) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }
}

/// Writes a number as [`Reader::index`] reads it. Ranks, sizes and lengths here are far below 2^32.
pub(crate) fn put_index(out: &mut Vec<u8>, index: usize) {
    out.extend(u32::try_from(index).unwrap_or(u32::MAX).to_le_bytes());
}

/// Writes bytes as [`Reader::bytes`] reads them.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_index(out, bytes.len());
    out.extend(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_beyond() {
        let mut out = vec![7];
        put_index(&mut out, 300);
        put_bytes(&mut out, "text".as_bytes());
        let mut reader = Reader::new(&out);
        assert_eq!((reader.u8(), reader.index(), reader.text()), (Some(7), Some(300), Some("text")));
        assert!(reader.is_empty());
        assert_eq!(reader.u8(), None);
    }

    #[test]
    fn a_length_beyond_the_bytes_is_refused() {
        assert_eq!(Reader::new(&[255, 255, 255, 255, 1]).bytes(), None);
        assert_eq!(Reader::new(&[1, 0, 0, 0, 0xff]).text(), None);
        assert_eq!(Reader::new(&[1, 2, 3]).u32(), None);
    }
}
