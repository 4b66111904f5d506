//! From a rank's wait to its end: who is waited for by all of them and waits for nobody, or that there is no such rank.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::wait::Wait;

/// Where a wait leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// To these of those who are waited for; the others wait for them too.
    Direct(Vec<usize>),
    /// To these through others: in words, how to the first.
    Through(Vec<usize>, String),
    /// To where it began: in words, how.
    Circle(String),
}

/// Where a wait of `own` in `group`, as that is told, for `direct` leads, by what the ranks say of theirs.
pub(super) fn follow(own: usize, group: &str, direct: &[usize], waits: impl Fn(usize) -> Option<Wait>) -> End {
    // Who is reached, and from whom.
    let mut parents: BTreeMap<usize, usize> = direct.iter().map(|&rank| (rank, own)).collect();
    let mut open: Vec<usize> = direct.to_vec();
    let (mut ends, mut at, mut is_cut) = (vec![], 0, false);
    while let Some(&rank) = open.get(at) {
        at += 1;
        // Who waits for this rank goes on once any of its threads serves it, and others of them may wait for others.
        match waits(rank).filter(|wait| !wait.peers.is_empty()) {
            None if rank == own => {}
            None => ends.push(rank),
            Some(wait) => {
                is_cut |= wait.is_cut;
                for peer in wait.peers {
                    parents.entry(peer).or_insert_with(|| {
                        open.push(peer);
                        rank
                    });
                }
            }
        }
    }
    if ends.is_empty() && is_cut {
        return End::Direct(direct.to_vec());
    }
    if ends.is_empty() {
        return End::Circle(circle(own, group, direct, &waits));
    }
    let met: Vec<usize> = ends.iter().copied().filter(|end| direct.contains(end)).collect();
    match met.is_empty() {
        false => End::Direct(met),
        true => {
            let path = path_to(ends[0], direct, &parents);
            End::Through(ends, through(&path, group, &waits))
        }
    }
}

/// The ranks before `end`, from the first that is waited for. They begin with one that is waited for directly, so that they may come
/// by another thread of the rank itself.
fn path_to(end: usize, direct: &[usize], parents: &BTreeMap<usize, usize>) -> Vec<usize> {
    let mut path = vec![];
    let mut rank = end;
    while let Some(&parent) = parents.get(&rank).filter(|_| !direct.contains(&rank)) {
        path.push(parent);
        rank = parent;
    }
    path.reverse();
    path
}

fn through(path: &[usize], group: &str, waits: &impl Fn(usize) -> Option<Wait>) -> String {
    let mut words = String::new();
    for (at, &rank) in path.iter().enumerate() {
        if at == MOST_TOLD {
            words.push_str("rank after rank, the last of ");
            break;
        }
        let _ = write!(words, "rank {rank}, which waits{} for ", elsewhere(rank, group, waits));
    }
    words.truncate(words.trim_end().len());
    words
}

fn circle(own: usize, group: &str, direct: &[usize], waits: &impl Fn(usize) -> Option<Wait>) -> String {
    let mut words = String::new();
    let mut seen = vec![own];
    let mut next = direct.first().copied();
    while let Some(rank) = next {
        let _ = write!(words, "rank {rank}");
        if seen.contains(&rank) {
            break;
        }
        seen.push(rank);
        if seen.len() > MOST_TOLD {
            words.push_str(", and so on");
            break;
        }
        let _ = write!(words, ", which waits{} for ", elsewhere(rank, group, waits));
        next = waits(rank).and_then(|wait| {
            let back = wait.peers.iter().copied().find(|peer| seen.contains(peer));
            back.or_else(|| wait.peers.first().copied())
        });
    }
    words
}

/// The name of the group in which a rank waits, where it is another one.
fn elsewhere(rank: usize, group: &str, waits: &impl Fn(usize) -> Option<Wait>) -> String {
    let place = waits(rank).map(|wait| wait.group).filter(|place| place != group);
    place.map(|place| format!(" in group {place:?}")).unwrap_or_default()
}

/// More ranks are not told one by one.
const MOST_TOLD: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waits::wait::PEERS;

    /// Of these ranks each waits for those, in this group.
    fn follow_in(direct: &[usize], waits: &[(usize, &[usize], &str)]) -> End {
        follow(0, "world", direct, |rank| {
            let (_, peers, group) = waits.iter().find(|(waiting, ..)| *waiting == rank)?;
            Some(Wait { begun: 0, peers: peers.to_vec(), is_cut: peers.len() == PEERS, group: (*group).to_owned() })
        })
    }

    #[test]
    fn who_waits_for_another_that_is_waited_for_is_not_the_end() {
        assert_eq!(follow_in(&[2, 3], &[]), End::Direct(vec![2, 3]));
        assert_eq!(follow_in(&[2, 3], &[(3, &[2], "world")]), End::Direct(vec![2]));
        assert_eq!(follow_in(&[2, 3], &[(3, &[2, 0], "world")]), End::Direct(vec![2]));
    }

    #[test]
    fn a_chain_is_followed_to_its_end() {
        let chain = follow_in(&[1], &[(1, &[2], "world"), (2, &[3], "pair")]);
        let words = "rank 1, which waits for rank 2, which waits in group \"pair\" for";
        assert_eq!(chain, End::Through(vec![3], words.to_owned()));
        let long: Vec<(usize, Vec<usize>)> = (1..20).map(|rank| (rank, vec![rank + 1])).collect();
        let long: Vec<_> = long.iter().map(|(rank, peers)| (*rank, &**peers, "world")).collect();
        let End::Through(ends, words) = follow_in(&[1], &long) else { panic!("a chain") };
        assert_eq!(ends, [20]);
        assert!(words.ends_with("rank 4, which waits for rank after rank, the last of"), "{words}");
    }

    #[test]
    fn it_is_no_circle_where_another_thread_of_the_rank_waits_for_others() {
        let both = follow_in(&[1], &[(0, &[1, 2], "world"), (1, &[0], "world")]);
        assert_eq!(both, End::Through(vec![2], "rank 1, which waits for rank 0, which waits for".to_owned()));
        let all = follow_in(&[1], &[(0, &[1, 2], "world"), (1, &[0], "world"), (2, &[1], "world")]);
        assert_eq!(all, End::Circle("rank 1, which waits for rank 0".to_owned()));
    }

    #[test]
    fn it_is_no_circle_where_one_waits_for_more_than_is_told() {
        assert_eq!(follow_in(&[1], &[(1, &[0, 2, 3, 4], "world"), (2, &[1], "g"), (3, &[1], "g"), (4, &[1], "g")]), {
            End::Direct(vec![1])
        });
    }

    #[test]
    fn ranks_that_wait_for_each_other_are_a_circle() {
        let two = follow_in(&[1], &[(1, &[0], "other")]);
        assert_eq!(two, End::Circle("rank 1, which waits in group \"other\" for rank 0".to_owned()));
        let apart = follow_in(&[1], &[(1, &[2], "world"), (2, &[1], "world")]);
        assert_eq!(apart, End::Circle("rank 1, which waits for rank 2, which waits for rank 1".to_owned()));
        let itself = follow_in(&[1], &[(1, &[1], "world")]);
        assert_eq!(itself, End::Circle("rank 1, which waits for rank 1".to_owned()));
    }
}
