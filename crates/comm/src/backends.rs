//! Which backends the groups of a world may have: by their names, and by the kind of device that a group's memory is on. How the host's
//! own moves bytes is not decided here.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use phalanx_core::backend::Backend;
use phalanx_core::store::Store;
use phalanx_core::{Error, Layout, Result};

/// What makes backends of one kind. A program's own take part in a world under a name of its choice.
///
/// ```
/// # use std::sync::Arc;
/// # use phalanx_comm::{Maker, Network, Seat};
/// # use phalanx_core::{Result, backend::Backend};
/// /// Groups over TCP whose frames carry a checksum: the host's backend, in a way of the program's own.
/// struct Checked;
///
/// impl Maker for Checked {
///     fn make(&self, seat: &Seat) -> Result<Arc<dyn Backend>> {
///         let (rank, size) = (seat.layout().rank(), seat.layout().size());
///         let network = Network::new(rank, size, seat.store().clone()).shared_memory(false).checksum(true);
///         Ok(network.join(seat.timeout())?.backend().clone())
///     }
/// }
/// ```
pub trait Maker: Send + Sync {
    /// This rank's backend for a new group. Returns once the other ranks have come, or with [`Setup`](phalanx_core::ErrorKind::Setup) at the
    /// end of the seat's time.
    ///
    /// # Errors
    ///
    /// Whatever kept the ranks from coming together.
    fn make(&self, seat: &Seat) -> Result<Arc<dyn Backend>>;
}

/// A rank's place in a group that is being formed, and what it meets the others with.
#[derive(Clone, Debug)]
pub struct Seat {
    pub(crate) name: String,
    pub(crate) layout: Layout,
    pub(crate) members: Vec<usize>,
    pub(crate) epoch: u32,
    pub(crate) store: Store,
    pub(crate) timeout: Duration,
}

impl Seat {
    /// What the group is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// This rank's number in the group, how many ranks it has, and on which hosts they are.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The world's ranks that are its ranks, in their order.
    pub fn members(&self) -> &[usize] {
        &self.members
    }

    /// The epoch of the world.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Keys that only the ranks of this group use.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// How long to wait for the other ranks.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }
}

/// Backends by name, and which of them groups have whose memory is on a kind of device. All ranks of a world say the same.
///
/// `host` is always there: shared memory and TCP. Groups are on the device `cpu`, which `host` serves, unless they say otherwise.
///
/// ```
/// # use std::sync::Arc;
/// # use phalanx_comm::{Backends, Maker};
/// # use phalanx_core::Result;
/// # fn with(fast: Arc<dyn Maker>) -> Result<()> {
/// let backends = Backends::new().register("fast", fast)?.devices("cuda:fast")?;
/// assert_eq!(backends.config(), "cpu:host,cuda:fast");
/// // Given to `Joining::backends` of the crate `phalanx`, or to `WorldOptions::backends`; then `Wiring::device("cuda")` asks for it.
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Backends {
    makers: BTreeMap<String, Arc<dyn Maker>>,
    devices: BTreeMap<String, String>,
}

impl Backends {
    /// The host's alone.
    pub fn new() -> Backends {
        Backends::default()
    }

    /// Takes a backend in under a name, by which a [`Wiring`](crate::Wiring::backend) or a [kind of device](Backends::devices) asks for it.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for a name that is taken, and for one with other characters than letters, digits, `-` and `_`.
    pub fn register(mut self, name: &str, maker: Arc<dyn Maker>) -> Result<Backends> {
        check_word("name", name)?;
        if name == HOST || self.makers.insert(name.to_owned(), maker).is_some() {
            return Err(Error::usage("register", "name", format!("{name:?}"), "must be one that is not taken"));
        }
        Ok(self)
    }

    /// Says which backend serves which kind of device, as in `cpu:host,cuda:nccl`; a name alone is that of the one for `cpu`. Devices that are
    /// not named stay as they are.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for a backend that is not known, and where a device is named twice.
    pub fn devices(mut self, config: &str) -> Result<Backends> {
        let mut said = BTreeMap::new();
        for entry in config.split(',') {
            let (device, name) = entry.trim().split_once(':').unwrap_or((CPU, entry.trim()));
            check_word("device", device)?;
            self.find("devices", name)?;
            if said.insert(device.to_owned(), name.to_owned()).is_some() {
                let value = format!("{device:?} twice in {config:?}");
                return Err(Error::usage("devices", "config", value, "must name each device once"));
            }
        }
        self.devices.extend(said);
        Ok(self)
    }

    /// Whether there is a backend of this name.
    pub fn has(&self, name: &str) -> bool {
        name == HOST || self.makers.contains_key(name)
    }

    /// Whether some backend serves this kind of device.
    pub fn serves(&self, device: &str) -> bool {
        device == CPU || self.devices.contains_key(device)
    }

