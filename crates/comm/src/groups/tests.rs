//! Worlds of threads that form groups.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use phalanx_core::backend::{Backend, Buffers, Number, Pending};
use phalanx_core::player::Data;
use phalanx_core::store::{Limits, Store};
use phalanx_core::{Call, Chain, Error, ErrorKind, Group, OpKind, ReduceOp, Result, Scope};

use crate::rendezvous::{World, WorldOptions};
use crate::secure::JobKey;
use crate::store::LocalStore;
use crate::{Backends, Formed, Maker, Network, Registry, Seat, Transport, Wiring};

fn worlds(size: usize, act: impl Fn(&World) + Sync) {
    let store = Store::new(LocalStore::new(Limits::default()));
    let key = JobKey::mint().expect("random bytes");
    thread::scope(|scope| {
        for rank in 0..size {
            let (store, options, act) = (store.clone(), WorldOptions::new(rank, size).key(key.clone()), &act);
            scope.spawn(move || act(&World::join(store, &options).expect("a world")));
        }
    });
}

/// The sum of the members' ranks in the world, which is the group's own.
fn check(group: &Group, world: &World, members: &[usize]) {
    let mut data = [world.rank() as u32];
    group.all_reduce(&mut data, ReduceOp::Sum).expect("a group");
    assert_eq!(data, [members.iter().sum::<usize>() as u32]);
    assert_eq!((group.members(), group.size()), (members, members.len()));
    assert_eq!(group.world_rank(group.rank()), Some(world.rank()));
    assert_eq!(group.rank_of(members[0]), Some(0));
    assert_eq!((group.world_rank(members.len()), group.rank_of(1000)), (None, None));
}

#[test]
fn a_world_has_any_number_of_groups_over_any_transport() {
    worlds(3, |world| {
        for transport in [Transport::Automatic, Transport::Tcp, Transport::SharedMemory] {
            let group = world.wire(&Wiring::default().transport(transport)).expect("all come");
            check(&group, world, &[0, 1, 2]);
            let part = world.subgroup(&[2, 0], &Wiring::default().transport(transport)).expect("all come");
            assert_eq!(part.is_some(), world.rank() != 1);
            part.iter().for_each(|part| check(part, world, &[2, 0]));
        }
    });
}

/// A trainer may form groups for as long as it runs.
#[test]
fn groups_leave_nothing_on_the_store() {
    let kept = Mutex::new(vec![]);
    let formed = Barrier::new(3);
    worlds(3, |world| {
        for _ in 0..3 {
            for transport in [Transport::Automatic, Transport::Tcp, Transport::SharedMemory] {
                let wiring = Wiring::default().transport(transport);
                world.wire(&wiring).expect("all come").barrier().expect("all come");
                let half = world.split((world.rank() < 2).then_some(0), 0, &wiring).expect("all ask");
                half.iter().for_each(|half| half.barrier().expect("both come"));
            }
            if formed.wait().is_leader() {
                kept.lock().expect("no panic").push(world.store().num_keys().expect("a store"));
            }
            formed.wait();
        }
    });
    let kept = kept.into_inner().expect("no panic");
    assert_eq!(kept, [kept[0]; 3]);
}

