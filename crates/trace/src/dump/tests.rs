//! Dumps taken from groups that really ran, and their JSON.

use std::time::{Duration, SystemTime};

use phalanx_comm::Threads;
use phalanx_core::{GroupOptions, ReduceOp};

use super::*;
use crate::Broken;

fn identity(rank: usize) -> Identity {
    Identity { rank, world_size: 2, host_name: "host".to_owned(), pid: 7 }
}

/// Two ranks that reduce once and then send one message.
fn dumps() -> Vec<Dump> {
    let options = GroupOptions::default().name("pair").timeout(Duration::from_secs(20)).epoch(3);
    let ranks = Threads::new(2).options(options).run(|group| {
        let mut data = [1.0_f32; 4];
        group.all_reduce(&mut data, ReduceOp::Sum).expect("both come");
        if group.rank() == 0 {
            group.send(&data, 1, 5).expect("a receiver");
        } else {
            group.recv(&mut data, 0, 5).expect("a sender");
        }
        let mut dump = Dump::new(identity(group.rank()), SystemTime::now());
        dump.add(&group, group.members().to_vec(), "test", None);
        dump
    });
    ranks.expect("two threads")
}

#[test]
fn a_dump_tells_what_a_group_did() {
    let dumps = dumps();
    let [reduced, sent] = &dumps[0].entries[..] else { panic!("{dumps:?}") };
    assert_eq!((&*reduced.kind, reduced.sequence, reduced.input, reduced.output), ("all_reduce", 0, 4, 4));
    assert_eq!((reduced.dtype.as_deref(), reduced.reduce.as_deref()), (Some("f32"), Some("sum")));
    assert_eq!((reduced.timeout_ns, &reduced.state), (Some(20_000_000_000), &State::Done));
    assert!(reduced.site.as_ref().is_some_and(|site| site.file.ends_with("tests.rs") && site.line > 0));
    assert_eq!((&*sent.kind, sent.peer, sent.is_message), ("send", Some(1), true));
    assert_eq!((reduced.tag, sent.tag, dumps[1].entries[1].tag), (None, Some(5), Some(5)));
    let group = &dumps[1].groups[0];
    assert_eq!((&*group.name, group.epoch, group.members.as_deref()), ("pair", 3, Some(&[0, 1][..])));
    assert_eq!(group.upcoming, Some(1));
    for entry in dumps.iter().flat_map(|dump| &dump.entries) {
        let (taken, ended) = (dumps[0].taken_ns.expect("known"), entry.ended_ns.expect("it ended"));
        assert!(entry.created_ns <= ended, "{entry:?}");
        assert!(ended.abs_diff(taken) < 60_000_000_000, "not on the wall's clock: {entry:?}");
    }
    assert_eq!(crate::analyse(&dumps).findings, []);
}

#[test]
fn json_gives_the_dump_back() {
    for dump in dumps() {
        assert_eq!(Dump::from_json(dump.to_json().as_bytes()), Ok(dump));
    }
}

/// As it was written before dumps told worlds, generations, tags and upcoming numbers.
#[test]
fn an_older_dump_is_read() {
    let mut dump = dumps().remove(0);
    let mut json: serde_json::Value = serde_json::from_str(&dump.to_json()).expect("JSON");
    let without = |object: &mut serde_json::Value, key: &str| {
        object.as_object_mut().expect("an object").remove(key).expect("written");
    };
    ["generation", "upcoming"].into_iter().for_each(|key| without(&mut json["groups"][0], key));
    without(&mut json, "met_ns");
    (0..2).for_each(|at| without(&mut json["entries"][at], "tag"));
    (dump.groups[0].generation, dump.groups[0].upcoming) = (None, None);
    dump.entries.iter_mut().for_each(|entry| entry.tag = None);
    assert_eq!(Dump::from_json(json.to_string().as_bytes()), Ok(dump));
}

#[test]
fn a_newer_format_is_refused_before_anything_else() {
    let newer = br#"{"format": 2, "novelty": []}"#;
    assert_eq!(Dump::from_json(newer), Err(Broken::Format { found: 2, known: 1 }));
    assert_eq!(Dump::from_json(br#"{"format": 0}"#), Err(Broken::Format { found: 0, known: 1 }));
}

/// All ranks of each of them would be written out.
#[test]
fn more_groups_of_all_ranks_than_any_job_has_are_refused() {
    let mut dump = dumps().remove(0);
    dump.world_size = Some(1 << 20);
    dump.groups = vec![TracedGroup { members: None, ..dump.groups[0].clone() }; 16];
    dump.check().expect("a large job");
    dump.groups.push(dump.groups[0].clone());
    let told = "groups without members is 17, must be so few that their ranks together are 16777216 or less";
    assert_eq!(dump.check().expect_err("none is so large").to_string(), told);
}

#[test]
fn json_that_is_cut_off_or_lies_is_named() {
    let whole = dumps().remove(0).to_json();
    for len in 0..whole.len() {
        let read = Dump::from_json(&whole.as_bytes()[..len]);
        assert!(matches!(read, Err(Broken::Json { .. })), "{len}: {read:?}");
    }
    let lie = |from: &str, to: &str| {
        assert_eq!(whole.matches(from).count(), 1, "{from}");
        Dump::from_json(whole.replace(from, to).as_bytes()).expect_err("a lie").to_string()
    };
    assert_eq!(lie("\"members\":[0,1]", "\"members\":[0,0]"), "groups[0].members is 0, must be there once");
    assert_eq!(lie("\"members\":[0,1]", "\"members\":[0,2]"), "groups[0].members is 2, must be below the world size");
    assert_eq!(lie("\"rank\":0,", "\"rank\":2,"), "rank is 2, must be below the world size");
    assert_eq!(lie("\"world_size\":2", "\"world_size\":99999999"), "world_size is 99999999, must be 1048576 or less");
    let stray = whole.replace("\"group\":0", "\"group\":4");
    let stray = Dump::from_json(stray.as_bytes()).expect_err("a stray");
    assert_eq!(stray.to_string(), "entries[0].group is 4, must be the place of one of the groups");
}
