//! Planted divergences, absences, deadlocks and stragglers: each is found, blamed on the right rank, and nothing else is.

use super::*;
use crate::dump::{Entry, FORMAT, Site, State, TracedGroup};
use crate::timeline::Timeline;

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_700_000_000 * SECOND;

/// One rank that does what it is told.
struct Rank(Dump);

impl Rank {
    fn new(rank: usize, size: usize) -> Rank {
        Rank::bare(rank, size).group("world", (0..size).collect())
    }

    /// One that is in no group.
    fn bare(rank: usize, size: usize) -> Rank {
        Rank(Dump {
            format: FORMAT,
            rank,
            world_size: Some(size),
            met_ns: None,
            host_name: Some("host".to_owned()),
            pid: Some(100 + rank as u32),
            taken_ns: Some(START + 1000 * SECOND),
            groups: Vec::new(),
            entries: Vec::new(),
        })
    }

    fn group(mut self, name: &str, members: Vec<usize>) -> Rank {
        let members = Some(members);
        self.0.groups.push(TracedGroup { name: name.to_owned(), members, ..TracedGroup::default() });
        self
    }

    /// The next operation of a group, called at this time.
    fn call(&mut self, group: usize, kind: &str, at: u64, state: State) -> &mut Entry {
        let is_message = matches!(kind, "send" | "recv");
        let before = self.0.entries.iter().filter(|entry| entry.group == group && entry.is_message == is_message);
        let sequence = before.count() as u64;
        self.put((group, sequence), kind, at, state)
    }

    /// The operation of this number.
    fn put(&mut self, (group, sequence): (usize, u64), kind: &str, at: u64, state: State) -> &mut Entry {
        let is_message = matches!(kind, "send" | "recv");
        let ended_ns = (state == State::Done).then_some(START + at + 1000);
        self.0.entries.push(Entry {
            group,
            record: self.0.entries.len() as u64,
            sequence,
            kind: kind.to_owned(),
            is_message,
            dtype: Some("f32".to_owned()),
            reduce: (kind == "all_reduce").then(|| "sum".to_owned()),
            peer: None,
            tag: None,
            input: 8,
            output: 8,
            even: true,
            site: Some(Site { file: "train.rs".to_owned(), line: 10u32.wrapping_add(sequence as u32), function: None }),
            created_ns: START + at,
            started_ns: Some(START + at),
            ended_ns,
            state,
            timeout_ns: None,
            is_ahead: false,
        });
        self.0.entries.last_mut().expect("just pushed")
    }

    fn done(mut self, kind: &str, times: usize) -> Rank {
        for _ in 0..times {
            let at = self.0.entries.len() as u64 * SECOND;
            self.call(0, kind, at, State::Done);
        }
        self
    }
}

fn world(size: usize, tell: impl Fn(usize, Rank) -> Rank) -> Vec<Dump> {
    (0..size).map(|rank| tell(rank, Rank::new(rank, size)).0).collect()
}

fn told(dumps: &[Dump]) -> Vec<String> {
    analyse(dumps).findings.iter().map(ToString::to_string).collect()
}

#[test]
fn ranks_that_agree_have_nothing_found() {
    let dumps = world(4, |_, rank| rank.done("all_reduce", 20).done("broadcast", 3).done("barrier", 1));
    let report = analyse(&dumps);
    assert_eq!(report.findings, []);
    assert_eq!((report.ranks, report.world_size), (4, 4));
    assert!(report.arrivals.iter().all(|arrival| arrival.operations == 21), "{:?}", report.arrivals);
    assert!(report.to_string().contains("no operation that is written down waits"));
}

#[test]
fn the_first_divergence_names_the_odd_rank_the_field_and_both_values() {
    let plant = |change: fn(&mut Entry)| {
        let dumps = world(3, |number, mut rank| {
            rank = rank.done("all_reduce", 6);
            if number == 1 {
                rank.0.entries[4..].iter_mut().for_each(change);
            }
            rank
        });
        let [finding] = &analyse(&dumps).findings[..] else { panic!("{:?}", told(&dumps)) };
        assert_eq!(finding.culprits(), [1]);
        finding.to_string()
    };
    let start = "world: operation 4 differs in ";
    assert_eq!(
        plant(|entry| entry.kind = "broadcast".to_owned()),
        format!("{start}operation: ranks 0, 2 all_reduce (at train.rs:14), rank 1 broadcast (at train.rs:14)")
    );
    for (change, field) in [
        ((|entry| entry.dtype = Some("f64".to_owned())) as fn(&mut Entry), "dtype: ranks 0, 2 f32 (at"),
        (|entry| entry.reduce = Some("max".to_owned()), "reduction: ranks 0, 2 sum (at"),
        (|entry| entry.output = 9, "elements: ranks 0, 2 8 (at"),
    ] {
        let told = plant(change);
        assert!(told.starts_with(&format!("{start}{field}")), "{told}");
    }
}

