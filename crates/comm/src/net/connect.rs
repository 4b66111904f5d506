//! Reaching a rank that listens: its addresses one after the other, then every connection at the one that answered.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use phalanx_core::{Error, Result};

use super::greeting::{Guard, Line, Trouble, call, in_words};
use super::hello::{Hello, Traffic};
use super::socket::Socket;

/// The connections to the rank that `hello` is for, one for each traffic, at one of `places`. Errors name it by its number in the world.
pub(super) fn reach(
    places: &[SocketAddr],
    (hello, world_rank): (Hello, usize),
    guard: &Guard,
    until: Instant,
) -> Result<Vec<(Traffic, Line)>> {
    let [first, others @ ..] = Traffic::ALL;
    let connect = |place, traffic, until| connect(place, Hello { traffic, ..hello }, guard, until);
    let mut tried = vec![];
    for (at, place) in places.iter().enumerate() {
        let is_last = at + 1 == places.len();
        let attempt = if is_last { until } else { until.min(Instant::now() + ATTEMPT) };
        match connect(*place, first, attempt) {
            Ok(line) => {
                // The rank is there, and expects the rest nowhere else: it has all the time that there is.
                let rest = others.into_iter().map(|traffic| Ok((traffic, connect(*place, traffic, until)?)));
                let lines = [Ok((first, line))].into_iter().chain(rest).collect::<Result<_, Trouble>>();
                return lines.map_err(|trouble| unreachable(world_rank, &[(place, trouble)]));
            }
            Err(trouble) => tried.push((place, trouble)),
        }
    }
    Err(unreachable(world_rank, &tried))
}

fn connect(place: SocketAddr, hello: Hello, guard: &Guard, until: Instant) -> Result<Line, Trouble> {
    let socket = Socket::connect(place, until).map_err(in_words)?;
    call(Arc::new(socket), hello, guard, until)
}

fn unreachable(rank: usize, tried: &[(&SocketAddr, Trouble)]) -> Error {
    match tried {
        [] => Error::setup(format!("rank {rank}"), "is on another host and listens only at loopback there"),
        [(place, trouble)] => Error::setup(format!("rank {rank} at {place}"), format!("cannot be reached: {trouble}")),
        several => {
            let each = several.iter().map(|(place, trouble)| format!("{place}: {trouble}"));
            Error::setup(
                format!("rank {rank}"),
                format!("cannot be reached at {}", each.collect::<Vec<_>>().join("; ")),
            )
        }
    }
}

/// How long an address may take to answer once while there is another one.
const ATTEMPT: Duration = Duration::from_secs(3);
