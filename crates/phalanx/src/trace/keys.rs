//! The keys by which dumps are asked for and handed over. They are those of every store, PyTorch's and files too: set, look, get, delete.
//!
//! | key | value | by |
//! |---|---|---|
//! | `size` | how many ranks can be asked | rank 0 |
//! | `number` | counts requests | who asks |
//! | `asked/R` | the number of a request to rank R, for as long as it stands | who asks |
//! | `told/N/R/P` | piece P of what rank R says to request N; before piece 0 stands how many there are | rank R |

use std::time::Duration;

use phalanx_comm::rendezvous::{World, service_keys};
use phalanx_comm::secure::JobName;
use phalanx_core::store::{Store, StoreError};

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

    /// Hands over what a rank says. The first piece comes last: where it is, all are.
    pub(super) fn tell(&self, rank: usize, request: &Request, said: &[u8]) -> Result<(), StoreError> {
        let pieces: Vec<&[u8]> = said.chunks(PIECE).collect();
        let count = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
        for (at, piece) in pieces.into_iter().enumerate().rev() {
            let head = if at == 0 { count.to_le_bytes().to_vec() } else { vec![] };
            self.0.set(&told(request, rank, at), [&head, piece].concat())?;
        }
        Ok(())
    }

    /// What a rank says to a request, waited for; none where it is more than any rank says.
    pub(super) fn take(&self, rank: usize, request: &Request) -> Result<Option<Vec<u8>>, StoreError> {
        let first = self.0.get(&told(request, rank, 0))?;
        let Some((&count, piece)) = first.split_first_chunk() else { return Ok(None) };
        let count = u32::from_le_bytes(count) as usize;
        if count > MOST_PIECES {
            return Ok(None);
        }
        let mut said = piece.to_vec();
        for at in 1..count {
            said.extend(self.0.get(&told(request, rank, at))?);
        }
        (0..count).try_for_each(|at| self.0.delete(&told(request, rank, at)).map(drop))?;
        Ok(Some(said))
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
const MOST_PIECES: usize = 64;

#[cfg(test)]
mod tests {
    use phalanx_comm::store::LocalStore;

    use super::*;

    fn keys() -> Keys {
        Keys(Store::new(LocalStore::default())).within(Duration::from_secs(10))
    }

    #[test]
    fn what_is_told_comes_whole_and_leaves_nothing() {
        let keys = keys();
        for byte_len in [1, PIECE, PIECE + 1, 2 * PIECE + 7] {
            let said: Vec<u8> = (0..byte_len).map(|at| at as u8).collect();
            let request = keys.new_request().unwrap();
            keys.tell(3, &request, &said).unwrap();
            assert!(keys.take(3, &request).unwrap() == Some(said), "{byte_len} bytes");
        }
        assert_eq!(keys.0.list_keys().unwrap(), ["number"]);
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