#[test]
fn what_a_dump_says_gives_the_terminal_no_commands_and_forges_no_lines() {
    let forged = "a\x1b[2J\n- world: rank 0 never came\r\u{9b}2J";
    let dumps = world(2, |number, rank| {
        let mut rank = rank.group(forged, vec![0, 1]);
        rank.0.groups[0].verdict = Some(forged.to_owned());
        let entry = rank.call(1, if number == 0 { forged } else { "barrier" }, SECOND, State::Started);
        entry.site = Some(Site { file: forged.to_owned(), line: 1, function: None });
        rank
    });
    let report = analyse(&dumps);
    let text = report.to_string();
    assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text:?}");
    assert_eq!(text.lines().filter(|line| line.starts_with("- ")).count(), report.findings.len(), "{text}");
}

/// The values as text, "10" before "9", say nothing of who is right.
#[test]
fn where_no_value_has_most_ranks_all_are_named() {
    for (elements, culprits) in [(&[9, 10][..], &[0, 1][..]), (&[10, 9], &[0, 1]), (&[9, 10, 10], &[0])] {
        let dumps = world(elements.len(), |number, mut rank| {
            rank.call(0, "all_reduce", SECOND, State::Done).output = elements[number];
            rank
        });
        let [finding] = &analyse(&dumps).findings[..] else { panic!("{:?}", told(&dumps)) };
        let mut named = finding.culprits();
        named.sort_unstable();
        assert_eq!(named, culprits, "{finding}");
    }
}

#[test]
fn roots_and_totals_are_compared_and_parts_are_not() {
    let dumps = world(3, |number, mut rank| {
        let entry = rank.call(0, "broadcast", 0, State::Done);
        (entry.input, entry.peer) = (if number == 1 { 8 } else { 0 }, Some(1));
        let entry = rank.call(0, "reduce", SECOND, State::Done);
        (entry.output, entry.peer) = (if number == 1 { 8 } else { 0 }, Some(1));
        let entry = rank.call(0, "all_gather", SECOND, State::Done);
        (entry.input, entry.even) = (number as u64, false);
        let entry = rank.call(0, "all_to_all", SECOND, State::Done);
        (entry.input, entry.output, entry.even) = (number as u64, 9, false);
        let entry = rank.call(0, "gather", SECOND, State::Done);
        (entry.input, entry.output) = (8, if number == 0 { 24 } else { 0 });
        entry.peer = Some(if number == 2 { 2 } else { 0 });
        rank
    });
    let told = told(&dumps);
    assert_eq!(
        told,
        ["world: operation 4 differs in root: ranks 0-1 0 (at train.rs:14), rank 2 2 (at train.rs:14)"
            .replace("0-1", "0, 1")]
    );
}

#[test]
fn who_never_came_is_told_with_its_last_call_and_who_waits() {
    let dumps = world(4, |number, rank| {
        let mut rank = rank.done("all_reduce", 3);
        if number != 2 {
            rank.call(0, "barrier", 900 * SECOND, State::Started);
        }
        rank
    });
    assert_eq!(
        told(&dumps),
        ["world: rank 2 never called barrier 3; ranks 0, 1, 3 wait there (at train.rs:13) since 100.000 s; \
          its last was all_reduce 2 (at train.rs:12)"]
    );
    assert_eq!(analyse(&dumps).findings[0].culprits(), [2]);
}

#[test]
fn who_waits_for_many_ranks_is_kept_once_for_all() {
    let dumps = world(40, |number, mut rank| {
        if number < 20 {
            rank.call(0, "barrier", SECOND, State::Started);
        }
        rank
    });
    let report = analyse(&dumps);
    let waiting = report.findings.iter().filter_map(|finding| match finding {
        Finding::Absent { waiting, .. } => Some(waiting),
        _ => None,
    });
    let waiting: Vec<_> = waiting.collect();
    assert_eq!((waiting.len(), waiting[0].len()), (20, 20));
    assert!(waiting.iter().all(|places| std::sync::Arc::ptr_eq(places, waiting[0])));
    assert_eq!(report.to_json()["findings"][19]["waiting"][19]["rank"], 19);
}

#[test]
fn a_rank_that_is_a_moment_behind_is_nobody_absent() {
    let dumps = world(2, |number, rank| {
        let mut rank = rank.done("all_reduce", 3);
        if number == 0 {
            rank.call(0, "barrier", 1000 * SECOND - 1000, State::Started);
        }
        rank
    });
    assert_eq!(analyse(&dumps).findings, []);
    let report = analyse_with(&dumps, &Options::default().patience(Duration::ZERO));
    assert!(matches!(report.findings[..], [Finding::Absent { rank: 1, sequence: 3, .. }]), "{report}");
}

/// Rank 2 is the cause: rank 1 waits for it in another group, and rank 0 for rank 1.
#[test]
fn what_follows_comes_after_its_cause() {
    let dumps = world(3, |number, mut rank| {
        if number > 0 {
            rank = rank.group("pair", vec![1, 2]);
        }
        if number < 2 {
            rank.call(number, if number == 0 { "all_reduce" } else { "barrier" }, SECOND, State::Started);
        }
        rank
    });
    let report = analyse(&dumps);
    let Some(Finding::Absent { rank: 2, busy: None, .. }) = report.findings.first() else { panic!("{report}") };
    let busy = report.findings.iter().find_map(|finding| match finding {
        Finding::Absent { rank: 1, busy, .. } => busy.clone(),
        _ => None,
    });
    assert_eq!(busy.map(|place| place.group), Some("pair".to_owned()));
    assert!(report.findings.is_sorted_by_key(Finding::weight));
}

