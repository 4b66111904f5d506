//! A member of the job who goes on working: what its calls take, and that nobody changes what it stores.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use phalanx_comm::secure::{Claim, JobKey, JobName, Session};
use phalanx_comm::store::{ClientOptions, StoreAddress, TcpStore};
use phalanx_core::store::Store;

use super::attempt::{EPOCH, RANK, SECRET_KEY, WORLD};
use crate::failure::Failure;
use crate::figures::quantile;
use crate::store::bench::system;

/// A member with a connection of its own.
#[derive(Debug)]
pub(super) struct Member {
    store: Store,
    calls: u64,
}

/// How long calls took, in ascending order.
#[derive(Clone, Debug, Default)]
pub(super) struct Latencies(Vec<Duration>);

impl Member {
    /// Joins and takes the rank that strangers will claim.
    pub(super) fn join(address: SocketAddr, key: &JobKey) -> Result<Member, Failure> {
        let session = Session::mint().map_err(system("random session"))?;
        let claim = Claim::new(JobName::default(), EPOCH, session);
        let claim = claim.member(RANK, WORLD).map_err(system("claim"))?;
        let address = StoreAddress::tcp(address.ip().to_string(), address.port());
        let options = ClientOptions::new(address).key(key.clone()).claim(claim);
        let home = TcpStore::connect(options).map_err(system("a member of the job"))?;
        Ok(Member { store: Store::new(home).with_timeout(CALL_LIMIT), calls: 0 })
    }

    /// Stores and reads a small value in turns, `PACE` apart, as long as `is_wanted` says so of the number of calls.
    pub(super) fn work(&mut self, mut is_wanted: impl FnMut(u64) -> bool) -> Result<Latencies, Failure> {
        let mut latencies = Vec::new();
        let mut due = Instant::now();
        while is_wanted(latencies.len() as u64) {
            due += PACE;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let began = Instant::now();
            self.call()?;
            latencies.push(began.elapsed());
            // A call that took long is not made up for by a burst.
            due = due.max(began);
        }
        latencies.sort_unstable();
        Ok(Latencies(latencies))
    }

    fn call(&mut self) -> Result<(), Failure> {
        let value = (self.calls / 2).to_string();
        self.calls += 1;
        if self.calls % 2 == 1 {
            return self.store.set(SECRET_KEY, &value).map_err(system("a member's call"));
        }
        let read = self.store.get(SECRET_KEY).map_err(system("a member's call"))?;
        match read == value.as_bytes() {
            true => Ok(()),
            false => Err(Failure::Stopped(format!("a member's value is \"{}\", not {value}", read.escape_ascii()))),
        }
    }
}

impl Latencies {
    pub(super) fn calls(&self) -> usize {
        self.0.len()
    }

    /// The time that this share of the calls did not exceed, in microseconds.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        quantile(&self.0, share).as_secs_f64() * 1e6
    }
}

/// Calls a second are 4,000.
const PACE: Duration = Duration::from_micros(250);
const CALL_LIMIT: Duration = Duration::from_secs(30);
