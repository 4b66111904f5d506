//! The keys by which dumps are asked for and handed over. They are those of every store, PyTorch's and files too: set, look, get, delete.
//!
//! | key | value | by |
//! |---|---|---|
//! | `size` | how many ranks can be asked | rank 0 |
//! | `number` | counts requests | who asks |
//! | `asked/R` | the number of a request to rank R, for as long as it stands | who asks |
//! | `told/N/R/P` | piece P of what rank R says to request N; before piece 0 stands how many there are | rank R |
//!
//! Whoever has heard a rank takes its pieces away. Who has not withdraws its request and clears them then, and a rank that finds itself no longer
//! asked takes its own away: the store is the job's, and has room for few.

use std::time::Duration;

use phalanx_comm::rendezvous::{World, service_keys};
use phalanx_comm::secure::JobName;
use phalanx_core::store::{Refusal, Store, StoreError};
use phalanx_trace::files;

/// The keys of one start of a job.
#[derive(Clone, Debug)]
pub(super) struct Keys(Store);

/// A number of a request, as text.
pub(super) type Request = String;

impl Keys {
    pub(super) fn of_world(world: &World) -> Keys {
        Keys(world.service_keys(SERVICE))
    }

    pub(super) fn of_job(store: &Store, job: &JobName, epoch: u32) -> Keys {
        Keys(service_keys(store, job, epoch, SERVICE))
    }

    /// The same, where nothing takes longer.
    pub(super) fn within(&self, timeout: Duration) -> Keys {
        Keys(self.0.with_timeout(timeout))
    }

    pub(super) fn set_size(&self, ranks: usize) -> Result<(), StoreError> {
        self.0.set("size", ranks.to_string())
    }

    /// How many ranks can be asked; none where nobody ever said so.
    pub(super) fn size(&self) -> Result<Option<usize>, StoreError> {
        Ok(self.0.find("size")?.and_then(|text| std::str::from_utf8(&text).ok()?.parse().ok()))
    }

    pub(super) fn new_request(&self) -> Result<Request, StoreError> {
        Ok(self.0.add("number", 1)?.to_string())
    }

    pub(super) fn ask(&self, rank: usize, request: &Request) -> Result<(), StoreError> {
        self.0.set(&asked(rank), request)
    }

    pub(super) fn withdraw(&self, rank: usize) -> Result<(), StoreError> {
        self.0.delete(&asked(rank)).map(drop)
    }

    /// The request to a rank that stands, if one does.
    pub(super) fn asked(&self, rank: usize) -> Result<Option<Request>, StoreError> {
        let number = self.0.find(&asked(rank))?;
        Ok(number.and_then(|number| String::from_utf8(number).ok()))
    }

    /// Hands over what a rank says, while it is asked; whether that is done. Where the store has no room now, or nobody asks any more, nothing of it
    /// stays there.
    pub(super) fn tell(&self, rank: usize, request: &Request, said: &[u8]) -> Result<bool, StoreError> {
        let count = said.len().div_ceil(PIECE);
        let put = match self.put(rank, request, said) {
            Err(StoreError::Refused { refusal, .. }) if is_for_good(&refusal, said.len()) => {
                self.remove(rank, request, count)?;
                self.0.set(&told(request, rank, 0), TOO_LONG.to_le_bytes())
            }
            put => put,
        };
        // Who asks withdraws the request first and clears then: what it cannot see yet, this rank sees to be no longer asked for.
        let is_asked = put.and_then(|()| Ok(self.asked(rank)?.as_ref() == Some(request)));
        if is_asked == Ok(true) {
            return Ok(true);
        }
        let removed = self.remove(rank, request, count);
        match is_asked {
            Ok(_) | Err(StoreError::Refused { .. }) => removed.map(|()| false),
            Err(error) => Err(error),
        }
    }

    /// The first piece comes last: where it is, all are.
    fn put(&self, rank: usize, request: &Request, said: &[u8]) -> Result<(), StoreError> {
        let count = u32::try_from(said.len().div_ceil(PIECE)).unwrap_or(TOO_LONG);
        for (at, piece) in said.chunks(PIECE).enumerate().rev() {
            let head = if at == 0 { count.to_le_bytes().to_vec() } else { vec![] };
            self.0.set(&told(request, rank, at), [&head, piece].concat())?;
        }
        Ok(())
    }

    /// What a rank says to a request, waited for; none where it is more than any rank says, or more than the store takes.
    pub(super) fn take(&self, rank: usize, request: &Request) -> Result<Option<Vec<u8>>, StoreError> {
        let first = self.0.get(&told(request, rank, 0))?;
        let Some((&count, piece)) = first.split_first_chunk() else { return Ok(None) };
        let count = u32::from_le_bytes(count) as usize;
        if count > MOST_PIECES {
            return Ok(None);
        }
        let mut said = piece.to_vec();
        // Each makes room for the others as soon as it is here.
        self.0.delete(&told(request, rank, 0))?;
        for at in 1..count {
            said.extend(self.0.get(&told(request, rank, at))?);
            self.0.delete(&told(request, rank, at))?;
        }
        Ok(Some(said))
    }

    /// Takes away what a rank has said to a request, or a part of it: how many pieces that has may not be known.
    pub(super) fn clear(&self, rank: usize, request: &Request) -> Result<(), StoreError> {
        self.remove(rank, request, MOST_PIECES)
    }