/// Rank 3 says nothing: rank 0 waits for it alone, by a collective or a message, and the others for rank 0.
#[test]
fn who_waits_for_a_rank_without_a_dump_is_no_cause() {
    for kind in ["barrier", "recv"] {
        let mut dumps = world(4, |number, mut rank| match number {
            0 => {
                rank = rank.group("pair", vec![0, 3]);
                rank.call(1, kind, SECOND, State::Started).peer = Some(1);
                rank
            }
            3 => rank,
            _ => {
                rank.call(0, "all_reduce", SECOND, State::Started);
                rank
            }
        });
        dumps.pop();
        let report = analyse(&dumps);
        let [Finding::NoDump { ranks, waiting }, Finding::Absent { rank: 0, busy: Some(_), .. }] = &report.findings[..]
        else {
            panic!("{report}")
        };
        assert_eq!((&ranks[..], waiting.len(), waiting[0].rank), (&[3][..], 1, 0), "{report}");
    }
}

/// Rank 2 of a pipeline is gone, rank 1 waits for what it sends, and rank 0 for what rank 1 makes of it.
#[test]
fn who_waits_for_a_rank_that_is_gone_is_not_blamed_before_it() {
    let mut dumps = world(3, |number, mut rank| {
        if number < 2 {
            rank.call(0, "recv", SECOND, State::Started).peer = Some(number + 1);
        }
        rank
    });
    dumps.pop();
    let report = analyse(&dumps);
    let [finding] = &report.findings[..] else { panic!("{report}") };
    let expected = "rank 2 has no dump, and rank 1 waits for it in recv 0 (at train.rs:10) of world since 999.000 s";
    assert_eq!((finding.culprits(), finding.to_string()), (vec![2], expected.to_owned()));
}

/// Of a message nobody says for which of several ranks it waits.
#[test]
fn who_waits_for_one_of_several_ranks_without_a_dump_is_told_with_its_message() {
    let mut dumps = world(3, |number, mut rank| {
        if number == 0 {
            rank.call(0, "send", SECOND, State::Started).peer = Some(2);
        }
        rank
    });
    dumps.truncate(1);
    let expected = "ranks 1, 2 have no dump, and rank 0 waits for one of them in send 0 (at train.rs:10) of world since \
                    999.000 s";
    assert_eq!(told(&dumps), [expected]);
}

/// The same, where rank 2 has left the group or says nothing of its collectives.
#[test]
fn who_waits_for_a_rank_of_which_nothing_is_known_is_not_blamed() {
    let dumps = world(3, |number, mut rank| {
        if number < 2 {
            rank = rank.group("old", vec![0, 1, 2]);
            rank.call(1, "recv", SECOND, State::Started).peer = Some(number + 1);
        }
        rank
    });
    let report = analyse(&dumps);
    let [Finding::NoGroup { ranks, .. }] = &report.findings[..] else { panic!("{report}") };
    assert_eq!(ranks, &[2]);
}

/// Rank 2 has let go of the group, or came to the job when the group's other ranks were in it already.
#[test]
fn who_does_not_have_the_group_is_not_blamed() {
    let without = |kind: &str, state: State| {
        let dumps = world(3, |number, rank| {
            if number == 2 {
                return rank;
            }
            let mut rank = rank.group("old", vec![0, 1, 2]);
            rank.call(1, kind, SECOND, state.clone()).peer = Some(2);
            rank
        });
        analyse(&dumps)
    };
    for kind in ["all_reduce", "recv"] {
        let report = without(kind, State::Started);
        let [finding @ Finding::NoGroup { .. }] = &report.findings[..] else { panic!("{report}") };
        let expected = format!(
            "old: ranks 0, 1 wait in {kind} 0 (at train.rs:10) since 999.000 s; rank 2 has no such group: it left it, or never had it"
        );
        assert_eq!((finding.to_string(), finding.culprits()), (expected, vec![]));
        // The error says why it ended.
        let report = without(kind, State::Failed("peer".to_owned()));
        assert!(matches!(report.findings[..], [Finding::Failed { .. }]), "{report}");
    }
}

#[test]
fn a_disagreement_of_before_excuses_nobody() {
    let dumps = world(2, |number, mut rank| {
        rank.call(0, "all_reduce", SECOND, State::Failed("desync".to_owned()));
        if number == 0 {
            rank.call(0, "all_reduce", 2 * SECOND, State::Started);
        }
        rank
    });
    let report = analyse(&dumps);
    assert!(matches!(report.findings[0], Finding::Absent { rank: 1, busy: None, .. }), "{report}");
}

/// Ranks that were told of a disagreement, and have gone on, hang later for another reason.
#[test]
fn a_disagreement_of_before_is_not_told_before_the_hang_of_now() {
    let desync = || State::Failed("desync".to_owned());
    let dumps = |last: fn(usize) -> bool| {
        world(3, |number, rank| {
            let mut rank = rank.done("all_reduce", 2);
            rank.call(0, "all_reduce", 3 * SECOND, desync()).output = if number == 1 { 9 } else { 8 };
            rank.call(0, "all_reduce", 4 * SECOND, State::Done);
            if last(number) {
                rank.call(0, "barrier", 5 * SECOND, State::Started);
            }
            rank
        })
    };
    let report = analyse(&dumps(|number| number != 2));
    assert!(matches!(report.findings[0], Finding::Absent { rank: 2, sequence: 4, .. }), "{report}");
    let of_before = report.findings[1].to_string();
    assert!(of_before.contains("operation 2 differed in elements") && of_before.ends_with("gone on since"), "{report}");
    assert!(matches!(analyse(&dumps(|_| true)).findings[0], Finding::Unfinished { .. }));
}

