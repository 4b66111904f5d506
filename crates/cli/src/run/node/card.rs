//! What a node says of itself before an epoch begins, and who has which ranks, which follows from all of them.

use serde_json::{Value, json};

use crate::run::stores::Master;

/// One node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    pub(crate) host: String,
    /// Process number of its launcher.
    pub(crate) pid: i32,
    /// Drawn by its launcher. It tells two apart that claim to be the same node: containers may have one name and one process number.
    pub(crate) mark: u64,
    pub(crate) ranks: usize,
    /// How many nodes it was told that there are.
    pub(crate) nodes: usize,
    /// How often it was told that all may start again.
    pub(crate) restarts: u32,
    /// Where PyTorch's ranks meet; node 0 says so.
    pub(crate) master: Option<Master>,
}

impl Card {
    pub(crate) fn to_text(&self) -> String {
        let master = self.master.as_ref();
        let master = master.map(|master| json!({"host": master.host, "port": master.port, "ours": master.is_ours}));
        json!({
            "host": self.host, "pid": self.pid, "mark": self.mark, "ranks": self.ranks, "nodes": self.nodes,
            "restarts": self.restarts, "master": master,
        })
        .to_string()
    }

    pub(crate) fn from_text(text: &[u8]) -> Option<Card> {
        let value: Value = serde_json::from_slice(text).ok()?;
        let number = |name: &str| usize::try_from(value[name].as_u64()?).ok();
        Some(Card {
            host: value["host"].as_str()?.to_owned(),
            pid: i32::try_from(value["pid"].as_i64()?).ok()?,
            mark: value["mark"].as_u64()?,
            ranks: number("ranks").filter(|ranks| *ranks <= MOST_RANKS)?,
            nodes: number("nodes")?,
            restarts: u32::try_from(value["restarts"].as_u64()?).ok()?,
            master: master(&value["master"]),
        })
    }
}

/// The first rank of each node, and how many ranks there are.
pub(crate) fn layout(cards: &[Card]) -> (Vec<usize>, usize) {
    let mut ranks = 0;
    let mut firsts = Vec::with_capacity(cards.len());
    for card in cards {
        firsts.push(ranks);
        ranks += card.ranks;
    }
    (firsts, ranks)
}

fn master(value: &Value) -> Option<Master> {
    let host = value["host"].as_str()?.to_owned();
    let port = u16::try_from(value["port"].as_u64()?).ok()?;
    Some(Master { host, port, is_ours: value["ours"].as_bool()? })
}

/// More than any node starts.
const MOST_RANKS: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn card(ranks: usize) -> Card {
        Card { host: "a\"".to_owned(), pid: 7, mark: u64::MAX, ranks, nodes: 2, restarts: 3, master: None }
    }

    #[test]
    fn cards_come_back_as_they_were() {
        let master = Some(Master { host: "::1".to_owned(), port: 65535, is_ours: true });
        for card in [card(3), Card { master, ..card(0) }] {
            assert_eq!(Card::from_text(card.to_text().as_bytes()), Some(card));
        }
        for odd in ["", "{}", "[]", r#"{"host":"a","pid":1,"ranks":-1,"nodes":1}"#, r#"{"host":1}"#] {
            assert_eq!(Card::from_text(odd.as_bytes()), None, "{odd}");
        }
    }

    #[test]
    fn ranks_follow_the_nodes() {
        assert_eq!(layout(&[card(3), card(1), card(2)]), (vec![0, 3, 4], 6));
    }
}
