//! A failure as words of fixed number, so that ranks of other processes report the same one. Texts are cut to a bound;
//! what is read back is another process's input, and either a failure or nothing.

use std::time::Duration;

use phalanx_core::{
    Aborted, Chain, Desync, Error, Fingerprint, Last, OpKind, Peer, PeerReason, Stuck, Timeout, Waiting,
};

/// The words of a failure.
pub(crate) const WORDS: usize = 96;

/// A failure as words. What no group fails of is told as the end of the group, with its message.
pub(crate) fn encode(error: &Error) -> [u64; WORDS] {
    let mut pen = Pen(Vec::with_capacity(BYTE_LEN));
    pen.error(error);
    pen.0.resize(BYTE_LEN, 0);
    let (words, _) = pen.0.as_chunks();
    std::array::from_fn(|at| u64::from_le_bytes(words[at]))
}

/// The failure in these words, if that is what they are.
pub(crate) fn decode(words: &[u64; WORDS]) -> Option<Error> {
    let bytes = words.map(u64::to_le_bytes);
    Eye(bytes.as_flattened()).error()
}

/// The end of the name of a place in a program, short enough to travel with a failure.
pub(crate) fn short(site: &str) -> String {
    let start = (site.len().saturating_sub(SITE)..=site.len()).find(|&start| site.is_char_boundary(start));
    site[start.unwrap_or_default()..].to_owned()
}

struct Pen(Vec<u8>);

impl Pen {
    fn error(&mut self, error: &Error) -> &mut Pen {
        match error {
            Error::Peer(peer) => self.peer(peer),
            Error::Desync(desync) => self.desync(desync),
            Error::Timeout(timeout) => self.timeout(timeout),
            Error::Setup(setup) => self.kind(SETUP).text(&setup.what, SHORT).text(&setup.why, LONG),
            Error::Aborted(aborted) => match aborted.cause.as_deref() {
                Some(cause) if !matches!(cause, Error::Aborted(_)) => self.kind(ABORTED_BY).error(cause),
                _ => self.kind(ABORTED).text(&aborted.why, LONG),
            },
            other => self.kind(ABORTED).text(&other.to_string(), LONG),
        }
    }

    fn peer(&mut self, peer: &Peer) -> &mut Pen {
        let reason = match peer.reason {
            PeerReason::Left => LEFT,
            PeerReason::Corrupt => CORRUPT,
            PeerReason::Unresponsive => UNRESPONSIVE,
            _ => DEAD,
        };
        self.kind(PEER).byte(reason).number(peer.rank as u64).text(&peer.detail, LONG);
        let runs = runs(&peer.others);
        let runs = &runs[..runs.len().min(RUNS)];
        self.byte(runs.len() as u8);
        runs.iter().flatten().for_each(|number| self.0.extend(number.to_le_bytes()));
        self
    }

    fn desync(&mut self, desync: &Desync) -> &mut Pen {
        let field = Fingerprint::FIELDS.iter().position(|field| *field == desync.field).unwrap_or(0);
        self.kind(DESYNC).number(desync.sequence.into()).number(desync.rank as u64).number(desync.peer as u64);
        self.byte(field as u8).byte(desync.moved.into()).text(&desync.ours, SHORT).text(&desync.theirs, SHORT)
    }

    fn timeout(&mut self, timeout: &Timeout) -> &mut Pen {
        let after = u64::try_from(timeout.after.as_nanos()).unwrap_or(u64::MAX);
        let stuck = &timeout.stuck[..timeout.stuck.len().min(STUCK)];
        self.kind(TIMEOUT).byte(timeout.op as u8).number(timeout.sequence.into()).number(after).byte(stuck.len() as u8);
        stuck.iter().for_each(|stuck| self.stuck(stuck));
        let last = stuck.iter().find_map(|stuck| match &stuck.on {
            Waiting::Coming { last } => last.as_ref(),
            _ => None,
        });
        self.text(last.map_or("", |last| &last.site), SITE);
        match &timeout.chain {
            Chain::Through(words) => self.byte(THROUGH).text(words, CHAIN),
            Chain::Beyond { path, ranks } => {
                let ranks = &ranks[..ranks.len().min(STUCK)];
                self.byte(BEYOND).text(path, CHAIN).byte(ranks.len() as u8);
                ranks.iter().for_each(|rank| self.0.extend((*rank as u32).to_le_bytes()));
                self
            }
            Chain::Circle(words) => self.byte(CIRCLE).text(words, CHAIN),
            _ => self.byte(DIRECT),
        }
    }

