//! What one rank needs of its world to become a group, and how that is put together: the same for threads and processes.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use phalanx_core::backend::Numbers;
use phalanx_core::link::{Link, Mesh, Windows};
use phalanx_core::mail::Mail;
use phalanx_core::schedule::{Algorithm, Ground};
use phalanx_core::{Group, GroupOptions, Layout};

use phalanx_mem::Heap;

use crate::bell::Bell;
use crate::fate::Fate;
use crate::host::{Host, Parts, Presence};
use crate::lasting::{Lasting, Rejoin};
use crate::patience::Crowd;
use crate::post::Post;
use crate::slots;
use crate::stage::Stage;
use crate::waits::{Kin, Kinship};

/// The links of one rank, by peer.
pub(crate) type Links = Vec<Option<Box<dyn Link>>>;

/// Who looks into whose windows.
pub(crate) struct Sight {
    /// This rank's, to those of its peers that it shares memory with.
    pub(crate) windows: Option<Box<dyn Windows>>,
    /// Whether every rank that is not alone on its host has some, to all others there.
    pub(crate) everywhere: bool,
}

impl Sight {
    /// Of ranks that all have windows to each other, or none.
    pub(crate) fn of_all(windows: Option<impl Windows + 'static>) -> Sight {
        let everywhere = windows.is_some();
        Sight { windows: windows.map(|windows| Box::new(windows) as _), everywhere }
    }
}

/// One rank's ways to its peers.
pub(crate) struct Equipment {
    /// For collectives.
    pub(crate) links: Links,
    pub(crate) windows: Sight,
    /// For messages.
    pub(crate) post: Links,
    pub(crate) bell: Arc<Bell>,
    pub(crate) fate: Arc<Fate>,
    pub(crate) presence: Option<Box<dyn Presence>>,
    /// What buffers are taken from that the peers of this host can read where they are.
    pub(crate) heap: Option<Arc<Heap>>,
}

/// How the groups of a world behave. All ranks have the same style.
#[derive(Clone, Debug)]
pub(crate) struct Style {
    pub(crate) options: GroupOptions,
    /// The algorithm to use wherever it can play the operation.
    pub(crate) wish: Option<Algorithm>,
    pub(crate) windows: bool,
    pub(crate) checksum: bool,
    /// The groups of the same rank of the same world, which is this one only unless told.
    pub(crate) kin: Option<Arc<Kin>>,
}

impl Default for Style {
    fn default() -> Style {
        Style { options: GroupOptions::default(), wish: None, windows: true, checksum: false, kin: None }
    }
}

impl Style {
    /// Whether ranks on these hosts read each other's windows.
    pub(crate) fn has_windows(&self, hosts: &[u32]) -> bool {
        self.windows && !hosts.is_empty() && hosts.iter().all(|host| *host == hosts[0])
    }

    /// All that decides how bytes go, as bytes for ranks to compare.
    pub(crate) fn settings(&self) -> impl Iterator<Item = u8> + use<> {
        let wish = self.wish.map_or(0, |wish| 1 + wish as u8);
        self.limits().chain([wish, self.windows.into(), self.checksum.into()])
    }

    /// By which limits algorithms are chosen, as bytes for ranks to compare.
    pub(crate) fn limits(&self) -> impl Iterator<Item = u8> + use<> {
        let profile = self.options.chosen_profile().unwrap_or_default();
        profile.words().into_iter().flat_map(u64::to_le_bytes)
    }

    /// The group of the rank at `layout`, which comes by its links in this way when it needs others.
    pub(crate) fn group(&self, layout: Layout, equipment: Equipment, way: impl Rejoin + 'static) -> Group {
        let backend = Lasting::new(layout.clone(), self.clone(), equipment, Box::new(way));
        Group::new(layout, Arc::new(backend), self.options.clone())
    }

    /// One round of the rank at `layout`.
    pub(crate) fn host(&self, layout: &Layout, equipment: Equipment, numbers: Numbers, began: Instant) -> Host {
        let Equipment { links, windows, post, bell, fate, presence, heap } = equipment;
        let (rank, size) = (layout.rank(), layout.size());
        let in_windows = windows.everywhere && layout.is_one_host();
        // Hosts may differ, and plan alike.
        let slot_byte_len = match windows.everywhere {
            true if in_windows => slots::byte_len(size),
            true => slots::SHORT,
            false => 0,
        };
        let profile = self.options.chosen_profile().unwrap_or_default();
        let ground = Ground { pieces: slots::pieces(), ..profile.ground(slot_byte_len, in_windows) };
        let post = Mesh::new(post).with_checksum(self.checksum);
        let post = Post::new(Mail::new(rank, size, self.options.current_epoch()), post, Arc::clone(&fate));
        let mesh = Mesh::new(links).with_checksum(self.checksum);
        let mesh = match windows.windows {
            Some(windows) => mesh.with_windows(windows),
            None => mesh,
        };
        let stage = Stage::new(mesh, layout.clone(), ground, self.wish);
        let cores = thread::available_parallelism().map_or(usize::MAX, usize::from);
        let crowd = Crowd::of(layout.host_mates(rank).len(), cores);
        let name = self.options.chosen_name().unwrap_or("world");
        let kin = self.kin.clone().unwrap_or_default();
        let kinship = Kinship::new(kin, layout, self.options.members_of(layout.size()), name);
        Host::new(Parts { rank, stage, post, bell, fate, crowd, kinship, presence, heap, numbers, began })
    }
}
