//! The rank's side of a request: one thread that looks for it on the store now and then, and hands over the rank's dump.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use phalanx_comm::Registry;
use phalanx_comm::rendezvous::World;
use phalanx_core::Result;
use phalanx_core::store::StoreError;

use super::BlackBox;
use super::keys::{Keys, Request};
use crate::environment::Variables;

/// Answers those who ask for dumps until it is dropped, which waits for nothing.
#[derive(Debug)]
pub(crate) struct Listener {
    _end: Sender<Infallible>,
}

/// What is known from one look to the next.
struct Listening {
    keys: Keys,
    registry: Registry,
    black_box: Arc<BlackBox>,
    /// How many ranks those who ask were told of.
    size: Option<usize>,
    answered: Option<Request>,
    /// How often the store had no room for the answer to which request: whoever withdraws it never asks by its number again.
    refused: Option<(Request, u32)>,
}

impl Listener {
    /// Whether the environment lets ranks be asked.
    pub(crate) fn is_wanted() -> Result<bool> {
        Variables::of_process().switch_on(VARIABLE)
    }

    pub(crate) fn start(world: &World, black_box: &Arc<BlackBox>) -> io::Result<Listener> {
        let (keys, registry) = (Keys::of_world(world).within(PATIENCE), world.registry().clone());
        let black_box = Arc::clone(black_box);
        let mut listening = Listening { keys, registry, black_box, size: None, answered: None, refused: None };
        let (end, ended) = mpsc::channel::<Infallible>();
        let listen = move || {
            let mut pause = Duration::ZERO;
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                pause = match listening.look() {
                    Ok(()) => EVERY,
                    Err(error) => {
                        log::debug!("nobody can ask rank {} for its trace: {error}", listening.registry.seat().0);
                        AFTER_TROUBLE
                    }
                };
            }
        };
        thread::Builder::new().name("phalanx-asked".to_owned()).stack_size(STACK).spawn(listen)?;
        Ok(Listener { _end: end })
    }
}

impl Listening {
    /// Answers, if the rank is asked. A request is answered once, and its rank is the one that this process has now.
    fn look(&mut self) -> Result<(), StoreError> {
        let (rank, size) = self.registry.seat();
        if rank == 0 && self.size != Some(size) {
            self.keys.set_size(size)?;
            self.size = Some(size);
        }
        let Some(request) = self.keys.asked(rank)?.filter(|request| self.answered.as_ref() != Some(request)) else {
            return Ok(());
        };
        // There is room again once those who ask have heard others; but nobody tries for ever whom they have forgotten.
        let is_told = match self.black_box.dump() {
            Some(dump) => self.keys.tell(rank, &request, dump.to_json().as_bytes())?,
            None => true,
        };
        let before = self.refused.take().filter(|(refused, _)| *refused == request).map_or(0, |(_, tries)| tries);
        if is_told || before + 1 >= MOST_TRIES {
            self.answered = Some(request);
        } else {
            self.refused = Some((request, before + 1));
        }
        Ok(())
    }
}

const VARIABLE: &str = "PHALANX_TRACE_REQUESTS";
/// How often a rank looks: rarely enough to cost a large job's store nothing that could be measured.
const EVERY: Duration = Duration::from_secs(1);
/// How often it tries to tell what the store has no room for.
const MOST_TRIES: u32 = 60;
/// How long it lets the store alone that did not answer, and how long it waits for an answer.
const AFTER_TROUBLE: Duration = Duration::from_secs(15);
const PATIENCE: Duration = Duration::from_secs(5);
/// Enough for a dump, which is on the heap.
const STACK: usize = 512 << 10;

#[cfg(test)]
mod tests {
    use phalanx_comm::secure::JobName;
    use phalanx_comm::store::LocalStore;
    use phalanx_core::store::{Limits, Store};

    use super::*;
    use crate::presence::Seat;

    /// Rank 1 of a job whose store has room for no more than its keys and the request to it.
    fn asked_without_room() -> (Store, Keys, Request, Listening) {
        let (store, job) = (Store::new(LocalStore::new(Limits::default().total(BYTE_LEN))), JobName::default());
        let (keys, registry) = (Keys::of_job(&store, &job, 0), Registry::of(1, 2));
        let request = keys.new_request().unwrap();
        keys.ask(1, &request).unwrap();
        assert!((0..BYTE_LEN).rev().any(|byte_len| store.set("filler", vec![0; byte_len]).is_ok()));
        let black_box = BlackBox::of_environment().unwrap();
        let (job, host_name) = (job.as_str().to_owned(), "host".to_owned());
        black_box.open(&Seat { registry: registry.clone(), job, local_rank: 1, host_name });
        let listening =
            Listening { keys: keys.clone(), registry, black_box, size: None, answered: None, refused: None };
        (store, keys.within(Duration::ZERO), request, listening)
    }

    #[test]
    fn the_tries_of_a_request_that_was_withdrawn_are_not_those_of_the_next() {
        let (store, keys, _, mut listening) = asked_without_room();
        (1..MOST_TRIES).for_each(|_| listening.look().unwrap());
        keys.withdraw(1).unwrap();
        listening.look().unwrap();
        let request = keys.new_request().unwrap();
        keys.ask(1, &request).unwrap();
        listening.look().unwrap();
        store.delete("filler").unwrap();
        listening.look().unwrap();
        assert!(keys.take(1, &request).unwrap().is_some());
    }

    #[test]
    fn a_request_is_tried_so_often_and_then_let_be() {
        let (store, keys, request, mut listening) = asked_without_room();
        (0..MOST_TRIES).for_each(|_| listening.look().unwrap());
        store.delete("filler").unwrap();
        listening.look().unwrap();
        assert!(keys.take(1, &request).is_err());
    }

    const BYTE_LEN: usize = 16 << 10;
}
