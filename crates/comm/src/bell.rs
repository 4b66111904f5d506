//! A bell for one rank: peers ring it when they moved bytes, and it costs them next to nothing while nobody sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use phalanx_mem::{Cells, PlaceError};

use crate::futex::{self, Scope};
use crate::poller::{Kick, Poller};

/// Wakes the threads of one rank, also those of another process when its word lies in a segment.
///
/// A sleeper arms the bell, looks once more whether there is something to do, and only then sleeps. A ringer changes
/// what the sleeper looks at and then looks whether the bell is armed. The two fences see to it that at least one of
/// them sees the other.
///
/// The word counts how often the bell woke somebody, in all bits but the lowest, which says that it is armed.
#[derive(Debug)]
pub(crate) struct Bell {
    word: Cells<AtomicU32>,
    scope: Scope,
    /// Where the rank has sockets: news of them wakes it as well.
    poller: Option<Poller>,
    /// Where the rank is of another process and has sockets: what ends its sleep.
    kick: Option<Kick>,
}

impl Bell {
    /// A bell for the threads of this process.
    pub(crate) fn new() -> Result<Bell, PlaceError> {
        Ok(Bell { word: Cells::on_heap(WORDS)?, scope: Scope::Process, poller: None, kick: None })
    }

    /// The bell in a word that processes share.
    pub(crate) fn shared(word: Cells<AtomicU32>) -> Bell {
        Bell { word, scope: Scope::Host, poller: None, kick: None }
    }

    /// The same for a rank of this process that also waits for the sockets of `poller`.
    pub(crate) fn and_poller(self, poller: Poller) -> Bell {
        Bell { poller: Some(poller), ..self }
    }

    /// The same for a rank of another process that also waits for sockets, until it gets this kick.
    pub(crate) fn and_kick(self, kick: Kick) -> Bell {
        Bell { kick: Some(kick), ..self }
    }

    /// A bell for the threads of this process that also wait for the sockets of `poller`.
    pub(crate) fn with_poller(poller: Poller) -> Result<Bell, PlaceError> {
        Ok(Bell { poller: Some(poller), ..Bell::new()? })
    }

    /// What it sleeps on besides, where the rank has sockets.
    pub(crate) fn poller(&self) -> Option<&Poller> {
        self.poller.as_ref()
    }

    /// Announces a sleeper. Whatever rings from now on ends its sleep.
    pub(crate) fn arm(&self) -> u32 {
        let armed = self.word[0].fetch_or(ARMED, Ordering::Relaxed) | ARMED;
        fence(Ordering::SeqCst);
        armed
    }

    /// Sleeps unless the bell has rung since it was armed: until it rings or a signal comes, at most this long.
    pub(crate) fn sleep(&self, armed: u32, limit: Duration) {
        self.listen(armed, limit, |_| {});
    }

    /// Sleeps like [`sleep`](Bell::sleep), and tells the numbers of the sockets that have news.
    pub(crate) fn listen(&self, armed: u32, limit: Duration, each: impl FnMut(u64)) {
        let doze = || futex::wait(&self.word[0], armed, limit, self.scope);
        let Some(poller) = &self.poller else { return doze() };
        let Some(lead) = poller.lead() else { return poller.follow(doze) };
        if self.word[0].load(Ordering::SeqCst) == armed {
            poller.wait(limit, each);
        }
        // News of a socket may be for whoever sleeps behind this thread, and one of them must lead next. Who armed the bell before the news
        // must not lead after this thread and sleep on; who armed it since could not lead, and must not sleep without a leader.
        let rang = self.disarm_if_armed();
        drop(lead);
        let rang_again = self.disarm_if_armed();
        if (rang || rang_again) && poller.has_followers() {
            futex::wake_all(&self.word[0], self.scope);
        }
    }

    /// Wakes whoever sleeps.
    #[inline]
    pub(crate) fn ring(&self) {
        fence(Ordering::SeqCst);
        self.ring_if_armed();
    }

    /// Wakes whoever sleeps at any of these bells. The fence waits until what was changed has left this processor, which
    /// is most of what ringing costs, and once is enough.
    pub(crate) fn ring_all(bells: &[Arc<Bell>]) {
        fence(Ordering::SeqCst);
        bells.iter().for_each(|bell| bell.ring_if_armed());
    }

    #[inline]
    fn ring_if_armed(&self) {
        let seen = self.word[0].load(Ordering::Relaxed);
        if seen & ARMED != 0 {
            self.ring_aloud(seen);
        }
    }

    #[cold]
    fn ring_aloud(&self, seen: u32) {
        if self.disarm(seen) {
            futex::wake_all(&self.word[0], self.scope);
            self.poller.iter().for_each(Poller::kick);
            self.kick.iter().for_each(Kick::give);
        }
    }

    fn disarm_if_armed(&self) -> bool {
        let seen = self.word[0].load(Ordering::SeqCst);
        seen & ARMED != 0 && self.disarm(seen)
    }

