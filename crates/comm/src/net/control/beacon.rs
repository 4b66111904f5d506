//! Signs of life that need no connection. After an outage a connection tries again only when the system thinks it time; a
//! datagram arrives as soon as there is a way. What it says is what could be said on the control connection.

use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use super::message::Message;
use crate::net::socket::Socket;
use crate::secure::{DatagramKey, DatagramOpener, DatagramSealer};

/// What shines to one peer, and looks for its light. A system where it cannot be had does without.
#[derive(Default)]
pub(super) struct Beacon {
    light: Option<Light>,
    /// When the last datagram was sent.
    shone: Option<Instant>,
}

struct Light {
    socket: UdpSocket,
    /// Where the peer is, but for its port.
    there: SocketAddr,
    key: DatagramKey,
    opener: DatagramOpener,
    /// Known once the peer has said where it looks.
    sealer: Option<DatagramSealer>,
}

impl Beacon {
    /// A beacon between the two ends of this connection.
    pub(super) fn beside(control: &Socket) -> Beacon {
        let light = Light::new(control).inspect_err(|error| log::warn!("a rank does without datagrams: {error}"));
        Beacon { light: light.ok(), shone: None }
    }

    /// What the peer has to know to be seen.
    pub(super) fn place(&self) -> Option<Message> {
        let light = self.light.as_ref()?;
        let port = light.socket.local_addr().ok()?.port();
        Some(Message::Beacon { port, key: light.key })
    }

    /// Shines to where the peer looks.
    pub(super) fn aim(&mut self, port: u16, key: &DatagramKey) {
        if let Some(light) = &mut self.light {
            // From now on the system lets nobody else's datagrams in.
            let aimed = light.socket.connect(with_port(light.there, port)).is_ok();
            light.sealer = DatagramSealer::new(key).filter(|_| aimed);
        }
    }

    /// Sends this message once more, unless one was sent just now. Nobody knows whether it arrives.
    pub(super) fn shine(&mut self, now: Instant, message: &Message) {
        let is_due = self.next().is_none_or(|next| next <= now);
        if let Some(light) = self.light.as_mut().filter(|_| is_due)
            && let Some(sealer) = &mut light.sealer
        {
            self.shone = Some(now);
            let _ = light.socket.send(&sealer.seal(&message.encode()));
        }
    }

    /// What is said from now on is new, and due at once.
    pub(super) fn turn(&mut self) {
        self.shone = None;
    }

    /// When the next datagram is due, where one was sent.
    pub(super) fn next(&self) -> Option<Instant> {
        self.shone.map(|shone| shone + FLASH)
    }

    /// The next thing that the peer has said. What nobody can have said that has the key is passed over.
    pub(super) fn look(&mut self) -> Option<Message> {
        let Light { socket, opener, .. } = self.light.as_mut()?;
        let mut datagram = [0; LONGEST];
        for _ in 0..GLANCES {
            match socket.recv(&mut datagram) {
                Ok(len) => {
                    let said = opener.open(&datagram[..len]).and_then(|said| Message::read(&said).ok()?);
                    if let Some((message, _)) = said {
                        return Some(message);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                // That nobody looked for an earlier one, or a signal.
                Err(_) => {}
            }
        }
        None
    }

    /// What there is to look at.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.light.as_ref().map(|light| light.socket.as_fd())
    }
}

impl Light {
    fn new(control: &Socket) -> io::Result<Light> {
        let [here, there] = control.ends()?;
        let socket = UdpSocket::bind(with_port(here, 0))?;
        socket.set_nonblocking(true)?;
        let mut key = DatagramKey::default();
        getrandom::fill(&mut key)?;
        let opener = DatagramOpener::new(&key).ok_or(io::ErrorKind::Unsupported)?;
        Ok(Light { socket, there, key, opener, sealer: None })
    }
}

/// The same address, with what else belongs to it, and another port.
fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// Nothing of the keys.
impl fmt::Debug for Beacon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beacon").field("shone", &self.shone).finish_non_exhaustive()
    }
}

/// How often to say the same.
const FLASH: Duration = Duration::from_millis(100);
/// More than any message of one failure takes.
const LONGEST: usize = 4 << 10;
/// How many datagrams are looked at in one go: whoever sends rubbish without end keeps nobody from their work.
const GLANCES: usize = 64;
