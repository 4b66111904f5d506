//! The store behind a server, as a home: a connection for each call, and another try where that does no harm.

use std::time::{Duration, Instant};

use phalanx_core::store::wire::{from_wire, to_wire};
use phalanx_core::store::{Doubt, Home, Key, Refusal, Reply, Request, StoreError, Verb};

use super::capabilities::Capabilities;
use super::connection::{Connection, Dialect};
use super::greeting::Greeting;
use super::idle::Idle;
use super::native;
use super::options::ClientOptions;
use super::pytorch::Talk;
use super::reach::Reach;
use super::time::{Pauses, Times};
use super::trouble::Trouble;
use crate::secure::{Claim, JobName, Session};
use crate::store::owner::Owner;

/// A store behind a server: ours, or any that speaks the protocol of PyTorch's `TCPStore`.
///
/// Calls from several threads each use a connection of their own. A change that was acknowledged was made; one that was not
/// fails with what is known of it.
#[derive(Debug)]
pub struct TcpStore {
    reach: Reach,
    idle: Idle,
    capabilities: Capabilities,
    name: String,
    owner: Owner,
}

impl TcpStore {
    /// Reaches the server, which may come up later than this call as long as its time allows.
    ///
    /// # Errors
    ///
    /// [`Refused`](StoreError::Refused) where the address is on another machine and there is no key,
    /// [`Denied`](StoreError::Denied) where the server does not let this client in, and [`Lost`](StoreError::Lost) where it
    /// could not be reached in time.
    pub fn connect(options: ClientOptions) -> Result<TcpStore, StoreError> {
        let name = format!("the store at {}", options.address);
        check_safety(&options)?;
        let claim = options.claim.map_or_else(unnamed, Ok).map_err(|detail| denied(Verb::Connect, &name, &detail))?;
        let greeting = Greeting { key: options.key, claim, speech: options.speech };
        let store = TcpStore {
            reach: Reach::new(options.address, greeting),
            idle: Idle::default(),
            capabilities: Capabilities::default(),
            name,
            owner: Owner::here(),
        };
        let call =
            Call { store: &store, verb: Verb::Connect, keys: Vec::new(), repeats: true, timeout: options.timeout };
        let connection = store.reach.connection(Times::after(options.timeout).wait);
        store.idle.give(connection.map_err(|trouble| call.failed(trouble, false))?);
        Ok(store)
    }

    /// One try over one connection.
    fn try_on(&self, connection: &mut Connection, request: &Request, times: Times) -> Result<Reply, Trouble> {
        match connection.dialect() {
            Dialect::Native => native::ask(connection, request, times),
            Dialect::PyTorch => {
                let capabilities = &self.capabilities;
                Talk { connection, capabilities, times, server: &self.name }.ask(request)
            }
        }
    }

    fn connection(&self, until: Instant) -> Result<Connection, Trouble> {
        self.idle.take().map_or_else(|| self.reach.connection(until), Ok)
    }
}

impl Home for TcpStore {
    fn ask(&self, request: Request, timeout: Duration) -> Result<Reply, StoreError> {
        let call = Call::new(self, &request, timeout);
        call.check_process()?;
        let (times, request) = (Times::after(timeout), request.map_keys(to_wire));
        let (mut pauses, mut cut_off) = (Pauses::new(), 0);
        loop {
            let mut connection = self.connection(times.end).map_err(|trouble| call.failed(trouble, false))?;
            let begun = Instant::now();
            let outcome = self.try_on(&mut connection, &request, times);
            let (delivered, dialect) = (connection.delivered(), connection.dialect());
            self.idle.give(connection);
            let trouble = match outcome {
                Ok(reply) => return Ok(from_wire(reply)),
                Err(trouble) => trouble,
            };
            if !call.is_worth_another_try(&trouble, delivered) {
                return Err(call.failed(explained(trouble, dialect), delivered));
            }
            cut_off += u32::from(begun.elapsed() < AT_ONCE);
            if cut_off >= CONVINCED || !pauses.pause(times.end) {
                return Err(call.failed(explained(trouble, dialect), delivered));
            }
        }
    }

    fn describe(&self) -> String {
        self.name.clone()
    }
}

/// What is known of a call without looking at its bytes again.
struct Call<'a> {
    store: &'a TcpStore,
    verb: Verb,
    keys: Vec<Key>,
    repeats: bool,
    timeout: Duration,
}

