//! The course of one epoch as a state machine: who runs, when the others are asked to end, and when they are killed. It is
//! told what happens and answers with the signals to send; clocks and processes are the launcher's.

use std::time::{Duration, Instant};

use signal_hook::consts::{SIGKILL, SIGTERM};

use super::interrupt::{Interrupt, Wish};
use super::node::{Judgement, Met};
use super::output::Remains;
use super::process::descendants::PATIENCE;
use super::process::exit::Exit;
use super::process::signals;

/// What wakes the launcher.
#[derive(Debug)]
pub(crate) enum Event {
    /// A signal came, `SIGCHLD` among them.
    Signal(i32),
    /// A signal came, and the guard is gone.
    Orphaned,
    /// All output of the epoch was passed on; what remains of each rank's standard error.
    Drained(Vec<Remains>),
    /// The nodes have met, or could not.
    Met(Result<Met, String>),
    /// In this epoch a node is in trouble, or all is over: this one is to stop.
    Elsewhere(u32),
    /// What was decided for all nodes in this epoch, or why this one will never hear of it.
    Judged(u32, Result<Judgement, String>),
}

/// What to do to the ranks that still run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order(pub(super) i32);

/// The ranks of one epoch on this node, as they run and end.
#[derive(Debug)]
pub(super) struct Watch {
    phase: Phase,
    grace: Duration,
    ended: Vec<Option<End>>,
    interrupt: Interrupt,
    was_killed: bool,
}

/// The end of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) exit: Exit,
    pub(super) at: Instant,
    /// Whether it ended because it was asked to.
    pub(super) was_stopped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// One has failed, here or elsewhere; others may follow by themselves, which tells more than their answer to a signal.
    Settling(Instant),
    /// They were asked to end.
    Stopping(Instant),
    /// They were killed.
    Killing(Instant),
    /// They do not even end when they are killed: the kernel is busy for them.
    Stuck,
}

impl Watch {
    pub(super) fn new(ranks: usize, grace: Duration) -> Watch {
        let interrupt = Interrupt::default();
        Watch { phase: Phase::Running, grace, ended: vec![None; ranks], interrupt, was_killed: false }
    }

    /// A rank has ended.
    pub(super) fn end(&mut self, local_rank: usize, exit: Exit, now: Instant) {
        let was_asked = !matches!(self.phase, Phase::Running | Phase::Settling(_));
        let was_stopped = was_asked && !exit.is_crash();
        self.ended[local_rank].get_or_insert(End { exit, at: now, was_stopped });
        if !exit.is_well() {
            self.settle(now);
        }
    }

    /// A signal has come for the launcher.
    pub(super) fn signal(&mut self, signal: i32, now: Instant) -> Option<Order> {
        if !signals::is_ending(signal) {
            return (!self.is_over()).then_some(Order(signal));
        }
        match (self.phase, self.hear(signal, now)) {
            (Phase::Running | Phase::Settling(_), _) => Some(self.stop(signal, now)),
            (Phase::Stopping(_), Wish::Again) => Some(self.kill(now)),
            (Phase::Stopping(_) | Phase::Killing(_) | Phase::Stuck, _) => None,
        }
    }

    /// Takes note of a signal that asks for the end, with nothing to do about it.
    pub(super) fn hear(&mut self, signal: i32, now: Instant) -> Wish {
        self.interrupt.hear(signal, now)
    }

    /// This node's ranks must end because of what happened on another, or because this node said that it is in trouble.
    pub(super) fn elsewhere(&mut self, now: Instant) {
        self.settle(now);
    }

    /// Nobody is left to work for: everything ends at once.
    pub(super) fn abandon(&mut self, now: Instant) -> Option<Order> {
        (!matches!(self.phase, Phase::Killing(_) | Phase::Stuck)).then(|| self.kill(now))
    }

    /// What the time asks for.
    pub(super) fn tick(&mut self, now: Instant) -> Option<Order> {
        match self.phase {
            _ if self.deadline().is_none_or(|deadline| now < deadline) => None,
            Phase::Settling(_) => Some(self.stop(SIGTERM, now)),
            Phase::Stopping(_) => Some(self.kill(now)),
            Phase::Killing(_) => {
                self.phase = Phase::Stuck;
                None
            }
            Phase::Running | Phase::Stuck => None,
        }
    }

    /// When to look at the time again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Settling(until) | Phase::Stopping(until) | Phase::Killing(until) => Some(until),
            Phase::Running | Phase::Stuck => None,
        }
    }

    /// Whether all ranks have ended, or there is no more to be done about it.
    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Stuck || self.ended.iter().all(Option::is_some)
    }

    /// Whether something has gone wrong, or somebody has had enough.
    pub(super) fn is_troubled(&self) -> bool {
        self.phase != Phase::Running
    }

    pub(super) fn ended(&self, local_rank: usize) -> Option<End> {
        self.ended[local_rank]
    }

    pub(super) fn interrupt(&self) -> Interrupt {
        self.interrupt
    }

    /// Whether ranks that had not ended in time were killed.
    pub(super) fn was_killed(&self) -> bool {
        self.was_killed
    }

    fn settle(&mut self, now: Instant) {
        if self.phase == Phase::Running {
            self.phase = Phase::Settling(now + SETTLE);
        }
    }

    fn stop(&mut self, signal: i32, now: Instant) -> Order {
        self.phase = Phase::Stopping(now + self.grace);
        Order(signal)
    }

    fn kill(&mut self, now: Instant) -> Order {
        self.phase = Phase::Killing(now + PATIENCE);
        self.was_killed = true;
        Order(SIGKILL)
    }
}

