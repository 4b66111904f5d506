//! Reaching a rank that listens: its addresses one after the other, then every connection at the one that answered.

use std::io::ErrorKind;
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
    let greet = |socket, traffic, until| call(Arc::new(socket), Hello { traffic, ..hello }, guard, until);
    let connect = |place, traffic| greet(Socket::connect(place, until).map_err(in_words)?, traffic, until);
    let (mut tried, mut is_refused) = (vec![], true);
    for (at, place) in places.iter().enumerate() {
        let is_last = at + 1 == places.len();
        let attempt = if is_last { until } else { until.min(Instant::now() + ATTEMPT) };
        let socket = Socket::connect(*place, attempt);
        is_refused &= matches!(&socket, Err(error) if error.kind() == ErrorKind::ConnectionRefused);
        match socket.map_err(in_words).and_then(|socket| greet(socket, first, attempt)) {
            Ok(line) => {
                // The rank is there, and expects the rest nowhere else: it has all the time that there is.
                let rest = others.into_iter().map(|traffic| Ok((traffic, connect(*place, traffic)?)));
                let lines = [Ok((first, line))].into_iter().chain(rest).collect::<Result<_, Trouble>>();
                return lines.map_err(|trouble| unreachable(world_rank, &[(place, trouble)], false));
            }
            Err(trouble) => tried.push((place, trouble)),
        }
    }
    Err(unreachable(world_rank, &tried, is_refused && !tried.is_empty()))
}

/// That a rank cannot be reached. Where its hosts refuse wherever it listened, it listens no more, and is lost; else the way to it may be what
/// is wrong, or what it was set to.
fn unreachable(rank: usize, tried: &[(&SocketAddr, Trouble)], is_refused: bool) -> Error {
    let (what, why) = match tried {
        [] => (format!("rank {rank}"), "is on another host and listens only at loopback there".to_owned()),
        [(place, trouble)] => (format!("rank {rank} at {place}"), format!("cannot be reached: {trouble}")),
        several => {
            let each = several.iter().map(|(place, trouble)| format!("{place}: {trouble}"));
            (format!("rank {rank}"), format!("cannot be reached at {}", each.collect::<Vec<_>>().join("; ")))
        }
    };
    Error::absent(what, why, if is_refused { vec![rank] } else { vec![] })
}

/// How long an address may take to answer once while there is another one.
const ATTEMPT: Duration = Duration::from_secs(3);
