//! What the core asks of whoever moves bytes: a pipe to each peer, and windows to the peers of this host.

use std::ops::Range;

pub use phalanx_mem::board::{Lease, Loan, Seen};

/// A full-duplex, ordered, reliable byte pipe to one peer. It never blocks and never calls back.
pub trait Link: Send {
    /// Takes some of `bytes`; 0 means "not now", and the caller comes again with the same bytes.
    ///
    /// # Errors
    ///
    /// [`LinkError`] where nothing goes to the peer any more.
    fn try_send(&mut self, bytes: &[u8]) -> Result<usize, LinkError>;

    /// The same for two parts of one frame, one after the other. Links for which each call is dear take both at once.
    ///
    /// # Errors
    ///
    /// As [`try_send`](Link::try_send).
    fn try_send_parts(&mut self, [first, second]: [&[u8]; 2]) -> Result<usize, LinkError> {
        let sent = if first.is_empty() { 0 } else { self.try_send(first)? };
        if sent < first.len() || second.is_empty() {
            return Ok(sent);
        }
        Ok(sent + self.try_send(second)?)
    }

    /// The same for a head and all of the long body that it leads, as [`is_led`] has it. Links in whose memory it matters where a copy
    /// begins have the body begin at a line; the head goes with some of it, or not at all.
    ///
    /// # Errors
    ///
    /// As [`try_send`](Link::try_send).
    fn try_send_led(&mut self, head: &[u8], body: &[u8]) -> Result<usize, LinkError> {
        self.try_send_parts([head, body])
    }

    /// Takes a frame of this head and body if it can be taken whole now. A link may always leave that: the parts can go one by one.
    fn try_send_frame(&mut self, head: &[u8], body: &[u8]) -> Whole {
        let _unsent = (head, body);
        Whole::Never
    }

    /// Fills `body` from the next frame, if that has this head and all of it is there, or comes while it is copied. A link may always leave
    /// that: it can come bit by bit. What is in `body` has no meaning then.
    fn try_recv_frame(&mut self, head: &[u8], body: &mut [u8]) -> Whole {
        let _unread = (head, body);
        Whole::Never
    }

    /// Fills the front of `into`; 0 means "not now". What the peer sent before it closed still comes.
    ///
    /// # Errors
    ///
    /// [`LinkError`] where nothing comes from the peer any more, or what comes is not what was sent.
    fn try_recv(&mut self, into: &mut [u8]) -> Result<usize, LinkError>;

    /// The same for the front of a body that went by [`try_send_led`](Link::try_send_led), and whose head has come.
    ///
    /// # Errors
    ///
    /// As [`try_recv`](Link::try_recv).
    fn try_recv_led(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        self.try_recv(into)
    }

    /// Wakes a peer that sleeps until something comes, or until there is room. Called once after however much has moved.
    fn announce(&mut self) {}
}

/// Whether a frame of this head and body is sent and received as one whose head leads its body: both sides must think alike.
pub fn is_led(head: &[u8], body_len: usize) -> bool {
    !head.is_empty() && body_len >= LONG_BODY
}

/// From how many bytes on a body that a head leads is long.
pub const LONG_BODY: usize = 4 << 10;

/// Whether a frame went or came whole. Of one that did not nothing has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whole {
    /// It has.
    Moved,
    /// It may yet.
    NotNow,
    /// It does not: parts of it tell why, or move one by one.
    Never,
}

/// Memory of the peers of this host that this rank may read.
///
/// Every rank publishes offers, numbered from 0. An offer may be viewed from when it is made until this rank makes its
/// third offer after it, so a view never waits for its reader.
pub trait Windows: Send {
    /// An operation begins, in which what is copied from peers goes past the caches or does not.
    fn begin(&mut self, past_caches: bool) {
        let _of_no_account = past_caches;
    }

    /// Publishes `head` and then `parts`, one after the other, as the next offer; false means "not now".
    ///
    /// Parts that the `lease` says are not written before the peers that read them have said so by a later offer,
    /// or before [`try_settle`](Windows::try_settle), may be read where they are instead of being copied.
    ///
    /// # Errors
    ///
    /// [`LinkError`], which names the rank where one has left or ended, or has written what makes no sense.
    fn try_offer(&mut self, head: &[u8], parts: &[&[u8]], lease: Lease) -> Result<bool, LinkError>;