#[test]
fn a_world_of_any_size_is_divided_in_every_way() {
    for size in 1..=5 {
        let everyone: Vec<usize> = (0..size).collect();
        let backwards: Vec<usize> = (0..size).rev().collect();
        worlds(size, |world| {
            let (rank, wiring) = (world.rank(), Wiring::default().timeout(Duration::from_secs(60)));
            let all = world.group().expect("all come");
            check(&all, world, &everyone);
            assert_eq!((world.size(), world.nodes(), world.local_rank()), (size, 1, rank));
            assert_eq!((all.name(), all.timeout(), world.groups().len()), ("world", Duration::from_secs(30 * 60), 1));
            check(&world.subgroup(&backwards, &wiring).expect("all ask").expect("all in it"), world, &backwards);
            check(&world.host_group(&wiring).expect("all ask"), world, &everyone);
            for part in (1..=size).filter(|part| size % part == 0) {
                let first = rank - rank % part;
                check(&world.equal_groups(part, &wiring).expect("it divides"), world, &everyone[first..first + part]);
            }
            let alike: Vec<usize> = everyone.iter().copied().filter(|other| other % 2 == rank % 2).collect();
            let lists: Vec<Vec<usize>> =
                (0..2).map(|odd| everyone.iter().copied().filter(|other| other % 2 == odd).collect()).collect();
            let lists: Vec<_> = lists.into_iter().filter(|list: &Vec<usize>| !list.is_empty()).collect();
            check(&world.groups_of(&lists, &wiring).expect("all ask").expect("in one"), world, &alike);
            let descending: Vec<usize> = alike.iter().rev().copied().collect();
            let half = world.split(rank as u32 % 2, -(rank as i64), &wiring).expect("all ask").expect("a colour");
            check(&half, world, &descending);
            check(&world.split_group(&half, 0, 0, &wiring).expect("the half asks").expect("in it"), world, &descending);
            let mesh = world.mesh(&[("replica", 1), ("shard", size)], &wiring).expect("all ask");
            check(mesh.group("replica").expect("named"), world, &[rank]);
            check(mesh.group("shard").expect("named"), world, &everyone);
            world.store().set(&rank.to_string(), b"here").expect("a store");
            world.barrier("all", Duration::from_secs(60)).expect("all");
            assert!(
                everyone.iter().all(|rank| world.store().get(&rank.to_string()).is_ok_and(|value| value == b"here"))
            );
            all.abort("the end");
            let error = all.barrier().expect_err("aborted");
            assert_eq!((error.kind(), error.scope()), (ErrorKind::Aborted, Scope::Group));
        });
    }
}

#[test]
fn who_does_not_come_is_named_by_its_rank_in_the_world() {
    worlds(3, |world| {
        let wiring = Wiring::default().timeout(Duration::from_millis(300));
        if world.rank() == 0 {
            let error = world.wire(&wiring).expect_err("others do not come");
            assert_eq!(error.kind(), ErrorKind::Setup);
            assert!(error.to_string().contains("ranks 1, 2"), "{error}");
            let error = world.subgroup(&[2, 0], &wiring.clone().members_only(true)).expect_err("rank 2 does not come");
            assert!(error.to_string().contains("forming group \"ranks 2, 0\": rank 2 of 2 did not come"), "{error}");
            let over_tcp = wiring.transport(Transport::Tcp);
            let error = world.subgroup(&[2, 0], &over_tcp.members_only(true)).expect_err("rank 2 does not come");
            assert!(error.to_string().contains("ranks over TCP: rank 2 of 2 did not come"), "{error}");
        }
        world.barrier("end", Duration::from_secs(10)).expect("all");
    });
}

#[test]
fn errors_of_a_part_name_ranks_of_the_world() {
    for transport in [Transport::SharedMemory, Transport::Tcp] {
        worlds(4, |world| {
            let wiring = Wiring::default().transport(transport);
            let parts = [(); 3].map(|()| world.subgroup(&[3, 2], &wiring).expect("all ask"));
            let all_are_through = |step| world.barrier(step, Duration::from_secs(10)).expect("all");
            let [quarrel, wait, end] = &parts;
            if let Some(group) = quarrel {
                let ended = group.all_reduce(&mut vec![0; world.rank()], ReduceOp::Sum);
                let Err(Error::Desync(desync)) = ended else { panic!("other lengths: {ended:?}") };
                assert_eq!([desync.rank.min(desync.peer), desync.rank.max(desync.peer)], [2, 3], "{desync}");
            }
            all_are_through("quarrel");
            if let (Some(group), 3) = (wait, world.rank()) {
                let error = group.within(LONG_ENOUGH).recv(&mut [0], 1, 0).expect_err("nobody sends");
                assert_eq!(error.culprits(), [2], "{error}");
                assert!(error.to_string().contains("waiting for rank 2"), "{error}");
                let later = group.recv_async(vec![0], 1, 0).and_then(|work| work.wait().map(drop));
                assert_eq!(later.expect_err("it has failed").culprits(), [2]);
            }
            all_are_through("wait");
            if let Some(group) = end {
                if world.rank() == 3 {
                    group.abort("enough");
                }
                let error = group.barrier().expect_err("rank 3 ends it");
                assert!(error.to_string().contains("rank 3: enough"), "{error}");
            }
            all_are_through("end");
        });
    }
}

