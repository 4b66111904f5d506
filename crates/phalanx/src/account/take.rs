//! From the groups of a world to an account of them.

use std::net::SocketAddr;
use std::time::Duration;

use phalanx_comm::Formed;
use phalanx_comm::rendezvous::World;
use phalanx_core::recorder::{Record, State, Total};
use phalanx_core::{ErrorKind, Group, OpKind};

use crate::presence::Seat;

use super::numbers::{Account, FORMAT, GroupAccount, KindAccount, Underway};

/// What the groups of this world have done on this rank, and what they do now.
///
/// ```no_run
/// let world = phalanx::init()?;
/// let account = phalanx::account(&world);
/// for group in &account.groups {
///     println!("{}: {} operations, {} in flight", group.name, group.ended(), group.in_flight());
/// }
/// # Ok::<(), phalanx::Error>(())
/// ```
pub fn account(world: &World) -> Account {
    Accountant::of(Seat::of(world)).account()
}

/// Who takes accounts of one rank for as long as it likes. It keeps neither its world nor its groups.
#[derive(Clone, Debug)]
pub(crate) struct Accountant {
    seat: Seat,
    metrics: Option<SocketAddr>,
}

impl Accountant {
    pub(crate) fn of(seat: Seat) -> Accountant {
        Accountant { seat, metrics: None }
    }

    /// Where the rank answers Prometheus.
    pub(crate) fn metrics(mut self, address: Option<SocketAddr>) -> Accountant {
        self.metrics = address;
        self
    }

    pub(crate) fn account(&self) -> Account {
        let seat = &self.seat;
        let (rank, world_size) = seat.registry.seat();
        let groups = seat.registry.groups();
        Account {
            format: FORMAT,
            job: seat.job.clone(),
            rank,
            world_size,
            local_rank: seat.local_rank,
            host_name: seat.host_name.clone(),
            pid: std::process::id(),
            metrics: self.metrics,
            groups: groups.iter().map(|(formed, group)| of_group(formed, group)).collect(),
        }
    }
}

fn of_group(formed: &Formed, group: &Group) -> GroupAccount {
    let glance = group.recorder().glance();
    let now = group.now();
    let underway = |record: Record| underway(&record, now);
    GroupAccount {
        name: formed.name.clone(),
        number: formed.number,
        epoch: group.epoch(),
        generation: Some(formed.generation),
        members: formed.members.clone(),
        transport: formed.transport.to_string(),
        now_ns: nanoseconds(now),
        kinds: glance.totals.used().map(|(kind, total)| of_kind(kind, total)).collect(),
        last: glance.last.map(underway),
        last_collective: glance.last_collective.map(underway),
        upcoming: Some(group.backend().upcoming()),
        pending: glance.pending_collective.or(glance.pending_message).map(underway),
        pending_message: glance.pending_message.map(underway),
        awaited: glance.awaited_collective.or(glance.awaited_message).map(underway),
    }
}

fn of_kind(kind: OpKind, total: &Total) -> KindAccount {
    let failed = ErrorKind::ALL.iter().map(|error| (error.to_string(), total.failed(*error)));
    KindAccount {
        kind: kind.name().to_owned(),
        called: total.called,
        ended: total.ended,
        failed: failed.filter(|(_, count)| *count > 0).collect(),
        input_bytes: total.input_bytes,
        output_bytes: total.output_bytes,
        queued_ns: total.queued_ns,
        busy_ns: total.busy_ns,
        durations: total.durations().to_vec(),
    }
}

fn underway(record: &Record, now: Duration) -> Underway {
    let state = match record.state {
        State::Queued => "queued",
        State::Started => "started",
        State::Done => "done",
        State::Failed(_) => "failed",
    };
    Underway {
        kind: record.op.name().to_owned(),
        sequence: record.sequence,
        is_message: matches!(record.op, OpKind::Send | OpKind::Recv),
        peer: record.peer,
        state: state.to_owned(),
        called_ns: nanoseconds(now.saturating_sub(record.created)),
        started_ns: record.started.map(|started| nanoseconds(now.saturating_sub(started))),
        site: record.site.to_string(),
        is_ahead: record.is_ahead,
    }
}

fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos().try_into().unwrap_or(u64::MAX)
}
