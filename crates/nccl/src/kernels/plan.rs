//! Tables for [`carry`](super::carry): what lies where, worked out once and kept on the device. Bytes of tables have the order of
//! the machine, which is that of its devices.

use std::ops::Range;

use crate::api::Grid;

/// Elements that lie together in both places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Where they are: bytes from the start of the source.
    pub from: usize,
    /// Where they go: bytes from the start of the target.
    pub to: usize,
    /// How many.
    pub len: usize,
    /// Elements of the target after them that become zero.
    pub zeros: usize,
}

/// Stretches as a kernel reads them: divided into tiles, each of which one block of threads carries.
#[derive(Clone, Debug)]
pub struct Plan {
    bytes: Vec<u8>,
    /// The first tile of each stretch, and one past the last tile of all.
    firsts: Vec<u64>,
}

impl Plan {
    /// The table of these stretches.
    pub fn new(stretches: &[Stretch]) -> Plan {
        let (mut bytes, mut firsts, mut tiles) = (Vec::new(), vec![0], Vec::new());
        for (index, stretch) in stretches.iter().enumerate() {
            let Stretch { from, to, len, zeros } = *stretch;
            let first = tiles.len();
            [from, to, len, zeros, first].iter().for_each(|word| bytes.extend((*word as u64).to_ne_bytes()));
            tiles.resize(first + (len + zeros).div_ceil(TILE), index as u32);
            firsts.push(tiles.len() as u64);
        }
        tiles.iter().for_each(|index| bytes.extend(index.to_ne_bytes()));
        Plan { bytes, firsts }
    }

    /// What is to lie in memory of the device.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many stretches there are.
    pub fn stretches(&self) -> usize {
        self.firsts.len() - 1
    }

    /// The tiles of some of them. Those beyond the last have none.
    pub fn tiles(&self, stretches: Range<usize>) -> Range<u64> {
        let first = |index: usize| self.firsts[index.min(self.stretches())];
        first(stretches.start)..first(stretches.end)
    }

    /// How many threads carry so many tiles on a device of so many multiprocessors.
    pub fn grid(tiles: u64, multiprocessors: i32) -> Grid {
        let most = u64::try_from(multiprocessors).unwrap_or(1).max(1) * BLOCKS;
        Grid { blocks: u32::try_from(tiles.min(most)).unwrap_or(1), threads: THREADS }
    }
}

/// One stretch and the elements of it that a tile has, as the table says.
pub(super) fn tile(table: &[u8], stretches: usize, tile: u64) -> Option<(Stretch, Range<usize>)> {
    let word = |at: usize| Some(u64::from_ne_bytes(table.get(at..at + 8)?.try_into().ok()?));
    let at = stretches.checked_mul(WORDS * 8)?.checked_add(usize::try_from(tile).ok()?.checked_mul(4)?)?;
    let index = u32::from_ne_bytes(table.get(at..at + 4)?.try_into().ok()?) as usize;
    let field = |field: usize| usize::try_from(word((index * WORDS + field) * 8)?).ok();
    let stretch = Stretch { from: field(0)?, to: field(1)?, len: field(2)?, zeros: field(3)? };
    let start = (usize::try_from(tile).ok()?.checked_sub(field(4)?)?).checked_mul(TILE)?;
    Some((stretch, start..(start + TILE).min(stretch.len + stretch.zeros)))
}

/// Elements of a tile: as many as keep four loads of 16 bytes a thread under way.
pub(super) const TILE: usize = 8192;
/// Words of a stretch in a table.
const WORDS: usize = 5;
/// Threads of a block.
const THREADS: u32 = 256;
/// Blocks for each multiprocessor: as many as are there at once.
const BLOCKS: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_every_element_once() {
        let lens = [0, 1, TILE - 1, TILE, TILE + 1, 0, 3 * TILE + 5];
        let stretches = lens.map(|len| Stretch { from: len, to: 2 * len, len, zeros: len % 3 });
        let plan = Plan::new(&stretches);
        for (index, stretch) in stretches.iter().enumerate() {
            let mut at = 0;
            for number in plan.tiles(index..index + 1) {
                let (found, elements) = tile(plan.bytes(), plan.stretches(), number).expect("a tile");
                assert_eq!((found, elements.start), (*stretch, at));
                assert!(!elements.is_empty());
                at = elements.end;
            }
            assert_eq!(at, stretch.len + stretch.zeros);
        }
        assert_eq!(plan.tiles(0..99), 0..plan.tiles(6..7).end);
        assert!(tile(plan.bytes(), plan.stretches(), plan.tiles(0..99).end).is_none());
    }
}
