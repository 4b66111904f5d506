//! What a rank says of itself on the store: where it listens, and what it expects of the others.

use std::net::{IpAddr, SocketAddr};

use phalanx_core::schedule::Algorithm;

use crate::rendezvous::bytes::{Reader, put_bytes};
use crate::rendezvous::card::{address, put_address};
use crate::rendezvous::share_network;
use crate::secure::Cipher;

/// A rank's word about itself. It is believed: who may come is the store's key to decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    /// Random bytes; those of rank 0 are the group's.
    pub(crate) token: [u8; 16],
    /// By which cipher its processor protects data best.
    pub(crate) cipher: Cipher,
    /// What all ranks must have set alike.
    pub(crate) manner: Manner,
    /// Which host the rank is on: by its network it is reached, by its processes it shares memory.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) addresses: Vec<IpAddr>,
}

/// Settings that must be the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manner {
    pub(crate) epoch: u32,
    pub(crate) checksum: bool,
    /// Whether ranks of one host share memory where they can.
    pub(crate) shared_memory: bool,
    /// Whether they read each other's windows there.
    pub(crate) windows: bool,
    /// The algorithm to use wherever it can play the operation.
    pub(crate) algorithm: Option<Algorithm>,
    /// By which limits algorithms are chosen, as a hash.
    pub(crate) profile: u64,
    /// How connections are protected, by its number.
    pub(crate) protection: u8,
}

impl Card {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Manner { checksum, shared_memory, windows, algorithm, protection, .. } = self.manner;
        let flags = u8::from(checksum) | u8::from(shared_memory) << 1 | u8::from(windows) << 2;
        let algorithm = algorithm.map_or(0, |algorithm| 1 + algorithm as u8);
        let mut out = vec![VERSION, flags, algorithm, protection, self.cipher as u8];
        out.extend(self.manner.epoch.to_le_bytes());
        out.extend(self.manner.profile.to_le_bytes());
        out.extend(self.token);
        put_bytes(&mut out, self.host.as_bytes());
        out.extend(u32::from(self.port).to_le_bytes());
        self.addresses.iter().for_each(|address| put_address(&mut out, *address));
        out
    }

    /// The card in `bytes`; `None` where they are none, or one of another version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Card> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != VERSION {
            return None;
        }
        let flags = Some(reader.u8()?).filter(|flags| *flags < 8)?;
        let (checksum, shared_memory, windows) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
        let algorithm = match usize::from(reader.u8()?).checked_sub(1) {
            Some(at) => Some(*Algorithm::ALL.get(at)?),
            None => None,
        };
        let (protection, cipher) = (reader.u8()?, Cipher::of_number(reader.u8()?)?);
        let (epoch, profile) = (reader.u32()?, reader.u64()?);
        let token = reader.take(16)?.try_into().ok()?;
        let host = Some(reader.text()?).filter(|host| host.len() <= MAX_HOST)?.to_owned();
        let port = u16::try_from(reader.u32()?).ok()?;
        let mut addresses = vec![];
        while !reader.is_empty() {
            addresses.push(address(&mut reader)?);
        }
        let manner = Manner { epoch, checksum, shared_memory, windows, algorithm, profile, protection };
        (addresses.len() <= MAX_ADDRESSES).then_some(Card { token, cipher, manner, host, port, addresses })
    }

    /// Where to try to reach this rank, the likeliest first, for a rank on `host` with addresses `ours`.
    pub(crate) fn places(&self, host: &str, ours: &[IpAddr]) -> Vec<SocketAddr> {
        let one_loopback = share_network(host, &self.host);
        let mut addresses = self.addresses.clone();
        addresses.retain(|address| one_loopback || !address.is_loopback());
        addresses.sort_by_key(|address| {
            (!address.is_loopback(), -(ours.iter().map(|ours| shared(ours, address)).max().unwrap_or(0) as i64))
        });
        addresses.into_iter().map(|address| SocketAddr::new(address, self.port)).collect()
    }
}

/// How many leading bits two addresses of one family have in common, and one more.
fn shared(a: &IpAddr, b: &IpAddr) -> u32 {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => 1 + (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => 1 + (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => 0,
    }
}

const VERSION: u8 = 6;
const MAX_HOST: usize = 256;
const MAX_ADDRESSES: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    fn card() -> Card {
        let addresses = ["127.0.0.1", "10.1.2.3", "192.168.0.9", "fd00::7"].map(|text| text.parse().unwrap()).to_vec();
        let algorithm = Some(Algorithm::Chain);
        let (checksum, shared_memory, windows) = (true, true, true);
        let manner = Manner { epoch: 9, checksum, shared_memory, windows, algorithm, profile: 77, protection: 2 };
        Card { token: [3; 16], cipher: Cipher::ChaCha, manner, host: "here".to_owned(), port: 4100, addresses }
    }

    #[test]
    fn a_card_travels_whole_and_any_bytes_are_survived() {
        let bytes = card().encode();
        assert_eq!(Card::decode(&bytes), Some(card()));
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..20_000 {
            let mut changed = bytes.clone();
            (0..random.usize(1..4)).for_each(|_| changed[random.usize(..bytes.len())] = random.u8(..));
            changed.truncate(random.usize(..=bytes.len()));
            if let Some(card) = Card::decode(&changed) {
                assert_eq!(card.encode(), changed);
            }
        }
    }

    #[test]
    fn the_page_of_the_wire_names_this_version() {
        let page = include_str!("../../../../docs/wire.md").split_once("### Cards").expect("the section").1;
        let version = page.lines().find(|line| line.contains("| version |"));
        assert_eq!(version, Some(format!("| 0 | 1 | version | `{VERSION}` |").as_str()));
    }

    #[test]
    fn the_nearest_address_comes_first() {
        let ours: Vec<IpAddr> = ["192.168.0.4", "172.16.0.1"].map(|text| text.parse().unwrap()).to_vec();
        let first = |host| card().places(host, &ours)[0].to_string();
        assert_eq!((first("here"), first("there")), ("127.0.0.1:4100".to_owned(), "192.168.0.9:4100".to_owned()));
        assert_eq!(card().places("there", &ours).len(), 3, "loopback means another host there");
        let home = |text: &str| Card { host: text.to_owned(), ..card() }.places("b1/net/1", &ours)[0].to_string();
        assert_eq!([home("b1/net/2"), home("b1/other/1")], ["127.0.0.1:4100", "192.168.0.9:4100"]);
    }
}
