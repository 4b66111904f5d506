//! Records on their way: whole, in pieces, and tampered with.

use super::super::*;
use super::pair::*;

/// Three records of the client as they travel, and both ends.
fn three() -> (Vec<Vec<u8>>, Conversation) {
    let mut ends = converse(Some(&key(1)));
    let records = [&b"one"[..], b"two", b"three"].map(|text| {
        let mut wire = Vec::new();
        ends.client.seal(text, &mut wire).expect("numbers left");
        wire
    });
    (records.to_vec(), ends)
}

/// What the server makes of these bytes, as one text.
fn opened(ends: &mut Conversation, wire: &[u8]) -> Result<String, TunnelError> {
    let mut plain = Vec::new();
    ends.server.open(wire, &mut plain)?;
    Ok(String::from_utf8(plain).expect("what was sealed"))
}

#[test]
fn any_length_comes_back_from_any_pieces() {
    let mut ends = converse(Some(&key(1)));
    let mut random = fastrand::Rng::with_seed(1);
    for len in [0_usize, 1, 15, 16, 17, 65_518, 65_519, 65_520, 131_038, 131_039, 300_000] {
        let plain: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
        let (mut wire, mut back) = (Vec::new(), Vec::new());
        ends.client.seal(&plain, &mut wire).expect("numbers left");
        assert_eq!(wire.len(), len + 18 * len.div_ceil(65_519));
        let (mut start, mut end) = (0, 0);
        while start < wire.len() {
            end = (end + random.usize(1..=70_000)).min(wire.len());
            start += ends.server.open(&wire[start..end], &mut back).expect("honest");
            assert!(end - start <= 65_536, "{} bytes left over", end - start);
        }
        assert!(back == plain, "{len} bytes came back as others");
    }
}

#[test]
fn every_cut_of_a_record_waits_for_the_rest() {
    let (records, mut ends) = three();
    let wire = records.concat();
    let mut plain = Vec::new();
    let mut done = 0;
    for end in 0..=wire.len() {
        done += ends.server.open(&wire[done..end], &mut plain).expect("honest");
    }
    assert_eq!((done, &plain[..]), (wire.len(), &b"onetwothree"[..]));
}

#[test]
fn a_repeated_dropped_or_moved_record_is_refused() {
    let orders: [(&[usize], &str); 5] =
        [(&[0, 0], "one"), (&[1], ""), (&[0, 2], "one"), (&[0, 1, 0], "onetwo"), (&[2, 1, 0], "")];
    for (order, before) in orders {
        let (records, mut ends) = three();
        let wire: Vec<u8> = order.iter().flat_map(|&index| records[index].clone()).collect();
        let mut plain = Vec::new();
        assert_eq!(ends.server.open(&wire, &mut plain), Err(TunnelError::Forged), "{order:?}");
        assert_eq!(plain, before.as_bytes(), "{order:?}");
        assert_eq!(ends.server.open(&records[0], &mut plain), Err(TunnelError::Broken));
    }
}

#[test]
fn a_record_of_this_side_or_of_another_connection_is_refused() {
    let (records, mut ends) = three();
    let (others, _) = three();
    let mut plain = Vec::new();
    assert_eq!(ends.client.open(&records[0], &mut plain), Err(TunnelError::Forged));
    assert_eq!(ends.server.open(&others[0], &mut plain), Err(TunnelError::Forged));
    assert!(plain.is_empty());
}

#[test]
fn every_bit_of_a_record_counts() {
    // Length, three bytes and their tag.
    for bit in 0..8 * 21 {
        let (mut records, mut ends) = three();
        records[0][bit / 8] ^= 1 << (bit % 8);
        // A longer record takes the bytes of those that follow, or waits for bytes that never come.
        let end = opened(&mut ends, &records.concat());
        assert!(matches!(end.as_deref(), Err(_) | Ok("")), "bit {bit}: {end:?}");
    }
}

#[test]
fn a_shortened_record_is_refused() {
    for len in 0..=18_u16 {
        let (records, mut ends) = three();
        let shortened = [&len.to_le_bytes()[..], &records[0][2..2 + usize::from(len)]].concat();
        let end = opened(&mut ends, &shortened);
        let expected = if len <= 16 { TunnelError::Length { len: len.into() } } else { TunnelError::Forged };
        assert_eq!(end, Err(expected));
        assert_eq!(opened(&mut ends, &records[0]), Err(TunnelError::Broken));
    }
}

#[test]
fn the_two_directions_may_part() {
    let Conversation { client, server, .. } = converse(Some(&key(1)));
    let (mut to_server, mut from_server) = client.split();
    let (mut to_client, mut from_client) = server.split();
    let echo = std::thread::spawn(move || {
        let (mut wire, mut plain) = (Vec::new(), Vec::new());
        to_client.seal(b"there", &mut wire).expect("numbers left");
        (wire, move |bytes: &[u8]| from_client.open(bytes, &mut plain).map(|_| plain.clone()))
    });
    let mut wire = Vec::new();
    to_server.seal(b"here", &mut wire).expect("numbers left");
    let (back, mut open) = echo.join().expect("no panic");
    assert_eq!(open(&wire).expect("honest"), b"here");
    let mut plain = Vec::new();
    from_server.open(&back, &mut plain).expect("honest");
    assert_eq!(plain, b"there");
}