/// How long ranks may follow the first that failed before they are asked to end.
const SETTLE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use signal_hook::consts::{SIGINT, SIGSEGV, SIGUSR1};

    use super::*;
    use crate::run::interrupt::AT_ONCE;

    const GRACE: Duration = Duration::from_secs(5);

    fn watch() -> (Watch, Instant) {
        (Watch::new(3, GRACE), Instant::now())
    }

    #[test]
    fn all_end_well_without_a_signal() {
        let (mut watch, now) = watch();
        (0..3).for_each(|rank| watch.end(rank, Exit::Code(0), now));
        assert!(watch.is_over());
        assert_eq!((watch.deadline(), watch.tick(now + GRACE * 100)), (None, None));
    }

    #[test]
    fn after_a_failure_the_others_are_asked_then_killed() {
        let (mut watch, now) = watch();
        watch.end(1, Exit::Code(3), now);
        assert_eq!(watch.tick(now), None);
        watch.end(0, Exit::Code(4), now);
        assert!(!watch.ended(0).unwrap().was_stopped);
        let settled = now + SETTLE;
        assert_eq!(watch.tick(settled), Some(Order(SIGTERM)));
        assert_eq!(watch.tick(settled), None);
        assert_eq!(watch.tick(settled + GRACE), Some(Order(SIGKILL)));
        assert!(watch.was_killed() && !watch.is_over());
        watch.end(2, Exit::Signal(SIGKILL), settled + GRACE);
        assert!(watch.is_over() && watch.ended(2).unwrap().was_stopped);
    }

    #[test]
    fn one_that_cannot_be_killed_is_not_waited_for() {
        let (mut watch, now) = watch();
        assert_eq!(watch.abandon(now), Some(Order(SIGKILL)));
        assert_eq!(watch.tick(now + PATIENCE), None);
        assert!(watch.is_over() && watch.deadline().is_none());
    }

    #[test]
    fn an_orphan_kills_once() {
        let (mut watch, now) = watch();
        assert_eq!(watch.abandon(now), Some(Order(SIGKILL)));
        assert_eq!((watch.abandon(now), watch.deadline()), (None, Some(now + PATIENCE)));
    }

    #[test]
    fn the_first_interrupt_is_passed_on_and_the_second_kills() {
        let (mut watch, now) = watch();
        assert_eq!(watch.signal(SIGUSR1, now), Some(Order(SIGUSR1)));
        assert_eq!(watch.signal(SIGINT, now), Some(Order(SIGINT)));
        assert_eq!(watch.signal(SIGUSR1, now), Some(Order(SIGUSR1)));
        assert_eq!(watch.signal(SIGTERM, now + AT_ONCE), Some(Order(SIGKILL)));
        assert_eq!(watch.interrupt().signal(), Some(SIGINT));
    }

    /// As of `timeout`, and of systemd.
    #[test]
    fn interrupts_that_come_at_once_leave_ranks_their_grace() {
        let (mut watch, now) = watch();
        assert_eq!(watch.signal(SIGTERM, now), Some(Order(SIGTERM)));
        assert_eq!(watch.signal(SIGTERM, now + AT_ONCE / 2), None);
        assert_eq!((watch.deadline(), watch.was_killed()), (Some(now + GRACE), false));
    }

    #[test]
    fn an_interrupt_while_ranks_stop_after_a_failure_gives_them_their_grace() {
        let (mut watch, now) = watch();
        watch.end(0, Exit::Code(1), now);
        assert_eq!(watch.tick(now + SETTLE), Some(Order(SIGTERM)));
        assert_eq!(watch.signal(SIGINT, now + SETTLE), None);
        assert_eq!(watch.signal(SIGINT, now + SETTLE + AT_ONCE), Some(Order(SIGKILL)));
    }

    #[test]
    fn what_happens_elsewhere_stops_once_after_ranks_could_follow_by_themselves() {
        let (mut watch, now) = watch();
        assert!(!watch.is_troubled());
        watch.elsewhere(now);
        assert!(watch.is_troubled());
        watch.end(0, Exit::Code(3), now);
        assert!(!watch.ended(0).unwrap().was_stopped);
        assert_eq!(watch.tick(now + SETTLE), Some(Order(SIGTERM)));
        watch.elsewhere(now + SETTLE);
        assert_eq!((watch.tick(now + SETTLE), watch.deadline()), (None, Some(now + SETTLE + GRACE)));
    }

    #[test]
    fn the_echo_of_a_nodes_own_cry_leaves_ranks_their_time() {
        let (mut watch, now) = watch();
        watch.end(0, Exit::Code(1), now);
        watch.elsewhere(now + SETTLE / 2);
        assert_eq!(watch.tick(now + SETTLE / 2), None);
        assert_eq!(watch.tick(now + SETTLE), Some(Order(SIGTERM)));
    }

    #[test]
    fn who_crashes_when_it_is_asked_to_end_has_failed() {
        let (mut watch, now) = watch();
        watch.end(0, Exit::Code(1), now);
        assert_eq!(watch.tick(now + SETTLE), Some(Order(SIGTERM)));
        watch.end(1, Exit::Signal(SIGSEGV), now + SETTLE);
        watch.end(2, Exit::Signal(SIGTERM), now + SETTLE);
        assert_eq!([1, 2].map(|rank| watch.ended(rank).unwrap().was_stopped), [false, true]);
    }
}