    /// Makes the next offer of this part if nothing is missing for it now and what is `wanted` can be viewed: `fill` copies the part to
    /// the room for it while it reads the view; where there is no room the offer is made already, and it only reads. False, and nothing is
    /// offered, where anything is missing or wrong, where the part would not be copied, and when `fill` does not copy it: the offer and the
    /// view one by one tell what it is.
    fn try_offer_beside(
        &mut self,
        head: &[u8],
        part: &[u8],
        lease: Lease,
        wanted: Wanted,
        fill: &mut dyn FnMut(&mut [u8], View<'_>) -> bool,
    ) -> bool;

    /// Wakes the peers that sleep until they see an offer, or that their memory is their own again. Called once after
    /// however many of these, because to find out who sleeps takes longer than an offer.
    fn announce(&mut self) {}

    /// How many offers this rank has made.
    fn offers(&self) -> u64;

    /// The ranks that hold the next offer up, because they may still be reading the slot it needs.
    fn behind(&self) -> Vec<usize>;

    /// A part of a rank's offer with this number, once it is made.
    ///
    /// # Errors
    ///
    /// As [`try_offer`](Windows::try_offer).
    fn view(&self, rank: usize, offer: u64, part: Range<usize>) -> Result<Option<View<'_>>, LinkError>;

    /// Copies what a view shows. Windows that can choose between this and [`fetch`](Windows::fetch) learn here what it takes.
    fn copy(&self, copies: Copies, into: &mut [u8], seen: &[u8]) {
        copies(into, seen);
    }

    /// Fills `into` from this address of a rank's process, which a view of its offer has told.
    ///
    /// # Errors
    ///
    /// [`LinkError`] where that process has ended, or its memory cannot be read.
    fn fetch(&mut self, rank: usize, address: usize, into: &mut [u8]) -> Result<(), LinkError>;

    /// Says that this rank reads no offer made so far any more, and asks whether the peers have said so of those of its
    /// offers that they read where they are; until then their memory is not to be written.
    ///
    /// # Errors
    ///
    /// As [`try_offer`](Windows::try_offer).
    fn try_settle(&mut self) -> Result<bool, LinkError>;

    /// Publishes `head` as the next offer, and with it `room`, where the peers can reach that, to be read and written by them, each a part
    /// of its own, until this rank has settled. An offer of nothing says that nothing is lent.
    ///
    /// # Errors
    ///
    /// As [`try_offer`](Windows::try_offer).
    fn try_lend(&mut self, head: &[u8], room: &mut [u8]) -> Result<Loan, LinkError> {
        let _unreachable = room;
        Ok(if self.try_offer(head, &[], Lease::None)? { Loan::Refused } else { Loan::NotNow })
    }

    /// A part of what a rank has lent by this offer.
    ///
    /// # Errors
    ///
    /// As [`try_offer`](Windows::try_offer).
    fn lent(&mut self, rank: usize, offer: u64, part: Range<usize>) -> Result<&mut [u8], LinkError> {
        Err(LinkError::corrupt(rank, format!("it cannot lend bytes {part:?} by offer {offer} here")))
    }

    /// Says that no peer writes what this rank has lent, because each sees why not.
    fn forgo(&mut self) {}

    /// Gives up an operation that failed: peers that have not read what this rank shows learn that it may change from now on, and what is lent
    /// ends, so that what they do there is not seen.
    ///
    /// # Errors
    ///
    /// [`LinkError`] where peers may still write what was lent.
    fn take_back(&mut self) -> Result<(), LinkError> {
        Ok(())
    }

    /// What of peers' memory this rank has read where it is since this was asked last.
    fn take_borrowed(&mut self) -> Borrowed;

    /// The ranks that may still read this rank's memory.
    fn readers(&self) -> Vec<usize>;

    /// The most bytes that fit one offer, its head included.
    fn slot_byte_len(&self) -> usize;
}

/// What an operation has read of peers' memory where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Borrowed {
    /// None of it.
    Nothing,
    /// Some, and nobody had given up by then what was read.
    Kept,
    /// Some, and this rank had given the operation up: it may have written since what was read.
    GivenUp(usize),
}

/// Copies from one slice to another of the same length.
pub type Copies = fn(&mut [u8], &[u8]);

/// A part of a rank's offer with this number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Whose offer.
    pub rank: usize,
    /// Which.
    pub offer: u64,
    /// The part, behind the head.
    pub part: Range<usize>,
}

/// What one rank sees of another's offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View<'a> {
    /// The head.
    pub head: &'a [u8],
    /// The part that was asked for; none where the offer ends before it does.
    pub part: Option<Seen<'a>>,
}

