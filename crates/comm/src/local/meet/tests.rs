//! Meetings that go well, and those where somebody is missing, wrong or a stranger.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use super::*;
use crate::local::map::SegmentMap;

fn door() -> Door {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    Door::named(format!("phalanx-meet-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)))
}

fn soon(limit: Duration) -> Instant {
    Instant::now() + limit
}

/// Those of a rank, whose number is ten more in the world.
fn terms(rank: usize, size: usize) -> (Terms, SegmentMap) {
    let map = SegmentMap::new(size, 1, 0, 8192).expect("a size");
    (
        Terms {
            rank,
            members: (10..10 + size).collect(),
            epoch: 0,
            token: [3; 16],
            map: map.hash(),
            byte_len: map.byte_len,
        },
        map,
    )
}

type End = Result<(Segment, Vec<usize>)>;

/// One rank's part, until all have said that they are ready.
fn meet(door: &Door, terms: &Terms, limit: Duration) -> End {
    let met = match terms.rank {
        0 => host(door, terms, Segment::create(terms.byte_len).expect("memfd"), soon(limit))?,
        _ => attend(door, terms, None, soon(limit))?,
    };
    let (segment, peers, ties) = met.into_parts();
    ties.confirm(soon(limit))?;
    Ok((segment, peers.into_iter().map(|(rank, _)| rank).collect()))
}

fn all(door: &Door, ranks: &[Terms], limit: Duration) -> Vec<End> {
    thread::scope(|scope| {
        let ranks: Vec<_> = ranks.iter().map(|terms| scope.spawn(move || meet(door, terms, limit))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    })
}

/// What comes of a meeting that lacks somebody, given more time while it is not what is expected: a busy machine may begin a
/// rank after a short time has passed.
fn short_of(ranks: &[Terms], expected: impl Fn(&Door, &[End]) -> bool) -> (Door, Vec<End>) {
    let mut limit = SHORT;
    loop {
        let door = door();
        let ends = all(&door, ranks, limit);
        limit *= 2;
        if expected(&door, &ends) || limit > LONG {
            return (door, ends);
        }
    }
}

fn told(end: &End) -> String {
    end.as_ref().err().map(ToString::to_string).unwrap_or_default()
}

#[test]
fn all_get_the_same_memory_and_all_processes() {
    for size in [1, 2, 5, 64] {
        let ranks: Vec<Terms> = (0..size).map(|rank| terms(rank, size).0).collect();
        let ends = all(&door(), &ranks, LONG);
        for (rank, end) in ends.iter().enumerate() {
            let (segment, peers) = end.as_ref().expect("a meeting");
            assert_eq!(*peers, (0..size).filter(|peer| *peer != rank).collect::<Vec<_>>());
            segment.copy_in(rank, &[rank as u8 + 1]).expect("in range");
        }
        let mut written = vec![0; size];
        ends[size - 1].as_ref().expect("a meeting").0.copy_out(0, &mut written).expect("in range");
        assert_eq!(written, (1..=size as u8).collect::<Vec<_>>());
    }
}

#[test]
fn whoever_does_not_come_is_named_to_those_who_did() {
    let missing = |door: &Door| format!("local ranks: ranks 11, 13 did not come to {door}");
    let all_told = |door: &Door, ends: &[End]| ends.iter().all(|end| told(end) == missing(door));
    let (door, ends) = short_of(&[terms(0, 4).0, terms(2, 4).0], all_told);
    assert_eq!([told(&ends[0]), told(&ends[1])], [missing(&door), missing(&door)]);
}

/// A door that somebody opened before may stand open a moment longer: a process that is just being forked has it too.
#[test]
fn a_door_that_nobody_opened_names_who_should_have() {
    let door = door();
    let closed = meet(&door, &terms(1, 2).0, SHORT).expect_err("nobody opens");
    assert_eq!(closed.to_string(), format!("local ranks: rank 10 did not open {door}"));
    assert_eq!(closed.culprits(), [10]);
}

#[test]
fn a_host_that_runs_is_not_to_blame_where_its_guest_has_less_time() {
    let (door, [host, guest]) = (door(), [0, 1].map(|rank| terms(rank, 3).0));
    let open = Gathering::open(&door, &host).expect("a free name");
    let error = meet(&door, &guest, SHORT).expect_err("nobody answers");
    assert_eq!(error.to_string(), format!("local ranks: rank 10 still waited for others at {door}"));
    assert!(error.culprits().is_empty(), "{:?}", error.culprits());
    drop(open);
}

#[test]
fn another_token_is_told_nothing() {
    let sent_away = |end: &End| told(end).contains("sent this rank away");
    let ranks = [terms(0, 2).0, Terms { token: [4; 16], ..terms(1, 2).0 }];
    let pid = getpid();
    let short =
        |door: &Door| format!("local ranks: rank 11 did not come to {door}; process {pid} has not the group's token");
    let (door, ends) = short_of(&ranks, |door, ends| told(&ends[0]) == short(door) && sent_away(&ends[1]));
    assert_eq!(told(&ends[0]), short(&door));
    assert!(sent_away(&ends[1]), "{}", told(&ends[1]));
}

#[test]
fn other_numbers_and_second_comers_are_sent_away() {
    let door = door();
    let odd = Terms { epoch: 1, ..terms(1, 3).0 };
    thread::scope(|scope| {
        let ranks = [0, 1].map(|rank| {
            scope.spawn({
                let door = &door;
                move || meet(door, &terms(rank, 3).0, LONG)
            })
        });
        // The last rank is late, so that somebody is there to send the odd one away.
        let end = meet(&door, &odd, LONG);
        assert_eq!(told(&end), "local ranks: rank 10 has another group or other settings than rank 11 of 3 in epoch 1");
        assert!(meet(&door, &terms(2, 3).0, LONG).is_ok());
        assert!(ranks.into_iter().all(|rank| rank.join().expect("no panic").is_ok()));
    });

    let sent_away = |door: &Door, ends: &[End]| {
        let before = format!("local ranks: rank 11 came to {door} before");
        ends[1..].iter().filter(|end| told(end) == before).count()
    };
    let ranks = [terms(0, 3).0, terms(1, 3).0, terms(1, 3).0];
    let short = |door: &Door| format!("local ranks: rank 12 did not come to {door}");
    let (door, ends) = short_of(&ranks, |door, ends| told(&ends[0]) == short(door) && sent_away(door, ends) == 1);
    assert_eq!(told(&ends[0]), short(&door));
    assert_eq!(sent_away(&door, &ends), 1, "{ends:?}");
}

#[test]
fn silent_and_garrulous_strangers_keep_nobody_out() {
    let door = door();
    thread::scope(|scope| {
        let host = scope.spawn(|| meet(&door, &terms(0, 2).0, LONG));
        let silent: Vec<_> = (0..20).map(|_| door.enter(0, soon(LONG)).expect("open")).collect();
        let garrulous = door.enter(0, soon(LONG)).expect("open");
        packet::send(&garrulous, &[7; 1000], &[]).expect("taken");
        assert!(meet(&door, &terms(1, 2).0, LONG).is_ok());
        assert!(host.join().expect("no panic").is_ok());
        drop(silent);
    });
}

#[test]
fn a_rank_that_leaves_before_the_start_ends_the_meeting() {
    let door = door();
    let ends = thread::scope(|scope| {
        let door = &door;
        let stays = [0, 1].map(|rank| scope.spawn(move || meet(door, &terms(rank, 3).0, LONG)));
        drop(attend(door, &terms(2, 3).0, None, soon(LONG)).expect("welcome"));
        stays.map(|rank| rank.join().expect("no panic"))
    });
    for end in ends {
        assert_eq!(told(&end), "local ranks: rank 12 left before all had come");
        assert_eq!(end.expect_err("one is lost").culprits(), [12]);
    }
}

#[test]
fn a_path_is_used_in_a_private_directory_only_and_removed() {
    let directory = std::env::temp_dir().join(format!("phalanx-door-{}", std::process::id()));
    fs::DirBuilder::new().mode(0o700).create(&directory).expect("a new directory");
    let path = directory.join("door");
    // A socket that nobody listens at any more.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("free"));
    let ends = all(&Door::at(&path), &[terms(0, 2).0, terms(1, 2).0], LONG);
    assert!(ends.iter().all(Result::is_ok), "{ends:?}");
    assert!(!path.exists());
    fs::set_permissions(&directory, std::os::unix::fs::PermissionsExt::from_mode(0o750)).expect("ours");
    let open = meet(&Door::at(&path), &terms(0, 2).0, SHORT);
    fs::remove_dir(&directory).expect("empty");
    assert!(told(&open).ends_with("its mode is 750, others may enter"), "{}", told(&open));
}

#[test]
fn a_name_in_use_is_told() {
    let door = door();
    let _first = door.open(1).expect("free");
    assert!(told(&meet(&door, &terms(0, 2).0, SHORT)).starts_with(&door.to_string()));
}

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(300);
