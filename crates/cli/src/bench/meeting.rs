//! How ranks reach each other: the transports there are, and where processes meet that use one of them.

use std::time::Duration;

use clap::ValueEnum;
use phalanx::schedule::{Algorithm, Profile};
use phalanx::{Group, GroupOptions, Protection, Store};
use phalanx_comm::secure::JobKey;
use phalanx_comm::store::{ClientOptions, ServerOptions, StoreAddress, StoreServer, TcpStore};
use phalanx_comm::{Door, Network, Processes};
use serde_json::{Value, json};

use super::case::Memory;
use crate::failure::Failure;

/// How ranks reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// Processes of this host, through memory that they share
    Shm,
    /// Threads of one process
    Threads,
    /// Processes that reach each other over TCP, here through the loopback
    Tcp,
    /// The same with a job key: every byte is encrypted
    TcpEncrypted,
    /// The same, but data can be read on the way
    TcpAuthenticated,
    /// Processes that share memory with those of their host, of which there are `--hosts`, and reach the others over TCP
    Mixed,
}

/// Where ranks that are processes meet. With it goes the secret that lets them in.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Meeting {
    Shm {
        door: String,
        token: [u8; 16],
    },
    /// A store at which they exchange their addresses, and the job key if they prove one.
    Tcp {
        store: String,
        key: Option<String>,
        /// Whether data only has to stay as it is, where there is a key.
        clear: bool,
        /// Whether ranks of one host share memory.
        shared_memory: bool,
    },
}

/// How the group of a bench behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Style {
    /// The algorithm to use wherever it can play the operation.
    pub(super) algorithm: Option<Algorithm>,
    /// Whether everything goes over links.
    pub(super) links: bool,
    pub(super) memory: Memory,
    /// On how many hosts the ranks pretend to be, in rows.
    pub(super) hosts: usize,
    /// By which limits algorithms are chosen, where not by default.
    pub(super) profile: Option<Profile>,
    /// Whether nothing is recorded or compared.
    pub(super) is_bare: bool,
}

impl Transport {
    pub(super) fn name(self) -> &'static str {
        match self {
            Transport::Shm => "shm",
            Transport::Threads => "threads",
            Transport::Tcp => "tcp",
            Transport::TcpEncrypted => "tcp-encrypted",
            Transport::TcpAuthenticated => "tcp-authenticated",
            Transport::Mixed => "mixed",
        }
    }

    /// The most ranks that can meet.
    pub(super) fn most_ranks(self) -> usize {
        match self {
            Transport::Shm => 64,
            Transport::Threads
            | Transport::Tcp
            | Transport::TcpEncrypted
            | Transport::TcpAuthenticated
            | Transport::Mixed => 1024,
        }
    }

    /// Whether its ranks are processes.
    pub(super) fn has_processes(self) -> bool {
        self != Transport::Threads
    }

    /// A new place to meet, with what it needs for as long as ranks come; none for threads, who know each other.
    pub(super) fn meeting(self) -> Result<Option<(Meeting, Option<StoreServer>)>, Failure> {
        match self {
            Transport::Shm => Ok(Some((Meeting::shm()?, None))),
            Transport::Threads => Ok(None),
            Transport::Tcp | Transport::Mixed => Meeting::tcp(None, true, self == Transport::Mixed).map(Some),
            Transport::TcpEncrypted | Transport::TcpAuthenticated => {
                let key = JobKey::mint().map_err(|error| Failure::Stopped(format!("job key: {error}")))?;
                Meeting::tcp(Some(key), self == Transport::TcpAuthenticated, false).map(Some)
            }
        }
    }
}

impl Meeting {
    fn shm() -> Result<Meeting, Failure> {
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(|error| Failure::Stopped(format!("random bytes: {error}")))?;
        let [name, token] = [0, 16].map(|start| u128::from_le_bytes(std::array::from_fn(|at| random[start + at])));
        Ok(Meeting::Shm { door: format!("phalanx-bench-{name:032x}"), token: token.to_le_bytes() })
    }

    fn tcp(key: Option<JobKey>, clear: bool, shared_memory: bool) -> Result<(Meeting, Option<StoreServer>), Failure> {
        let options = ServerOptions::new(StoreAddress::tcp("127.0.0.1", 0));
        let server = StoreServer::start(key.iter().cloned().fold(options, ServerOptions::key))?;
        let key = key.map(|key| key.to_hex().to_string());
        Ok((Meeting::Tcp { store: server.address().to_string(), key, clear, shared_memory }, Some(server)))
    }