#[test]
fn a_circle_of_waiting_ranks_is_a_deadlock() {
    let dumps = world(3, |number, rank| {
        let mut rank = rank.group("other", vec![0, 1, 2]).done("all_reduce", 2);
        let group = usize::from(number == 0);
        rank.call(group, "all_reduce", 10 * SECOND, State::Started);
        rank
    });
    let report = analyse(&dumps);
    let Finding::Deadlock { circle } = &report.findings[0] else { panic!("{report}") };
    assert_eq!(
        circle.iter().map(|place| (place.rank, &*place.group)).collect::<Vec<_>>(),
        [(0, "other"), (1, "world")]
    );
}

#[test]
fn two_ranks_that_both_receive_are_a_deadlock_and_a_pair_that_meets_is_none() {
    let pair = |kinds: [&'static str; 2]| {
        world(2, move |number, mut rank| {
            rank.call(0, kinds[number], SECOND, State::Started).peer = Some(1 - number);
            rank
        })
    };
    assert!(told(&pair(["recv", "recv"]))[0].starts_with("deadlock"), "{:?}", told(&pair(["recv", "recv"])));
    let [met] = &told(&pair(["send", "recv"]))[..] else { panic!("{:?}", told(&pair(["send", "recv"]))) };
    assert!(met.contains("rank 1 waits in recv 0 (at train.rs:10), and rank 0 at the other end of it"), "{met}");
    let lonely = world(2, |number, mut rank| {
        if number == 0 {
            rank.call(0, "recv", SECOND, State::Started).peer = Some(1);
        }
        rank
    });
    assert_eq!(
        told(&lonely),
        ["world: rank 0 waits for rank 1 in recv 0 (at train.rs:10) since 999.000 s; rank 1 has called nothing"]
    );
}

/// Receives that are posted before there is anything to receive hold nobody up.
#[test]
fn what_was_begun_ahead_is_no_wait() {
    let posted = |kinds: [&str; 3]| {
        world(3, |number, rank| {
            let mut rank = rank.done("all_reduce", 1);
            if number < 2 || kinds[2] == "recv" {
                let early = rank.call(0, "recv", SECOND, State::Started);
                (early.peer, early.is_ahead) = (Some(if number == 0 { 1 } else { 0 }), true);
            }
            if !matches!(kinds[number], "" | "recv") {
                rank.call(0, kinds[number], SECOND, State::Started).is_ahead = number == 0;
            }
            rank
        })
    };
    // Nobody waits, and nobody is behind.
    assert_eq!(told(&posted(["", "", ""])), Vec::<String>::new());
    // Rank 2 does neither, though it has posted a receive.
    let report = analyse(&posted(["barrier", "barrier", "recv"]));
    assert!(matches!(report.findings[..], [Finding::Absent { rank: 2, busy: None, .. }]), "{report}");
    // Where nobody waits, a collective that was begun ahead is all that there is to see.
    let report = analyse(&posted(["barrier", "", ""]));
    assert!(
        matches!(report.findings[..], [Finding::Absent { rank: 1, .. }, Finding::Absent { rank: 2, .. }]),
        "{report}"
    );
}

#[test]
fn whoever_waits_for_a_message_is_told_of() {
    let waiting = |calls: [(&str, Option<usize>); 3]| {
        told(&world(3, |number, mut rank| {
            let (kind, peer) = calls[number];
            if !kind.is_empty() {
                rank.call(0, kind, 990 * SECOND, State::Started).peer = peer;
            }
            rank
        }))
    };
    assert_eq!(
        waiting([("recv", None), ("recv", Some(0)), ("", None)]),
        ["world: rank 0 waits for any rank in recv 0 (at train.rs:10) since 10.000 s, and nobody has sent to it; \
          nothing holds up rank 2"]
    );
    assert_eq!(
        waiting([("recv", Some(1)), ("send", Some(0)), ("", None)]),
        ["world: rank 0 waits in recv 0 (at train.rs:10), and rank 1 at the other end of it since 10.000 s"]
    );
    // Rank 1 is held up by something else than rank 0.
    let dumps = world(3, |number, mut rank| {
        let (group, kind) = if number == 0 { (0, "recv") } else { (1, "barrier") };
        if number > 0 {
            rank = rank.group("pair", vec![1, 2]);
        }
        rank.call(group, kind, SECOND, State::Started).peer = (number == 0).then_some(1);
        rank
    });
    assert!(
        matches!(&analyse(&dumps).findings[..], [Finding::Unfinished { group, .. }] if group == "pair"),
        "{:?}",
        told(&dumps)
    );
}

