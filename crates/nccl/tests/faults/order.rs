//! Several groups on one device: in which order their operations come there.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use phalanx_core::{DType, ErrorKind, GroupOptions, Layout, Op, ReduceOp};
use phalanx_nccl::api::{Cuda, Process};
use phalanx_nccl::group::{DeviceBuffer, DeviceGroup, NcclOptions, Stack};
use phalanx_nccl::sim::{Fault, SimRank, Simulation};

use crate::seats::{DEVICE, Group, clean, group, seeds};

/// The devices have room for one operation. Ranks on which those of the two groups came in different orders would wait for each other.
#[test]
fn what_a_program_does_in_several_groups_comes_to_every_device_in_its_order() {
    for seed in seeds(20) {
        let job = (0..2).fold(Simulation::new(2, seed), |job, rank| job.fault(rank, Fault::OneQueue));
        let outcome = job.run(|rank| {
            let groups = ["one", "other"].map(|scope| group(&rank, scope, NcclOptions::default()).expect("a group"));
            let stream = rank.cuda.create_stream(DEVICE, false).expect("a stream");
            let data = [(); 2].map(|()| DeviceBuffer::new(&rank.cuda, DEVICE, 8).expect("memory"));
            data.iter().for_each(|data| rank.cuda.fill(data.span(), 0, stream).expect("filled"));
            let works = (0..6).flat_map(|_| groups.iter().zip(&data)).map(|(group, data)| {
                let op = Op::AllReduce { count: 2, reduce: ReduceOp::Sum };
                group.submit(op, DType::F32, None, (None, data), stream)
            });
            let works: Vec<_> = works.collect();
            works.into_iter().try_for_each(|work| work?.wait()).err()
        });
        clean(&outcome, seed);
        assert_eq!(outcome.results, [Some(None), Some(None)], "seed {seed}");
    }
}

/// They come to their groups in another order on each rank, so none of them may wait for another.
#[test]
fn threads_of_a_program_wait_for_none_of_each_others_operations() {
    for seed in seeds(8) {
        let outcome = Simulation::new(2, seed).run(|rank| {
            let [one, other] =
                ["one", "other"].map(|scope| group(&rank, scope, NcclOptions::default()).expect("a group"));
            let (bell, ended) = (rank.process.bell(), Arc::new(Mutex::new(None)));
            let (rung, told, host) = (Arc::clone(&bell), Arc::clone(&ended), other.group().clone());
            let beside = move || {
                let end = (0..3).try_for_each(|_| host.barrier());
                *told.lock().expect("no panic") = Some(end);
                rung.ring();
            };
            assert!(rank.process.spawn("beside".to_owned(), Box::new(beside)));
            let own = (0..3).try_for_each(|_| one.group().barrier());
            loop {
                let seen = bell.count();
                let beside = ended.lock().expect("no panic").take();
                match beside {
                    Some(end) => return own.and(end),
                    None => bell.wait(seen, None),
                }
            }
        });
        clean(&outcome, seed);
        assert_eq!(outcome.results, [Some(Ok(())), Some(Ok(()))], "seed {seed}");
    }
}

/// Rank 1 never comes to the first operation of rank 0, which the second waits behind.
#[test]
fn an_operation_that_fails_lets_those_behind_it_go_on() {
    for seed in seeds(6) {
        let outcome = Simulation::new(2, seed).run(|rank| {
            let [stuck, whole] =
                ["stuck", "whole"].map(|scope| group(&rank, scope, NcclOptions::default()).expect("a group"));
            let short = stuck.group().within(Duration::from_millis(300));
            let lost = (rank.rank == 0).then(|| short.all_reduce_async(vec![1.0_f32], ReduceOp::Sum).expect("begun"));
            let mut sum = [1_i32];
            let summed = whole.group().all_reduce(&mut sum, ReduceOp::Sum);
            (summed.map(|()| sum), lost.map(|work| work.wait().is_err()))
        });
        clean(&outcome, seed);
        let expected = [Some(true), None].map(|lost| Some((Ok([2]), lost)));
        assert_eq!(outcome.results, expected, "seed {seed}");
    }
}

/// A group of some of the ranks; none of the others.
fn among(rank: &SimRank, name: &str, members: &[usize]) -> Option<Group> {
    let place = members.iter().position(|&member| member == rank.rank)?;
    let (nccl, cuda, process) = (Arc::clone(&rank.nccl), Arc::clone(&rank.cuda), Arc::clone(&rank.process));
    let layout = Layout::one_host(place, members.len()).expect("a place");
    let options = GroupOptions::default().name(name).members(members).timeout(Duration::from_secs(2));
    let stack = Stack::new(nccl, cuda, process, DEVICE);
    Some(DeviceGroup::new(stack, layout, rank.store.scope(name), NcclOptions::default(), options).expect("a group"))
}

