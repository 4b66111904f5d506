//! The first number of each group under which ranks called different things, and those before it of which all were told and went on.

use std::collections::BTreeMap;

use super::kind;
use super::roster::{Company, Roster, Seat};
use super::{Finding, Side};
use crate::dump::{Entry, State};

/// With the place of the group in the roster.
pub(super) fn find(roster: &Roster<'_>) -> Vec<(usize, Finding)> {
    let mut found = vec![];
    for (at, company) in roster.companies.iter().enumerate() {
        let last_done = last_done(company);
        for finding in company.sequences().filter_map(|sequence| differs(company, sequence, last_done)) {
            let is_last = matches!(finding, Finding::Divergence { is_over: false, .. });
            found.push((at, finding));
            // What comes after it is meaningless.
            if is_last {
                break;
            }
        }
    }
    found
}

/// The last number under which an operation ended well on any rank.
fn last_done(company: &Company<'_>) -> Option<u64> {
    let is_done = |entries: &[&Entry]| entries.iter().any(|entry| entry.state == State::Done);
    let last = |seat: &Seat<'_>| seat.collectives.iter().rev().find(|(_, entries)| is_done(entries)).map(|(at, _)| *at);
    company.seats.values().filter_map(last).max()
}

/// Whether all who called this were told that they disagree, and the group went on.
fn is_over(company: &Company<'_>, sequence: u64, last_done: Option<u64>) -> bool {
    let is_told = |entry: &&Entry| matches!(&entry.state, State::Failed(error) if error == "desync");
    company.at(sequence).all(|(_, entries)| entries.iter().all(is_told)) && last_done > Some(sequence)
}

fn differs(company: &Company<'_>, sequence: u64, last_done: Option<u64>) -> Option<Finding> {
    let called: Vec<(usize, &[&Entry])> = company.at(sequence).collect();
    let whole = || called.iter().filter(|(rank, _)| !company.seats[rank].is_cut(sequence));
    let count = |(_, entries): &(usize, &[&Entry])| entries.len();
    let (field, sides) = if whole().map(count).min() < whole().map(count).max() {
        let value = whole().filter_map(|(rank, entries)| Some((*rank, entries.len().to_string(), *entries.first()?)));
        ("the number of coalesced operations", sides(value))
    } else {
        // From the end: where a part is forgotten, it is the first one.
        (1..=called.iter().map(count).max()?).rev().find_map(|back| {
            let of =
                called.iter().filter_map(|(rank, entries)| Some((*rank, entries[entries.len().checked_sub(back)?])));
            fields(&of.collect::<Vec<_>>())
        })?
    };
    let is_over = is_over(company, sequence, last_done);
    Some(Finding::Divergence { group: company.label(), sequence, field, sides, is_over })
}

/// The first field in which these entries differ, and the values.
fn fields(entries: &[(usize, &Entry)]) -> Option<(&'static str, Vec<Side>)> {
    FIELDS.iter().find_map(|(field, value)| {
        let said = entries.iter().filter_map(|(rank, entry)| Some((*rank, value(entry)?, *entry)));
        Some((*field, sides(said))).filter(|(_, sides)| sides.len() > 1)
    })
}

/// The values, that of most ranks first.
fn sides<'e>(said: impl Iterator<Item = (usize, String, &'e Entry)>) -> Vec<Side> {
    let mut sides: BTreeMap<String, Side> = BTreeMap::new();
    for (rank, value, entry) in said {
        let new = || Side { value: value.clone(), ranks: Vec::new(), site: entry.site.clone() };
        sides.entry(value.clone()).or_insert_with(new).ranks.push(rank);
    }
    let mut sides: Vec<Side> = sides.into_values().collect();
    sides.sort_by_key(|side| std::cmp::Reverse(side.ranks.len()));
    sides
}

/// What an entry says of a field; none where it says nothing, which differs from nothing.
type Said = fn(&Entry) -> Option<String>;

/// What all ranks must agree on, in the order in which it is told.
const FIELDS: [(&str, Said); 5] = [
    ("operation", |entry| Some(entry.kind.clone())),
    ("dtype", |entry| entry.dtype.clone()),
    ("reduction", |entry| entry.reduce.clone()),
    ("root", |entry| entry.peer.map(|root| root.to_string())),
    ("elements", |entry| kind::elements(entry).map(|elements| elements.to_string())),
];