    fn stuck(&mut self, Stuck { peer, on }: &Stuck) {
        let (kind, last) = match on {
            Waiting::Giving => (GIVING, None),
            Waiting::Arriving => (ARRIVING, None),
            Waiting::Unknown => (UNKNOWN, None),
            Waiting::Working => (WORKING, None),
            Waiting::Coming { last: None } => (COMING, None),
            Waiting::Coming { last } => (COMING_AFTER, last.as_ref()),
            _ => (TAKING, None),
        };
        self.byte(kind).0.extend((*peer as u32).to_le_bytes());
        if let Some(last) = last {
            self.byte(last.op as u8).0.extend(last.sequence.to_le_bytes());
        }
    }

    fn kind(&mut self, kind: u8) -> &mut Pen {
        self.byte(kind)
    }

    fn byte(&mut self, byte: u8) -> &mut Pen {
        self.0.push(byte);
        self
    }

    fn number(&mut self, number: u64) -> &mut Pen {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn text(&mut self, text: &str, limit: usize) -> &mut Pen {
        let end = (0..=limit).rev().find(|&end| text.is_char_boundary(end)).unwrap_or_default();
        let text = if text.len() > limit { &text[..end] } else { text };
        self.0.extend((text.len() as u16).to_le_bytes());
        self.0.extend(text.as_bytes());
        self
    }
}

/// Reads from the front of what is left.
struct Eye<'a>(&'a [u8]);

impl Eye<'_> {
    fn error(&mut self) -> Option<Error> {
        match self.byte()? {
            ABORTED_BY => {
                let cause = self.failure()?;
                Some(Error::aborted_by(cause))
            }
            kind => self.failure_of(kind),
        }
    }

    fn failure(&mut self) -> Option<Error> {
        let kind = self.byte()?;
        self.failure_of(kind)
    }

    fn failure_of(&mut self, kind: u8) -> Option<Error> {
        match kind {
            PEER => self.peer(),
            DESYNC => self.desync(),
            TIMEOUT => self.timeout(),
            SETUP => Some(Error::setup(self.text()?, self.text()?)),
            ABORTED => Some(Error::Aborted(Box::new(Aborted { why: self.text()?, cause: None }))),
            _ => None,
        }
    }

    fn peer(&mut self) -> Option<Error> {
        let reason = match self.byte()? {
            DEAD => PeerReason::Dead,
            LEFT => PeerReason::Left,
            CORRUPT => PeerReason::Corrupt,
            UNRESPONSIVE => PeerReason::Unresponsive,
            _ => return None,
        };
        let (rank, detail) = (self.rank()?, self.text()?);
        let count = usize::from(self.byte()?);
        let runs: Option<Vec<[u32; 2]>> = (0..count.min(RUNS)).map(|_| Some([self.short()?, self.short()?])).collect();
        let others = runs?.into_iter().flat_map(|[first, len]| (first..=u32::MAX).take(len as usize)).take(MOST);
        let peer = Peer { rank, others: vec![], reason, detail };
        Some(peer.and(others.map(|rank| rank as usize)).into())
    }

    fn desync(&mut self) -> Option<Error> {
        let sequence = u32::try_from(self.number()?).ok()?;
        let (rank, peer) = (self.rank()?, self.rank()?);
        let field = Fingerprint::FIELDS.get(usize::from(self.byte()?))?;
        let moved = self.byte()? != 0;
        let (ours, theirs) = (self.text()?, self.text()?);
        Some(Error::Desync(Box::new(Desync { sequence, rank, peer, field, ours, theirs, moved, site: None })))
    }

    fn timeout(&mut self) -> Option<Error> {
        let op = OpKind::from_wire(self.byte()?)?;
        let sequence = u32::try_from(self.number()?).ok()?;
        let after = Duration::from_nanos(self.number()?);
        let count = usize::from(self.byte()?);
        let stuck: Option<Vec<Stuck>> = (0..count.min(STUCK)).map(|_| self.stuck()).collect();
        let (mut stuck, site) = (stuck?, self.text()?);
        let last = stuck.iter_mut().find_map(|stuck| match &mut stuck.on {
            Waiting::Coming { last } => last.as_mut(),
            _ => None,
        });
        last.into_iter().for_each(|last| last.site.clone_from(&site));
        let chain = match self.byte()? {
            DIRECT => Chain::Direct,
            THROUGH => Chain::Through(self.text()?),
            BEYOND => {
                let (path, count) = (self.text()?, usize::from(self.byte()?));
                let ranks: Option<Vec<usize>> = (0..count.min(STUCK)).map(|_| Some(self.short()? as usize)).collect();
                Chain::Beyond { path, ranks: ranks? }
            }
            CIRCLE => Chain::Circle(self.text()?),
            _ => return None,
        };
        Some(Error::Timeout(Box::new(Timeout { op, sequence, after, stuck, chain })))
    }

    fn stuck(&mut self) -> Option<Stuck> {
        let (kind, peer) = (self.byte()?, self.short()? as usize);
        let on = match kind {
            TAKING => Waiting::Taking,
            GIVING => Waiting::Giving,
            ARRIVING => Waiting::Arriving,
            UNKNOWN => Waiting::Unknown,
            WORKING => Waiting::Working,
            COMING => Waiting::Coming { last: None },
            COMING_AFTER => {
                let (op, sequence) = (OpKind::from_wire(self.byte()?)?, self.short()?);
                Waiting::Coming { last: Some(Last { op, sequence, site: String::new() }) }
            }
            _ => return None,
        };
        Some(Stuck { peer, on })
    }

    fn rank(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }

    fn short(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }

    fn text(&mut self) -> Option<String> {
        let len = usize::from(u16::from_le_bytes(self.take()?));
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }
}

