//! What all ranks must say alike of a model before any of them holds a part of it. It is compared once, when the model is made, and what
//! differs is named on every rank. What is compared is text for people: nothing is computed from it.

use std::fmt;

use phalanx_core::{Desync, Error, Group, Result, fnv};

use crate::groups::Groups;
use crate::options::{Policy, Reshard};
use crate::spec::{ParamSpec, UnitSpec};

/// A line for the policy, one for each unit, and one for each parameter after its unit. A line begins with what it is about.
pub(crate) fn of_units(groups: &Groups, units: &[UnitSpec], reshards: &[Reshard], policy: &Policy) -> Vec<String> {
    let Policy { compute, reduce, forward_prefetch, backward_prefetch, .. } = policy;
    let smaller = groups.smaller.as_ref().map(Group::size);
    let first = format!(
        "policy compute {compute:?}, reduce {reduce:?}, {forward_prefetch} ahead in forward, {backward_prefetch} in backward, \
         smaller group {smaller:?}, {} ranks",
        groups.data_parallel_size()
    );
    let mut lines = vec![first];
    for (unit, reshard) in units.iter().zip(reshards) {
        let UnitSpec { name, params, compute, reduce, .. } = unit;
        lines.push(format!("unit {name:?}, reshard after forward {reshard:?}, compute {compute:?}, reduce {reduce:?}"));
        lines.extend(params.iter().map(|param| of_param(Some(name.as_str()), param)));
    }
    lines
}

/// The line of a parameter.
pub(crate) fn of_param(unit: Option<&str>, param: &ParamSpec) -> String {
    let ParamSpec { name, shape, dtype, role, extension } = param;
    let of = unit.map(|unit| format!(" of unit {unit:?}")).unwrap_or_default();
    let form = if extension.is_some() { ", gathered in another form" } else { "" };
    format!("parameter {name:?}{of}, {shape:?} {dtype}, {role:?}{form}")
}

/// Ends alike on all ranks of the shard group and of the replicas: with nothing where they say the same. A rank that refuses its own
/// model says that, so that the others do not wait for it.
pub(crate) fn reach<T>(groups: &Groups, own: Result<T>, said: impl FnOnce() -> Vec<String>) -> Result<T> {
    let said = match &own {
        Ok(_) => said(),
        Err(error) => vec![refused(error)],
    };
    let among_all = reach_all(groups, said);
    let own = own?;
    among_all.map(|()| own)
}

/// Tells the other ranks of these groups that this one refuses its model: they make a [`Sharded`](crate::Sharded) or a [`Ddp`](crate::Ddp) of
/// theirs, where they would wait for what it says. For adapters, which look at a model before they make either. Gives back why.
pub fn refuse<E: fmt::Display>(groups: &Groups, why: E) -> E {
    // What the others say is nothing to a rank that has no model.
    let _ = reach_all(groups, vec![refused(&why)]);
    why
}

fn reach_all(groups: &Groups, said: Vec<String>) -> Result<()> {
    let among_shards = compare(&groups.shard, &said);
    match &groups.replicate {
        Some(replicas) => reach_replicas(&groups.shard, replicas, among_shards, said),
        None => among_shards,
    }
}

/// The same once the ranks of the shard group have come to their end. Replicas must hold the same part besides; ranks whose own do learn
/// from those beside them that others' do not.
fn reach_replicas(shard: &Group, replicas: &Group, among_shards: Result<()>, mut said: Vec<String>) -> Result<()> {
    if let Err(error) = among_shards {
        let _ = compare(replicas, &[refused(&error)]);
        return Err(error);
    }
    said.insert(0, format!("policy rank {} of {} that hold a part each", shard.rank(), shard.size()));
    let among_replicas = compare(replicas, &said);
    let outcome = among_replicas.as_ref().err().map_or("model alike in its replicas".to_owned(), refused);
    let beside = compare(shard, &[outcome]);
    among_replicas.and(beside)
}

fn refused(why: &impl fmt::Display) -> String {
    format!("model refused: {why}")
}

