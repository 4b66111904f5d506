//! The other side: the ranks of this host that this user may ask, and what they answer. A rank that is stopped is there and says nothing.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use phalanx_core::{Error, Result};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use super::name::names;
use super::visit::{BOUNDS, Said, Visit, has_room, listen};
use crate::account::{Account, FORMAT};

/// A rank on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Neighbour {
    /// Its process; where that [is elsewhere](Neighbour::is_elsewhere), by the number that it has there.
    pub pid: u32,
    /// Whose process that is.
    pub uid: u32,
    /// Counts the worlds of its process.
    pub world: u32,
    /// The job's name, perhaps only its beginning.
    pub job: String,
    /// Its number in the world, as of the last change before it was stopped.
    pub rank: usize,
    /// How many ranks the world has.
    pub world_size: usize,
    /// What it answers; none where it does not in time, or not in words that this version understands.
    pub account: Option<Account>,
    /// Whether the job's name may go on.
    #[serde(default)]
    pub job_is_cut: bool,
    /// Whether its process is in another PID namespace, as in another container that shares this one's network: it cannot be seen from here,
    /// and processes of several namespaces may have one number.
    #[serde(default)]
    pub is_elsewhere: bool,
    /// Tells its PID namespace from others of this host; 0 where the rank does not say.
    #[serde(default)]
    pub namespace: u32,
}

impl Neighbour {
    /// Whether it is a rank of this job, as far as anybody can say: of one that does not answer the name may be known in part.
    pub fn is_of(&self, job: &str) -> bool {
        match &self.account {
            Some(account) => account.job == job,
            None => self.job == job || self.job_is_cut && job.starts_with(&self.job),
        }
    }
}

/// Asks all ranks of this user on this host how they stand; those of all users, where this user is root. They have this long to answer.
/// The order is by job and rank.
///
/// ```no_run
/// for rank in phalanx::neighbours(std::time::Duration::from_millis(500))? {
///     let answers = if rank.account.is_some() { "answers" } else { "does not answer" };
///     println!("{}: rank {} of {}, pid {}, {answers}", rank.job, rank.rank, rank.world_size, rank.pid);
/// }
/// # Ok::<(), phalanx::Error>(())
/// ```
///
/// Seen are ranks in this network namespace whose `PHALANX_TOP` is not 0, whoever started them: at most 896, and of a user who is not this one 256.
///
/// # Errors
///
/// [`Setup`](phalanx_core::ErrorKind::Setup), when the kernel does not list its sockets.
pub fn neighbours(patience: Duration) -> Result<Vec<Neighbour>> {
    let told = ask(PATH, patience).map_err(|error| Error::setup("the ranks of this host", error))?.into_iter();
    Ok(told.map(|(neighbour, said)| Neighbour { account: account(&said), ..neighbour }).collect())
}

/// Asks the same ranks for one of their pages; what each says. The order is by job and rank.
pub(crate) fn ask(path: &str, patience: Duration) -> io::Result<Vec<(Neighbour, Said)>> {
    let (began, user) = (Instant::now(), geteuid().as_raw());
    let mut visits: Vec<Visit> = Vec::new();
    for name in names(&fs::read(SOCKETS)?, user) {
        if has_room(&visits, &name, user) {
            visits.extend(Visit::begin(&name, path));
        }
    }
    listen(&mut visits, &BOUNDS, || patience.saturating_sub(began.elapsed()));
    let mut told: Vec<_> = visits.into_iter().map(Visit::end).collect();
    told.sort_by(|(one, _), (other, _)| {
        let process = |neighbour: &Neighbour| (neighbour.pid, neighbour.namespace, neighbour.world);
        let key = |neighbour: &Neighbour| (neighbour.job.clone(), neighbour.rank, process(neighbour));
        key(one).cmp(&key(other))
    });
    Ok(told)
}

/// The account on a page, in words that this version understands.
fn account(said: &Said) -> Option<Account> {
    let Said::Page(page) = said else { return None };
    serde_json::from_slice(page).ok().filter(|account: &Account| account.format <= FORMAT)
}

/// Where an account is asked for, and a dump of what the groups have recorded.
pub(super) const PATH: &str = "/account";
pub(crate) const TRACE_PATH: &str = "/trace";
const SOCKETS: &str = "/proc/net/unix";

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    use super::*;
    use crate::inquiry::visit::page;

    #[test]
    fn a_socket_whose_name_is_no_text_keeps_nobody_from_asking() {
        let name = [b"\xff\xfephalanx-", std::process::id().to_string().as_bytes()].concat();
        let _foreign = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
        ask(PATH, Duration::ZERO).unwrap();
    }

    #[test]
    fn an_answer_that_is_none_is_not_believed() {
        let end = |heard: &str| account(&page(heard.as_bytes().to_vec()).map_or(Said::Nothing, Said::Page));
        let text = |format: u32| {
            format!(
                "{{\"format\":{format},\"job\":\"j\",\"rank\":0,\"world_size\":1,\"local_rank\":0,\"host_name\":\"h\",\
                 \"pid\":2,\"metrics\":null,\"groups\":[]}}"
            )
        };
        assert!(end(&format!("HTTP/1.1 200 OK\r\nA: b\r\n\r\n{}", text(FORMAT))).is_some());
        for heard in [
            String::new(),
            "HTTP/1.1 200 OK\r\n\r\n".to_owned(),
            format!("HTTP/1.1 404 Not Found\r\n\r\n{}", text(FORMAT)),
            format!("HTTP/1.1 200 OK\r\nA: b\r\n\r\n{}", text(FORMAT + 1)),
        ] {
            assert!(end(&heard).is_none(), "{heard}");
        }
    }
}
