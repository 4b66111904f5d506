//! Room in memory that another core reads: how bytes are best copied there, by how far it is.

use crate::expect::expect_writes;
use crate::stream::{finish, stream_all};

/// How far whoever reads memory is from whoever writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Distance {
    /// Lines are handed over from cache to cache.
    Near,
    /// That takes longer than through the memory: what is written goes past the caches.
    Far,
}

/// Room that is filled from the front. Dropping it orders what was put there before whatever is written after.
pub struct Room<'a> {
    left: &'a mut [u8],
    distance: Distance,
}

impl<'a> Room<'a> {
    /// All of these bytes.
    pub fn new(bytes: &'a mut [u8], distance: Distance) -> Room<'a> {
        Room { left: bytes, distance }
    }

    /// Copies a block to the front of what is left, and has the processor fetch the lines of as long a one behind it meanwhile.
    ///
    /// # Panics
    ///
    /// When less is left.
    #[inline(always)]
    pub fn put(&mut self, block: &[u8]) {
        let (here, later) = std::mem::take(&mut self.left).split_at_mut(block.len());
        match self.distance {
            Distance::Far => stream_all(here, block),
            Distance::Near => {
                here.copy_from_slice(block);
                let next = later.len().min(block.len());
                expect_writes(&mut later[..next]);
            }
        }
        self.left = later;
    }

    /// Copies all of this to the front of what is left.
    ///
    /// # Panics
    ///
    /// When less is left.
    #[inline]
    pub fn put_all(&mut self, bytes: &[u8]) {
        match self.distance {
            Distance::Far => self.put(bytes),
            Distance::Near => {
                let first = bytes.len().min(BLOCK);
                expect_writes(&mut self.left[..first]);
                bytes.chunks(BLOCK).for_each(|block| self.put(block));
            }
        }
    }
}

impl Drop for Room<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.distance == Distance::Far {
            finish();
        }
    }
}

/// Bytes of a block: enough that the next one's lines come while it is copied, and few enough that these do not get in the way.
const BLOCK: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_lies_one_after_the_other_at_any_distance() {
        let bytes: Vec<u8> = (0..5000).map(|at| (at % 251) as u8).collect();
        for distance in [Distance::Near, Distance::Far] {
            for (start, end) in [(0, 0), (1, 40), (3, 1100), (64, 5000)] {
                let mut memory = vec![0xEE; 5001];
                let mut room = Room::new(&mut memory[start..end], distance);
                let (first, second) = bytes[start..end].split_at((end - start) / 3);
                first.chunks(300).for_each(|block| room.put(block));
                room.put_all(second);
                drop(room);
                assert_eq!(memory[start..end], bytes[start..end], "{distance:?} {start}..{end}");
                assert!(memory[..start].iter().chain(&memory[end..]).all(|byte| *byte == 0xEE));
            }
        }
    }
}