/// Compares what the ranks of one group say, by a digest. Where that differs, they look for the first line in which it does, by digests of
/// what comes before it, and send each other that line alone: models may be long, and ranks many.
pub(crate) fn compare(group: &Group, said: &[String]) -> Result<()> {
    if group.size() == 1 {
        return Ok(());
    }
    let [first, second] = digest(said);
    let whole = gather(group, [said.len() as u64, first, second])?;
    let sequence = group.recorder().glance().last_collective.map_or(0, |record| record.sequence);
    if is_one(&whole) {
        return Ok(());
    }
    // All say the same in so many lines, and not in so many.
    let (mut alike, mut apart) = (0, whole.iter().map(|[lines, ..]| *lines as usize).max().unwrap_or_default());
    while alike + 1 < apart {
        let middle = usize::midpoint(alike, apart);
        match is_one(&gather(group, digest(&said[..middle.min(said.len())]))?) {
            true => alike = middle,
            false => apart = middle,
        }
    }
    let own = said.get(alike).map_or(NOTHING, String::as_str);
    let lines = group.all_gather_bytes(own.as_bytes())?;
    let rank = group.rank();
    let peer = lines.iter().position(|line| line != own.as_bytes()).unwrap_or(rank);
    let (field, ours, theirs) = difference(own, &String::from_utf8_lossy(&lines[peer]));
    let differs = Error::from(Desync { sequence, rank, peer, field, ours, theirs, moved: false, site: None });
    Err(differs.in_world(group.members()))
}

/// The numbers of each rank.
fn gather<const N: usize>(group: &Group, own: [u64; N]) -> Result<Vec<[u64; N]>> {
    let mut all = vec![[0; N]; group.size()];
    group.all_gather(&own, all.as_flattened_mut())?;
    Ok(all)
}

fn is_one<T: PartialEq>(all: &[T]) -> bool {
    all.iter().all(|one| *one == all[0])
}

/// What two lines are about that differ, and what each says of it.
fn difference(ours: &str, theirs: &str) -> (&'static str, String, String) {
    let field = FIELDS.into_iter().find(|field| ours.starts_with(field) || theirs.starts_with(field));
    let field = field.unwrap_or(FIELDS[0]);
    let value = |line: &str| line.strip_prefix(field).map_or(line, str::trim_start).to_owned();
    (field, value(ours), value(theirs))
}

/// A hash of lines, from two starts: with two numbers no two models agree by chance.
fn digest(lines: &[String]) -> [u64; 2] {
    // No text has the byte that ends a line here.
    let bytes = || lines.iter().flat_map(|line| line.bytes().chain([u8::MAX]));
    STARTS.map(|start| fnv::hash64_from(start, bytes()))
}

/// What a line may be about.
const FIELDS: [&str; 4] = ["model", "policy", "unit", "parameter"];
/// What a rank says that has no such line.
const NOTHING: &str = "nothing more";
const STARTS: [u64; 2] = [0xcbf2_9ce4_8422_2325, 0x9e37_79b9_7f4a_7c15];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_named_by_what_it_is_about() {
        let told = |ours, theirs| difference(ours, theirs);
        let wanted = |field, ours: &str, theirs: &str| (field, ours.to_owned(), theirs.to_owned());
        assert_eq!(told("unit b", "unit c"), wanted("unit", "b", "c"));
        assert_eq!(told(NOTHING, "unit c"), wanted("unit", "nothing more", "c"));
        assert_eq!(told("policy a", "model refused: b"), wanted("model", "policy a", "refused: b"));
    }

    #[test]
    fn lines_are_told_apart_by_where_they_end() {
        let of = |lines: &[&str]| digest(&lines.iter().map(ToString::to_string).collect::<Vec<_>>());
        let all = [of(&[]), of(&[""]), of(&["a\nb"]), of(&["a", "b"]), of(&["a", "b", ""]), of(&["ab"])];
        all.iter().enumerate().for_each(|(at, one)| assert!(!all[..at].contains(one), "{at}"));
    }
}
