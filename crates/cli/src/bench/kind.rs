//! What can be measured: the operations of a group, by name. Not their data.

use phalanx::OpKind;

/// An operation that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    AllReduce,
    ReduceScatter,
    AllGather,
    Broadcast,
    Reduce,
    AllToAll,
    Gather,
    Scatter,
    /// Every rank sends to the next one and receives from the one before.
    SendRecv,
    /// Every even rank sends to the next one, which sends it back.
    PingPong,
    Barrier,
}

impl Kind {
    const ALL: [Kind; 11] = [
        Kind::AllReduce,
        Kind::ReduceScatter,
        Kind::AllGather,
        Kind::Broadcast,
        Kind::Reduce,
        Kind::AllToAll,
        Kind::Gather,
        Kind::Scatter,
        Kind::SendRecv,
        Kind::PingPong,
        Kind::Barrier,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::AllReduce => OpKind::AllReduce.name(),
            Kind::ReduceScatter => OpKind::ReduceScatter.name(),
            Kind::AllGather => OpKind::AllGather.name(),
            Kind::Broadcast => OpKind::Broadcast.name(),
            Kind::Reduce => OpKind::Reduce.name(),
            Kind::AllToAll => OpKind::AllToAll.name(),
            Kind::Gather => OpKind::Gather.name(),
            Kind::Scatter => OpKind::Scatter.name(),
            Kind::Barrier => OpKind::Barrier.name(),
            Kind::SendRecv => "send_recv",
            Kind::PingPong => "ping_pong",
        }
    }

    pub(crate) fn of_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    pub(crate) fn reduces(self) -> bool {
        matches!(self, Kind::AllReduce | Kind::ReduceScatter | Kind::Reduce)
    }

    /// Whether one rank's part differs from that of the others.
    pub(crate) fn has_root(self) -> bool {
        matches!(self, Kind::Broadcast | Kind::Reduce | Kind::Gather | Kind::Scatter)
    }

    /// Whether the result takes the place of the input.
    pub(crate) fn is_in_place(self) -> bool {
        matches!(self, Kind::AllReduce | Kind::Broadcast | Kind::Reduce | Kind::PingPong)
    }

    /// Whether a buffer has a part for each rank.
    pub(crate) fn is_sliced(self) -> bool {
        matches!(self, Kind::ReduceScatter | Kind::AllGather | Kind::AllToAll | Kind::Gather | Kind::Scatter)
    }

    /// Bytes that each rank's hardware moves for each byte of the size, as nccl-tests counts them.
    pub(crate) fn bus_factor(self, np: usize) -> f64 {
        let share = (np - 1) as f64 / np as f64;
        match self {
            Kind::AllReduce => 2.0 * share,
            Kind::PingPong => 2.0,
            kind if kind.is_sliced() => share,
            _ => 1.0,
        }
    }
}

/// Reads a comma-separated list of operations, or `all`.
pub(crate) fn parse_kinds(text: &str) -> Result<Vec<Kind>, String> {
    if text == "all" {
        return Ok(Kind::ALL.to_vec());
    }
    let names = || Kind::ALL.map(Kind::name).join(", ");
    let find = |name: &str| Kind::of_name(name).ok_or_else(|| format!("no operation '{name}'; one of {}", names()));
    text.split(',').map(find).collect()
}
