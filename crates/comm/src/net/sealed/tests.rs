//! Links with records between them and a wire that is honest, slow, or not.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use zeroize::Zeroizing;

use super::*;
use crate::net::socket::tests::pair;
use crate::net::standing::Standing;
use crate::secure::{Cipher, Cover, Secrets, Suite};

const COVERS: [Cover; 2] = [Cover::Encrypted, Cover::Authenticated];

/// Two links, each with the test's end of its wire.
fn ends(cover: Cover) -> [(SealedLink, TcpStream); 2] {
    [[1, 2], [2, 1]].map(|[ours, theirs]| {
        let (wire, socket) = pair();
        wire.set_nonblocking(true).expect("a socket");
        let secrets = Secrets { ours: Zeroizing::new([ours; 32]), theirs: Zeroizing::new([theirs; 32]) };
        let keys = Suite { cipher: Cipher::of_this_processor(), cover }.keys(&secrets).expect("keys");
        (SealedLink::new(Pipe::new(socket, Arc::new(Standing::default())), keys), wire)
    })
}

/// Moves what there is from one wire to the other, at most this many bytes; `under_way` has what found no room yet.
fn carry(from: &mut TcpStream, into: &mut TcpStream, most: usize, under_way: &mut Vec<u8>) {
    let mut bytes = vec![0; most];
    let came = from.read(&mut bytes).unwrap_or(0);
    under_way.extend_from_slice(&bytes[..came]);
    let went = into.write(under_way).unwrap_or(0);
    under_way.drain(..went);
}

#[test]
fn what_is_sent_in_any_parts_comes_in_any_pieces() {
    let mut random = fastrand::Rng::with_seed(7);
    for cover in COVERS {
        let [(mut from, mut near), (mut into, mut far)] = ends(cover);
        let text: Vec<u8> = (0..3_000_000).map(|_| random.u8(..)).collect();
        let lengths = [0, 1, 32, 4_000, 5_000, 70_000, 300_000];
        let (mut sent, mut back, mut parts, mut under_way) = (0, vec![], [0, 0], vec![]);
        while back.len() < text.len() {
            if parts == [0, 0] {
                parts[0] = random.choice(lengths).unwrap_or(0).min(text.len() - sent);
                parts[1] = random.choice(lengths).unwrap_or(0).min(text.len() - sent - parts[0]);
            }
            let (first, rest) = text[sent..].split_at(parts[0]);
            let went = from.try_send_parts([first, &rest[..parts[1]]]).expect("it is there");
            sent += went;
            // The same bytes again until they have gone, as the contract says.
            parts = if went == 0 { parts } else { [0, 0] };
            carry(&mut near, &mut far, random.usize(1..200_000), &mut under_way);
            let mut piece = vec![0; random.choice([1, 100, 16_384, 65_536, 400_000]).unwrap_or(1)];
            let came = into.try_recv(&mut piece).expect("honest");
            back.extend_from_slice(&piece[..came]);
        }
        assert!(back == text, "{cover:?}: other bytes came");
    }
}

#[test]
fn no_byte_of_a_forged_or_repeated_record_counts_as_received() {
    for (cover, replays) in COVERS.into_iter().flat_map(|cover| [(cover, false), (cover, true)]) {
        let [(mut from, mut near), (mut into, mut far)] = ends(cover);
        let text = vec![5; 20_000];
        for _ in 0..2 {
            assert_eq!(from.try_send(&text).expect("room"), text.len());
        }
        let record = text.len() + RecordSealer::OVERHEAD;
        let mut wire = vec![0; 2 * record];
        near.set_nonblocking(false).expect("a socket");
        near.read_exact(&mut wire).expect("both records");
        if replays {
            wire.copy_within(..record, record);
        } else {
            wire[record + 10_000] ^= 1;
        }
        far.set_nonblocking(false).expect("a socket");
        far.write_all(&wire).expect("room");
        let (mut back, mut piece) = (vec![], vec![0; 3_000]);
        let end = loop {
            match into.try_recv(&mut piece) {
                Ok(came) => back.extend_from_slice(&piece[..came]),
                Err(error) => break error,
            }
        };
        assert!(matches!(end, LinkError::Corrupt { .. }), "{end:?}");
        assert!(text.starts_with(&back), "{cover:?}: {} bytes", back.len());
        assert!(into.try_recv(&mut piece).is_err());
    }
}

#[test]
fn only_encrypted_bytes_cannot_be_read_on_the_way() {
    for cover in COVERS {
        let [(mut from, mut near), _] = ends(cover);
        for text in [vec![0xA5; 200], vec![0xA5; 20_000]] {
            assert_eq!(from.try_send(&text).expect("room"), text.len());
            let mut wire = vec![0; text.len() + RecordSealer::OVERHEAD];
            near.set_nonblocking(false).expect("a socket");
            near.read_exact(&mut wire).expect("a record");
            let shown = wire.windows(100).any(|bytes| bytes == &text[..100]);
            assert_eq!(shown, cover == Cover::Authenticated);
        }
    }
}
