//! Records on their way: whole, under every suite, and tampered with.

use super::*;

const SUITES: [Suite; 4] = [
    Suite { cipher: Cipher::Aes, cover: Cover::Encrypted },
    Suite { cipher: Cipher::Aes, cover: Cover::Authenticated },
    Suite { cipher: Cipher::ChaCha, cover: Cover::Encrypted },
    Suite { cipher: Cipher::ChaCha, cover: Cover::Authenticated },
];

/// Both ends of a connection whose secrets are made of these bytes.
fn ends(suite: Suite, [ours, theirs]: [u8; 2]) -> [(RecordSealer, RecordOpener); 2] {
    let secrets = |ours, theirs| Secrets { ours: Zeroizing::new([ours; 32]), theirs: Zeroizing::new([theirs; 32]) };
    [secrets(ours, theirs), secrets(theirs, ours)].map(|secrets| suite.keys(&secrets).expect("keys"))
}

fn sealed(sealer: &mut RecordSealer, text: &[u8]) -> Vec<u8> {
    let mut wire = vec![0; text.len() + RecordSealer::OVERHEAD];
    assert_eq!(sealer.seal(text, &mut wire), Ok(wire.len()));
    wire
}

/// What is made of the record at the front of `wire`; none where it is not whole.
fn opened(opener: &mut RecordOpener, wire: &[u8]) -> Result<Option<Vec<u8>>, TunnelError> {
    let Some(len) = record_len(wire)? else { return Ok(None) };
    let Some(record) = wire.get(HEAD..RecordSealer::OVERHEAD + len) else { return Ok(None) };
    let mut into = vec![0; len];
    opener.open(record, &mut into).map(|()| Some(into))
}

/// Three records of one end, and the other end.
fn three(suite: Suite) -> (Vec<Vec<u8>>, RecordOpener) {
    let [(mut sealer, _), (_, opener)] = ends(suite, [1, 2]);
    ([&b"one"[..], b"two", b"three"].map(|text| sealed(&mut sealer, text)).to_vec(), opener)
}

#[test]
fn any_length_comes_back() {
    for suite in SUITES {
        let [(mut sealer, _), (_, mut opener)] = ends(suite, [1, 2]);
        for len in [1, 15, 16, 17, 4095, RecordSealer::MOST] {
            let text: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
            let wire = sealed(&mut sealer, &text);
            assert_eq!(wire.len(), len + RecordSealer::OVERHEAD);
            assert_eq!(wire[HEAD..HEAD + len] == text, suite.cover == Cover::Authenticated, "{suite:?}, {len} bytes");
            assert_eq!(opened(&mut opener, &wire), Ok(Some(text)), "{suite:?}");
        }
    }
}

#[test]
fn bytes_embraced_where_they_are_make_the_same_record() {
    for suite in SUITES.into_iter().filter(|suite| suite.cover == Cover::Authenticated) {
        let [mut one, mut other] = [ends(suite, [1, 2]), ends(suite, [1, 2])].map(|[(sealer, _), _]| sealer);
        let (head, tag) = one.embrace(b"text").expect("numbers left");
        assert_eq!([&head[..], b"text", &tag].concat(), sealed(&mut other, b"text"));
    }
}

#[test]
fn every_bit_of_a_record_counts() {
    for suite in SUITES {
        // Length, three bytes and their tag.
        for bit in 0..8 * (RecordSealer::OVERHEAD + 3) {
            let (mut records, mut opener) = three(suite);
            records[0][bit / 8] ^= 1 << (bit % 8);
            // A longer record takes the bytes of those that follow, or waits for bytes that never come.
            let end = opened(&mut opener, &records.concat());
            assert!(matches!(end, Err(_) | Ok(None)), "{suite:?}, bit {bit}: {end:?}");
        }
    }
}

#[test]
fn a_repeated_dropped_or_moved_record_is_refused() {
    let orders: [(&[usize], usize); 5] = [(&[0, 0], 1), (&[1], 0), (&[0, 2], 1), (&[0, 1, 0], 2), (&[2, 1, 0], 0)];
    for (suite, (order, good)) in SUITES.into_iter().flat_map(|suite| orders.map(|order| (suite, order))) {
        let (records, mut opener) = three(suite);
        for (at, &index) in order.iter().enumerate().take(good + 1) {
            let end = opened(&mut opener, &records[index]);
            assert_eq!(end.is_ok(), at < good, "{suite:?}, {order:?}: {end:?}");
        }
        assert_eq!(opened(&mut opener, &records[good]), Err(TunnelError::Broken));
    }
}

