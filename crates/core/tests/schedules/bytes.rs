//! docs/algorithms.md against the schedules: what its table says is sent, offered and needed is what they do.

use std::collections::BTreeMap;

use phalanx_core::schedule::{Algorithm, Profile, Schedule, Step};
use phalanx_core::{Counts, DType, Layout, Op, OpKind, ReduceOp};

use crate::formula::evaluate;
use crate::ground::{SEGMENTS, SIZES, WORLDS, both, roots, spread};
use crate::replay::Case;

const PAGE: &str = include_str!("../../../../docs/algorithms.md");

/// The columns, in the order of the table. The first two are exact for all ranks together, the next for each; the last
/// two are the most that any rank has.
const COLUMNS: [&str; 5] = ["sent", "offered", "offers", "moves", "scratch"];

/// A row's formulas, and whether each bound of it was reached or is never more than zero.
struct Row {
    formulas: [String; 5],
    reached: [bool; 5],
}

/// Operation, algorithm, and whether the ranks of a host have windows in it.
type Key = (String, Algorithm, bool);

#[test]
fn the_page_tells_what_the_schedules_do() {
    let mut rows = rows();
    for (world, size) in WORLDS.flat_map(|world| SIZES.map(|size| (world, size))) {
        for ranks_ops in ops(size, world) {
            let op_of = |rank: usize| ranks_ops[rank % ranks_ops.len()].clone();
            let op = &op_of(0);
            for algorithm in Algorithm::ALL.into_iter().filter(|way| way.plays(op, DType::I32)) {
                for (hosts, segments) in spread(world, algorithm)
                    .into_iter()
                    .flat_map(|hosts| SEGMENTS.map(|segments| (hosts.clone(), segments)))
                {
                    let case = Case {
                        op,
                        op_of: &op_of,
                        dtype: DType::I32,
                        hosts: &hosts,
                        algorithm,
                        segments,
                        in_place: false,
                        windows: false,
                    };
                    check_everywhere(case, &mut rows);
                }
            }
        }
    }
    for (key, row) in rows {
        for (reached, column) in row.reached.iter().zip(COLUMNS) {
            assert!(reached, "{key:?}: no case reaches what the page says of '{column}'");
        }
    }
}

#[test]
fn the_page_tells_the_limits_of_the_default_profile() {
    let rows = PAGE.lines().skip_while(|line| !line.starts_with("| limit | default |")).skip(2);
    let limits = rows.map_while(|line| line.strip_prefix("| `")?.split_once("` | ")).map(|(name, rest)| {
        let (value, _) = rest.split_once(" | ").expect("a value and what it is");
        format!("{name} = {value}")
    });
    let limits: Vec<String> = limits.collect();
    let told: Profile = limits.join("\n").parse().expect("the page's limits are known");
    assert_eq!((told, limits.len()), (Profile::default(), 3), "{limits:#?}");
}

/// Compares one case, in place too and with windows too where that is another case.
fn check_everywhere(case: Case<'_>, rows: &mut BTreeMap<Key, Row>) {
    for windows in [false, true] {
        let key = (case.op.kind().to_string(), case.algorithm, windows);
        if windows && case.algorithm != Algorithm::TwoLevel {
            continue;
        }
        let row = rows.get_mut(&key).unwrap_or_else(|| panic!("the page has no row for {key:?}"));
        for in_place in [false, true] {
            if !in_place || case.op.need_in_place(0, case.size()).is_some() {
                let case = Case { in_place, windows, ..case };
                check(&case, row);
            }
        }
    }
}

fn check(case: &Case<'_>, row: &mut Row) {
    let schedules = case.schedules().expect("the algorithm plays the operation");
    let every = |count: &dyn Fn(&Schedule) -> usize| schedules.iter().map(count).collect::<Vec<_>>();
    let most = |counts: Vec<usize>| counts.into_iter().max().unwrap_or(0);
    // Without the one that all operations may begin with.
    let offers = every(&|schedule| schedule.offers() - usize::from(schedule.lending.is_some()));
    let mates = |rank| (0..case.size()).filter(move |&mate| case.hosts[mate] == case.hosts[rank]);
    let agree = |rank: usize| mates(rank).all(|mate| offers[mate] == offers[rank]);
    assert!((0..case.size()).all(agree), "{case:?}: offers differ on a host");
    let found = [
        every(&Schedule::sent).iter().sum(),
        every(&Schedule::offered).iter().sum(),
        most(offers),
        most(every(&moves)),
        most(every(&|schedule| schedule.scratch)),
    ];
    for (index, found) in found.into_iter().enumerate() {
        let (column, formula) = (COLUMNS[index], &row.formulas[index]);
        let said = evaluate(formula, &|name, arguments| value(case, name, arguments))
            .unwrap_or_else(|error| panic!("{case:?} {column} `{formula}`: {error}"));
        let found = found as i64;
        let holds = if index < 3 { found == said } else { found <= said };
        assert!(holds, "{case:?}: {column} is {found}, the page says `{formula}` = {said}");
        row.reached[index] |= found == said && (said > 0 || formula == "0");
    }
}

fn moves(schedule: &Schedule) -> usize {
    let moves = schedule.steps.iter().filter(|step| matches!(step, Step::Move { .. }));
    moves.count()
}