/// Row 33 of the faults: two groups, called in different orders. Who gives up first leaves its group at once.
#[test]
fn ranks_that_wait_for_each_other_in_two_groups_learn_it() {
    for transport in [Transport::SharedMemory, Transport::Tcp] {
        worlds(2, |world| {
            let wiring = |name| Wiring::default().transport(transport).named(name);
            let [one, other] = ["one", "other"].map(|name| world.wire(&wiring(name)).expect("all come"));
            let (mine, patience) = if world.rank() == 0 { (&one, LONG_ENOUGH) } else { (&other, LONG_ENOUGH * 3 / 2) };
            let error = mine.within(patience).all_reduce(&mut [1], ReduceOp::Sum).expect_err("nobody comes");
            if world.rank() == 0 {
                drop(one);
            }
            let (peer, group) = if world.rank() == 0 { (1, "other") } else { (0, "one") };
            let circle = format!("rank {peer}, which waits in group {group:?} for rank {}", world.rank());
            let told = format!("{transport}: {error}");
            assert!(matches!(error, Error::Timeout(timeout) if timeout.chain == Chain::Circle(circle)), "{told}");
            world.barrier("both", Duration::from_secs(10)).expect("all");
        });
    }
}

#[test]
fn a_wait_is_followed_to_the_rank_that_waits_for_nobody() {
    for transport in [Transport::SharedMemory, Transport::Tcp] {
        worlds(3, |world| {
            let group = world.wire(&Wiring::default().transport(transport)).expect("all come");
            let ended = match world.rank() {
                0 => group.within(LONG_ENOUGH).recv(&mut [0], 1, 0).map(drop),
                1 => group.recv(&mut [0], 2, 0).map(drop),
                _ => Ok(()),
            };
            if world.rank() == 0 {
                let error = ended.expect_err("nobody sends");
                let told = "waiting for rank 1, which waits for rank 2";
                assert!(error.to_string().ends_with(told), "{transport}: {error}");
                assert_eq!(error.culprits(), [2]);
            }
            world.barrier("all", Duration::from_secs(20)).expect("all");
        });
    }
}

/// Threads of one rank wait in two groups, and what one of them waits for comes.
#[test]
fn a_wait_that_ends_says_nothing_of_another_of_its_rank() {
    worlds(3, |world| {
        let [one, other] = ["one", "other"].map(|name| world.wire(&Wiring::default().named(name)).expect("all come"));
        match world.rank() {
            0 => {
                let error = one.within(LONG_ENOUGH).recv(&mut [0], 1, 0).expect_err("nobody sends");
                assert_eq!(error.culprits(), [2], "{error}");
            }
            1 => thread::scope(|scope| {
                scope.spawn(|| one.recv(&mut [0], 2, 0).expect_err("rank 0 gives up"));
                other.recv(&mut [0], 2, 0).expect("it comes");
            }),
            _ => {
                // A wait is told once it is long.
                thread::sleep(Duration::from_millis(200));
                other.send(&[1], 1, 0).expect("it is awaited");
            }
        }
        world.barrier("all", Duration::from_secs(20)).expect("all");
    });
}