/// These ranks, which are in order, as the first and the length of each run.
fn runs(ranks: &[usize]) -> Vec<[u32; 2]> {
    let mut runs: Vec<[u32; 2]> = vec![];
    for rank in ranks.iter().map(|&rank| rank as u32) {
        match runs.last_mut() {
            Some([first, len]) if first.checked_add(*len) == Some(rank) => *len += 1,
            _ => runs.push([rank, 1]),
        }
    }
    runs
}

// Numbers on the wire of a segment, whose version counts them in. 0 is nothing.
const PEER: u8 = 1;
const DESYNC: u8 = 2;
const TIMEOUT: u8 = 3;
const SETUP: u8 = 4;
const ABORTED: u8 = 5;
const ABORTED_BY: u8 = 6;

const DEAD: u8 = 1;
const LEFT: u8 = 2;
const CORRUPT: u8 = 3;
const UNRESPONSIVE: u8 = 4;

const TAKING: u8 = 0;
const GIVING: u8 = 1;
const COMING: u8 = 2;
const COMING_AFTER: u8 = 3;
const ARRIVING: u8 = 4;
const UNKNOWN: u8 = 5;
const WORKING: u8 = 6;

const DIRECT: u8 = 0;
const THROUGH: u8 = 1;
const BEYOND: u8 = 2;
const CIRCLE: u8 = 3;

