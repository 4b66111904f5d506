//! What a rank tells to whom: its neighbours on this host, and Prometheus where that is asked for.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use phalanx_core::{Error, Result};

use super::request::Page;
use super::visitor::Pages;
use super::{Door, Office, neighbours};
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

    /// Begins to tell how this rank's groups stand. Nobody waits for it, so that it cannot be is an error only where it was asked for.
    pub(crate) fn open(self, seat: &Seat, black_box: Arc<BlackBox>) -> Result<Option<Office>> {
        let mut doors = Vec::new();
        let (rank, size) = seat.registry.seat();
        let mut chosen = None;
        if let Some(address) = self.metrics {
            let failed = |why: String| Error::setup(format!("metrics at {address}"), why);
            let own = own_port(address, seat.local_rank).ok_or_else(|| {
                failed(format!("no port is left for local rank {}: each has the next one", seat.local_rank))
            })?;
            let door = Door::network(own).map_err(|error| failed(format!("{own}: {error}")))?;
            chosen = door.address();
            log::info!("rank {} answers Prometheus at http://{}/metrics", rank, chosen.unwrap_or(own));
            doors.push(door);
        }
        if self.neighbours {
            static WORLDS: AtomicU32 = AtomicU32::new(0);
            let name = neighbours::name(&seat.job, (rank, size), WORLDS.fetch_add(1, Ordering::Relaxed));
            match Door::host(&name) {
                Ok(door) => doors.push(door),
                Err(error) => log::debug!("rank {} is not seen by `phalanx top`: {error}", rank),
            }
        }
        if doors.is_empty() {
            return Ok(None);
        }
        match Office::open(doors, pages(Accountant::of(seat.clone()).metrics(chosen), black_box), PATIENCE) {
            Ok(office) => Ok(Some(office)),
            Err(error) if self.metrics.is_some() => Err(Error::setup("metrics", error)),
            Err(error) => {
                log::debug!("rank {} is not seen by `phalanx top`: {error}", rank);
                Ok(None)
            }
        }
    }
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
    fn each_rank_of_a_host_has_a_port_of_its_own() {
        let own = |address: &str, rank| own_port(address.parse().unwrap(), rank).map(|address| address.to_string());
        assert_eq!(own("0.0.0.0:9400", 3).as_deref(), Some("0.0.0.0:9403"));
        assert_eq!(own("127.0.0.1:0", 3).as_deref(), Some("127.0.0.1:0"));
        assert_eq!([own("127.0.0.1:65535", 1), own("127.0.0.1:1", 70_000)], [None, None]);
    }
}