/// A rank tells whom it waits for though another sends it what it has not asked for all the time.
#[test]
fn a_wait_is_long_whatever_comes_that_nobody_asked_for() {
    let is_over = AtomicBool::new(false);
    worlds(4, |world| {
        let group = world.wire(&Wiring::default()).expect("all come");
        match world.rank() {
            0 => {
                let error = group.within(LONG_ENOUGH).recv(&mut [0], 1, 0).expect_err("nobody sends");
                is_over.store(true, Ordering::Release);
                assert_eq!(error.culprits(), [2], "{error}");
            }
            1 => drop(group.recv(&mut [0], 2, 0).expect_err("rank 0 gives up")),
            2 => {}
            _ => {
                while !is_over.load(Ordering::Acquire) && group.send(&[1], 1, 9).is_ok() {
                    // More often than a wait becomes long, and not so often that it never comes to a sleep.
                    thread::sleep(Duration::from_millis(10));
                }
            }
        }
        world.barrier("all", Duration::from_secs(20)).expect("all");
    });
}

#[test]
fn equal_groups_host_groups_and_lists() {
    worlds(4, |world| {
        let pair = if world.rank() < 2 { [0, 1] } else { [2, 3] };
        check(&world.equal_groups(2, &Wiring::default()).expect("all ask"), world, &pair);
        check(&world.host_group(&Wiring::default()).expect("all ask"), world, &[0, 1, 2, 3]);
        let mine = world.groups_of(&[vec![3, 1], vec![0]], &Wiring::default().named("listed")).expect("all ask");
        let expected: Option<(&[usize], &str)> = match world.rank() {
            0 => Some((&[0], "listed/1")),
            2 => None,
            _ => Some((&[3, 1], "listed/0")),
        };
        assert_eq!(mine.as_ref().map(|group| (group.members(), group.name())), expected);
        mine.iter().for_each(|group| check(group, world, expected.expect("in one").0));
    });
}

#[test]
fn a_split_orders_by_key_and_can_be_split_again() {
    worlds(5, |world| {
        let colour = (world.rank() != 4).then_some(world.rank() as u32 % 2);
        let half = world.split(colour, -(world.rank() as i64), &Wiring::default()).expect("all ask");
        let Some(half) = half else { return assert_eq!(world.rank(), 4) };
        let members = if world.rank() % 2 == 0 { [2, 0] } else { [3, 1] };
        check(&half, world, &members);
        let again = world.split_group(&half, 0, 1, &Wiring::default()).expect("the half asks").expect("all in it");
        check(&again, world, &members);
    });
}

#[test]
fn a_mesh_has_a_group_along_each_dimension() {
    worlds(4, |world| {
        let wiring = Wiring::default();
        let mesh = world.mesh(&[("replica", 2), ("shard", 2)], &wiring).expect("all ask");
        let (replica, shard) = (world.rank() / 2, world.rank() % 2);
        assert_eq!((mesh.coordinates(), mesh.coordinate("shard")), ([replica, shard].as_slice(), Some(shard)));
        assert_eq!((mesh.rank_at(&[replica, shard]), mesh.rank_at(&[0, 2])), (Some(world.rank()), None));
        check(mesh.group("replica").expect("named"), world, &[shard, shard + 2]);
        check(mesh.group("shard").expect("named"), world, &[2 * replica, 2 * replica + 1]);
        assert!(mesh.group("tensor").is_none());
        check(&world.mesh_group(&mesh, &["shard", "replica"], &wiring).expect("all ask"), world, &[0, 1, 2, 3]);
        for (wrong, told) in [
            (&[("a", 2), ("b", 3)][..], "mesh: dimensions is 2 x 3, must multiply to the size 4 of the world"),
            (&[("a", 2), ("a", 2)], "mesh: dimensions is \"a\" twice, must have different names"),
        ] {
            assert_eq!(world.mesh(wrong, &wiring).expect_err("wrong").to_string(), told);
        }
        let error = world.mesh_group(&mesh, &["c"], &wiring).expect_err("unknown");
        assert_eq!(error.to_string(), "mesh_group: dimensions is \"c\", must be of replica, shard");
    });
}