#[test]
fn messages_of_different_tags_are_no_pair() {
    let pair = |tags: [Option<u32>; 2]| {
        let dumps = world(2, move |number, mut rank| {
            let message = rank.call(0, ["send", "recv"][number], SECOND, State::Started);
            (message.peer, message.tag) = (Some(1 - number), tags[number]);
            rank
        });
        told(&dumps)
    };
    assert_eq!(
        pair([Some(5), Some(6)]),
        [
            "deadlock: each waits for the next, the last for the first: rank 0 in send 0 under tag 5 (at train.rs:10) of \
             world, rank 1 in recv 0 under tag 6 (at train.rs:10) of world"
        ]
    );
    // Older dumps and PyTorch's do not say it.
    for tags in [[Some(5), Some(5)], [Some(5), None], [None, Some(6)]] {
        assert!(pair(tags)[0].contains("at the other end of it"), "{:?}", pair(tags));
    }
}

#[test]
fn a_deadline_that_passed_blames_who_never_came() {
    let dumps = world(2, |number, rank| {
        let mut rank = rank.done("all_reduce", 1);
        if number == 0 {
            rank.call(0, "all_reduce", SECOND, State::Failed("timeout".to_owned()));
            rank.0.groups[0].verdict = Some("all_reduce (operation 1) not finished after 3s".to_owned());
        }
        rank
    });
    let report = analyse(&dumps);
    let kinds: Vec<u32> = report.findings.iter().map(Finding::weight).collect();
    assert!(matches!(report.findings[0], Finding::Absent { rank: 1, .. }), "{report}");
    assert!(kinds.is_sorted() && kinds.len() == 3, "{report}");
}

/// Rank 3 died in operation 1. Rank 2 heard of it in its own operation 1 and went no further: nobody waited for rank 2.
#[test]
fn who_stopped_at_an_error_is_not_blamed_for_what_it_did_not_call() {
    let mut dumps = world(4, |number, rank| {
        let mut rank = rank.done("all_reduce", 1);
        rank.call(0, "all_reduce", SECOND, if number < 2 { State::Done } else { State::Failed("peer".to_owned()) });
        if number < 2 {
            rank.call(0, "barrier", 2 * SECOND, State::Failed("aborted".to_owned()));
        }
        rank
    });
    dumps.pop();
    let report = analyse(&dumps);
    assert!(matches!(&report.findings[0], Finding::NoDump { ranks, .. } if ranks[..] == [3]), "{report}");
    assert!(!report.findings.iter().any(|finding| matches!(finding, Finding::Absent { .. })), "{report}");
}

/// Rank 3 died in operation 10, which ended that of ranks 0 and 2. Rank 1 was still on its way there.
#[test]
fn who_had_not_come_yet_when_another_rank_died_is_not_blamed() {
    let mut dumps = world(4, |number, rank| {
        let mut rank = rank.done("all_reduce", 10);
        if number != 1 {
            let error = if number == 0 { "peer" } else { "aborted" };
            rank.call(0, "all_reduce", 10 * SECOND, State::Failed(error.to_owned()));
            rank.0.groups[0].verdict = Some("rank 3 is dead".to_owned());
        }
        rank
    });
    // It was asked before it died, or not at all.
    let died = dumps.pop();
    let report = analyse(&dumps);
    let [Finding::NoDump { ranks, waiting }, Finding::Verdict { .. }, absent, ..] = &report.findings[..] else {
        panic!("{report}")
    };
    assert_eq!((&ranks[..], waiting.len(), absent.culprits()), (&[3][..], 2, vec![]), "{report}");
    let expected = "world: rank 1 never called all_reduce 10; ranks 0, 2 waited there (at train.rs:20) until another failure \
                    ended that; its last was all_reduce 9 (at train.rs:19)";
    assert_eq!(absent.to_string(), expected);
    dumps.extend(died);
    let report = analyse(&dumps);
    assert!(matches!(report.findings[..2], [Finding::Verdict { .. }, Finding::Absent { rank: 1, .. }]), "{report}");
    // One that waits still, or until its time was up, knows of nobody else.
    dumps[2].entries[10].state = State::Failed("timeout".to_owned());
    assert!(matches!(analyse(&dumps).findings[0], Finding::Absent { rank: 1, .. }));
}

/// The same, where it is a message of rank 1 that was waited for.
#[test]
fn whose_message_had_not_come_yet_when_another_rank_died_is_not_blamed() {
    let dumps = world(3, |number, mut rank| {
        if number == 0 {
            rank.call(0, "recv", SECOND, State::Failed("aborted".to_owned())).peer = Some(1);
            rank.0.groups[0].verdict = Some("rank 2 is dead".to_owned());
        }
        rank
    });
    let report = analyse(&dumps[..2]);
    let [Finding::Verdict { .. }, unanswered @ Finding::Unanswered { .. }, ..] = &report.findings[..] else {
        panic!("{report}")
    };
    let expected = "world: rank 0 waited for rank 1 in recv 0 (at train.rs:10) until another failure ended that; \
                    rank 1 has called nothing";
    assert_eq!((unanswered.to_string(), unanswered.culprits()), (expected.to_owned(), vec![]));
}

#[test]
fn ranks_without_a_dump_are_told_and_suspected_where_others_wait() {
    let mut dumps = world(4, |_, rank| {
        let mut rank = rank.done("all_reduce", 1);
        rank.call(0, "barrier", SECOND, State::Started);
        rank
    });
    dumps.remove(2);
    let expected = "rank 2 has no dump; ranks 0, 1, 3 wait in barrier 1 (at train.rs:11) of world since 999.000 s";
    assert_eq!(told(&dumps), [expected]);
    dumps.iter_mut().for_each(|dump| dump.entries.truncate(1));
    assert_eq!(told(&dumps), ["rank 2 has no dump"]);
}