impl<'a> Call<'a> {
    fn new(store: &'a TcpStore, request: &Request, timeout: Duration) -> Call<'a> {
        let keys = request.keys().cloned().collect();
        Call { store, verb: request.verb(), keys, repeats: request.repeats(), timeout }
    }

    /// Connections are not shared with a process that was forked: two would speak at once, as one rank.
    fn check_process(&self) -> Result<(), StoreError> {
        let owner = self.store.owner;
        if owner.is_here() { Ok(()) } else { Err(owner.denied(self.verb, &self.store.name, "connect again")) }
    }

    fn is_worth_another_try(&self, trouble: &Trouble, delivered: bool) -> bool {
        matches!(trouble, Trouble::Closed(_) | Trouble::Broken(_)) && (self.repeats || !delivered)
    }

    fn timeout(&self, detail: String, doubt: Doubt) -> StoreError {
        StoreError::Timeout { verb: self.verb, after: self.timeout, keys: self.keys.clone(), detail, doubt }
    }

    /// The trouble as the caller sees it.
    fn failed(&self, trouble: Trouble, delivered: bool) -> StoreError {
        let verb = self.verb;
        let doubt = if self.repeats || !delivered { Doubt::None } else { Doubt::Unknown };
        match trouble {
            // Whether it is the connection or the answer that does not come, it is the time that ended.
            Trouble::Silent(detail) if verb != Verb::Connect => {
                self.timeout(format!("{}: {detail}", self.store.name), doubt)
            }
            Trouble::Late if verb != Verb::Connect => self.timeout(self.store.name.clone(), doubt),
            Trouble::Late => {
                StoreError::Lost { verb, detail: format!("{}: nothing answers there", self.store.name), doubt }
            }
            Trouble::Refused(refusal) => StoreError::Refused { verb, refusal },
            Trouble::Denied(detail) => denied(verb, &self.store.name, &detail),
            Trouble::Closed(detail)
            | Trouble::Unwelcome(detail)
            | Trouble::Broken(detail)
            | Trouble::Unreachable(detail)
            | Trouble::Silent(detail) => {
                StoreError::Lost { verb, detail: format!("{}: {detail}", self.store.name), doubt }
            }
        }
    }
}

/// A closed connection with what may be behind it: PyTorch's servers have no other way to refuse.
fn explained(trouble: Trouble, dialect: Dialect) -> Trouble {
    match trouble {
        Trouble::Closed(detail) if dialect == Dialect::PyTorch => Trouble::Closed(format!("{detail}{PYTORCH_CLOSES}")),
        other => other,
    }
}

/// Without a key nobody is kept from reading along, so that is for one machine only, unless it is wanted.
fn check_safety(options: &ClientOptions) -> Result<(), StoreError> {
    if options.key.is_some() || options.address.is_local() {
        return Ok(());
    }
    if options.insecure {
        log::warn!("the store at {} is used without a key: anybody on the way can read and change it", options.address);
        return Ok(());
    }
    let refusal = Refusal::Argument {
        argument: "key".to_owned(),
        value: "none".to_owned(),
        expected: format!("must be set for {}, which is another machine, unless insecure is set", options.address),
    };
    Err(StoreError::Refused { verb: Verb::Connect, refusal })
}

fn unnamed() -> Result<Claim, String> {
    let session = Session::mint().map_err(|error| format!("no random bytes for a session: {error}"))?;
    Ok(Claim::new(JobName::default(), 0, session))
}

fn denied(verb: Verb, name: &str, detail: &str) -> StoreError {
    StoreError::Denied { verb, detail: format!("{name}: {detail}") }
}

const PYTORCH_CLOSES: &str =
    ", as PyTorch's servers do on keys above 8 KiB, values above 8 MiB and counters that are no numbers";
/// A connection that is closed so soon was perhaps closed for what was asked.
const AT_ONCE: Duration = Duration::from_secs(1);
/// How often that is believed to be chance.
const CONVINCED: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{ServerOptions, StoreServer};

    #[test]
    fn a_forked_process_is_told_to_connect_again() {
        let server = StoreServer::start(ServerOptions::new("127.0.0.1:0".parse().unwrap())).unwrap();
        let mut store = TcpStore::connect(ClientOptions::new(server.address().clone())).unwrap();
        let time = Duration::from_secs(30);
        assert_eq!(store.ask(Request::Ping, time), Ok(Reply::Done));
        // What a child sees: its own number is another.
        store.owner.0 ^= 1;
        let error = store.ask(Request::Ping, time).unwrap_err();
        assert!(matches!(error, StoreError::Denied { verb: Verb::Ping, .. }), "{error}");
        assert!(error.to_string().ends_with("was forked: connect again"), "{error}");
    }
}
