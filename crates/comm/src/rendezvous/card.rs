//! What a rank says of itself when it joins: where it runs, how it is reached, what it speaks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

use super::bytes::{Reader, put_bytes};
use super::identity::{HostId, MAX_BYTE_LEN, host_name};

/// A rank's word about itself. It is believed: who may join is the store's key to decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Card {
    pub(super) host: HostId,
    pub(super) host_name: String,
    pub(super) pid: u32,
    /// When it was made, in nanoseconds since 1970 by the clock of its host.
    pub(super) made_ns: u64,
    /// Of the interfaces that are up, as far as other hosts could use them.
    pub(super) addresses: Vec<IpAddr>,
    /// What the launcher says.
    pub(super) local_rank: Option<u32>,
    /// Whether the world's store lives in this process.
    pub(super) hosts_store: bool,
    /// The version of this library.
    pub(super) version: String,
}

impl Card {
    pub(super) fn of_this_process(local_rank: Option<u32>, hosts_store: bool) -> Card {
        let host_name = host_name();
        Card {
            host: HostId::of_this_process(&host_name),
            host_name,
            pid: std::process::id(),
            made_ns: now_ns(),
            addresses: addresses(),
            local_rank,
            hosts_store,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![CARD_VERSION, u8::from(self.hosts_store)];
        out.extend(self.pid.to_le_bytes());
        out.extend(self.made_ns.to_le_bytes());
        out.extend(self.local_rank.unwrap_or(NO_RANK).to_le_bytes());
        [self.host.as_str(), &self.host_name, &self.version]
            .iter()
            .for_each(|text| put_bytes(&mut out, text.as_bytes()));
        self.addresses.iter().for_each(|address| put_address(&mut out, *address));
        out
    }

    /// The card in `bytes`; `None` where they are none, or one of another version.
    pub(super) fn decode(bytes: &[u8]) -> Option<Card> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != CARD_VERSION {
            return None;
        }
        let hosts_store = flag(reader.u8()?)?;
        let (pid, made_ns, local_rank) = (reader.u32()?, reader.u64()?, reader.u32()?);
        let host = HostId::from_card(reader.text()?)?;
        let (host_name, version) = (short(reader.text()?)?, short(reader.text()?)?);
        let mut addresses = Vec::new();
        while !reader.is_empty() {
            addresses.push(address(&mut reader)?);
        }
        let local_rank = (local_rank != NO_RANK).then_some(local_rank);
        let known = addresses.len() <= MAX_ADDRESSES;
        known.then_some(Card { host, host_name, pid, made_ns, addresses, local_rank, hosts_store, version })
    }

    /// Who bears the card in `bytes`, for messages.
    pub(super) fn bearer(bytes: &[u8]) -> String {
        let name = |card: Card| format!("{} pid {}", card.host_name, card.pid);
        Card::decode(bytes).map_or_else(|| "somebody whose card makes no sense".to_owned(), name)
    }
}

fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_nanos().try_into().unwrap_or(u64::MAX)
}

/// The addresses of the interfaces that are up. Loopback and link-local ones mean another thing on every host.
pub(crate) fn addresses() -> Vec<IpAddr> {
    let interfaces = getifaddrs().inspect_err(|error| log::debug!("network interfaces cannot be listed: {error}"));
    let up = interfaces.into_iter().flatten().filter(|interface| {
        interface.flags.contains(InterfaceFlags::IFF_UP) && !interface.flags.contains(InterfaceFlags::IFF_LOOPBACK)
    });
    let address = up.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
    });
    let mut addresses: Vec<IpAddr> = address.filter(reaches_far).take(MAX_ADDRESSES).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

fn reaches_far(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local() && !v4.is_unspecified(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local() && !v6.is_unspecified(),
    }
}

pub(crate) fn put_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => {
            out.push(4);
            out.extend(v4.octets());
        }
        IpAddr::V6(v6) => {
            out.push(6);
            out.extend(v6.octets());
        }
    }
}

pub(crate) fn address(reader: &mut Reader<'_>) -> Option<IpAddr> {
    match reader.u8()? {
        4 => <[u8; 4]>::try_from(reader.take(4)?).ok().map(|octets| Ipv4Addr::from(octets).into()),
        6 => <[u8; 16]>::try_from(reader.take(16)?).ok().map(|octets| Ipv6Addr::from(octets).into()),
        _ => None,
    }
}

fn flag(byte: u8) -> Option<bool> {
    (byte <= 1).then_some(byte == 1)
}

fn short(text: &str) -> Option<String> {
    (text.len() <= MAX_BYTE_LEN).then(|| text.to_owned())
}

const CARD_VERSION: u8 = 2;
const NO_RANK: u32 = u32::MAX;
const MAX_ADDRESSES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn card() -> Card {
        let addresses = vec!["10.1.2.3".parse().unwrap(), "2001:db8::7".parse().unwrap()];
        Card { addresses, ..Card::of_this_process(Some(3), true) }
    }

    #[test]
    fn a_card_travels_whole_or_not_at_all() {
        let card = card();
        let bytes = card.encode();
        assert_eq!(Card::decode(&bytes), Some(card.clone()));
        let whole = |cut: &usize| Card::decode(&bytes[..*cut]).is_some();
        // Addresses stand last and end the card, so it is also one without the last, or without both.
        assert_eq!((0..bytes.len()).filter(whole).collect::<Vec<_>>(), [bytes.len() - 22, bytes.len() - 17]);
        assert_eq!(Card::decode(&Card { local_rank: None, ..card }.encode()).unwrap().local_rank, None);
    }

    #[test]
    fn hostile_cards_are_refused() {
        let bytes = card().encode();
        let with = |at: usize, byte: u8| {
            let mut changed = bytes.clone();
            changed[at] = byte;
            Card::decode(&changed)
        };
        assert_eq!((with(0, 3), with(1, 7), with(21, 0xff)), (None, None, None));
        assert_eq!(Card::decode(&[&bytes[..], &[5]].concat()), None);
        assert_eq!(Card::decode(&[&bytes[..], &[4, 1, 2, 3, 4].repeat(MAX_ADDRESSES)].concat()), None);
        assert_eq!(Card::decode(&Card { host_name: "x".repeat(MAX_BYTE_LEN + 1), ..card() }.encode()), None);
    }

    #[test]
    fn random_bytes_are_survived() {
        let mut random = fastrand::Rng::with_seed(7);
        let bytes = card().encode();
        for _ in 0..20_000 {
            let mut changed = bytes.clone();
            (0..random.usize(1..4)).for_each(|_| changed[random.usize(..bytes.len())] = random.u8(..));
            if let Some(card) = Card::decode(&changed) {
                assert_eq!(Card::decode(&card.encode()), Some(card));
            }
        }
    }

    #[test]
    fn a_card_names_its_bearer() {
        assert_eq!(Card::bearer(&Card { host_name: "alpha".into(), pid: 12, ..card() }.encode()), "alpha pid 12");
        assert_eq!(Card::bearer(b""), "somebody whose card makes no sense");
    }

    #[test]
    fn addresses_are_such_as_others_can_use() {
        assert!(addresses().iter().all(reaches_far));
        let far = |text: &str| reaches_far(&text.parse().unwrap());
        assert!(far("192.168.1.5") && far("fd00::1"));
        assert!(!far("127.0.0.1") && !far("169.254.3.4") && !far("fe80::1") && !far("::1"));
    }
}