#[test]
fn an_operation_that_all_called_and_some_never_finished_is_told() {
    let dumps = world(3, |number, rank| {
        let mut rank = rank.done("all_reduce", 1);
        rank.call(0, "all_reduce", SECOND, if number == 0 { State::Done } else { State::Started });
        rank
    });
    let all = told(&dumps);
    let expected = "world: every rank called all_reduce 1 (at train.rs:11), ranks 1, 2 have not finished it";
    assert_eq!(all, [format!("{expected} since 999.000 s, rank 0 has finished it")]);
}

#[test]
fn the_straggler_is_found_although_the_clocks_of_hosts_differ() {
    let late = |number: usize| {
        let mut dumps = world(3, |rank_number, mut rank| {
            for turn in 0..20 {
                let begin = turn * SECOND;
                let at = begin + if rank_number == number { SECOND / 3 } else { rank_number as u64 * 1000 };
                rank.call(0, "all_reduce", at, State::Done).ended_ns = Some(START + begin + SECOND / 2);
            }
            rank.0.host_name = Some(format!("host{rank_number}"));
            rank
        });
        // Rank 0's clock is two hours ahead.
        for entry in &mut dumps[0].entries {
            entry.created_ns += 7200 * SECOND;
            entry.ended_ns = entry.ended_ns.map(|time| time + 7200 * SECOND);
        }
        analyse(&dumps).findings
    };
    for number in 0..3 {
        let found = late(number);
        let [Finding::Late { rank, times: 20, operations: 20, .. }] = found[..] else { panic!("{found:?}") };
        assert_eq!(rank, number);
    }
}

/// Two machines that are both called what machines are called which nobody has named.
#[test]
fn nobody_is_late_because_its_host_has_the_name_of_another_one() {
    let mut dumps = world(2, |_, mut rank| {
        for turn in 0..20 {
            rank.call(0, "all_reduce", turn * SECOND, State::Done);
        }
        rank.0.host_name = Some("localhost".to_owned());
        rank
    });
    for entry in &mut dumps[1].entries {
        entry.created_ns += SECOND / 3;
        entry.ended_ns = entry.ended_ns.map(|time| time + SECOND / 3);
    }
    assert_eq!(analyse(&dumps).findings, []);
}

/// Ranks that come in turns, as two that are alike do, are not late, whoever is last once more often than the other.
#[test]
fn who_is_last_by_chance_is_not_late() {
    let late = |often: usize| {
        let dumps = world(2, |number, mut rank| {
            for turn in 0..100 {
                // 37 has no part with 100, so that the turns are spread.
                let last = if turn * 37 % 100 < often { 1 } else { 0 };
                let delay = if number == last { SECOND / 4 } else { 0 };
                rank.call(0, "all_reduce", turn as u64 * SECOND + delay, State::Done).ended_ns =
                    Some(START + turn as u64 * SECOND + SECOND / 2);
            }
            rank
        });
        analyse(&dumps).findings
    };
    assert_eq!(late(53), []);
    let found = late(90);
    assert!(matches!(found[..], [Finding::Late { rank: 1, times: 90, operations: 100, .. }]), "{found:?}");
}

#[test]
fn groups_of_one_name_and_other_members_are_others() {
    let dumps = world(4, |number, rank| {
        let members = if number < 2 { vec![0, 1] } else { vec![2, 3] };
        let mut rank = rank.group("tensor", members);
        for turn in 0..3 {
            rank.call(1, if number < 2 { "all_reduce" } else { "barrier" }, turn, State::Done);
        }
        rank
    });
    assert_eq!(analyse(&dumps).findings, []);
}

/// Rank 0 has dropped the first of two groups of one name, in which rank 1 called what all called there.
#[test]
fn groups_of_one_name_are_matched_whichever_a_rank_has_dropped() {
    let dumps = world(2, |number, mut rank| {
        for generation in [0, 1].into_iter().skip(usize::from(number == 0)) {
            rank = rank.group("pair", vec![0, 1]);
            let at = rank.0.groups.len() - 1;
            rank.0.groups[at].generation = Some(generation);
            rank.call(at, if generation == 0 { "all_reduce" } else { "barrier" }, SECOND, State::Done);
        }
        rank
    });
    assert_eq!(told(&dumps), Vec::<String>::new());
}

#[test]
fn what_a_rank_no_longer_remembers_is_no_absence() {
    let mut dumps = world(2, |_, rank| rank.done("all_reduce", 10));
    dumps[0].entries.drain(..7);
    assert_eq!(analyse(&dumps).findings, []);
    // The slow one still remembers what the fast one has forgotten.
    dumps[1].entries.truncate(4);
    dumps[0].entries[2].state = State::Started;
    let report = analyse(&dumps);
    assert!(matches!(report.findings[..], [Finding::Absent { rank: 1, sequence: 4, .. }]), "{report}");
}

