//! What a rank tells to whom: its neighbours on this host, and Prometheus where that is asked for.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use phalanx_core::{Error, Result};

use super::name::name;
use super::request::Page;
use super::visitor::Pages;
use super::{Door, Office, Renewal, neighbours};
use crate::account::{Accountant, exposition};
use crate::environment::{Variables, wrong};
use crate::presence::Seat;
use crate::trace::BlackBox;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    /// Where Prometheus is answered; the rank's own port follows from its number on its host.
    pub(crate) metrics: Option<SocketAddr>,
    /// Whether neighbours are.
    pub(crate) neighbours: bool,
}

/// The same with the port for Prometheus, where that is known already. Whoever asks there waits until the rank has joined.
#[derive(Debug)]
pub(crate) struct Prepared {
    service: Service,
    door: Option<Door>,
}

impl Service {
    /// What the environment asks for.
    pub(crate) fn of_environment() -> Result<Service> {
        Service::from_lookup(Variables::of_process())
    }

    fn from_lookup(variables: Variables<'_>) -> Result<Service> {
        let must = "must be a port, or an address and a port as in 127.0.0.1:9400";
        let metrics = variables.text(METRICS);
        let metrics = metrics.map(|text| address(&text).ok_or_else(|| wrong(METRICS, text, must))).transpose()?;
        let neighbours = variables.switch_on(TOP)?;
        Ok(Service { metrics, neighbours })
    }

    /// Takes the port of a rank with this number on its host before anybody is met: where it cannot be had, the rank is told while no other one
    /// counts on it. A port that follows from a number which is not known yet is taken later.
    pub(crate) fn prepare(self, local_rank: Option<usize>) -> Result<Prepared> {
        let any = self.metrics.filter(|address| address.port() == 0).map(|_| 0);
        let door = match (self.metrics, local_rank.or(any)) {
            (Some(address), Some(local_rank)) => Some(door(address, local_rank)?),
            _ => None,
        };
        Ok(Prepared { service: self, door })
    }
}

impl Prepared {
    /// Begins to tell how this rank's groups stand. Others count on the rank by now, so what cannot be is no more than a warning.
    pub(crate) fn open(mut self, seat: &Seat, black_box: Arc<BlackBox>) -> Option<Office> {
        let rank = seat.registry.seat().0;
        let metrics = self.metrics(seat).unwrap_or_else(|error| {
            log::warn!("rank {rank} does not answer Prometheus: {error}");
            None
        });
        let chosen = metrics.as_ref().and_then(Door::address);
        if let Some(address) = chosen {
            log::info!("rank {rank} answers Prometheus at http://{address}/metrics");
        }
        // A change of the world in between is heard of.
        let renewal = self.service.neighbours.then(|| renewal(seat)).flatten();
        let neighbours = if self.service.neighbours { host_door(seat) } else { None };
        let doors: Vec<Door> = metrics.into_iter().chain(neighbours).collect();
        if doors.is_empty() {
            return None;
        }
        let office =
            Office::open((doors, renewal), pages(Accountant::of(seat.clone()).metrics(chosen), black_box), PATIENCE);
        let seen_by = if chosen.is_some() { "Prometheus or `phalanx top`" } else { "`phalanx top`" };
        office.inspect_err(|error| log::warn!("rank {rank} is not seen by {seen_by}: {error}")).ok()
    }

    /// The door for Prometheus, where one is asked for.
    fn metrics(&mut self, seat: &Seat) -> Result<Option<Door>> {
        match self.door.take() {
            Some(door) => Ok(Some(door)),
            None => self.service.metrics.map(|address| door(address, seat.local_rank)).transpose(),
        }
    }
}

fn door(address: SocketAddr, local_rank: usize) -> Result<Door> {
    let failed = |why: String| Error::setup(format!("metrics at {address}"), why);
    let own = own_port(address, local_rank)
        .ok_or_else(|| failed(format!("no port is left for local rank {local_rank}: each has the next one")))?;
    Door::network(own).map_err(|error| failed(format!("{own}: {error}")))
}

/// The door for neighbours. Nobody waits for it, so that it cannot be is no error.
fn host_door(seat: &Seat) -> Option<Door> {
    static WORLDS: AtomicU32 = AtomicU32::new(0);
    let (rank, size) = seat.registry.seat();
    let name = name(&seat.job, (rank, size), WORLDS.fetch_add(1, Ordering::Relaxed));
    let door = Door::host(&name);
    door.inspect_err(|error| log::debug!("rank {rank} is not seen by `phalanx top`: {error}")).ok()
}

