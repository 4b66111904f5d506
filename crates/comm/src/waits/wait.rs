//! What a rank says of a long wait, in a few words. What is read back is another process's input, and either a wait or nothing.

/// The words of a wait. Zeros are none.
pub(crate) const WORDS: usize = 5;

/// One rank's wait for others, which are numbers of the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    /// How many collectives it had begun where this is read: once it has begun more, it waits no longer.
    pub(super) begun: u32,
    pub(super) peers: Vec<usize>,
    /// Whether these are not all, and not all are needed: what one of several threads waits for may be there, or any one of many whom a message
    /// may come from, where all that is told is a circle.
    pub(super) is_cut: bool,
    /// The group in which it waits, the beginning of its name.
    pub(super) group: String,
}

impl Wait {
    pub(super) fn encode(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        let peers = self.peers.iter().filter_map(|&peer| u16::try_from(peer).ok()).filter(|peer| *peer != NOBODY);
        let peers: Vec<u16> = peers.chain([NOBODY; PEERS]).take(PEERS).collect();
        words[0] = IS_WAITING | if self.is_cut { IS_CUT } else { 0 } | u64::from(self.begun);
        words[1] = peers.iter().rev().fold(0, |packed, &peer| packed << 16 | u64::from(peer));
        let name = shortened(&self.group).as_bytes().chunks(size_of::<u64>());
        for (word, bytes) in words[2..].iter_mut().zip(name) {
            let mut whole = [0; size_of::<u64>()];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(whole);
        }
        words
    }

    pub(super) fn decode(words: &[u64; WORDS]) -> Option<Wait> {
        if words[0] & IS_WAITING == 0 {
            return None;
        }
        let peers = (0..PEERS).map(|at| (words[1] >> (16 * at)) as u16);
        let peers = peers.filter(|peer| *peer != NOBODY).map(usize::from).collect();
        let name: Vec<u8> =
            words[2..].iter().flat_map(|word| word.to_le_bytes()).take_while(|byte| *byte != 0).collect();
        let group = String::from_utf8(name).ok()?.chars().filter(|letter| !letter.is_control()).collect();
        Some(Wait { begun: words[0] as u32, peers, is_cut: words[0] & IS_CUT != 0, group })
    }
}

/// The beginning of a group's name, which is told of it.
pub(super) fn shortened(name: &str) -> &str {
    let end = (0..=NAME.min(name.len())).rev().find(|&end| name.is_char_boundary(end));
    &name[..end.unwrap_or_default()]
}

const IS_WAITING: u64 = 1 << 63;
const IS_CUT: u64 = 1 << 62;
/// As many ranks as are named; who waits for more mostly waits for one of them.
pub(super) const PEERS: usize = 4;
const NOBODY: u16 = u16::MAX;
const NAME: usize = (WORDS - 2) * size_of::<u64>();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_hold_a_wait() {
        let wait = Wait { begun: 7, peers: vec![3, 0, 65534], is_cut: false, group: "pipeline/2".to_owned() };
        assert_eq!(Wait::decode(&wait.encode()), Some(wait.clone()));
        let told = Wait { is_cut: true, ..wait.clone() };
        assert_eq!(Wait::decode(&told.encode()), Some(told));
        assert_eq!(Wait::decode(&[0; WORDS]), None);
        let long = Wait { group: format!("{}é", "x".repeat(NAME - 1)), peers: (0..9).collect(), ..wait };
        let cut = Wait { group: "x".repeat(NAME - 1), peers: vec![0, 1, 2, 3], ..long.clone() };
        assert_eq!(Wait::decode(&long.encode()), Some(cut));
    }

    #[test]
    fn any_words_are_a_wait_or_nothing() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..10_000 {
            let words = std::array::from_fn(|_| random.u64(..));
            if let Some(wait) = Wait::decode(&words) {
                assert!(wait.peers.len() <= PEERS && wait.group.len() <= NAME);
            }
        }
    }
}