/// Rank 1 remembers nothing but messages; the others wait in the collective number 5.
fn flooded(upcoming: Option<u64>) -> Report {
    let dumps = world(3, |number, rank| {
        let mut rank = rank.done("all_reduce", 5);
        if number != 1 {
            rank.call(0, "barrier", 10 * SECOND, State::Started);
            return rank;
        }
        rank.0.entries.clear();
        (rank.0.groups[0].forgotten, rank.0.groups[0].upcoming) = (9, upcoming);
        let message = rank.call(0, "send", 20 * SECOND, State::Done);
        (message.record, message.sequence) = (9, 4);
        rank
    });
    analyse(&dumps)
}

#[test]
fn who_remembers_nothing_but_messages_is_known_by_its_numbers() {
    let report = flooded(Some(6));
    let [Finding::Unfinished { waiting, .. }] = &report.findings[..] else { panic!("{report}") };
    assert_eq!(waiting.len(), 2);
    let report = flooded(Some(5));
    assert!(matches!(report.findings[..], [Finding::Absent { rank: 1, sequence: 5, .. }]), "{report}");
    let expected = "- world: rank 1 never called barrier 5; ranks 0, 2 wait there (at train.rs:15) since 990.000 s; \
                    its last is no longer remembered\n";
    assert!(report.to_string().contains(expected), "{report}");
}

#[test]
fn who_remembers_nothing_but_messages_and_has_no_numbers_is_not_blamed() {
    let report = flooded(None);
    let [finding @ Finding::Unknown { .. }] = &report.findings[..] else { panic!("{report}") };
    assert_eq!(finding.culprits(), Vec::<usize>::new());
    assert_eq!(
        finding.to_string(),
        "world: ranks 0, 2 wait in barrier 5 (at train.rs:15) since 990.000 s; it is not known whether rank 1 called it, \
         because newer operations have taken its place"
    );
}

/// PyTorch's recorder keeps so many entries, not operations: of three that were coalesced under one number the first may be gone.
#[test]
fn a_coalesced_group_that_a_ring_has_cut_is_no_divergence() {
    for last in [9, 3] {
        let dumps = world(2, |number, mut rank| {
            // Rank 0 is one operation ahead, and waits there.
            for sequence in 1..=last + u64::from(number == 0) {
                let state = if sequence > last { State::Started } else { State::Done };
                for part in 0..3 {
                    let entry = rank.call(0, "all_reduce", sequence * SECOND, state.clone());
                    (entry.sequence, entry.output) = (sequence, 8 + part);
                }
            }
            let forgotten = rank.0.entries.len().saturating_sub(10);
            rank.0.entries.drain(..forgotten);
            rank
        });
        let report = analyse(&dumps);
        let [Finding::Absent { rank: 1, sequence, .. }] = report.findings[..] else { panic!("{report}") };
        assert_eq!(sequence, last + 1);
    }
}

#[test]
fn coalesced_groups_that_are_remembered_whole_are_compared() {
    let dumps = world(2, |number, mut rank| {
        for (sequence, parts) in [(1, 3), (2, 3 - number), (3, 3)] {
            (0..parts).for_each(|_| rank.call(0, "all_reduce", SECOND, State::Done).sequence = sequence);
        }
        rank.0.entries.remove(0);
        rank
    });
    let [finding] = &analyse(&dumps).findings[..] else { panic!("{:?}", told(&dumps)) };
    assert!(finding.to_string().starts_with("world: operation 2 differs in the number of coalesced operations: "));
}

/// A dump may say any number. Nothing comes after the last one.
#[test]
fn a_disagreement_under_the_last_number_is_one_that_nobody_went_on_from() {
    let dumps = world(2, |number, rank| {
        let mut rank = rank.done("all_reduce", 1);
        rank.put((0, u64::MAX), "all_reduce", SECOND, State::Failed("desync".to_owned())).output = 9 + number as u64;
        rank
    });
    let report = analyse(&dumps);
    assert!(matches!(report.findings[0], Finding::Divergence { sequence: u64::MAX, is_over: false, .. }), "{report}");
}

/// Each group by itself: a look at all that waits, or at all that a rank remembers, for each of so many takes minutes.
#[test]
fn very_many_groups_that_wait_are_looked_at_once_each() {
    const GROUPS: usize = 50_000;
    let [mut waiting, mut forgetful] = [0, 1].map(|rank| Rank::bare(rank, 2));
    for at in 0..GROUPS {
        let name = format!("pair {at}");
        waiting = waiting.group(&name, vec![0, 1]);
        waiting.put((at, 0), "all_reduce", SECOND, State::Started);
        forgetful = forgetful.group(&name, vec![0, 1]);
        forgetful.put((at, 4), "send", SECOND, State::Done).record = 9;
    }
    let mut dumps = vec![waiting.0];
    let report = analyse(&dumps);
    let [Finding::NoDump { ranks, waiting }] = &report.findings[..] else {
        panic!("{} findings", report.findings.len())
    };
    assert_eq!((&ranks[..], waiting.len()), (&[1][..], GROUPS));
    assert_eq!(verdicts(&dumps, &report), [GROUPS, 0]);

    dumps.push(forgetful.0);
    let report = analyse(&dumps);
    let is_it = |finding: &Finding| matches!(finding, Finding::Unknown { waiting, .. } if waiting.len() == 1);
    assert_eq!(report.findings.iter().filter(|finding| is_it(finding)).count(), GROUPS);
    assert_eq!(verdicts(&dumps, &report), [GROUPS, GROUPS]);

    // It says now that it has called none of them.
    dumps[1].groups.iter_mut().for_each(|group| group.upcoming = Some(0));
    let report = analyse(&dumps);
    let is_it = |finding: &Finding| matches!(finding, Finding::Absent { rank: 1, busy: None, .. });
    assert_eq!(report.findings.iter().filter(|finding| is_it(finding)).count(), GROUPS);
}