/// The same after each change of the world, with the rank's new number, for a rank that is stopped tells no other than its door has.
fn renewal(seat: &Seat) -> Option<Renewal> {
    let moved = seat.registry.moved();
    let moved = moved.inspect_err(|error| log::debug!("`phalanx top` may show an earlier rank: {error}")).ok()?;
    let (seat, mut known) = (seat.clone(), seat.registry.seat());
    Some(Renewal::new(moved, move || {
        let now = seat.registry.seat();
        let door = if now == known { None } else { host_door(&seat) };
        known = if door.is_some() { now } else { known };
        door
    }))
}

/// The address in a text; this host's own where there is a port only.
fn address(text: &str) -> Option<SocketAddr> {
    let text = text.trim();
    let port = || text.parse().ok().map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    text.parse().ok().or_else(port)
}

/// Where a rank answers: ranks of one host have a port each, the first that is asked for and those after it, or any.
fn own_port(address: SocketAddr, local_rank: usize) -> Option<SocketAddr> {
    let offset = if address.port() == 0 { 0 } else { u16::try_from(local_rank).ok()? };
    Some(SocketAddr::new(address.ip(), address.port().checked_add(offset)?))
}

fn pages(accountant: Accountant, black_box: Arc<BlackBox>) -> Box<Pages> {
    Box::new(move |path, is_of_this_host| match path {
        "/metrics" => {
            let content_type = "text/plain; version=0.0.4; charset=utf-8";
            Some(Page { content_type, body: exposition(&accountant.account()) })
        }
        neighbours::PATH if is_of_this_host => {
            let body = serde_json::to_string(&accountant.account()).ok()?;
            Some(Page { content_type: "application/json", body })
        }
        neighbours::TRACE_PATH if is_of_this_host => {
            Some(Page { content_type: "application/json", body: black_box.dump()?.to_json() })
        }
        _ => None,
    })
}

/// How long a visit may take.
const PATIENCE: Duration = Duration::from_secs(5);
const METRICS: &str = "PHALANX_METRICS";
const TOP: &str = "PHALANX_TOP";

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: &str, value: &str) -> Result<Service> {
        Service::from_lookup(Variables(&|other| (other == name).then(|| value.to_owned())))
    }

    #[test]
    fn a_port_alone_is_of_this_host() {
        for (text, address) in [
            ("9400", Some("127.0.0.1:9400")),
            ("0", Some("127.0.0.1:0")),
            ("127.0.0.1:0", Some("127.0.0.1:0")),
            ("[::]:9400", Some("[::]:9400")),
            ("", None),
        ] {
            let address = address.map(|address| address.parse().unwrap());
            assert_eq!(asked(METRICS, text).unwrap(), Service { metrics: address, neighbours: true }, "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_by_name() {
        for text in ["x", "65536", "-1", "localhost:9400", "1.2.3.4", ":9400", "http://127.0.0.1:9400"] {
            let error = asked(METRICS, text).unwrap_err().to_string();
            let must = "must be a port, or an address and a port as in 127.0.0.1:9400";
            assert_eq!(error, format!("environment: PHALANX_METRICS is \"{text}\", {must}"));
        }
        let error = asked(TOP, "maybe").unwrap_err().to_string();
        assert_eq!(error, "environment: PHALANX_TOP is \"maybe\", must be 1 or 0");
    }

    #[test]
    fn neighbours_may_look_unless_told_otherwise() {
        let neighbours = |value| asked(TOP, value).unwrap().neighbours;
        assert!(neighbours("") && neighbours("1") && !neighbours("0") && !neighbours("off"));
    }

    #[test]
    fn a_port_is_taken_early_where_it_is_known() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let service = |port: u16| asked(METRICS, &port.to_string()).unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = service(port).prepare(Some(0)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("metrics at 127.0.0.1:{port}: 127.0.0.1:{port}: ")), "{error}");
        assert!(service(port).prepare(None).unwrap().door.is_none(), "whose it is follows from who else is here");
        assert!(service(0).prepare(None).unwrap().door.is_some());
    }

    #[test]
    fn each_rank_of_a_host_has_a_port_of_its_own() {
        let own = |address: &str, rank| own_port(address.parse().unwrap(), rank).map(|address| address.to_string());
        assert_eq!(own("0.0.0.0:9400", 3).as_deref(), Some("0.0.0.0:9403"));
        assert_eq!(own("127.0.0.1:0", 3).as_deref(), Some("127.0.0.1:0"));
        assert_eq!([own("127.0.0.1:65535", 1), own("127.0.0.1:1", 70_000)], [None, None]);
    }
}
