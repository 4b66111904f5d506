//! Who is let in: a job key, a handshake that proves it, and encrypted records for what follows.
//!
//! Everything here is pure: bytes go in, bytes come out, and whoever owns the socket moves them. A [`JobKey`] is minted once
//! a job. [`ClientHandshake`] and [`ServerHandshake`] meet over any byte stream: the client says who it is with a [`Claim`],
//! proves the key, and is admitted with a [`Welcome`] or sent away with a [`Denial`]. What both then have is a [`Tunnel`].
//! Every byte is written down in docs/wire.md.
//!
//! ```
//! use phalanx_comm::secure::*;
//!
//! let key = JobKey::mint()?;
//! let claim = Claim::new(JobName::new("train")?, 1, Session::mint()?).member(0, 2)?;
//! let mut client = ClientHandshake::new(Some(&key), &claim, Plane::Store);
//! let mut server = ServerHandshake::new(Some(&key), Plane::Store);
//!
//! let mut to_server = client.start();
//! let (mut tunnel, mut accepted) = loop {
//!     let to_client = match server.receive(&to_server)? {
//!         (_, ServerStep::Send(challenge)) => challenge,
//!         (_, ServerStep::Claimed(claimant)) => {
//!             assert_eq!(claimant.claim().rank(), Some(0));
//!             let (answer, accepted) = claimant.admit(&Welcome { instance: 7, epoch: 1 })?;
//!             let (_, ClientStep::Admitted { tunnel, .. }) = client.receive(&answer)? else { unreachable!() };
//!             break (tunnel, accepted);
//!         }
//!         (_, ServerStep::More) => unreachable!("whole messages are handed over here"),
//!     };
//!     let (_, ClientStep::Send(proof)) = client.receive(&to_client)? else { unreachable!() };
//!     to_server = proof;
//! };
//!
//! let (mut wire, mut plain) = (Vec::new(), Vec::new());
//! tunnel.seal(b"hello", &mut wire)?;
//! accepted.open(&wire, &mut plain)?;
//! assert_eq!(plain, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod answer;
mod claim;
mod client;
mod datagram;
mod error;
mod gather;
mod hello;
mod key;
mod key_file;
mod noise;
mod record;
mod server;
#[cfg(test)]
mod tests;
mod tunnel;

pub(crate) use answer::Verdict;
pub use answer::{Denial, Welcome};
pub use claim::{Claim, ClaimError, JobName, Session};
pub use client::{ClientHandshake, ClientStep};
pub(crate) use datagram::{DatagramKey, DatagramOpener, DatagramSealer};
pub use error::{HandshakeError, TunnelError};
pub use hello::Plane;
pub use key::JobKey;
pub use key_file::KeyError;
#[cfg(test)]
pub(crate) use noise::Secrets;
pub(crate) use record::{Cipher, Cover, RecordOpener, RecordSealer, Suite, record_len};
pub use server::{Claimant, ServerHandshake, ServerStep};
pub use tunnel::{Opener, Sealer, Tunnel};
