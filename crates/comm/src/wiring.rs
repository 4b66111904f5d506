//! What the ranks of a world say alike of a group before they form it. How it is formed is not decided here.

use std::fmt;
use std::time::Duration;

use phalanx_core::GroupOptions;

use crate::Protection;

/// Which way the bytes of a group go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// Shared memory where all ranks are on one host, at most 64 of them; else shared memory inside each host, and TCP between
    /// hosts.
    #[default]
    Automatic,
    /// Memory that the ranks share.
    SharedMemory,
    /// TCP, also between ranks of one host.
    Tcp,
}

/// How a world's ranks become a group. All ranks of the group say the same.
///
/// ```
/// # use phalanx_comm::{Transport, Wiring};
/// # use phalanx_core::GroupOptions;
/// let wiring = Wiring::default().transport(Transport::Tcp).options(GroupOptions::default().name("control"));
/// # let _ = wiring;
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Wiring {
    options: GroupOptions,
    transport: Transport,
    protection: Protection,
    timeout: Duration,
    members_only: bool,
    backend: Option<String>,
    device: Option<String>,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Automatic => "any transport",
            Transport::SharedMemory => "shared memory",
            Transport::Tcp => "TCP",
        })
    }
}

impl Default for Wiring {
    /// With the group's own defaults, any transport, encrypted where there is a job key, and 300 s to meet.
    fn default() -> Wiring {
        let (transport, protection) = (Transport::default(), Protection::default());
        let (options, timeout) = (GroupOptions::default(), DEFAULT_TIMEOUT);
        Wiring { options, transport, protection, timeout, members_only: false, backend: None, device: None }
    }
}

impl Wiring {
    /// How the group behaves. Its epoch is the world's. Members that it says are those of a whole of which this world is a part: by the
    /// whole's numbers errors name ranks then.
    pub fn options(mut self, options: GroupOptions) -> Wiring {
        let name = self.options.chosen_name().filter(|_| options.chosen_name().is_none()).map(str::to_owned);
        self.options = name.into_iter().fold(options, GroupOptions::name);
        self
    }

    /// Which way its bytes go.
    pub fn transport(mut self, transport: Transport) -> Wiring {
        self.transport = transport;
        self
    }

    /// Which of the world's [backends](crate::Backends) carries its operations out; the one for its [device](Wiring::device) unless set. The
    /// transport and its protection are the matter of the backend `host`.
    pub fn backend(mut self, name: impl Into<String>) -> Wiring {
        self.backend = Some(name.into());
        self
    }

    /// The kind of device that the group's memory is on, which chooses its backend; `cpu` unless set.
    pub fn device(mut self, device: impl Into<String>) -> Wiring {
        self.device = Some(device.into());
        self
    }

    /// What the job key does for bytes that travel over TCP.
    pub fn protection(mut self, protection: Protection) -> Wiring {
        self.protection = protection;
        self
    }

    /// What the group is called; short for the same in its [options](Wiring::options). Groups that several threads of a rank
    /// form at the same time need names, which tell ranks which of them belong together.
    pub fn named(mut self, name: impl Into<String>) -> Wiring {
        self.options = self.options.name(name);
        self
    }

    /// Whether only those who will be in a group call for it; off by default. A rank that asks for something else is then not
    /// told so, but as one that did not come.
    pub fn members_only(mut self, members_only: bool) -> Wiring {
        self.members_only = members_only;
        self
    }

    /// How long to wait for the other ranks when the group is formed. How long its operations may take is
    /// [`GroupOptions::timeout`], among the [options](Wiring::options).
    pub fn timeout(mut self, timeout: Duration) -> Wiring {
        self.timeout = timeout;
        self
    }

    pub(crate) fn group_options(&self) -> &GroupOptions {
        &self.options
    }

    pub(crate) fn chosen_name(&self) -> Option<&str> {
        self.options.chosen_name()
    }

    pub(crate) fn way(&self) -> Transport {
        self.transport
    }

    pub(crate) fn chosen_backend(&self) -> (Option<&str>, Option<&str>) {
        (self.backend.as_deref(), self.device.as_deref())
    }

    pub(crate) fn shield(&self) -> Protection {
        self.protection
    }

    pub(crate) fn patience(&self) -> Duration {
        self.timeout
    }

    pub(crate) fn is_for_members_only(&self) -> bool {
        self.members_only
    }
}

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);