/// How many operations something was found about, and about how many nothing was.
fn verdicts(dumps: &[Dump], report: &Report) -> [usize; 2] {
    let timeline = Timeline::of(dumps, report);
    let (told, others): (Vec<_>, Vec<_>) =
        timeline.operations.iter().partition(|operation| !operation.verdicts.is_empty());
    [told.len(), others.len()]
}

/// Ranks of which each waits for the next, in a group of these two.
fn chain(length: usize, is_closed: bool) -> Vec<Dump> {
    let links = if is_closed { length } else { length - 1 };
    let rank = |number: usize| {
        let mut rank = Rank::bare(number, length);
        for link in [number, (number + length - 1) % length].into_iter().filter(|link| *link < links) {
            rank = rank.group(&format!("link {link}"), vec![link, (link + 1) % length]);
        }
        if number < links {
            rank.put((0, 0), "all_reduce", SECOND, State::Started);
        }
        rank.0
    };
    (0..length).map(rank).collect()
}

/// Whoever is freed frees one other: a look at all ranks for each of so many takes minutes.
#[test]
fn very_many_ranks_that_wait_in_a_row_are_no_deadlock_and_in_a_circle_they_are() {
    const RANKS: usize = 50_000;
    let report = analyse(&chain(RANKS, false));
    assert!(matches!(report.findings[0], Finding::Absent { rank, busy: None, .. } if rank == RANKS - 1));
    assert_eq!(report.findings.len(), RANKS - 1);
    let report = analyse(&chain(RANKS, true));
    let Finding::Deadlock { circle } = &report.findings[0] else { panic!("{} findings", report.findings.len()) };
    assert!(circle.iter().map(|place| place.rank).eq(0..RANKS));
}

/// The page on hangs quotes what is printed: whoever searches it for a line of a report finds its row.
#[test]
fn the_page_on_hangs_has_every_finding_in_its_own_words() {
    let page = include_str!("../../../../docs/hangs.md").lines();
    let rows =
        page.skip_while(|line| !line.starts_with("| it says |")).skip(2).take_while(|line| line.starts_with('|'));
    let first = rows.filter_map(|row| row.split('|').nth(1));
    let quoted: Vec<&str> = first.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let told: Vec<String> = one_of_each().iter().map(ToString::to_string).collect();
    for quote in &quoted {
        assert!(told.iter().any(|told| told.contains(quote)), "{quote} is said of nothing");
    }
    for told in &told {
        assert!(quoted.iter().any(|quote| told.contains(quote)), "{told} has no row");
    }
}

/// What the page on hangs tells of.
fn one_of_each() -> Vec<Finding> {
    let group = || "world".to_owned();
    let place = |rank: usize, kind: &str, sequence: u64| Place {
        rank,
        group: group(),
        kind: kind.to_owned(),
        sequence,
        tag: None,
        site: None,
        state: "started",
        is_aborted: false,
        age_ns: None,
    };
    let (recv, reduce) = (|rank| place(rank, "recv", 3), |rank| place(rank, "all_reduce", 1000));
    let differs = |sequence, is_over| {
        let (field, sides) = ("elements", Vec::new());
        Finding::Divergence { group: group(), sequence, field, sides, is_over }
    };
    let unanswered = |last| Finding::Unanswered { group: group(), place: recv(0), peer: 1, last };
    vec![
        differs(1000, false),
        Finding::Deadlock { circle: vec![recv(0), recv(1)] },
        Finding::Absent {
            group: group(),
            sequence: 1000,
            kind: Some("all_reduce".to_owned()),
            rank: 2,
            last: None,
            is_forgotten: false,
            busy: Some(place(2, "barrier", 3)),
            waiting: [reduce(0), reduce(1)].into(),
        },
        Finding::Absent {
            group: group(),
            sequence: 1000,
            kind: Some("all_reduce".to_owned()),
            rank: 2,
            last: None,
            is_forgotten: false,
            busy: None,
            waiting: [Place { is_aborted: true, ..reduce(0) }].into(),
        },
        unanswered(None),
        unanswered(Some(reduce(1))),
        Finding::Unsent { group: group(), place: recv(0), free: vec![1] },
        Finding::NoDump { ranks: vec![2], waiting: Vec::new() },
        Finding::Unknown { group: group(), ranks: vec![2], waiting: vec![reduce(0)] },
        Finding::NoGroup { group: group(), ranks: vec![2], waiting: vec![reduce(0)] },
        Finding::Verdict { group: group(), verdict: "rank 2 is dead".to_owned(), ranks: vec![0, 1] },
        Finding::Unfinished { group: group(), waiting: vec![reduce(1)], done: vec![0] },
        Finding::Undelivered { group: group(), place: recv(0), peer: 1 },
        differs(12, true),
        Finding::Failed { group: group(), error: "timeout".to_owned(), places: vec![reduce(0)] },
        Finding::Late { rank: 2, times: 951, operations: 998, caused_ns: SECOND, span_ns: SECOND },
    ]
}