    /// From the first on, so that nobody begins to take what is going.
    fn remove(&self, rank: usize, request: &Request, count: usize) -> Result<(), StoreError> {
        (0..count).try_for_each(|at| self.0.delete(&told(request, rank, at)).map(drop))
    }
}

/// Whether so much is refused however empty the store is.
fn is_for_good(refusal: &Refusal, byte_len: usize) -> bool {
    match refusal {
        Refusal::ClientFull { limit, .. } | Refusal::StoreFull { limit, .. } => byte_len as u64 >= *limit,
        Refusal::ValueTooLong { .. } | Refusal::MessageTooLong { .. } => true,
        _ => false,
    }
}

fn asked(rank: usize) -> String {
    format!("asked/{rank}")
}

fn told(request: &str, rank: usize, at: usize) -> String {
    format!("told/{request}/{rank}/{at}")
}

const SERVICE: &str = "traces";
/// Below what a value may have in a store that is not told otherwise.
const PIECE: usize = 4 << 20;
/// As much as a file of a dump may have.
const MOST_PIECES: usize = files::LONGEST as usize / PIECE;
/// Stands for a number of pieces that has no room on the store.
const TOO_LONG: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use phalanx_comm::store::LocalStore;
    use phalanx_core::store::Limits;

    use super::*;

    fn keys() -> Keys {
        keys_of(Limits::default())
    }

    fn keys_of(limits: Limits) -> Keys {
        Keys(Store::new(LocalStore::new(limits))).within(Duration::from_secs(10))
    }

    /// A request to rank 3.
    fn asked_of(keys: &Keys) -> Request {
        let request = keys.new_request().unwrap();
        keys.ask(3, &request).unwrap();
        request
    }

    #[test]
    fn what_is_told_comes_whole_and_leaves_nothing() {
        let keys = keys();
        for byte_len in [1, PIECE, PIECE + 1, 2 * PIECE + 7] {
            let said: Vec<u8> = (0..byte_len).map(|at| at as u8).collect();
            let request = asked_of(&keys);
            assert_eq!(keys.tell(3, &request, &said), Ok(true));
            assert!(keys.take(3, &request).unwrap() == Some(said), "{byte_len} bytes");
        }
        assert_eq!(keys.0.list_keys().unwrap(), ["asked/3", "number"]);
    }

    #[test]
    fn what_the_store_has_no_room_for_now_is_told_later_and_leaves_nothing_until_then() {
        let keys = keys_of(Limits::default().total(3 * PIECE));
        let request = asked_of(&keys);
        let said = vec![7; PIECE + 1];
        keys.0.set("other", vec![0; PIECE]).unwrap();
        keys.0.set("another", vec![0; PIECE / 2 * 3]).unwrap();
        assert_eq!(keys.tell(3, &request, &said), Ok(false));
        assert_eq!(keys.0.list_keys().unwrap(), ["another", "asked/3", "number", "other"]);
        keys.0.delete("other").unwrap();
        assert_eq!(keys.tell(3, &request, &said), Ok(true));
        assert!(keys.take(3, &request).unwrap() == Some(said));
    }

    #[test]
    fn what_the_store_can_never_hold_is_told_to_be_too_long() {
        let keys = keys_of(Limits::default().total(3 * PIECE));
        let request = asked_of(&keys);
        assert_eq!(keys.tell(3, &request, &vec![7; 3 * PIECE]), Ok(true));
        assert_eq!(keys.take(3, &request).unwrap(), None);
        keys.clear(3, &request).unwrap();
        assert_eq!(keys.0.list_keys().unwrap(), ["asked/3", "number"]);
    }

    #[test]
    fn what_is_told_to_nobody_any_more_leaves_nothing() {
        let keys = keys();
        let request = asked_of(&keys);
        keys.withdraw(3).unwrap();
        assert_eq!(keys.tell(3, &request, &vec![7; PIECE + 1]), Ok(false));
        // Somebody else asks meanwhile.
        asked_of(&keys);
        assert_eq!(keys.tell(3, &request, b"said"), Ok(false));
        assert_eq!(keys.0.list_keys().unwrap(), ["asked/3", "number"]);
    }

    #[test]
    fn a_request_stands_until_it_is_withdrawn() {
        let keys = keys();
        assert_eq!((keys.size().unwrap(), keys.asked(1).unwrap()), (None, None));
        keys.set_size(4).unwrap();
        let request = keys.new_request().unwrap();
        keys.ask(1, &request).unwrap();
        assert_eq!(
            (keys.size().unwrap(), keys.asked(1).unwrap(), keys.asked(0).unwrap()),
            (Some(4), Some(request), None)
        );
        keys.withdraw(1).unwrap();
        assert_eq!(keys.asked(1).unwrap(), None);
    }

    #[test]
    fn what_no_rank_says_is_not_believed() {
        let keys = keys();
        keys.0.set(&told("1", 0, 0), [1, 2]).unwrap();
        keys.0.set(&told("1", 1, 0), u32::MAX.to_le_bytes()).unwrap();
        assert_eq!([keys.take(0, &"1".to_owned()).unwrap(), keys.take(1, &"1".to_owned()).unwrap()], [None, None]);
    }
}
