//! Whose result is another than that of most ranks. Which operations ranks compare, and when, is the watch's affair.

use std::collections::BTreeMap;

use phalanx_core::{Error, Peer, PeerReason};

/// The error of an operation that did not give all ranks the same: names who got another result than more than half of them. Where no
/// result has so many, nobody knows who is right, and all are named.
pub(super) fn dissent(sequence: u32, given: &[(usize, u64)]) -> Option<Error> {
    let mut votes: BTreeMap<u64, usize> = BTreeMap::new();
    given.iter().for_each(|(_, digest)| *votes.entry(*digest).or_default() += 1);
    if votes.len() < 2 {
        return None;
    }
    let most = votes.into_iter().find(|(_, votes)| votes * 2 > given.len()).map(|(digest, _)| digest);
    let mut odd = given.iter().filter(|(_, digest)| Some(*digest) != most).map(|(rank, _)| *rank);
    let rank = odd.next()?;
    let others: Vec<usize> = odd.collect();
    let detail = match most {
        None => format!("operation {sequence} gave no result that most ranks got"),
        Some(_) if others.is_empty() => format!("operation {sequence} gave it another result than most ranks got"),
        Some(_) => format!("operation {sequence} gave them another result than most ranks got"),
    };
    Some(Error::from(Peer { rank, others, reason: PeerReason::Corrupt, detail }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(results: &[u64]) -> Option<String> {
        let given: Vec<(usize, u64)> = results.iter().copied().enumerate().collect();
        dissent(7, &given).map(|error| error.to_string())
    }

    #[test]
    fn who_is_outvoted_is_named() {
        assert_eq!(told(&[5, 5, 5]), None);
        let corrupt = "sent corrupt data: operation 7 gave";
        for odd in [4, 6] {
            let one = format!("rank 1 {corrupt} it another result than most ranks got");
            assert_eq!(told(&[5, odd, 5]), Some(one));
        }
        let two = format!("ranks 0 and 3 {corrupt} them another result than most ranks got");
        assert_eq!(told(&[9, 5, 5, 1, 5]), Some(two));
    }

    #[test]
    fn without_a_majority_all_are_named_whatever_their_results_are() {
        let none = "sent corrupt data: operation 7 gave no result that most ranks got";
        for (results, ranks) in
            [(&[1, 2][..], "0 and 1"), (&[2, 1], "0 and 1"), (&[1, 2, 2, 1], "0-3"), (&[1, 1, 2, 3], "0-3")]
        {
            assert_eq!(told(results), Some(format!("ranks {ranks} {none}")));
        }
    }
}