#[test]
fn a_rank_that_gives_a_mesh_other_extents_is_told_and_nobody_is_behind_after_it() {
    worlds(4, |world| {
        let wiring = Wiring::default();
        let extents = if world.rank() == 3 { [("replica", 4), ("shard", 2)] } else { [("replica", 2), ("shard", 2)] };
        let error = world.mesh(&extents, &wiring).expect_err("they differ");
        let expected = if world.rank() == 3 { ErrorKind::Usage } else { ErrorKind::Desync };
        assert_eq!(error.kind(), expected, "{error}");
        let mesh = world.mesh(&[("replica", 2), ("shard", 2)], &wiring).expect("all ask");
        check(mesh.group("shard").expect("named"), world, &[world.rank() & 2, world.rank() | 1]);
    });
}

#[test]
fn ranks_that_ask_for_different_groups_are_told_at_once() {
    worlds(3, |world| {
        let ranks = if world.rank() == 2 { [0, 2] } else { [0, 1] };
        let error = world.subgroup(&ranks, &Wiring::default()).expect_err("they differ");
        assert_eq!((error.kind(), error.scope()), (ErrorKind::Desync, Scope::Call));
        let theirs = "groups subgroup of ranks 0, 2 over any transport";
        assert!(error.to_string().contains(theirs), "{error}");
        check(&world.wire(&Wiring::default()).expect("the world is well"), world, &[0, 1, 2]);
        let again = world.subgroup(&[0, 1], &Wiring::default()).expect("now they agree");
        again.iter().for_each(|group| check(group, world, &[0, 1]));
    });
}

/// A rank that kept its mistake to itself would be one call behind the others from then on.
#[test]
fn ranks_that_ask_for_what_cannot_be_are_told_at_once_and_stay_in_step() {
    worlds(3, |world| {
        let (wiring, only_members) = (Wiring::default(), Wiring::default().members_only(true));
        let is_wrong = world.rank() == 2;
        let askings: [&dyn Fn(bool) -> Result<Option<Group>>; 4] = [
            &|wrong| world.subgroup(if wrong { &[0, 9] } else { &[0, 1] }, &wiring),
            &|wrong| world.groups_of(&[vec![0, 1], vec![if wrong { 1 } else { 2 }]], &wiring),
            &|wrong| world.equal_groups(if wrong { 2 } else { 3 }, &wiring).map(Some),
            &|wrong| world.split(0, 0, if wrong { &only_members } else { &wiring }),
        ];
        for ask in askings {
            let error = ask(is_wrong).expect_err("one is wrong");
            assert_eq!((error.kind(), error.scope()), (ErrorKind::Desync, Scope::Call), "{error}");
            assert_eq!(ask(true).expect_err("all are wrong").kind(), ErrorKind::Usage);
            ask(false).expect("none is wrong").iter().for_each(|group| group.barrier().expect("all are here"));
        }
    });
}

#[test]
fn threads_and_orders_may_differ_where_names_tell() {
    worlds(3, |world| {
        let form = |name: &str, ranks: &[usize]| {
            let group = world.subgroup(ranks, &Wiring::default().named(name)).expect("named");
            group.iter().for_each(|group| check(group, world, ranks));
        };
        let asked: [(&str, &[usize]); 3] = [("a", &[0, 1]), ("b", &[1, 2]), ("c", &[0, 1, 2])];
        thread::scope(|scope| {
            for at in 0..asked.len() {
                let (name, ranks) = asked[(at + world.rank()) % asked.len()];
                scope.spawn(move || form(name, ranks));
            }
        });
    });
}