/// The names of the page.
fn value(case: &Case<'_>, name: &str, arguments: &[i64]) -> Option<i64> {
    let layout = Layout::new(0, case.hosts.to_vec()).unwrap();
    let heads = layout.leaders();
    let mates = || heads.iter().map(|&head| layout.host_mates(head).len() as i64);
    let p = case.size() as i64;
    let value = match (name, arguments) {
        ("p", []) => p,
        ("n", []) => total(case),
        ("s", []) => case.segments as i64,
        ("h", []) => heads.len() as i64,
        ("q", []) => mates().max()?,
        ("lone", []) => mates().filter(|&count| count == 1).count() as i64,
        ("uneven", []) => mates().any(|count| count * heads.len() as i64 != p).into(),
        ("root", []) => case.op.root()? as i64,
        ("kept", []) => (0..case.size()).map(|rank| given(case, rank).of(rank) as i64).sum(),
        ("longest", []) => counts(case.op).map(|counts| (0..case.size()).map(|rank| counts.of(rank)).max())?? as i64,
        ("count", [r]) => counts(case.op)?.of(*r as usize) as i64,
        ("slice", [r]) => total(case) * (r + 1) / p - total(case) * r / p,
        ("head", [r]) => heads.contains(&(*r as usize)).into(),
        ("stood_for", [r]) => (r % 2 == 1 && *r < 2 * (p - (1 << p.ilog2()))).into(),
        ("ones", [x]) => x.count_ones().into(),
        ("log2", [x]) => x.checked_ilog2()?.into(),
        ("ceil_log2", [x]) => (*x as u64).next_power_of_two().ilog2().into(),
        ("floor_pow2", [x]) => 1 << x.checked_ilog2()?,
        ("ceil_div", [a, b]) => (a + b - 1).checked_div(*b)?,
        ("min", [a, b]) => *a.min(b),
        _ => return None,
    };
    Some(value)
}

/// What the page calls `n`.
fn total(case: &Case<'_>) -> i64 {
    let size = case.size();
    let total = match case.op {
        Op::AllReduce { count, .. } | Op::Reduce { count, .. } | Op::Broadcast { count, .. } => *count,
        Op::AllToAll { .. } => (0..size).map(|rank| given(case, rank).total(size)).sum(),
        op => counts(op).map_or(0, |counts| counts.total(size)),
    };
    total as i64
}

fn counts(op: &Op) -> Option<&Counts> {
    match op {
        Op::AllGather { counts } | Op::ReduceScatter { counts, .. } => Some(counts),
        Op::Gather { counts, .. } | Op::Scatter { counts, .. } => Some(counts),
        _ => None,
    }
}

/// What a rank gives in an all-to-all.
fn given(case: &Case<'_>, rank: usize) -> Counts {
    match (case.op_of)(rank) {
        Op::AllToAll { give, .. } => give,
        _ => Counts::Even(0),
    }
}

/// Every operation: one view of it for all ranks, or one for each.
fn ops(count: usize, world: usize) -> Vec<Vec<Op>> {
    let reduce = ReduceOp::Sum;
    let mut ops = vec![Op::AllReduce { count, reduce }, Op::Barrier];
    for counts in both(count, world) {
        ops.push(Op::AllGather { counts: counts.clone() });
        ops.push(Op::ReduceScatter { counts: counts.clone(), reduce });
        for root in roots(world) {
            ops.push(Op::Reduce { count, reduce, root });
            ops.push(Op::Broadcast { count, root });
            ops.push(Op::Gather { counts: counts.clone(), root });
            ops.push(Op::Scatter { counts: counts.clone(), root });
        }
    }
    let table = |from: usize, to: usize| count / world * ((from + 2 * to) % 3) + from % 2;
    let listed = |of: &dyn Fn(usize) -> usize| Counts::uneven(&(0..world).map(of).collect::<Vec<_>>());
    let tables =
        |rank: usize| Op::AllToAll { give: listed(&|to| table(rank, to)), take: listed(&|from| table(from, rank)) };
    let even = Op::AllToAll { give: Counts::Even(count), take: Counts::Even(count) };
    let mut views: Vec<Vec<Op>> = ops.into_iter().map(|op| vec![op]).collect();
    views.push(vec![even]);
    views.push((0..world).map(tables).collect());
    views
}

/// The rows of the page's tables that begin with an operation's name.
fn rows() -> BTreeMap<Key, Row> {
    let mut rows = BTreeMap::new();
    for line in PAGE.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let op = cells[0].trim_matches('`');
        if cells.len() != 2 + COLUMNS.len() || OpKind::ALL.iter().all(|kind| kind.name() != op) {
            continue;
        }
        let (name, windows) = match cells[1].strip_suffix(" in windows") {
            Some(name) => (name, true),
            None => (cells[1], false),
        };
        let algorithm: Algorithm = name.trim_matches('`').parse().unwrap_or_else(|error| panic!("{line}: {error}"));
        let row = Row {
            formulas: std::array::from_fn(|index| cells[index + 2].trim_matches('`').to_owned()),
            reached: [false; 5],
        };
        let twice = rows.insert((op.to_owned(), algorithm, windows), row).is_some();
        assert!(!twice, "{line}: a second row");
    }
    rows
}
