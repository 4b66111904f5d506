//! Two processes beside each other, as ranks are: one holds a word, the other reads it where it is.

use std::hint::black_box;
use std::io::{self, IoSliceMut, Write};
use std::process::Stdio;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use clap::Args;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use crate::failure::{Failure, printed};
use crate::tied::{Process, tied_ourselves};

/// What one of the two is to do: to hold, unless there is something to read.
#[derive(Args, Debug)]
pub(crate) struct Role {
    /// The process that holds the word
    #[arg(requires = "address")]
    pid: Option<i32>,

    /// Where it holds it
    address: Option<usize>,
}

/// One of the two processes.
pub(crate) fn neighbour(role: &Role) -> Result<(), Failure> {
    match (role.pid, role.address) {
        (Some(pid), Some(address)) => printed(writeln!(io::stdout(), "{}", tell(look(pid, address)))),
        _ => hold(),
    }
}

/// Whether a process may read another that is beside it, or why not.
pub(super) fn try_to_read() -> Result<(), String> {
    let (holder, said) = start(&[])?;
    let address = hear(&said)?;
    let (_reader, said) = start(&[&holder.id().to_string(), &address])?;
    match hear(&said)?.as_str() {
        READ => Ok(()),
        refused => Err(refused.to_owned()),
    }
}

fn start(arguments: &[&str]) -> Result<(Process, Receiver<Option<String>>), String> {
    let (teller, said) = mpsc::channel();
    let started = tied_ourselves(&[&["__neighbour"], arguments].concat(), &[]).and_then(|mut command| {
        command.stdin(Stdio::piped());
        Process::start(command, move |line| drop(teller.send(line)))
    });
    Ok((started.map_err(|failure| format!("{failure:?}"))?, said))
}

fn hear(said: &Receiver<Option<String>>) -> Result<String, String> {
    said.recv_timeout(SAID_WITHIN).ok().flatten().ok_or_else(|| "a process that was to try it is silent".to_owned())
}

/// Holds the word until nobody is interested any more.
fn hold() -> Result<(), Failure> {
    let word = black_box(Box::new(WORD));
    printed(writeln!(io::stdout(), "{}", std::ptr::from_ref(word.as_ref()).addr()))?;
    let ended = io::stdin().read_line(&mut String::new());
    ended.map_err(|error| Failure::Stopped(format!("standard input: {error}")))?;
    black_box(word);
    Ok(())
}

fn look(pid: i32, address: usize) -> nix::Result<[u8; 8]> {
    let mut bytes = [0; 8];
    let there = [RemoteIoVec { base: address, len: bytes.len() }];
    process_vm_readv(Pid::from_raw(pid), &mut [IoSliceMut::new(&mut bytes)], &there)?;
    Ok(bytes)
}

fn tell(seen: nix::Result<[u8; 8]>) -> String {
    match seen {
        Ok(bytes) if bytes == WORD => READ.to_owned(),
        Ok(bytes) => format!("{bytes:?} was read instead of {WORD:?}"),
        Err(errno) => errno.desc().to_lowercase(),
    }
}

const WORD: [u8; 8] = *b"phalanx!";
/// What is said when the word was read.
const READ: &str = "read";
const SAID_WITHIN: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_read_from_this_process_and_not_from_one_that_is_not_there() {
        let word = Box::new(WORD);
        let address = std::ptr::from_ref(word.as_ref()).addr();
        let own = i32::try_from(std::process::id()).expect("a small number");
        assert_eq!(tell(look(own, address)), READ);
        black_box(word);
        assert_eq!(tell(look(i32::MAX, address)), "no such process");
        assert_eq!(tell(Ok([0; 8])), format!("{:?} was read instead of {WORD:?}", [0; 8]));
    }
}