#[test]
fn a_record_joined_from_two_or_cut_is_refused() {
    for suite in SUITES {
        let [(mut sealer, _), _] = ends(suite, [1, 2]);
        let [first, second] = [&b"first!"[..], b"second"].map(|text| sealed(&mut sealer, text));
        let text = HEAD..HEAD + 6;
        let joined = [&first[..text.end], &second[text.end..]].concat();
        let mut cut = first.clone();
        cut.remove(text.start);
        cut[0] -= 1;
        for forged in [joined, [&first[..HEAD], &second[text.clone()], &first[text.end..]].concat(), cut] {
            let [_, (_, mut opener)] = ends(suite, [1, 2]);
            assert_eq!(opened(&mut opener, &forged), Err(TunnelError::Forged), "{suite:?}");
        }
    }
}

#[test]
fn a_record_of_this_side_of_another_connection_or_of_another_suite_is_refused() {
    for suite in SUITES {
        let [(mut sealer, mut itself), _] = ends(suite, [1, 2]);
        let wire = sealed(&mut sealer, b"text");
        assert_eq!(opened(&mut itself, &wire), Err(TunnelError::Forged));
        let [_, (_, mut another)] = ends(suite, [3, 2]);
        assert_eq!(opened(&mut another, &wire), Err(TunnelError::Forged));
        for other in SUITES.into_iter().filter(|other| *other != suite) {
            let [_, (_, mut opener)] = ends(other, [1, 2]);
            assert_eq!(opened(&mut opener, &wire), Err(TunnelError::Forged), "{suite:?} {other:?}");
        }
    }
}

#[test]
fn a_length_that_no_record_has_is_refused_before_it_is_waited_for() {
    assert_eq!(record_len(&[1, 0, 0]), Ok(None));
    for len in [0, RecordSealer::MOST + 1, u32::MAX as usize] {
        assert_eq!(record_len(&(len as u32).to_le_bytes()), Err(TunnelError::Length { len }));
    }
}

#[test]
fn keys_give_way_to_the_next_on_both_sides() {
    for suite in SUITES {
        let [(mut sealer, _), (_, mut opener)] = ends(suite, [1, 2]);
        let first = sealer.0.secret.clone();
        for number in 0..=3 * RENEWAL {
            let wire = sealed(&mut sealer, &number.to_le_bytes());
            assert_eq!(opened(&mut opener, &wire), Ok(Some(number.to_le_bytes().to_vec())), "{suite:?}");
        }
        assert_ne!(sealer.0.secret, first);
        // One that stayed with its key would be refused.
        let [(mut late, _), _] = ends(suite, [1, 2]);
        late.0.count = sealer.0.count;
        assert_eq!(opened(&mut opener, &sealed(&mut late, b"text")), Err(TunnelError::Forged));
    }
}

/// What docs/wire.md says, computed by others: Python's `hmac` and `hashlib`, and its `cryptography`.
#[test]
fn a_record_is_what_the_documentation_says() {
    let records: [(Suite, &[&str]); 3] = [
        (
            SUITES[0],
            &[
                "07000000741772388c307bfe4b39e04912f3a00bebe92c5b0cd4a3",
                "07000000bc133d0b9b59e7306888948bc18060f0a4739971119f67",
            ],
        ),
        (SUITES[1], &["070000007068616c616e78ac5dca6ed0c638bb02fa241f17235fd6"]),
        (SUITES[3], &["070000007068616c616e78fac9ff05bfd4a96ef7c04a027acbe7af"]),
    ];
    for (suite, expected) in records {
        let [(mut sealer, _), _] = ends(suite, [1, 2]);
        for digits in expected {
            assert_eq!(sealed(&mut sealer, b"phalanx"), hex(digits), "{suite:?}");
        }
    }
}

fn hex(digits: &str) -> Vec<u8> {
    let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("digits");
    (0..digits.len()).step_by(2).map(pair).collect()
}
