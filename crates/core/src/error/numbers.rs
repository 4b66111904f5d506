//! The numbers of ranks in errors: those of a group below it, those of the world for who calls it.

use std::sync::Arc;

use super::{Error, Peer};

impl Error {
    /// The same with the world's numbers of these members of a group in the place of the group's.
    #[must_use]
    pub fn in_world(self, members: &[usize]) -> Error {
        let of = |rank: usize| members.get(rank).copied().unwrap_or(rank);
        match self {
            Error::Peer(peer) => {
                let Peer { rank, others, reason, detail } = *peer;
                Peer { rank: of(rank), others: vec![], reason, detail }.and(others.into_iter().map(of)).into()
            }
            Error::Desync(mut desync) => {
                (desync.rank, desync.peer) = (of(desync.rank), of(desync.peer));
                Error::Desync(desync)
            }
            Error::Timeout(mut timeout) => {
                timeout.stuck.iter_mut().for_each(|stuck| stuck.peer = of(stuck.peer));
                Error::Timeout(timeout)
            }
            Error::Aborted(aborted) => match aborted.cause {
                Some(cause) => Error::aborted_by(Arc::unwrap_or_clone(cause).in_world(members)),
                None => Error::Aborted(aborted),
            },
            Error::Usage(_) | Error::Device(_) | Error::Setup(_) => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::error::{Chain, Desync, PeerReason, Stuck, Timeout};
    use crate::op::OpKind;

    #[test]
    fn ranks_of_a_part_of_the_world_get_the_numbers_that_they_have_there() {
        let in_world = |error: Error| error.in_world(&[7, 2, 5]);
        let Error::Peer(peer) = Error::peer(0, PeerReason::Dead, "it ended") else { panic!("a peer") };
        let dead = in_world(peer.and([1, 2]).into());
        assert_eq!(
            (dead.to_string().as_str(), dead.culprits()),
            ("ranks 2, 5 and 7 are dead: it ended", vec![2, 5, 7])
        );

        let (field, ours, theirs) = ("count", "3".to_owned(), "4".to_owned());
        let differs = Desync { sequence: 1, rank: 0, peer: 2, field, ours, theirs, moved: true, site: None };
        let told = "operation 1: rank 7 called with count 3, rank 5 with count 4";
        assert_eq!(in_world(differs.into()).to_string(), told);

        let (after, chain) = (Duration::from_secs(3), Chain::Through("rank 2, which waits for".to_owned()));
        let stuck = vec![Stuck::unknown(2)];
        let late = Error::Timeout(Box::new(Timeout { op: OpKind::Barrier, sequence: 9, after, stuck, chain }));
        let told = "barrier (operation 9) not finished after 3s; waiting for rank 2, which waits for rank 5";
        assert_eq!(in_world(late.clone()).to_string(), told);
        let aborted = in_world(Error::aborted_by(late));
        assert_eq!((aborted.to_string(), aborted.culprits()), (format!("group aborted: {told}"), vec![5]));

        for other in [Error::aborted("rank 1: enough"), Error::absent("world", "rank 1 did not come", vec![1])] {
            assert_eq!(in_world(other.clone()), other);
        }
    }
}
