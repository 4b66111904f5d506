//! What is decided for all nodes at the end of an epoch, from what each of them knows. Pure.

use std::collections::BTreeMap;

use crate::run::verdict::{Fact, Verdict, judge};

/// What one node knows of an epoch that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) facts: Vec<Fact>,
}

/// What a node in trouble says to all, which stop then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cry {
    pub(crate) why: String,
    /// Whether the node leaves for good, so that there is no world to start again.
    pub(crate) is_final: bool,
    /// Whether it was the first trouble that anybody spoke of.
    pub(crate) is_first: bool,
}

impl Cry {
    /// That there is trouble, which nobody may have spoken of before: whoever writes it down finds that out.
    pub(crate) fn new(why: String, is_final: bool) -> Cry {
        Cry { why, is_final, is_first: false }
    }
}

/// What is decided for all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Judgement {
    /// What went wrong, if anything did.
    pub(crate) verdict: Option<Verdict>,
    /// Whether the world is started again.
    pub(crate) again: bool,
}

/// Decides, from the accounts of the nodes and what is known of those that gave none.
///
/// A node that was lost explains the failures of ranks that talked to it, so it comes before them. Its launcher cannot come
/// back, for a new one would begin at the first epoch: so nothing starts again without it. `cry` is what a node in trouble
/// said: it tells what no account does, and where a node left for good before there was any other trouble, the failures of
/// ranks follow from that.
pub(crate) fn decide(
    accounts: &BTreeMap<usize, Account>,
    lost: &BTreeMap<usize, String>,
    cry: Option<&Cry>,
    epoch: u32,
    max_restarts: u32,
) -> Judgement {
    let facts: Vec<Fact> = accounts.values().flat_map(|account| account.facts.clone()).collect();
    let plain = |headline: String| Verdict { headline, details: vec![] };
    let verdict = if let Some((node, why)) = lost.first_key_value() {
        Some(plain(format!("node {node} was lost: {why} (epoch {epoch})")))
    } else if let Some(cause) = cry.filter(|cry| cry.is_final && cry.is_first) {
        Some(plain(cause.why.clone()))
    } else {
        judge(&facts, epoch).or_else(|| cry.map(|cry| plain(cry.why.clone())))
    };
    let are_all_here = lost.is_empty() && !cry.is_some_and(|cry| cry.is_final);
    Judgement { again: verdict.is_some() && are_all_here && epoch < max_restarts, verdict }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::run::output::Remains;
    use crate::run::process::exit::Exit;
    use crate::run::verdict::State;

    fn fact(rank: usize, state: State) -> Fact {
        let after = Duration::from_millis(100 + rank as u64);
        let (report, remains, memory, log) = (None, Remains::default(), None, None);
        Fact { rank, pid: 1, host: "h".to_owned(), state, after, report, accusation: None, remains, memory, log }
    }

    fn accounts(states: [State; 2]) -> BTreeMap<usize, Account> {
        let account = |node: usize| Account { facts: vec![fact(node, states[node])] };
        BTreeMap::from([(0, account(0)), (1, account(1))])
    }

    fn cry(is_final: bool) -> Cry {
        Cry::new("why".to_owned(), is_final)
    }

    const WELL: State = State::Ended(Exit::Code(0));
    const ILL: State = State::Ended(Exit::Code(3));

    fn headline(judgement: &Judgement) -> &str {
        judgement.verdict.as_ref().map_or("", |verdict| &verdict.headline)
    }

    #[test]
    fn all_well_is_the_end() {
        let judgement = decide(&accounts([WELL, WELL]), &BTreeMap::new(), None, 0, 5);
        assert_eq!(judgement, Judgement { verdict: None, again: false });
    }

    #[test]
    fn a_failure_anywhere_starts_all_again_while_that_is_allowed() {
        let failed = accounts([State::Stopped(None), ILL]);
        let judgement = decide(&failed, &BTreeMap::new(), Some(&cry(false)), 0, 1);
        assert!(judgement.again && headline(&judgement).starts_with("rank 1 failed: exit code 3"));
        assert!(!decide(&failed, &BTreeMap::new(), None, 1, 1).again);
    }

    #[test]
    fn a_lost_node_is_the_cause_of_what_follows_and_does_not_come_back() {
        let lost = BTreeMap::from([(2, "no sign of life".to_owned())]);
        let judgement = decide(&accounts([ILL, ILL]), &lost, None, 0, 1);
        assert!(!judgement.again);
        assert_eq!(headline(&judgement), "node 2 was lost: no sign of life (epoch 0)");
    }

    #[test]
    fn a_node_that_left_before_there_was_trouble_is_the_cause() {
        let failed = accounts([ILL, ILL]);
        let judge = |is_final| decide(&failed, &BTreeMap::new(), Some(&Cry { is_first: true, ..cry(is_final) }), 0, 1);
        assert_eq!((headline(&judge(true)), judge(true).again), ("why", false));
        assert!(headline(&judge(false)).starts_with("rank 0 failed: exit code 3"));
    }

    #[test]
    fn nobody_starts_again_what_somebody_has_ended() {
        for states in [[State::Stopped(None); 2], [State::Stopped(None), WELL], [ILL, State::Stopped(None)]] {
            let judge = |is_final| decide(&accounts(states), &BTreeMap::new(), Some(&cry(is_final)), 0, 9);
            assert!(judge(false).again && !judge(true).again);
            let expected = if states[0] == ILL { "rank 0 failed: exit code 3" } else { "why" };
            assert!(headline(&judge(true)).starts_with(expected));
        }
    }
}
