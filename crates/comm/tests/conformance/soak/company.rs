//! Companies one after the other: the ranks of each, their groups, and the seed that a failure names.
//!
//! `PHALANX_TEST_SOAK` says how many deeds there are at least; a thousand unless set. A failure names the seed of its
//! company, with which `PHALANX_TEST_SEED` begins.

use std::iter::successors;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use phalanx_core::Group;

use super::chatter::chatter;
use super::member::{Findings, play};
use super::plan::Plan;
use crate::case::{Case, hash};
use crate::collectives::{self, Kind, begin};
use crate::setting::Setting;

pub(crate) fn soak(setting: &Setting) {
    for seed in seeds(2) {
        let plan = Plan::new(seed);
        let found = company(setting, &plan);
        assert!(found.is_empty(), "{} differences; PHALANX_TEST_SEED={seed}\n{}", found.len(), found.join("\n"));
    }
}

/// The seeds of as many companies as there shall be; of so many unless that is said.
pub(crate) fn seeds(companies: u64) -> impl Iterator<Item = u64> {
    let first = number("PHALANX_TEST_SEED").unwrap_or_else(|| fastrand::u64(..));
    let companies = number("PHALANX_TEST_SOAK").map_or(companies, |deeds| deeds.div_ceil(Plan::DEEDS));
    successors(Some(first), |&seed| Some(hash(seed))).take(companies as usize)
}

/// What one member finds that is a process of its own, and joins the group of each team, by number and members, itself.
pub(crate) fn part((seed, size, me): (u64, usize, usize), join: impl Fn(usize, &[usize]) -> Group) -> Findings {
    let plan = Plan::of_size(seed, size);
    let teams = plan.teams.iter().enumerate();
    let groups: Vec<_> = teams.map(|(team, members)| members.contains(&me).then(|| join(team, members))).collect();
    member(&plan, me, &groups)
}

/// Worlds that end as soon as they have begun: a rank that leaves has given what its peers still need.
pub(crate) fn many_short_worlds(setting: &Setting) {
    for world in 0..60 {
        let size = 2 + world % 3;
        setting.run(size, |group| {
            let kind = Kind::ALL[world % Kind::ALL.len()];
            let case = Case::new(world as u64, size, 100 * world);
            match world % 2 {
                0 => collectives::play::<u32>(kind, group, &case),
                _ => begin::<u32>(kind, group, &case)(),
            }
        });
    }
}

/// What all members of a company have found.
fn company(setting: &Setting, plan: &Plan) -> Findings {
    thread::scope(|scope| {
        let members = seats(setting, plan).into_iter().enumerate();
        let members: Vec<_> = members.map(|(me, groups)| scope.spawn(move || member(plan, me, &groups))).collect();
        members.into_iter().flat_map(|member| member.join().expect("no panic")).collect()
    })
}

/// Each member's group of each team.
fn seats(setting: &Setting, plan: &Plan) -> Vec<Vec<Option<Group>>> {
    let mut seats: Vec<Vec<Option<Group>>> = (0..plan.size()).map(|_| vec![]).collect();
    for team in &plan.teams {
        seats.iter_mut().for_each(|groups| groups.push(None));
        let groups = setting.groups(team.len());
        for (&member, group) in team.iter().zip(groups) {
            *seats[member].last_mut().expect("one a team") = Some(group);
        }
    }
    seats
}

/// The member's deeds, while other threads of it send messages among all members.
fn member(plan: &Plan, me: usize, groups: &[Option<Group>]) -> Findings {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let all = groups[0].as_ref().filter(|group| group.size() > 1);
        let over = &over;
        let talks: Vec<_> = all
            .into_iter()
            .flat_map(|group| (0..2).map(move |tag| scope.spawn(move || chatter(group, tag, over))))
            .collect();
        let mut found = play(plan, me, groups);
        over.store(true, Ordering::Relaxed);
        for talk in talks {
            found.extend(talk.join().expect("no panic").err().map(|why| format!("chatter of member {me}: {why}")));
        }
        found
    })
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is \"{text}\", must be a number")))
}
