//! Which ranks form a group each, as numbers alone.

use std::collections::{BTreeMap, HashMap};

use phalanx_core::{Error, Result};

/// Lists of a world's ranks, no rank in two of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts(Vec<Vec<usize>>);

impl Parts {
    /// These lists, whose order is that of the ranks in their groups.
    pub(super) fn listed(call: &'static str, lists: Vec<Vec<usize>>, size: usize) -> Result<Parts> {
        let mut seats: HashMap<usize, usize> = HashMap::new();
        let ranks = lists.iter().enumerate().flat_map(|(at, list)| list.iter().map(move |&rank| (at, rank)));
        for (at, rank) in ranks {
            if rank >= size {
                let expected = format!("must be below the size {size} of the world");
                return Err(Error::usage(call, "ranks", format!("rank {rank}"), expected));
            }
            match seats.insert(rank, at) {
                Some(before) if before == at => {
                    return Err(Error::usage(call, "ranks", format!("rank {rank} twice"), "must be different ranks"));
                }
                Some(before) => {
                    let value = format!("rank {rank} in group {before} and in group {at}");
                    return Err(Error::usage(call, "groups", value, "must not overlap"));
                }
                None => {}
            }
        }
        match lists.iter().position(Vec::is_empty) {
            Some(at) => Err(Error::usage(call, "ranks", format!("no rank in group {at}"), "must be one at least")),
            None => Ok(Parts(lists)),
        }
    }

    /// Neighbouring ranks, `part` in each list.
    pub(super) fn equal(call: &'static str, part: usize, size: usize) -> Result<Parts> {
        if part == 0 || !size.is_multiple_of(part) {
            let expected = format!("must divide the size {size} of the world");
            return Err(Error::usage(call, "size", part, expected));
        }
        Ok(Parts((0..size / part).map(|at| (at * part..(at + 1) * part).collect()).collect()))
    }

    /// The ranks of each host.
    pub(super) fn of_hosts(hosts: &[u32]) -> Parts {
        let hosts: Vec<_> = hosts.iter().map(|&host| (Some(host), 0)).collect();
        Parts::of_colours(&hosts)
    }

    /// The ranks of each colour, ordered by their keys and then as they are. Those without a colour are in none.
    pub(super) fn of_colours(colours: &[(Option<u32>, i64)]) -> Parts {
        let mut parts: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (rank, (colour, _)) in colours.iter().enumerate() {
            colour.iter().for_each(|&colour| parts.entry(colour).or_default().push(rank));
        }
        let ordered = parts.into_values().map(|mut part| {
            part.sort_by_key(|&rank| colours[rank].1);
            part
        });
        Parts(ordered.collect())
    }

    /// The ranks of a mesh of these extents, the last of which changes fastest, that differ in the chosen dimensions only.
    pub(super) fn along(extents: &[usize], chosen: &[usize]) -> Parts {
        let size = extents.iter().product();
        let colour = |rank: usize| {
            let mut place = coordinates(extents, rank);
            chosen.iter().for_each(|&dimension| place[dimension] = 0);
            let first = place.iter().zip(extents).fold(0, |rank, (at, extent)| rank * extent + at);
            (u32::try_from(first).ok(), 0)
        };
        Parts::of_colours(&(0..size).map(colour).collect::<Vec<_>>())
    }

    /// The number and the ranks of the part that a rank is in.
    pub(super) fn part_of(&self, rank: usize) -> Option<(usize, &[usize])> {
        let parts = self.0.iter().enumerate().map(|(at, part)| (at, part.as_slice()));
        parts.into_iter().find(|(_, part)| part.contains(&rank))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Where a rank stands in a mesh of these extents.
pub(super) fn coordinates(extents: &[usize], rank: usize) -> Vec<usize> {
    let mut left = rank;
    let mut place: Vec<usize> = extents.iter().rev().map(|extent| (left % extent, left /= extent).0).collect();
    place.reverse();
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(lists: &[&[usize]]) -> Vec<Vec<usize>> {
        lists.iter().map(|list| list.to_vec()).collect()
    }

    #[test]
    fn lists_are_kept_in_their_order_and_checked() {
        let parts = Parts::listed("groups_of", lists(&[&[3, 0], &[1]]), 4).expect("in order");
        assert_eq!(parts.part_of(0), Some((0, [3, 0].as_slice())));
        assert_eq!((parts.part_of(1), parts.part_of(2)), (Some((1, [1].as_slice())), None));
        for (wrong, told) in [
            (lists(&[&[0, 4]]), "groups_of: ranks is rank 4, must be below the size 4 of the world"),
            (lists(&[&[0, 0]]), "groups_of: ranks is rank 0 twice, must be different ranks"),
            (lists(&[&[0, 1], &[2, 1]]), "groups_of: groups is rank 1 in group 0 and in group 1, must not overlap"),
            (lists(&[&[0], &[]]), "groups_of: ranks is no rank in group 1, must be one at least"),
        ] {
            assert_eq!(Parts::listed("groups_of", wrong, 4).expect_err("wrong").to_string(), told);
        }
    }

    #[test]
    fn equal_parts_are_neighbours_and_divide_the_world() {
        assert_eq!(Parts::equal("equal_groups", 2, 4), Ok(Parts(lists(&[&[0, 1], &[2, 3]]))));
        for wrong in [0, 3, 5] {
            let error = Parts::equal("equal_groups", wrong, 4).expect_err("wrong");
            assert_eq!(
                error.to_string(),
                format!("equal_groups: size is {wrong}, must divide the size 4 of the world")
            );
        }
    }

    #[test]
    fn colours_part_and_keys_order() {
        let colours = [(Some(7), 1), (None, 0), (Some(7), -1), (Some(2), 0), (Some(7), 1)];
        assert_eq!(Parts::of_colours(&colours), Parts(lists(&[&[3], &[2, 0, 4]])));
        assert_eq!(Parts::of_hosts(&[1, 0, 1]), Parts(lists(&[&[1], &[0, 2]])));
    }

    #[test]
    fn a_mesh_is_cut_along_its_dimensions() {
        assert_eq!(Parts::along(&[2, 3], &[1]), Parts(lists(&[&[0, 1, 2], &[3, 4, 5]])));
        assert_eq!(Parts::along(&[2, 3], &[0]), Parts(lists(&[&[0, 3], &[1, 4], &[2, 5]])));
        assert_eq!(Parts::along(&[2, 1, 2], &[0, 2]), Parts(lists(&[&[0, 1, 2, 3]])));
        assert_eq!(coordinates(&[2, 3, 4], 23), [1, 2, 3]);
    }
}
