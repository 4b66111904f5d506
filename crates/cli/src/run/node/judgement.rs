//! What is decided for all nodes at the end of an epoch, from what each of them knows. Pure.

use std::collections::BTreeMap;

use crate::run::process::signals;
use crate::run::verdict::{Fact, Verdict, judge};

/// What one node knows of an epoch that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) host: String,
    /// The signal that asked its launcher to end.
    pub(crate) interrupt: Option<i32>,
    pub(crate) facts: Vec<Fact>,
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
/// A node that was lost explains the failures of ranks that talked to it, so it comes before them. `cry` is what the first
/// node in trouble said: it tells what no account does.
pub(crate) fn decide(
    accounts: &BTreeMap<usize, Account>,
    lost: &BTreeMap<usize, String>,
    cry: Option<&str>,
    epoch: u32,
    max_restarts: u32,
) -> Judgement {
    let facts: Vec<Fact> = accounts.values().flat_map(|account| account.facts.clone()).collect();
    let interrupted = accounts.iter().find_map(|(node, account)| Some((node, account, account.interrupt?)));
    let by_signal = interrupted.map(|(node, account, signal)| {
        format!("node {node} (host {}) was ended by {}", account.host, signals::name(signal))
    });
    let plain = |headline: String| Verdict { headline, details: vec![] };
    let verdict = if let Some((node, why)) = lost.first_key_value() {
        Some(plain(format!("node {node} was lost: {why} (epoch {epoch})")))
    } else {
        judge(&facts, epoch).or_else(|| by_signal.clone().or_else(|| cry.map(str::to_owned)).map(plain))
    };
    let is_ours_to_mend = by_signal.is_none() && epoch < max_restarts;
    Judgement { again: verdict.is_some() && is_ours_to_mend, verdict }
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
        Fact { rank, pid: 1, host: "h".to_owned(), state, after, report, remains, memory, log }
    }

    fn accounts(states: [State; 2], interrupt: Option<i32>) -> BTreeMap<usize, Account> {
        let account = |node: usize| Account {
            host: format!("h{node}"),
            interrupt: interrupt.filter(|_| node == 1),
            facts: vec![fact(node, states[node])],
        };
        BTreeMap::from([(0, account(0)), (1, account(1))])
    }

    const WELL: State = State::Ended(Exit::Code(0));
    const ILL: State = State::Ended(Exit::Code(3));

    fn headline(judgement: &Judgement) -> &str {
        judgement.verdict.as_ref().map_or("", |verdict| &verdict.headline)
    }

    #[test]
    fn all_well_is_the_end() {
        let judgement = decide(&accounts([WELL, WELL], None), &BTreeMap::new(), None, 0, 5);
        assert_eq!(judgement, Judgement { verdict: None, again: false });
    }

    #[test]
    fn a_failure_anywhere_starts_all_again_while_that_is_allowed() {
        let failed = accounts([State::Stopped, ILL], None);
        let judgement = decide(&failed, &BTreeMap::new(), Some("trouble"), 0, 1);
        assert!(judgement.again && headline(&judgement).starts_with("rank 1 failed: exit code 3"));
        assert!(!decide(&failed, &BTreeMap::new(), None, 1, 1).again);
    }

    #[test]
    fn a_lost_node_is_the_cause_of_what_follows() {
        let lost = BTreeMap::from([(2, "no sign of life".to_owned())]);
        let judgement = decide(&accounts([ILL, ILL], None), &lost, None, 0, 1);
        assert!(judgement.again);
        assert_eq!(headline(&judgement), "node 2 was lost: no sign of life (epoch 0)");
    }

    #[test]
    fn nobody_starts_again_what_somebody_has_ended() {
        let judgement = decide(&accounts([State::Stopped, State::Stopped], Some(2)), &BTreeMap::new(), None, 0, 9);
        assert!(!judgement.again);
        assert_eq!(headline(&judgement), "node 1 (host h1) was ended by SIGINT");
        let cried = decide(&accounts([State::Stopped, WELL], None), &BTreeMap::new(), Some("why"), 0, 0);
        assert_eq!(headline(&cried), "why");
    }
}