#[test]
fn a_world_knows_its_groups_until_they_are_dropped() {
    worlds(2, |world| {
        let all = world.wire(&Wiring::default()).expect("both");
        let alone = world.equal_groups(1, &Wiring::default().named("alone")).expect("both");
        let formed = |number, name: &str, members: &[usize]| Formed {
            number,
            name: name.to_owned(),
            generation: 0,
            members: members.to_vec(),
            backend: "host".to_owned(),
            transport: Transport::SharedMemory,
        };
        let own = formed(1, &format!("alone/{}", world.rank()), &[world.rank()]);
        assert_eq!(world.groups(), [formed(0, "world", &[0, 1]), own.clone()]);
        drop(all);
        assert_eq!(world.groups(), [own]);
        drop(alone);
        assert!(world.groups().is_empty());
    });
}

#[test]
fn all_ranks_know_alike_when_they_met() {
    let start = || {
        let seen = Mutex::new(vec![]);
        worlds(2, |world| {
            let met = world.registry().met_ns();
            seen.lock().expect("no panic").push(met);
            let (shown, smaller) = (Registry::of(world.rank(), 2), Registry::of(0, 1));
            [&shown, &smaller].into_iter().for_each(|registry| registry.adopt(world.registry()));
            assert_eq!((shown.met_ns(), smaller.met_ns()), (met, None));
        });
        seen.into_inner().expect("no panic")
    };
    let [first, second] = [start(), start()];
    assert!(first[0].is_some() && first[0] == first[1] && second[0] == second[1] && first < second);
}

#[test]
fn what_a_registry_shows_is_of_one_start_for_as_long_as_it_lives() {
    let (shown, seen_of) = (Registry::of(0, 1), Mutex::new(vec![]));
    let start = |group: &Mutex<Option<Group>>| {
        worlds(1, |world| {
            shown.adopt(world.registry());
            let formed = world.group().expect("alone");
            shown.show(&formed, vec![0], Transport::Automatic);
            *group.lock().expect("no panic") = Some(formed);
            seen_of.lock().expect("no panic").push((world.registry().met_ns(), shown.met_ns()));
        });
    };
    let [kept, other] = [Mutex::new(None), Mutex::new(None)];
    start(&kept);
    start(&other);
    drop((kept.into_inner(), other.into_inner()));
    start(&Mutex::default());
    let seen = seen_of.into_inner().expect("no panic");
    let is_adopted: Vec<bool> = seen.iter().map(|(world, shown)| world == shown).collect();
    assert_eq!((is_adopted, &seen[0].1), (vec![true, false, true], &seen[1].1));
}

#[test]
fn ranks_tell_groups_of_one_name_apart_whichever_they_have_dropped() {
    worlds(2, |world| {
        let form = || world.subgroup(&[0, 1], &Wiring::default().named("again")).expect("both").expect("a member");
        let mut groups = [form(), form(), form()].map(Some);
        let generations = || world.groups().iter().map(|formed| formed.generation).collect::<Vec<_>>();
        assert_eq!(generations(), [0, 1, 2]);
        groups[world.rank()] = None;
        assert_eq!(generations(), if world.rank() == 0 { [1, 2] } else { [0, 2] });
        // Shown again by a layer with a list of its own, they count there.
        let registry = Registry::of(world.rank(), 2);
        let last = groups[2].as_ref().expect("kept");
        let show = |members| registry.show(last, members, Transport::Tcp);
        [vec![0, 1], vec![1, 0], vec![0, 1]].into_iter().for_each(show);
        let shown = registry.groups();
        assert_eq!(shown.iter().map(|(formed, _)| formed.generation).collect::<Vec<_>>(), [0, 0, 1]);
        last.barrier().expect("both");
    });
}

/// The host's backend over TCP, which counts the operations that are played at once.
#[derive(Default)]
struct Counting(Arc<AtomicUsize>);

struct Counted {
    host: Arc<dyn Backend>,
    played: Arc<AtomicUsize>,
}

impl Maker for Counting {
    fn make(&self, seat: &Seat) -> Result<Arc<dyn Backend>> {
        let network = Network::new(seat.layout().rank(), seat.layout().size(), seat.store().clone()).insecure(true);
        let host = Arc::clone(network.join(seat.timeout())?.backend());
        Ok(Arc::new(Counted { host, played: Arc::clone(&self.0) }))
    }
}

