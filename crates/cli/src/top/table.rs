//! A view as lines of text, and as JSON.

use std::time::Duration;

use phalanx::Underway;
use serde_json::{Value, json};

use super::look::{GroupView, RankView, View};
use super::show;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) text: String,
    pub(super) tone: Tone,
}

/// How a line stands out on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Head,
    Alarm,
}

/// The view as a table, with what was found above it.
pub(super) fn lines(view: &View) -> Vec<Line> {
    let mut lines: Vec<Line> = view.findings.iter().map(|finding| line(&finding.verdict, Tone::Alarm)).collect();
    if view.ranks.is_empty() {
        lines.push(line(&view.nobody, Tone::Plain));
        return lines;
    }
    let mut rows = vec![(HEAD.map(str::to_owned), Tone::Head)];
    rows.extend(view.ranks.iter().flat_map(|rank| of_rank(rank, is_culprit(view, rank))));
    let width = |column: usize| rows.iter().map(|(cells, _)| cells[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    lines.extend(rows.iter().map(|(cells, tone)| line(&row(cells, widths), *tone)));
    lines
}

impl View {
    pub(super) fn to_json(&self) -> Value {
        let group = |group: &GroupView| {
            let pace = group.pace.map(|pace| {
                json!({ "operations_per_second": pace.operations, "bytes_per_second": pace.bytes, "in_operations": pace.share })
            });
            json!({ "pace": pace, "account": group.account })
        };
        let rank = |rank: &RankView| {
            json!({
                "job": rank.job(), "rank": rank.rank(), "world_size": rank.world_size(), "pid": rank.neighbour.pid,
                "uid": rank.neighbour.uid, "process": rank.process, "answers": rank.answers(),
                "metrics": rank.neighbour.account.as_ref().and_then(|account| account.metrics),
                "groups": rank.groups.iter().map(group).collect::<Vec<_>>(),
            })
        };
        let findings = self.findings.iter().map(super::finding::Finding::to_json);
        json!({
            "findings": findings.collect::<Vec<_>>(),
            "ranks": self.ranks.iter().map(rank).collect::<Vec<_>>(),
        })
    }
}

type Cells = [String; COLUMNS];

/// A row for each group of a rank, at least one.
fn of_rank(rank: &RankView, is_culprit: bool) -> Vec<(Cells, Tone)> {
    let tone = if is_culprit || !rank.answers() { Tone::Alarm } else { Tone::Plain };
    let mut rows: Vec<Cells> = rank.groups.iter().map(of_group).collect();
    if rows.is_empty() {
        let mut cells: Cells = Default::default();
        cells[GROUP] = match (rank.answers(), rank.process) {
            (true, _) => "no group".to_owned(),
            (false, Some(state)) => format!("does not answer: {state}"),
            (false, None) => "gone".to_owned(),
        };
        rows.push(cells);
    }
    let own = [rank.job().to_owned(), format!("{}/{}", rank.rank(), rank.world_size()), rank.neighbour.pid.to_string()];
    for cells in &mut rows {
        cells[..GROUP].clone_from_slice(&own);
    }
    rows.into_iter().map(|cells| (cells, tone)).collect()
}

/// The cells of a group, without those of its rank.
fn of_group(group: &GroupView) -> Cells {
    let account = &group.account;
    let pace = |show: fn(super::look::Pace) -> String| group.pace.map_or_else(|| "-".to_owned(), show);
    let [job, rank, pid] = Default::default();
    [
        job,
        rank,
        pid,
        account.name.clone(),
        pace(|pace| show::number(pace.operations)),
        pace(|pace| show::number(pace.bytes)),
        pace(|pace| format!("{:.0} %", pace.share * 100.0)),
        doing(account.pending.as_ref(), account.in_flight()),
        account.last.as_ref().map_or_else(|| "-".to_owned(), |last| format!("{} {}", last.kind, last.sequence)),
        account.failed().to_string(),
    ]
}

fn doing(pending: Option<&Underway>, in_flight: u64) -> String {
    let Some(Underway { kind, sequence, called_ns, .. }) = pending else { return "-".to_owned() };
    let others = if in_flight > 1 { format!(" (+{})", in_flight - 1) } else { String::new() };
    format!("{kind} {sequence} {}{others}", show::time(Duration::from_nanos(*called_ns)))
}

fn is_culprit(view: &View, rank: &RankView) -> bool {
    view.findings.iter().any(|finding| finding.job == rank.job() && finding.culprits.contains(&rank.rank()))
}

fn row(cells: &Cells, widths: [usize; COLUMNS]) -> String {
    let cell = |(column, cell): (usize, &String)| {
        let width = widths[column];
        if RIGHT.contains(&column) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
    };
    cells.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ")
}

fn line(text: &str, tone: Tone) -> Line {
    Line { text: show::plain(text.trim_end()), tone }
}

const COLUMNS: usize = 10;
const HEAD: [&str; COLUMNS] =
    ["JOB", "RANK", "PID", "GROUP", "OPS/S", "BYTES/S", "IN OPS", "IN FLIGHT SINCE", "LAST CALLED", "FAILED"];
/// The column of the group, after those of its rank.
const GROUP: usize = 3;
/// Columns of numbers.
const RIGHT: [usize; 5] = [2, 4, 5, 6, 9];

#[cfg(test)]
mod tests {
    use super::super::finding::find;
    use super::super::look::Pace;
    use super::super::show::sample;
    use super::*;

    fn view() -> View {
        let mut account = sample::group(5, 400, 1);
        account.last = Some(sample::pending(5, 0));
        account.last_collective = account.last.clone();
        account.pending = Some(sample::pending(5, 3_200_000_000));
        account.kinds[0].called += 2;
        let pace = Some(Pace { operations: 1523.0, bytes: 24_000.0, share: 0.981 });
        let ranks = vec![
            sample::rank(0, 2, Some(vec![GroupView { account, pace }])),
            sample::rank(1, 2, None),
            sample::rank(3, 4, Some(Vec::new())),
        ];
        View { findings: find(&ranks), ranks, nobody: String::new() }
    }

    #[test]
    fn a_table_shows_who_waits_and_who_is_stopped() {
        let lines = lines(&view());
        let text: Vec<&str> = lines.iter().map(|line| &*line.text).collect();
        assert_eq!(
            text,
            [
                "job train: rank 1 does not answer: process 101 is stopped",
                "job train, world: rank 0 in all_reduce 5 for 3.2 s at train.rs:9: waiting for rank 1",
                "JOB    RANK  PID  GROUP                     OPS/S  BYTES/S  IN OPS  IN FLIGHT SINCE          LAST CALLED   FAILED",
                "train  0/2   100  world                      1.5k      24k    98 %  all_reduce 5 3.2 s (+1)  all_reduce 5       1",
                "train  1/2   101  does not answer: stopped",
                "train  3/4   103  no group",
            ]
        );
        let tones: Vec<Tone> = lines.iter().map(|line| line.tone).collect();
        assert_eq!(tones, [Tone::Alarm, Tone::Alarm, Tone::Head, Tone::Plain, Tone::Alarm, Tone::Plain]);
    }

    #[test]
    fn the_same_is_told_as_json() {
        let told = view().to_json();
        assert_eq!(told["findings"][1]["culprits"], json!([1]));
        assert_eq!(told["ranks"][0]["groups"][0]["pace"]["operations_per_second"], json!(1523.0));
        assert_eq!(told["ranks"][0]["groups"][0]["account"]["pending"]["kind"], json!("all_reduce"));
        assert_eq!((&told["ranks"][1]["answers"], &told["ranks"][1]["process"]), (&json!(false), &json!("stopped")));
    }

    #[test]
    fn nobody_is_said_to_be_there() {
        let view = View { ranks: Vec::new(), findings: Vec::new(), nobody: "no ranks".to_owned() };
        assert_eq!(lines(&view), [line("no ranks", Tone::Plain)]);
    }
}
