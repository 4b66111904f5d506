//! A dump taken from recorders. The clocks are read by whoever takes it: "now" by the wall, and by each group's own clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use phalanx_core::recorder::{Record, State as Recorded};
use phalanx_core::{Group, OpKind};

use super::{Dump, Entry, FORMAT, Site, State, TracedGroup};

/// Whose dump it is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The rank in the world.
    pub rank: usize,
    /// How many ranks the world has.
    pub world_size: usize,
    /// The name of its host.
    pub host_name: String,
    /// Its process.
    pub pid: u32,
}

impl Dump {
    /// A dump without groups and of no known world, taken `now`.
    pub fn new(identity: Identity, now: SystemTime) -> Dump {
        Dump {
            format: FORMAT,
            rank: identity.rank,
            world_size: Some(identity.world_size),
            met_ns: None,
            host_name: Some(identity.host_name),
            pid: Some(identity.pid),
            taken_ns: Some(nanoseconds(now.duration_since(UNIX_EPOCH).unwrap_or_default())),
            groups: Vec::new(),
            entries: Vec::new(),
        }
    }

    /// Adds what `group` remembers; `members` are the world's ranks that are its ranks, in their order. The verdict is the group's first
    /// failure, where its caller has seen one. Its generation, which the group itself does not know, can be set in what this returns.
    pub fn add(
        &mut self,
        group: &Group,
        members: Vec<usize>,
        description: &str,
        verdict: Option<String>,
    ) -> &mut TracedGroup {
        let records = group.recorder().records();
        let clock = Clock { wall: self.taken_ns.unwrap_or_default(), now: group.now() };
        let at = self.groups.len();
        let traced = TracedGroup {
            name: group.name().to_owned(),
            description: description.to_owned(),
            epoch: group.epoch(),
            generation: None,
            members: Some(members),
            forgotten: records.first().map_or(0, |oldest| oldest.number),
            upcoming: Some(group.backend().upcoming().into()),
            verdict,
        };
        self.entries.extend(records.iter().map(|record| clock.entry(at, record)));
        self.groups.push(traced);
        &mut self.groups[at]
    }
}

/// One moment on two clocks.
struct Clock {
    wall: u64,
    now: Duration,
}

impl Clock {
    fn entry(&self, group: usize, record: &Record) -> Entry {
        Entry {
            group,
            record: record.number,
            sequence: record.sequence.into(),
            kind: record.op.name().to_owned(),
            is_message: matches!(record.op, OpKind::Send | OpKind::Recv),
            dtype: Some(record.dtype.name().to_owned()),
            reduce: record.reduce.map(|reduce| reduce.name().to_owned()),
            peer: record.peer,
            tag: record.tag,
            input: record.input as u64,
            output: record.output as u64,
            even: record.even,
            site: Some(site(record)),
            created_ns: self.on_the_wall(record.created),
            started_ns: record.started.map(|time| self.on_the_wall(time)),
            ended_ns: record.ended.map(|time| self.on_the_wall(time)),
            state: state(record.state),
            timeout_ns: Some(nanoseconds(record.timeout)),
            is_ahead: record.is_ahead,
        }
    }

    /// What ended while the dump was taken is later than the dump.
    fn on_the_wall(&self, time: Duration) -> u64 {
        match self.now.checked_sub(time) {
            Some(ago) => self.wall.saturating_sub(nanoseconds(ago)),
            None => self.wall.saturating_add(nanoseconds(time - self.now)),
        }
    }
}

fn site(record: &Record) -> Site {
    let (file, line) = (record.site.file().to_owned(), record.site.line());
    Site { file, line, function: record.site.function().map(str::to_owned) }
}

fn state(recorded: Recorded) -> State {
    match recorded {
        Recorded::Queued => State::Queued,
        Recorded::Started => State::Started,
        Recorded::Done => State::Done,
        Recorded::Failed(kind) => State::Failed(kind.to_string()),
    }
}

fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos().try_into().unwrap_or(u64::MAX)
}
