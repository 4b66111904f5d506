//! How soon a connection tries again while nothing gets through: the one option of a socket that our library of system calls
//! does not name.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::libc;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::SetStruct;

/// Has `socket` try again at least every so often; one second is the least that a system takes, since Linux 6.15. Before that
/// the pauses double, and an outage of seconds lasts for up to twice as long.
pub(super) fn limit_pauses(socket: impl AsFd, pause: Duration) {
    // Where it cannot be had, what is late is late.
    let _ = setsockopt(&socket, LongestPause, &(pause.as_millis() as u32));
}

#[derive(Clone, Copy, Debug)]
struct LongestPause;

// The system's name is TCP_RTO_MAX_MS; its value is of four bytes.
nix::setsockopt_impl!(LongestPause, libc::IPPROTO_TCP, TCP_RTO_MAX_MS, u32, SetStruct<u32>);

const TCP_RTO_MAX_MS: libc::c_int = 44;