    /// Which backend serves which kind of device, in the form of [`devices`](Backends::devices).
    pub fn config(&self) -> String {
        let cpu = (!self.devices.contains_key(CPU)).then(|| format!("{CPU}:{HOST}"));
        let named = self.devices.iter().map(|(device, name)| format!("{device}:{name}"));
        cpu.into_iter().chain(named).collect::<Vec<_>>().join(",")
    }

    /// The name of the backend that was asked for, by its own or by a kind of device, and what makes it: nothing for the host's.
    pub(crate) fn chosen(&self, name: Option<&str>, device: Option<&str>) -> Result<(String, Option<&Arc<dyn Maker>>)> {
        let device = device.unwrap_or(CPU);
        let of_device = || match self.devices.get(device) {
            Some(name) => Ok(name.as_str()),
            None if device == CPU => Ok(HOST),
            None => Err(unknown("wire", "device", device, self.devices.keys().map(String::as_str).chain([CPU]))),
        };
        let name = name.map_or_else(of_device, Ok)?;
        Ok((name.to_owned(), self.find("wire", name)?))
    }

    fn find(&self, call: &'static str, name: &str) -> Result<Option<&Arc<dyn Maker>>> {
        match self.makers.get(name) {
            None if name == HOST => Ok(None),
            None => Err(unknown(call, "backend", name, self.makers.keys().map(String::as_str).chain([HOST]))),
            maker => Ok(maker),
        }
    }
}

impl fmt::Debug for Backends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Backends({})", self.config())
    }
}

impl fmt::Debug for dyn Maker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Maker")
    }
}

fn check_word(argument: &'static str, word: &str) -> Result<()> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    if !word.is_empty() && word.chars().all(is_plain) {
        return Ok(());
    }
    Err(Error::usage("backends", argument, format!("{word:?}"), "must be letters, digits, - and _"))
}

fn unknown<'a>(call: &'static str, argument: &'static str, word: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let mut known: Vec<&str> = known.collect();
    known.sort_unstable();
    known.dedup();
    Error::usage(call, argument, format!("{word:?}"), format!("must be one of {}", known.join(", ")))
}

/// The backend that is always there.
pub(crate) const HOST: &str = "host";
/// The device of groups that name none.
const CPU: &str = "cpu";

#[cfg(test)]
mod tests {
    use super::*;

    struct Never;

    impl Maker for Never {
        fn make(&self, _: &Seat) -> Result<Arc<dyn Backend>> {
            Err(Error::setup("never", "made"))
        }
    }

    fn told<T>(end: Result<T>) -> String {
        end.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn devices_have_the_backends_that_were_said() {
        let backends = Backends::new().register("mine", Arc::new(Never)).expect("free");
        assert_eq!(backends.config(), "cpu:host");
        assert_eq!(["host", "mine", "other"].map(|name| backends.has(name)), [true, true, false]);
        assert_eq!(["cpu", "cuda"].map(|device| backends.serves(device)), [true, false]);
        let chosen = |backends: &Backends, name, device| {
            backends
                .chosen(name, device)
                .map(|(name, maker)| (name, maker.is_some()))
                .map_err(|error| error.to_string())
        };
        assert_eq!(chosen(&backends, None, None), Ok(("host".to_owned(), false)));
        assert_eq!(chosen(&backends, Some("mine"), None), Ok(("mine".to_owned(), true)));
        let of_cuda = "wire: device is \"cuda\", must be one of cpu".to_owned();
        assert_eq!(chosen(&backends, None, Some("cuda")), Err(of_cuda));
        let both = backends.clone().devices("cpu:host, cuda:mine").expect("known");
        assert_eq!(
            (both.config().as_str(), chosen(&both, None, Some("cuda"))),
            ("cpu:host,cuda:mine", Ok(("mine".to_owned(), true)))
        );
        let all = backends.devices("mine").expect("known");
        assert_eq!(chosen(&all, None, None), Ok(("mine".to_owned(), true)));
        assert_eq!(chosen(&all, Some("host"), None), Ok(("host".to_owned(), false)));
    }

    #[test]
    fn what_is_not_known_or_said_twice_is_refused() {
        let backends = || Backends::new().register("mine", Arc::new(Never)).expect("free");
        for (end, expected) in [
            (
                told(backends().register("mine", Arc::new(Never))),
                "register: name is \"mine\", must be one that is not taken",
            ),
            (
                told(backends().register("host", Arc::new(Never))),
                "register: name is \"host\", must be one that is not taken",
            ),
            (
                told(backends().register("a b", Arc::new(Never))),
                "backends: name is \"a b\", must be letters, digits, - and _",
            ),
            (told(backends().devices("cuda:nccl")), "devices: backend is \"nccl\", must be one of host, mine"),
            (told(backends().devices("")), "devices: backend is \"\", must be one of host, mine"),
            (told(backends().devices(":host")), "backends: device is \"\", must be letters, digits, - and _"),
            (
                told(backends().devices("cpu:host,cpu:mine")),
                "devices: config is \"cpu\" twice in \"cpu:host,cpu:mine\", must name each device once",
            ),
        ] {
            assert_eq!(end, expected);
        }
    }
}
