//! Who a client says it is. The key proves that it belongs to the job; which claims are honoured is the server's policy.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;

/// The name of a job: 1 to 64 letters, digits, dots, underscores and hyphens.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct JobName(Arc<str>);

/// Sixteen random bytes by which the connections of one process are known as one party.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Session([u8; 16]);

/// What a client says of itself in the hello: the job, its epoch, the world's size, and the rank it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    job: JobName,
    epoch: u32,
    rank: Option<u32>,
    world: u32,
    session: Session,
}

/// Why a claim cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// The job's name has no letters, too many, or other ones.
    #[error("job is \"{}\", must be 1 to 64 of the characters A-Z a-z 0-9 . _ -", name.escape_default())]
    Job {
        /// How the name begins.
        name: String,
    },
    /// The rank is not one of the world.
    #[error("rank is {rank}, must be below the world size {world}")]
    Rank {
        /// The rank.
        rank: u32,
        /// The world's size.
        world: u32,
    },
}

impl From<ClaimError> for phalanx_core::Error {
    fn from(error: ClaimError) -> phalanx_core::Error {
        phalanx_core::Error::setup("joining the world", error)
    }
}

impl JobName {
    /// The name, if it is one.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Job`] when it is empty, too long, or has other characters.
    pub fn new(name: &str) -> Result<JobName, ClaimError> {
        let fits = (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_name_byte);
        match fits {
            true => Ok(JobName(name.into())),
            false => Err(ClaimError::Job { name: name.chars().take(MAX_NAME).collect() }),
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Session {
    /// A session that no other process has.
    ///
    /// # Errors
    ///
    /// When the system gives no random bytes.
    pub fn mint() -> io::Result<Session> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Session(bytes))
    }

    /// The session's bytes. They are no secret.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl Claim {
    /// A member of `job` in `epoch` that takes no rank and does not say how large the world is.
    #[must_use]
    pub fn new(job: JobName, epoch: u32, session: Session) -> Claim {
        Claim { job, epoch, rank: None, world: 0, session }
    }

    /// Says how many ranks the world has; 0 says nothing. A rank taken before is given up.
    #[must_use]
    pub fn world(mut self, ranks: u32) -> Claim {
        (self.rank, self.world) = (None, ranks);
        self
    }

    /// Takes `rank` in a world of `world` ranks.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Rank`] when the world has no such rank.
    pub fn member(mut self, rank: u32, world: u32) -> Result<Claim, ClaimError> {
        if rank >= world {
            return Err(ClaimError::Rank { rank, world });
        }
        (self.rank, self.world) = (Some(rank), world);
        Ok(self)
    }

    /// The job.
    pub fn job(&self) -> &JobName {
        &self.job
    }

    /// The epoch.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The rank that is taken.
    pub fn rank(&self) -> Option<u32> {
        self.rank
    }

    /// How many ranks the world has, 0 where that is not said.
    pub fn world_size(&self) -> u32 {
        self.world
    }

    /// Which process claims.
    pub fn session(&self) -> Session {
        self.session
    }
}

impl FromStr for JobName {
    type Err = ClaimError;

    fn from_str(name: &str) -> Result<JobName, ClaimError> {
        JobName::new(name)
    }
}

/// The name of a job that nobody named.
impl Default for JobName {
    fn default() -> JobName {
        JobName("default".into())
    }
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl From<[u8; 16]> for Session {
    fn from(bytes: [u8; 16]) -> Session {
        Session(bytes)
    }
}

/// As hexadecimal digits.
impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({self})")
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-".contains(&byte)
}

/// The longest name of a job.
pub(crate) const MAX_NAME: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_none_are_refused() {
        for name in ["a", "train-7.b_2", &"x".repeat(64)] {
            assert_eq!(JobName::new(name).expect("a name").as_str(), name);
        }
        for name in ["", "a b", "a/b", "ä", "a\n", &"x".repeat(65)] {
            assert!(JobName::new(name).is_err(), "{name:?}");
        }
        let error = JobName::new("a\nb").expect_err("a line end").to_string();
        assert_eq!(error, "job is \"a\\nb\", must be 1 to 64 of the characters A-Z a-z 0-9 . _ -");
        assert!(JobName::new(JobName::default().as_str()).is_ok());
    }

    #[test]
    fn a_rank_must_be_one_of_the_world() {
        let claim = Claim::new(JobName::default(), 3, Session::from([0xAB; 16]));
        assert_eq!((claim.rank(), claim.world_size(), claim.epoch()), (None, 0, 3));
        let member = claim.clone().member(3, 4).expect("a rank of the world");
        assert_eq!((member.rank(), member.world_size()), (Some(3), 4));
        assert_eq!(claim.clone().member(4, 4), Err(ClaimError::Rank { rank: 4, world: 4 }));
        assert_eq!(claim.clone().member(0, 0), Err(ClaimError::Rank { rank: 0, world: 0 }));
        assert_eq!(member.world(2).rank(), None);
        assert_eq!(format!("{:?}", claim.session()), format!("Session({})", "ab".repeat(16)));
    }

    #[test]
    fn no_two_sessions_are_the_same() {
        assert_ne!(Session::mint().expect("random bytes"), Session::mint().expect("random bytes"));
    }
}