/// Why a peer's bytes no longer come or go.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The peer's end is gone.
    #[error("connection closed")]
    Closed {
        /// The rank, where one link or window serves several.
        rank: Option<usize>,
    },
    /// The peer's process has ended.
    #[error("its process ended")]
    Ended {
        /// The rank.
        rank: usize,
    },
    /// The peer's process goes on with another program.
    #[error("its process runs another program")]
    Adrift {
        /// The rank.
        rank: usize,
    },
    /// The peer said that it leaves, and left.
    #[error("left the group")]
    Left {
        /// The rank, where one link or window serves several.
        rank: Option<usize>,
    },
    /// What came is not what was sent.
    #[error("{detail}")]
    Corrupt {
        /// Whose bytes, where one link or window serves several.
        rank: Option<usize>,
        /// What is wrong with them.
        detail: String,
    },
    /// The system refused, or this rank has no such link: the peer may be in order.
    #[error("{0}")]
    Failed(String),
}

impl LinkError {
    /// That this rank's bytes are none that it can have sent.
    pub fn corrupt(rank: impl Into<Option<usize>>, detail: impl Into<String>) -> LinkError {
        LinkError::Corrupt { rank: rank.into(), detail: detail.into() }
    }
}

/// All of one rank's links and windows for one kind of traffic.
pub struct Mesh {
    links: Vec<Option<Box<dyn Link>>>,
    windows: Option<Box<dyn Windows>>,
    checksum: bool,
    /// Whether anything may have moved over links since that was announced last.
    has_moved: bool,
}

impl Mesh {
    /// A mesh of links by rank; there is none to this rank itself.
    pub fn new(links: Vec<Option<Box<dyn Link>>>) -> Mesh {
        Mesh { links, windows: None, checksum: false, has_moved: false }
    }

    /// Adds windows to all ranks.
    pub fn with_windows(mut self, windows: Box<dyn Windows>) -> Mesh {
        self.windows = Some(windows);
        self
    }

    /// Ends every frame with a CRC-32C, for paths that do not protect bytes themselves. All ranks must agree.
    pub fn with_checksum(mut self, checksum: bool) -> Mesh {
        self.checksum = checksum;
        self
    }

    /// Drops all links and windows, so that the peers see them closed.
    pub fn close(&mut self) {
        self.links.iter_mut().for_each(|link| *link = None);
        self.windows = None;
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.links.len()
    }

    /// Whether frames end with a checksum.
    pub fn checksum(&self) -> bool {
        self.checksum
    }

    /// The link to `peer`.
    ///
    /// # Errors
    ///
    /// [`LinkError::Failed`] where there is none.
    pub fn link(&mut self, peer: usize) -> Result<&mut dyn Link, LinkError> {
        match self.links.get_mut(peer) {
            Some(Some(link)) => {
                self.has_moved = true;
                Ok(&mut **link)
            }
            _ => Err(LinkError::Failed(format!("there is no link to rank {peer}"))),
        }
    }

    /// What was read of peers' memory where it is since this was asked last.
    pub fn take_borrowed(&mut self) -> Borrowed {
        self.windows.as_mut().map_or(Borrowed::Nothing, |windows| windows.take_borrowed())
    }

    /// Makes sure that no peer takes this rank's memory for what it was, nor writes it, after an operation that failed.
    ///
    /// # Errors
    ///
    /// As [`Windows::take_back`].
    pub fn take_back(&mut self) -> Result<(), LinkError> {
        self.windows.as_mut().map_or(Ok(()), |windows| windows.take_back())
    }

    /// Wakes the peers that sleep until they see what this rank did.
    pub fn announce(&mut self) {
        if std::mem::take(&mut self.has_moved) {
            self.links.iter_mut().flatten().for_each(|link| link.announce());
        }
        if let Some(windows) = &mut self.windows {
            windows.announce();
        }
    }

    /// The windows.
    ///
    /// # Errors
    ///
    /// [`LinkError::Failed`] where there are none.
    pub fn windows(&mut self) -> Result<&mut dyn Windows, LinkError> {
        match &mut self.windows {
            Some(windows) => Ok(&mut **windows),
            None => Err(LinkError::Failed("the group has no windows".to_owned())),
        }
    }
}

impl std::fmt::Debug for Mesh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mesh of {} ranks, windows {}", self.size(), self.windows.is_some())
    }
}