const BYTE_LEN: usize = WORDS * size_of::<u64>();
/// The longest texts. With them and the most transfers, the longest failure still fits.
const LONG: usize = 512;
const SHORT: usize = 128;
const STUCK: usize = 40;
const CHAIN: usize = 232;
/// The longest name of a place in a program.
const SITE: usize = 96;
/// The most runs of ranks that a failure names besides the first rank, and the most ranks in them.
const RUNS: usize = 28;
const MOST: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn several(reason: PeerReason, others: Vec<usize>) -> Error {
        Error::from(Peer { rank: 1, others, reason, detail: "x".repeat(LONG) })
    }

    fn samples() -> Vec<Error> {
        let stuck = (0..STUCK).map(|peer| Stuck { peer, on: Waiting::Giving }).collect();
        let (op, after) = (OpKind::AllReduce, Duration::from_millis(400));
        let last = |peer| Last { op, sequence: 6, site: if peer == 1 { "s".repeat(SITE) } else { String::new() } };
        let coming = |peer| Stuck { peer, on: Waiting::Coming { last: (peer > 0).then(|| last(peer)) } };
        let missing = (0..STUCK).map(coming).collect();
        let arriving = Stuck { peer: 3, on: Waiting::Arriving };
        let desync = |field| {
            let (ours, theirs) = ("x".repeat(SHORT), "2".to_owned());
            Error::Desync(Box::new(Desync {
                sequence: u32::MAX,
                rank: 3,
                peer: 1,
                field,
                ours,
                theirs,
                moved: true,
                site: None,
            }))
        };
        let mut samples: Vec<Error> = Fingerprint::FIELDS.iter().map(|field| desync(field)).collect();
        samples.extend([
            Error::peer(5, PeerReason::Dead, "its process ended"),
            Error::peer(0, PeerReason::Left, "é".repeat(LONG / 2)),
            several(PeerReason::Dead, [2, 3, 7].to_vec()),
            several(PeerReason::Unresponsive, (0..RUNS).map(|at| 2 * at + 2).collect()),
            several(PeerReason::Unresponsive, (2..600).collect()),
            Error::peer(0, PeerReason::Corrupt, ""),
            Error::peer(1, PeerReason::Unresponsive, "silent for 3s"),
            Error::Timeout(Box::new(Timeout { op, sequence: 7, after, stuck, chain: Chain::Direct })),
            Error::Timeout(Box::new(Timeout {
                op,
                sequence: 7,
                after,
                stuck: missing,
                chain: Chain::Circle("x".repeat(CHAIN)),
            })),
            Error::Timeout(Box::new(Timeout {
                op,
                sequence: 7,
                after,
                stuck: vec![],
                chain: Chain::Beyond { path: "x".repeat(CHAIN), ranks: (0..STUCK).collect() },
            })),
            Error::Timeout(Box::new(Timeout {
                op,
                sequence: 7,
                after,
                stuck: vec![arriving, Stuck::unknown(4), Stuck { peer: 2, on: Waiting::Working }],
                chain: Chain::Through("é".to_owned()),
            })),
            Error::setup("w".repeat(SHORT), "y".repeat(LONG)),
            Error::aborted("rank 0: the operator said so"),
            Error::aborted_by(Error::peer(5, PeerReason::Dead, "gone")),
        ]);
        samples
    }

    #[test]
    fn what_groups_fail_of_comes_back_whole() {
        for error in samples() {
            assert_eq!(decode(&encode(&error)), Some(error));
        }
    }

    #[test]
    fn the_rest_is_told_by_its_message_and_texts_are_cut_between_letters() {
        let usage = Error::usage(OpKind::Barrier, "root", 7, "must be something");
        assert_eq!(decode(&encode(&usage)), Some(Error::aborted("barrier: root is 7, must be something")));
        let long = Error::peer(1, PeerReason::Dead, format!("x{}", "é".repeat(LONG)));
        assert_eq!(
            (short("src/a.rs:7:9"), short(&"é".repeat(SITE))),
            ("src/a.rs:7:9".to_owned(), "é".repeat(SITE / 2))
        );
        let Some(Error::Peer(peer)) = decode(&encode(&long)) else { panic!("a peer") };
        assert_eq!(peer.detail, format!("x{}", "é".repeat(LONG / 2 - 1)));
    }

    #[test]
    fn any_words_at_all_are_survived() {
        let mut random = fastrand::Rng::with_seed(3);
        for error in samples() {
            for _ in 0..2000 {
                let mut words = encode(&error);
                words[random.usize(..12)] ^= 1 << random.u32(..64);
                if random.bool() {
                    words[random.usize(..WORDS)] = random.u64(..);
                }
                if let Some(error) = decode(&words) {
                    assert!(!error.to_string().is_empty());
                }
            }
        }
        assert_eq!(decode(&[0; WORDS]), None);
        assert_eq!(decode(&[u64::MAX; WORDS]), None);
    }
}