    /// Counts a ring, and says whether it was this one's.
    fn disarm(&self, seen: u32) -> bool {
        // Adding to the lowest bit disarms and counts at once. When it fails, somebody else rang since, and whoever
        // armed the bell after that sees what this ringer changed.
        self.word[0].compare_exchange(seen, seen.wrapping_add(ARMED), Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}

/// How many words a bell takes.
pub(crate) const WORDS: usize = 1;

const ARMED: u32 = 1;

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::thread;
    use std::time::Instant;

    use super::*;

    #[test]
    fn no_ring_is_missed() {
        let bells = [(); 2].map(|()| Bell::new().expect("memory"));
        play([[&bells[0], &bells[1]]; 2]);
    }

    #[test]
    fn no_ring_is_missed_where_there_are_sockets() {
        let bells = [(); 2].map(|()| Bell::with_poller(Poller::new().expect("epoll")).expect("memory"));
        play([[&bells[0], &bells[1]]; 2]);
        // With one bell for both, one follows the other.
        play([[&bells[0], &bells[0]]; 2]);
    }

    #[test]
    fn news_of_a_socket_ends_every_sleep_and_only_once() {
        use std::io::{Read, Write};
        use std::os::unix::net::UnixStream;

        use rustix::event::epoll::EventFlags;

        let bell = Bell::with_poller(Poller::new().expect("epoll")).expect("memory");
        let (mut ours, mut theirs) = UnixStream::pair().expect("sockets");
        bell.poller.as_ref().expect("a poller").add(&theirs, 7, EventFlags::IN).expect("new");
        let began = Instant::now();
        thread::scope(|scope| {
            let sleepers: Vec<_> = (0..3).map(|_| scope.spawn(|| bell.sleep(bell.arm(), LONG))).collect();
            // One that armed the bell only now need not hear of what came before.
            while !sleepers.iter().all(|sleeper| sleeper.is_finished()) {
                ours.write_all(&[1]).expect("room");
                // What nobody reads would fill the socket while the threads start.
                theirs.read_exact(&mut [0]).expect("what was written");
                thread::yield_now();
            }
        });
        assert!(began.elapsed() < LONG);
        let mut heard = vec![];
        bell.listen(bell.arm(), Duration::from_millis(1), |_| {});
        bell.listen(bell.arm(), Duration::from_millis(1), |number| heard.push(number));
        assert!(heard.is_empty());
        ours.write_all(&[2]).expect("room");
        bell.listen(bell.arm(), LONG, |number| heard.push(number));
        assert_eq!(heard, [7]);
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn no_ring_is_missed_between_two_mappings() {
        use std::sync::Arc;

        use phalanx_mem::{LINE, Segment};

        let first = Arc::new(Segment::create(LINE * 2).expect("memfd"));
        let second = Arc::new(Segment::open(first.fd().try_clone_to_owned().expect("free")).expect("sealed"));
        let bell = |segment: &Arc<Segment>, at| {
            Bell::shared(Cells::in_segment(Arc::clone(segment), at * LINE, WORDS).expect("free"))
        };
        let [mine, theirs] = [&first, &second].map(|segment| [0, 1].map(|at| bell(segment, at)));
        play([[&mine[0], &mine[1]], [&theirs[0], &theirs[1]]]);
    }

    #[test]
    fn no_ring_is_missed_between_two_mappings_where_there_are_sockets() {
        use phalanx_mem::{LINE, Segment};

        let first = Arc::new(Segment::create(LINE * 2).expect("memfd"));
        let second = Arc::new(Segment::open(first.fd().try_clone_to_owned().expect("free")).expect("sealed"));
        let bell = |segment: &Arc<Segment>, at: usize| {
            Bell::shared(Cells::in_segment(Arc::clone(segment), at * LINE, WORDS).expect("free"))
        };
        let [one, two] = [(); 2].map(|()| Poller::new().expect("epoll"));
        let kick = |poller: &Poller| Kick::of(poller.kick_descriptor().try_clone_to_owned().expect("free"));
        let [kick_one, kick_two] = [kick(&one), kick(&two)];
        let mine = [bell(&first, 0).and_poller(one), bell(&first, 1).and_kick(kick_two)];
        let theirs = [bell(&second, 0).and_kick(kick_one), bell(&second, 1).and_poller(two)];
        play([[&mine[0], &mine[1]], [&theirs[0], &theirs[1]]]);
    }

    /// Two take turns, each with its own view of the two bells. A missed ring costs a minute.
    fn play(bells: [[&Bell; 2]; 2]) {
        const ROUNDS: u64 = 2000;
        let (word, began) = (AtomicU64::new(0), Instant::now());
        thread::scope(|scope| {
            for me in 0..2_u64 {
                let (bells, word) = (bells[me as usize], &word);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        while word.load(Ordering::Acquire) != round * 2 + me {
                            let armed = bells[me as usize].arm();
                            if word.load(Ordering::Acquire) != round * 2 + me {
                                bells[me as usize].sleep(armed, Duration::from_secs(60));
                            }
                        }
                        word.store(round * 2 + me + 1, Ordering::Release);
                        bells[1 - me as usize].ring();
                    }
                });
            }
        });
        assert_eq!(word.into_inner(), ROUNDS * 2);
        assert!(began.elapsed() < Duration::from_secs(60), "a ring was missed");
    }
}
