//! From nothing to a connection: each address in turn, again and again while there is time.

use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::geteuid;

use super::connection::Connection;
use super::greeting::Greeting;
use super::resolve::Resolver;
use super::socket::{Place, Socket};
use super::stream::Stream;
use super::time::Pauses;
use super::trouble::Trouble;
use crate::moment::{self, left};
use crate::store::StoreAddress;

/// The way to one server.
#[derive(Debug)]
pub(super) struct Reach {
    address: StoreAddress,
    greeting: Greeting,
    resolver: Resolver,
    /// Which server it was the first time. Another one holds nothing of what was stored.
    instance: OnceLock<u64>,
}

impl Reach {
    pub(super) fn new(address: StoreAddress, greeting: Greeting) -> Reach {
        Reach { address, greeting, resolver: Resolver::default(), instance: OnceLock::new() }
    }

    /// A new connection by `until`.
    pub(super) fn connection(&self, until: Instant) -> Result<Connection, Trouble> {
        let (mut pauses, mut tries) = (Pauses::new(), Tries::default());
        loop {
            let detail = match self.try_once(until) {
                Ok(connection) => return Ok(connection),
                Err(trouble) => tries.judge(trouble, Instant::now())?,
            };
            if !pauses.pause(until) {
                return Err(tries.end(&detail));
            }
        }
    }

    fn try_once(&self, until: Instant) -> Result<Connection, Trouble> {
        let unresolved = |error| Trouble::Unreachable(format!("{} cannot be looked up: {error}", self.address));
        let places = self.resolver.places(&self.address, until).map_err(unresolved)?;
        let mut last = Trouble::Late;
        for (tried, place) in places.iter().enumerate() {
            let share = left(until) / (places.len() - tried) as u32;
            match self.try_place(place, moment::after(share.min(LONGEST))) {
                Err(Trouble::Denied(detail)) => return Err(Trouble::Denied(detail)),
                Err(trouble) => last = trouble,
                connected => return connected,
            }
        }
        Err(last)
    }

    fn try_place(&self, place: &Place, until: Instant) -> Result<Connection, Trouble> {
        let socket = Socket::connect(place, until).map_err(|error| unconnected(&error))?;
        if let Place::Unix(path) = place {
            let server = socket.server().map_err(|error| Trouble::io(&error))?;
            check_server(path, server, geteuid().as_raw())?;
        }
        let (connection, welcome) = self.greeting.greet(Stream::new(socket), until)?;
        if let Some(welcome) = welcome
            && *self.instance.get_or_init(|| welcome.instance) != welcome.instance
        {
            return Err(Trouble::Denied("it was restarted: what it held is gone".to_owned()));
        }
        Ok(connection)
    }
}

/// How it went so far.
#[derive(Debug, Default)]
struct Tries {
    count: u32,
    unwelcome: u32,
    /// When we were unwelcome first.
    unwelcome_since: Option<Instant>,
    /// How the last of them ended: in silence, or by a proof that was cut off.
    silent: bool,
    cut_off: bool,
}

impl Tries {
    /// What was seen, where another try may go better. A server that is not up yet can look like almost anything.
    fn judge(&mut self, trouble: Trouble, now: Instant) -> Result<String, Trouble> {
        self.count += 1;
        self.silent = matches!(trouble, Trouble::Silent(_));
        self.cut_off = matches!(trouble, Trouble::Unwelcome(_));
        match trouble {
            Trouble::Unwelcome(detail) => {
                self.unwelcome += 1;
                let since = *self.unwelcome_since.get_or_insert(now);
                if self.unwelcome < CONVINCED || now < since + SPREAD {
                    return Ok(detail);
                }
                Err(Trouble::Denied(detail))
            }
            Trouble::Closed(detail)
            | Trouble::Broken(detail)
            | Trouble::Unreachable(detail)
            | Trouble::Silent(detail) => Ok(detail),
            decided => Err(decided),
        }
    }

    /// What is said when there is no time for another, and `detail` was seen last.
    fn end(&self, detail: &str) -> Trouble {
        if self.cut_off && self.unwelcome >= CONVINCED {
            return Trouble::Denied(detail.to_owned());
        }
        let detail = match self.count {
            1 => detail.to_owned(),
            count => format!("{detail} ({count} tries)"),
        };
        if self.silent { Trouble::Silent(detail) } else { Trouble::Unreachable(detail) }
    }
}

/// That the socket at `path` is served by this user, or by root: whoever else was there first would say what is stored.
fn check_server(path: &Path, server: u32, user: u32) -> Result<(), Trouble> {
    if server == user || server == ROOT {
        return Ok(());
    }
    let socket = path.display();
    Err(Trouble::Denied(format!("the socket {socket} is user {server}'s, must be served by user {user} or by root")))
}

fn unconnected(error: &io::Error) -> Trouble {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Trouble::Unreachable("nothing listens there".to_owned()),
        io::ErrorKind::NotFound => Trouble::Unreachable("there is no such socket".to_owned()),
        io::ErrorKind::TimedOut => Trouble::Silent("nothing answers there".to_owned()),
        _ => Trouble::Unreachable(error.to_string()),
    }
}

/// The longest that one address is tried at a time.
const LONGEST: Duration = Duration::from_secs(10);
/// How often a proof is cut off, and over how long, before it is taken for a wrong one. A server that is busy or ending does
/// so too.
const CONVINCED: u32 = 3;
const SPREAD: Duration = Duration::from_secs(2);
const ROOT: u32 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    fn unwelcome() -> Trouble {
        Trouble::Unwelcome("closed".to_owned())
    }

    #[test]
    fn a_socket_that_another_user_serves_is_refused() {
        let check = |server| check_server(Path::new("/run/store"), server, 1000);
        assert!(check(1000).is_ok() && check(ROOT).is_ok());
        let Err(Trouble::Denied(why)) = check(1001) else { panic!("it is trusted") };
        assert_eq!(why, "the socket /run/store is user 1001's, must be served by user 1000 or by root");
    }

    #[test]
    fn a_server_that_is_busy_for_a_moment_is_not_believed_to_have_another_key() {
        let (mut tries, start) = (Tries::default(), Instant::now());
        for number in 0..5 {
            assert!(tries.judge(unwelcome(), start + SPREAD / 6 * number).is_ok());
        }
        assert!(matches!(tries.judge(unwelcome(), start + SPREAD), Err(Trouble::Denied(_))));
    }

    #[test]
    fn when_the_time_ends_what_was_seen_last_counts() {
        let (mut tries, now) = (Tries::default(), Instant::now());
        let closed = |tries: &mut Tries| tries.judge(unwelcome(), now).unwrap();
        closed(&mut tries);
        closed(&mut tries);
        assert!(matches!(tries.end("closed"), Trouble::Unreachable(_)));
        closed(&mut tries);
        assert!(matches!(tries.end("closed"), Trouble::Denied(_)));
        tries.judge(Trouble::Unreachable("nothing listens there".to_owned()), now).unwrap();
        assert!(matches!(tries.end("nothing listens there"), Trouble::Unreachable(_)));
    }
}