fn rest(rank: &SimRank, time: Duration) {
    let bell = rank.process.bell();
    bell.wait(bell.count(), Some(rank.process.now() + time));
}

/// Rank 2 never comes to what rank 0 has with it, and behind which that has begun something with rank 1.
#[test]
fn who_is_held_up_by_another_group_is_not_blamed() {
    for seed in seeds(6) {
        let outcome = Simulation::new(3, seed).run(|rank| {
            let [stuck, held] =
                [("stuck", [0, 2]), ("held", [0, 1])].map(|(name, members)| among(&rank, name, &members));
            let Some(held) = held else {
                rest(&rank, Duration::from_secs(4));
                return None;
            };
            let hung = stuck.as_ref().map(|stuck| stuck.group().all_reduce_async(vec![1.0_f32], ReduceOp::Sum));
            let error = held.group().within(Duration::from_secs(1)).all_reduce(&mut [1.0_f32], ReduceOp::Sum);
            let error = error.expect_err("it is held up");
            assert!(hung.is_none_or(|hung| hung.expect("begun").wait().is_err()));
            Some((error.to_string(), error.culprits()))
        });
        clean(&outcome, seed);
        let ends: Vec<_> = outcome.results.into_iter().flatten().flatten().collect();
        assert_eq!(ends.len(), 2, "seed {seed}");
        assert!(ends.iter().any(|(_, culprits)| culprits[..] == [2]), "seed {seed}: {ends:?}");
        for (told, culprits) in ends {
            assert!(told.contains("all_reduce (operation 0) of group \"stuck\""), "seed {seed}: {told}");
            assert!(told.contains("waits for rank 2"), "seed {seed}: {told}");
            // Who is told by the other has words alone.
            assert!(culprits.is_empty() || culprits == [2], "seed {seed}: {told}: {culprits:?}");
        }
    }
}

/// The same where what held it up fails shortly before its own time is over, in which rank 1 does not come.
#[test]
fn who_is_late_for_want_of_a_turn_blames_what_held_it_up() {
    for seed in seeds(6) {
        let outcome = Simulation::new(3, seed).run(|rank| {
            let [stuck, held] =
                [("stuck", [0, 2]), ("held", [0, 1])].map(|(name, members)| among(&rank, name, &members));
            let (Some(stuck), Some(held)) = (&stuck, &held) else {
                rest(&rank, Duration::from_secs(4));
                return None;
            };
            let hung = stuck.group().all_reduce_async(vec![1.0_f32], ReduceOp::Sum).expect("begun");
            let error = held.group().within(Duration::from_millis(2_300)).all_reduce(&mut [1.0_f32], ReduceOp::Sum);
            let error = error.expect_err("rank 1 does not come");
            assert!(hung.wait().is_err());
            Some((error.to_string(), error.culprits()))
        });
        clean(&outcome, seed);
        let [Some(Some((told, culprits))), ..] = &outcome.results[..] else { panic!("seed {seed}: {outcome:?}") };
        assert!(told.contains("all_reduce (operation 0) of group \"stuck\""), "seed {seed}: {told}");
        assert_eq!(culprits[..], [2], "seed {seed}: {told}");
    }
}

/// Rank 0 has more time than rank 1, which must find out from what rank 0 tells of itself. Rank 3 does not come, where it is in the group.
#[test]
fn who_waits_for_a_rank_that_is_held_up_is_told_by_whom() {
    for (seed, is_missing) in seeds(4).flat_map(|seed| [false, true].map(|is_missing| (seed, is_missing))) {
        let outcome = Simulation::new(4, seed).run(move |rank| {
            let members: &[usize] = if is_missing { &[0, 1, 3] } else { &[0, 1] };
            let (stuck, held) = (among(&rank, "stuck", &[0, 2]), among(&rank, "held", members));
            if rank.rank > 1 {
                rest(&rank, Duration::from_secs(5));
                return None;
            }
            let hung = stuck.as_ref().map(|stuck| {
                let host = stuck.group().within(Duration::from_secs(4));
                host.all_reduce_async(vec![1.0_f32], ReduceOp::Sum).expect("begun")
            });
            let time = Duration::from_secs(if rank.rank == 0 { 3 } else { 1 });
            let held = held.expect("it is a member");
            let error = held.group().within(time).all_reduce(&mut [1.0_f32], ReduceOp::Sum);
            let error = error.expect_err("it cannot end");
            if let Some(stuck) = stuck {
                stuck.group().abort("enough");
            }
            assert!(hung.is_none_or(|hung| hung.wait().is_err()));
            Some((error.to_string(), error.culprits()))
        });
        clean(&outcome, seed);
        let [_, Some(Some((told, culprits))), ..] = &outcome.results[..] else { panic!("seed {seed}: {outcome:?}") };
        let by = "waiting for rank 0, held up by all_reduce (operation 0) of group \"stuck\", ";
        let (rest, expected) = if is_missing { ("and rank 3, which", 3) } else { ("which waits for rank 2", 2) };
        assert!(told.contains(&format!("{by}{rest}")), "seed {seed}: {told}");
        assert_eq!(culprits[..], [expected], "seed {seed}: {told}");
    }
}