impl Backend for Counted {
    fn number(&self, op: OpKind, timeout: Duration) -> Result<Number> {
        self.host.number(op, timeout)
    }

    fn upcoming(&self) -> u32 {
        self.host.upcoming()
    }

    fn submit(&self, call: Call, buffers: Buffers) -> Box<dyn Pending> {
        self.host.submit(call, buffers)
    }

    fn run(&self, call: &Call, data: &mut Data<'_>) -> Result<Option<usize>> {
        self.played.fetch_add(1, Ordering::Relaxed);
        self.host.run(call, data)
    }

    fn abort(&self, cause: Error) {
        self.host.abort(cause);
    }

    fn now(&self) -> Duration {
        self.host.now()
    }
}

#[test]
fn a_backend_of_the_programs_own_takes_part_by_its_name() {
    let store = Store::new(LocalStore::new(Limits::default()));
    thread::scope(|scope| {
        for rank in 0..3 {
            let store = store.clone();
            scope.spawn(move || {
                let counting = Counting::default();
                let played = Arc::clone(&counting.0);
                let backends = Backends::new().register("counting", Arc::new(counting)).expect("free");
                let backends = backends.devices("cpu:host,odd:counting").expect("known");
                let world = World::join(store, &WorldOptions::new(rank, 3).backends(backends)).expect("a world");
                let group = world.wire(&Wiring::default().backend("counting")).expect("all ask");
                check(&group, &world, &[0, 1, 2]);
                assert_eq!(played.load(Ordering::Relaxed), 1);
                let pair = world.subgroup(&[2, 0], &Wiring::default().device("odd")).expect("all ask");
                pair.iter().for_each(|pair| check(pair, &world, &[2, 0]));
                check(&world.group().expect("the host's"), &world, &[0, 1, 2]);
                assert_eq!(played.load(Ordering::Relaxed), if rank == 1 { 1 } else { 2 });
                let told: Vec<String> = world.groups().into_iter().map(|formed| formed.backend).collect();
                assert_eq!(told, if rank == 1 { vec!["counting"] } else { vec!["counting", "counting"] });
                let error = world.wire(&Wiring::default().backend("other")).expect_err("unknown");
                assert_eq!(error.to_string(), "wire: backend is \"other\", must be one of counting, host");
                let backend = if rank == 1 { "host" } else { "counting" };
                let error = world.subgroup(&[0, 1], &Wiring::default().backend(backend)).expect_err("they differ");
                assert!(error.to_string().contains("over any transport, backend counting"), "{error}");
            });
        }
    });
}

/// The first rank keeps its number, and would wait for the others.
#[test]
fn a_group_from_before_its_world_changed_is_refused_by_all_ranks_alike() {
    let store = Store::new(LocalStore::new(Limits::default()));
    let act = |rank| {
        let world = World::join(store.clone(), &WorldOptions::new(rank, 4)).expect("all come");
        let whole = world.host_group(&Wiring::default()).expect("all ask");
        world.barrier("formed", Duration::from_secs(60)).expect("all");
        if rank == 1 {
            return;
        }
        let world = world.reconfigure(&[1], Duration::from_secs(60)).expect("three go on");
        let error = world.split_group(&whole, 0, 0, &Wiring::default()).expect_err("it is of four");
        assert!(error.to_string().ends_with("must be a group of this world"), "{error}");
        let whole = world.host_group(&Wiring::default()).expect("all ask");
        let again = world.split_group(&whole, 0, 0, &Wiring::default()).expect("all ask").expect("all in it");
        check(&again, &world, &[0, 1, 2]);
    };
    thread::scope(|scope| {
        for rank in 0..4 {
            scope.spawn(move || act(rank));
        }
    });
}

/// So that ranks of a busy machine say in time whom they wait for.
const LONG_ENOUGH: Duration = Duration::from_millis(1500);
