//! What all ranks must say alike of a model before any of them holds a part of it. It is compared once, when the model is made, and what
//! differs is named on every rank. What is compared is text for people: nothing is computed from it.

use phalanx_core::{Desync, Error, Group, Result};

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
        lines.push(format!("unit {:?}, reshard after forward {reshard:?}", unit.name));
        lines.extend(unit.params.iter().map(|param| of_param(&unit.name, param)));
    }
    lines
}

fn of_param(unit: &str, param: &ParamSpec) -> String {
    let ParamSpec { name, shape, dtype, role, extension } = param;
    let form = if extension.is_some() { ", gathered in another form" } else { "" };
    format!("parameter {name:?} of unit {unit:?}, {shape:?} {dtype}, {role:?}{form}")
}

/// Ends alike on all ranks of the shard group and of the replicas: with nothing where they say the same. A rank that refuses its own
/// model says that, so that the others do not wait for it.
pub(crate) fn reach<T>(groups: &Groups, own: Result<T>, said: impl FnOnce() -> Vec<String>) -> Result<T> {
    let said = match &own {
        Ok(_) => said(),
        Err(error) => vec![format!("model refused: {error}")],
    };
    let among_shards = compare(&groups.shard, &said);
    let among_replicas = match (&groups.replicate, &among_shards) {
        (None, _) => Ok(()),
        (Some(replicas), Ok(())) => compare(replicas, &said),
        (Some(replicas), Err(error)) => compare(replicas, &[format!("model refused: {error}")]),
    };
    let own = own?;
    among_shards.and(among_replicas).map(|()| own)
}

/// Compares what the ranks of one group say: by a digest, and in full where that differs.
pub(crate) fn compare(group: &Group, said: &[String]) -> Result<()> {
    if group.size() == 1 {
        return Ok(());
    }
    let text = said.join("\n");
    let text = &text.as_bytes()[..text.len().min(LONGEST)];
    let own = [text.len() as u64, digest(text, FIRST), digest(text, SECOND)];
    let mut digests = vec![0; own.len() * group.size()];
    group.all_gather(&own, &mut digests)?;
    let sequence = group.recorder().glance().last_collective.map_or(0, |record| record.sequence);
    let others: Vec<_> = digests.chunks(own.len()).collect();
    if others.iter().all(|digest| *digest == others[0]) {
        return Ok(());
    }
    let texts = texts(group, text, others.iter().map(|digest| digest[0]))?;
    let rank = group.rank();
    let peer = others.iter().position(|digest| **digest != own).unwrap_or(rank);
    let (field, ours, theirs) = difference(&texts[rank], &texts[peer]);
    Err(Error::Desync(Box::new(Desync { sequence, rank, peer, field, ours, theirs, moved: false })))
}

/// What each rank says.
fn texts(group: &Group, own: &[u8], lens: impl Iterator<Item = u64>) -> Result<Vec<String>> {
    let lens: Vec<usize> = lens.map(|len| usize::try_from(len).map_or(LONGEST, |len| len.min(LONGEST))).collect();
    let mut all = vec![0; lens.iter().sum()];
    group.all_gather_uneven(own, &mut all, &lens)?;
    let (mut rest, mut texts) = (&all[..], Vec::new());
    for len in lens {
        let (text, after) = rest.split_at(len);
        texts.push(String::from_utf8_lossy(text).into_owned());
        rest = after;
    }
    Ok(texts)
}

/// The first line in which two texts differ, and what it is about.
fn difference(ours: &str, theirs: &str) -> (&'static str, String, String) {
    let (mut ours, mut theirs) = (ours.lines(), theirs.lines());
    loop {
        match (ours.next(), theirs.next()) {
            (Some(own), Some(other)) if own == other => {}
            (None, None) => return (FIELDS[0], "of another length".to_owned(), "as well".to_owned()),
            (own, other) => {
                let (own, other) = (own.unwrap_or("nothing more"), other.unwrap_or("nothing more"));
                let field = FIELDS.into_iter().find(|field| own.starts_with(field) || other.starts_with(field));
                let field = field.unwrap_or(FIELDS[0]);
                let value = |line: &str| line.strip_prefix(field).map_or(line, str::trim_start).to_owned();
                return (field, value(own), value(other));
            }
        }
    }
}

/// FNV-1a, from a start of one's own.
fn digest(text: &[u8], start: u64) -> u64 {
    text.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// What a line may be about.
const FIELDS: [&str; 4] = ["model", "policy", "unit", "parameter"];
/// Two of them make a digest in which no two models agree by chance.
const FIRST: u64 = 0xcbf2_9ce4_8422_2325;
const SECOND: u64 = 0x9e37_79b9_7f4a_7c15;
/// Bytes of a text that are compared: some ten thousand parameters.
const LONGEST: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_named() {
        let told = |ours, theirs| difference(ours, theirs);
        let wanted = |field, ours: &str, theirs: &str| (field, ours.to_owned(), theirs.to_owned());
        assert_eq!(told("policy a\nunit b", "policy a\nunit c"), wanted("unit", "b", "c"));
        assert_eq!(told("policy a", "policy a\nunit c"), wanted("unit", "nothing more", "c"));
        assert_eq!(told("policy a", "model refused: b"), wanted("model", "policy a", "refused: b"));
        assert_eq!(told("policy a", "policy a").0, "model");
    }
}