/// Rank 1 sends nothing. Rank 0 receives from it in a batch, before or after an operation that is held up by another group.
#[test]
fn messages_are_held_up_by_what_comes_before_them_alone() {
    for (seed, is_behind) in seeds(4).flat_map(|seed| [false, true].map(|is_behind| (seed, is_behind))) {
        let outcome = Simulation::new(3, seed).run(move |rank| {
            let [stuck, held] =
                [("stuck", [0, 2]), ("held", [0, 1])].map(|(name, members)| among(&rank, name, &members));
            let (Some(stuck), Some(held)) = (&stuck, &held) else {
                rest(&rank, Duration::from_secs(4));
                return None;
            };
            let stream = rank.cuda.create_stream(DEVICE, false).expect("a stream");
            let [none, into] = [0, 4].map(|len| DeviceBuffer::new(&rank.cuda, DEVICE, len).expect("memory"));
            let receive = || {
                let op = Op::Recv { count: 1, from: Some(1), tag: 0 };
                let batch = held.coalesce(stream, |batch| batch.add(op, DType::F32, None, (Some(&none), &into)));
                batch.expect("submitted")
            };
            let first = (!is_behind).then(receive);
            let long = Duration::from_secs(3);
            let sum = |group: &Group| {
                let host = group.group().within(long);
                host.all_reduce_async(vec![1.0_f32], ReduceOp::Sum).expect("begun")
            };
            let works = [sum(stuck), sum(held)];
            let error = first.unwrap_or_else(receive).wait().expect_err("nothing was sent");
            stuck.group().abort("enough");
            assert!(works.into_iter().all(|work| work.wait().is_err()));
            Some((error.to_string(), error.culprits()))
        });
        clean(&outcome, seed);
        let [Some(Some((told, culprits))), ..] = &outcome.results[..] else { panic!("seed {seed}: {outcome:?}") };
        assert_eq!(told.contains("of group \"stuck\""), is_behind, "seed {seed}: {told}");
        assert_eq!(culprits[..], [if is_behind { 2 } else { 1 }], "seed {seed}: {told}");
    }
}

/// It would wait for the batch, and the batch for what was begun in the other group after it.
#[test]
fn what_a_group_is_given_beside_its_open_batch_is_refused() {
    for seed in seeds(4) {
        let outcome = Simulation::new(2, seed).run(|rank| {
            let [own, other] =
                ["own", "other"].map(|scope| group(&rank, scope, NcclOptions::default()).expect("a group"));
            let [stream, aside] = [(); 2].map(|()| rank.cuda.create_stream(DEVICE, false).expect("a stream"));
            let data = [(); 4].map(|()| DeviceBuffer::new(&rank.cuda, DEVICE, 8).expect("memory"));
            data.iter().for_each(|data| rank.cuda.fill(data.span(), 0, stream).expect("filled"));
            let sum = || Op::AllReduce { count: 2, reduce: ReduceOp::Sum };
            let submit = |group: &Group, at: usize| group.submit(sum(), DType::F32, None, (None, &data[at]), stream);
            let (mut works, mut refused) = (Vec::new(), Vec::new());
            let batch = own.coalesce(stream, |batch| {
                works.push(submit(&own, 0).expect("nothing was added yet"));
                batch.add(sum(), DType::F32, None, (None, &data[1]));
                refused.push(submit(&own, 0).err().map(|error| error.kind()));
                refused.push(own.group().barrier().err().map(|error| error.kind()));
                let nested = own.coalesce(stream, |batch| batch.add(sum(), DType::F32, None, (None, &data[0])));
                refused.push(nested.err().map(|error| error.kind()));
                let elsewhere = submit(&other, 2).expect("another group");
                elsewhere.fence(aside).expect("on its stream");
                works.push(elsewhere);
                batch.add(sum(), DType::F32, None, (None, &data[3]));
            });
            works.push(batch.expect("submitted"));
            works.push(submit(&own, 0).expect("the batch is complete"));
            works.into_iter().for_each(|work| work.wait().expect("summed"));
            refused
        });
        clean(&outcome, seed);
        let refused = vec![Some(ErrorKind::Usage); 3];
        assert_eq!(outcome.results, [Some(refused.clone()), Some(refused)], "seed {seed}");
    }
}