    /// Meets the other ranks and returns this rank's group.
    pub(super) fn join(&self, rank: usize, np: usize, style: Style) -> phalanx::Result<Group> {
        match self {
            Meeting::Shm { door, token } => {
                let world = Processes::new(rank, np, Door::named(door), *token).options(style.options());
                let world = if style.hosts > 1 { world.hosts(style.hosts_of(np)) } else { world };
                let world = world.windows(!style.links);
                style.algorithm.into_iter().fold(world, Processes::algorithm).join(JOINED_WITHIN)
            }
            Meeting::Tcp { store, key, clear, shared_memory } => {
                let key = key.as_deref().map(JobKey::from_hex).transpose();
                let key = key.map_err(|error| phalanx::Error::setup("job key", error))?;
                let options = ClientOptions::new(store.parse()?);
                let options = key.iter().cloned().fold(options, ClientOptions::key);
                let store = Store::new(TcpStore::connect(options)?);
                let world = Network::new(rank, np, store.scope("bench")).options(style.options());
                let protection = if *clear { Protection::Authenticated } else { Protection::Encrypted };
                let world = key.into_iter().fold(world, Network::key).protection(protection).hosts(style.hosts_of(np));
                let world = world.shared_memory(*shared_memory).windows(!style.links);
                style.algorithm.into_iter().fold(world, Network::algorithm).join(JOINED_WITHIN)
            }
        }
    }

    pub(super) fn to_json(&self) -> Value {
        match self {
            Meeting::Shm { door, token } => json!({ "shm": { "door": door, "token": token } }),
            Meeting::Tcp { store, key, clear, shared_memory } => {
                json!({ "tcp": { "store": store, "key": key, "clear": clear, "shared_memory": shared_memory } })
            }
        }
    }

    pub(super) fn from_json(told: &Value) -> Option<Meeting> {
        if let Some(store) = told["tcp"]["store"].as_str() {
            let key = told["tcp"]["key"].as_str().map(str::to_owned);
            let (clear, shared_memory) = (told["tcp"]["clear"].as_bool()?, told["tcp"]["shared_memory"].as_bool()?);
            return Some(Meeting::Tcp { store: store.to_owned(), key, clear, shared_memory });
        }
        let shm = &told["shm"];
        let bytes = shm["token"].as_array()?.iter();
        let token: Option<Vec<u8>> = bytes.map(|byte| byte.as_u64().and_then(|byte| byte.try_into().ok())).collect();
        Some(Meeting::Shm { door: shm["door"].as_str()?.to_owned(), token: token?.try_into().ok()? })
    }
}

impl Style {
    pub(super) fn options(self) -> GroupOptions {
        let options = GroupOptions::default().timeout(CALL_WITHIN).bare(self.is_bare);
        self.profile.into_iter().fold(options, GroupOptions::profile)
    }

    /// The host of each rank.
    pub(super) fn hosts_of(self, np: usize) -> Vec<u32> {
        (0..np).map(|rank| (rank * self.hosts / np) as u32).collect()
    }

    pub(super) fn to_json(self) -> Value {
        json!({
            "algorithm": self.algorithm.map(Algorithm::name),
            "links": self.links,
            "memory": self.memory.name(),
            "hosts": self.hosts,
            "profile": self.profile.map(|profile| profile.to_string()),
            "bare": self.is_bare,
        })
    }

    pub(super) fn from_json(told: &Value) -> Option<Style> {
        let algorithm = match &told["algorithm"] {
            Value::Null => None,
            name => Some(name.as_str()?.parse().ok()?),
        };
        let memory = Memory::from_str(told["memory"].as_str()?, false).ok()?;
        let profile = match &told["profile"] {
            Value::Null => None,
            text => Some(text.as_str()?.parse().ok()?),
        };
        let (links, hosts) = (told["links"].as_bool()?, told["hosts"].as_u64()?.try_into().ok()?);
        Some(Style { algorithm, links, memory, hosts, profile, is_bare: told["bare"].as_bool()? })
    }
}

/// Starting many processes on few cores takes its time.
const JOINED_WITHIN: Duration = Duration::from_secs(60);
/// No call is that long: a rank hangs.
pub(super) const CALL_WITHIN: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meetings_and_styles_survive_their_journey() {
        let meetings = [(); 2].map(|()| Meeting::shm().expect("random bytes"));
        assert_ne!(meetings[0], meetings[1]);
        let tcp = [(None, true), (Some("ab".to_owned()), false)].map(|(key, clear)| Meeting::Tcp {
            store: "127.0.0.1:1".to_owned(),
            key,
            clear,
            shared_memory: clear,
        });
        for meeting in meetings.into_iter().chain(tcp) {
            assert_eq!(Meeting::from_json(&meeting.to_json()), Some(meeting));
        }
        for algorithm in [None, Some(Algorithm::Ring)] {
            let profile = algorithm.map(|_| Profile::default().segment(77));
            let style = Style {
                algorithm,
                links: algorithm.is_some(),
                memory: Memory::Shared,
                hosts: 3,
                profile,
                is_bare: true,
            };
            assert_eq!(Style::from_json(&style.to_json()), Some(style));
        }
        assert_eq!(Meeting::from_json(&json!({ "shm": { "door": "x", "token": [1, 2, 300] } })), None);
        assert_eq!(Style::from_json(&json!({ "algorithm": "rung", "links": true })), None);
    }
}
