//! What is gathered, freed and reduced, and when: events go in, actions come out. Nothing is moved here and nothing is waited for.
//!
//! At any time the units that are gathered are those in use, those that were told to be kept, and at most as many more as are
//! fetched ahead.

#[cfg(test)]
mod tests;

use phalanx_core::{Error, Result};

use crate::Reshard;
use crate::event::{Action, Depth, Event, Settings};

/// The state of all units.
#[derive(Clone, Debug)]
pub struct Machine {
    units: Vec<Unit>,
    depth: Depth,
    replicated: bool,
    settings: Settings,
    /// The use of a unit that last began its forward.
    entered: Option<Use>,
    /// Units in the order in which they ended their forward.
    order: Vec<usize>,
    /// What is to be fetched ahead once this unit was copied.
    ahead: Option<(usize, Vec<usize>)>,
    scattering: Option<Reducing>,
    all_reducing: Option<usize>,
}

#[derive(Clone, Debug)]
struct Unit {
    reshard: Reshard,
    state: State,
    is_open: bool,
    is_in_backward: bool,
    /// It stays gathered though nobody is in it.
    is_kept: bool,
    /// Its owner's copy stands for it.
    is_copied: bool,
    is_narrow: bool,
    /// Its shards changed while somebody was in it: what is gathered is of before.
    is_stale: bool,
    /// The unit that followed each of its uses in forward. A use that is new is taken to be followed as the last that is known.
    successors: Vec<Option<usize>>,
    /// Where it stands in the order of forward, once for each time it has ended.
    positions: Vec<usize>,
    forward_targets: Option<Vec<usize>>,
    backward_targets: Option<Vec<usize>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Sharded,
    Gathering,
    Gathered,
}

/// A use of a unit in forward: the how-manieth since the last backward, from 0 on.
#[derive(Clone, Copy, Debug)]
struct Use {
    unit: usize,
    nth: usize,
}

#[derive(Clone, Copy, Debug)]
struct Reducing {
    unit: usize,
    all_reduces: bool,
}

impl Machine {
    /// Units that are sharded, in the order in which forward is expected to come to them.
    pub fn new(reshards: &[Reshard], depth: Depth, replicated: bool) -> Machine {
        let unit = |(index, reshard): (usize, &Reshard)| Unit {
            reshard: *reshard,
            state: State::Sharded,
            is_open: false,
            is_in_backward: false,
            is_kept: false,
            is_stale: false,
            is_copied: false,
            is_narrow: false,
            successors: vec![Some(index + 1).filter(|next| *next < reshards.len())],
            positions: Vec::new(),
            forward_targets: None,
            backward_targets: None,
        };
        let units = reshards.iter().enumerate().map(unit).collect();
        let settings = Settings::default();
        Machine {
            units,
            depth,
            replicated,
            settings,
            entered: None,
            order: Vec::new(),
            ahead: None,
            scattering: None,
            all_reducing: None,
        }
    }

    /// What may be changed.
    pub fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }

    /// Has these units gathered when `unit` begins its forward, in place of those that followed it last time. One that is not used next stays
    /// as long as it is among those of each unit that is used before it.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for a unit that there is not.
    pub fn prefetch_in_forward(&mut self, unit: usize, targets: &[usize]) -> Result<()> {
        targets.iter().try_for_each(|target| self.check("prefetch_in_forward", *target))?;
        self.unit("prefetch_in_forward", unit)?.forward_targets = Some(targets.to_vec());
        Ok(())
    }

    /// The same in backward, in place of those that came before it in forward.
    ///
    /// # Errors
    ///
    /// As [`prefetch_in_forward`](Machine::prefetch_in_forward).
    pub fn prefetch_in_backward(&mut self, unit: usize, targets: &[usize]) -> Result<()> {
        targets.iter().try_for_each(|target| self.check("prefetch_in_backward", *target))?;
        self.unit("prefetch_in_backward", unit)?.backward_targets = Some(targets.to_vec());
        Ok(())
    }

    /// Units that are gathered or about to be.
    pub fn gathered(&self) -> usize {
        self.units.iter().filter(|unit| unit.state != State::Sharded).count()
    }

    /// Whether the full parameters of a unit are there, or a copy of its owner's stands for them.
    pub fn holds(&self, unit: usize) -> bool {
        self.units.get(unit).is_some_and(|unit| unit.state == State::Gathered)
    }

    /// Whether only a copy of its owner's is there.
    pub fn is_copied(&self, unit: usize) -> bool {
        self.units.get(unit).is_some_and(|unit| unit.is_copied)
    }

    /// Of those, the ones that are in use or kept. What is beyond was fetched ahead.
    pub fn wanted(&self) -> usize {
        self.units.iter().filter(|unit| unit.state != State::Sharded && (unit.is_open || unit.is_kept)).count()
    }

    /// Whether gradients of a unit that wait on their ranks after a backward, in full or as parts that replicas have not joined, wait for
    /// nothing that is to come.
    pub(crate) fn is_due(&self, in_full: bool, as_part: bool) -> bool {
        let Settings { is_last_backward, all_reduces, .. } = self.settings;
        is_last_backward && (in_full || (as_part && all_reduces))
    }

    /// Whether more gradients of a unit are to come than those that were just reduced: backward has not come to all that forward has used it
    /// for, or has brought others meanwhile.
    pub(crate) fn is_awaited(&self, unit: usize) -> bool {
        !self.units[unit].positions.is_empty() || self.scattering.is_some_and(|reducing| reducing.unit == unit)
    }

    /// What an event asks for, in this order.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for a unit that there is not, and for an end without its beginning.
    pub fn on(&mut self, event: Event) -> Result<Vec<Action>> {
        let mut actions = Vec::new();
        match event {
            Event::BeforeForward(unit) => self.before_forward(unit, &mut actions)?,
            Event::AfterForward(unit) => self.after_forward(unit, &mut actions)?,
            Event::BeforeBackward(unit) => self.before_backward(unit, &mut actions)?,
            Event::AfterBackward { unit, reduces } => self.after_backward(unit, reduces, &mut actions)?,
            Event::Copied(unit) => self.copied(unit, &mut actions)?,
            Event::BackwardEnd => self.backward_end(&mut actions),
            Event::Skipped(unit) => {
                self.check("skipped", unit)?;
                self.reduce(unit, &mut actions);
                self.end_reductions(&mut actions);
            }
            Event::Unshard(unit) => {
                self.unit("unshard", unit)?.is_kept = true;
                self.gather(unit, &mut actions);
                self.await_gather(unit, &mut actions);
            }
            Event::Reshard(unit) => {
                self.check("reshard", unit)?;
                self.let_go(unit, &mut actions);
            }
            Event::Changed(unit) => {
                self.unit("changed", unit)?.is_stale = true;
                self.let_go(unit, &mut actions);
            }
        }
        Ok(actions)
    }

    fn before_forward(&mut self, unit: usize, actions: &mut Vec<Action>) -> Result<()> {
        self.check("before_forward", unit)?;
        let entered = Use { unit, nth: self.units[unit].positions.len() };
        if let Some(before) = self.entered.replace(entered) {
            self.learn(before, Some(unit).filter(|unit| *unit != before.unit));
        }
        let targets = self.forward_targets(entered);
        self.units[unit].is_in_backward = false;
        self.enter(unit, &targets, actions);
        Ok(())
    }

    fn after_forward(&mut self, unit: usize, actions: &mut Vec<Action>) -> Result<()> {
        self.leave("after_forward", unit)?;
        if self.settings.trains {
            self.units[unit].positions.push(self.order.len());
            self.order.push(unit);
        }
        match self.units[unit].reshard {
            _ if self.units[unit].is_stale => self.release(unit, actions),
            Reshard::No if self.settings.trains => self.units[unit].is_kept = true,
            _ if self.units[unit].is_kept => {}
            // The owner's copy was what was kept: there is nothing to divide.
            _ if self.units[unit].is_copied => self.release(unit, actions),
            Reshard::Smaller if self.settings.trains => {
                actions.push(Action::Narrow(unit));
                (self.units[unit].state, self.units[unit].is_narrow) = (State::Sharded, true);
            }
            _ => self.release(unit, actions),
        }
        Ok(())
    }

    fn before_backward(&mut self, unit: usize, actions: &mut Vec<Action>) -> Result<()> {
        self.check("before_backward", unit)?;
        if let Some(last) = self.entered.take() {
            self.learn(last, None);
        }
        let targets = self.backward_targets(unit);
        self.units[unit].is_in_backward = true;
        self.enter(unit, &targets, actions);
        Ok(())
    }

    fn after_backward(&mut self, unit: usize, reduces: bool, actions: &mut Vec<Action>) -> Result<()> {
        self.leave("gradients", unit)?;
        self.units[unit].is_kept = !self.settings.reshards_after_backward && !self.units[unit].is_stale;
        if !self.units[unit].is_kept {
            self.release(unit, actions);
        }
        if reduces {
            self.reduce(unit, actions);
        }
        Ok(())
    }

    /// Frees a unit while somebody is in it, if it would be freed after that anyway or the owner's copy stands for it; then fetches ahead
    /// what had to wait for that.
    fn copied(&mut self, unit: usize, actions: &mut Vec<Action>) -> Result<()> {
        let reshards_after_backward = self.settings.reshards_after_backward;
        let Unit { reshard, is_open, is_in_backward, is_kept, .. } = *self.unit("copied", unit)?;
        let trains = self.settings.trains;
        let goes = match is_in_backward {
            true => reshards_after_backward,
            false => !is_kept && (reshard == Reshard::Yes || !trains),
        };
        let is_divided = reshard == Reshard::Smaller && !is_in_backward && trains;
        if is_open && goes {
            self.release(unit, actions);
        } else if self.settings.copies && is_open && !is_divided && !self.units[unit].is_copied {
            self.release(unit, actions);
            (self.units[unit].state, self.units[unit].is_copied) = (State::Gathered, true);
        }
        self.look_ahead(unit, actions);
        Ok(())
    }

    fn backward_end(&mut self, actions: &mut Vec<Action>) {
        for unit in 0..self.units.len() {
            self.units[unit].is_open = false;
            self.units[unit].positions.clear();
            if self.settings.reshards_after_backward || !self.units[unit].is_kept {
                self.let_go(unit, actions);
            }
        }
        self.order.clear();
        (self.entered, self.ahead) = (None, None);
        if self.settings.is_last_backward {
            self.end_reductions(actions);
        }
    }

    /// Gathers a unit that is about to be used, and `targets` after it. What was fetched ahead for another way is freed first.
    fn enter(&mut self, unit: usize, targets: &[usize], actions: &mut Vec<Action>) {
        for stale in 0..self.units.len() {
            let Unit { state, is_open, is_kept, .. } = self.units[stale];
            let is_ahead = state != State::Sharded && !is_open && !is_kept;
            if is_ahead && stale != unit && !targets.contains(&stale) {
                self.release(stale, actions);
            }
        }
        // Somebody was in it when its shards changed, and may never have left it.
        if self.units[unit].is_stale {
            self.release(unit, actions);
        }
        self.units[unit].is_open = true;
        self.gather(unit, actions);
        self.await_gather(unit, actions);
        self.ahead = Some((unit, targets.to_vec()));
        if !self.settings.copies {
            self.look_ahead(unit, actions);
        }
    }

    /// Fetches what comes after this unit, if that has not been done. A unit that somebody is in was copied if it is not there.
    fn look_ahead(&mut self, unit: usize, actions: &mut Vec<Action>) {
        let Some((_, targets)) = self.ahead.take_if(|(waits, _)| *waits == unit) else { return };
        for target in targets {
            if !self.units[target].is_open {
                self.gather(target, actions);
            }
        }
    }

    fn leave(&mut self, call: &'static str, unit: usize) -> Result<()> {
        if std::mem::take(&mut self.unit(call, unit)?.is_open) {
            return Ok(());
        }
        Err(Error::usage(call, "unit", unit, "must be one that was entered"))
    }

    fn gather(&mut self, unit: usize, actions: &mut Vec<Action>) {
        let Unit { state, is_narrow, .. } = &mut self.units[unit];
        if *state == State::Sharded {
            *state = State::Gathering;
            actions.push(if std::mem::take(is_narrow) { Action::GatherNarrow(unit) } else { Action::Gather(unit) });
        }
    }

    fn await_gather(&mut self, unit: usize, actions: &mut Vec<Action>) {
        if self.units[unit].state == State::Gathering {
            self.units[unit].state = State::Gathered;
            actions.push(Action::AwaitGather(unit));
        }
    }

    /// Frees what there is of a unit beside its shards.
    fn release(&mut self, unit: usize, actions: &mut Vec<Action>) {
        self.await_gather(unit, actions);
        let Unit { state, is_narrow, is_copied, is_stale, .. } = &mut self.units[unit];
        *is_stale = false;
        if std::mem::take(is_copied) {
            *state = State::Sharded;
        }
        if *state == State::Gathered || *is_narrow {
            (*state, *is_narrow) = (State::Sharded, false);
            actions.push(Action::Release(unit));
        }
    }

    /// Keeps a unit no longer than somebody is in it.
    fn let_go(&mut self, unit: usize, actions: &mut Vec<Action>) {
        self.units[unit].is_kept = false;
        if !self.units[unit].is_open {
            self.release(unit, actions);
        }
    }

    fn reduce(&mut self, unit: usize, actions: &mut Vec<Action>) {
        self.advance_reductions(actions);
        if self.all_reducing == Some(unit) {
            self.finish_all_reduce(actions);
        }
        actions.push(Action::ReduceScatter(unit));
        let all_reduces = self.replicated && self.settings.all_reduces;
        self.scattering = Some(Reducing { unit, all_reduces });
    }

    fn end_reductions(&mut self, actions: &mut Vec<Action>) {
        self.advance_reductions(actions);
        self.finish_all_reduce(actions);
    }

    /// Ends what was begun two units ago, and brings what was begun one unit ago a stage on.
    fn advance_reductions(&mut self, actions: &mut Vec<Action>) {
        self.finish_all_reduce(actions);
        let Some(Reducing { unit, all_reduces }) = self.scattering.take() else { return };
        actions.push(Action::AwaitReduceScatter(unit));
        if all_reduces {
            actions.push(Action::AllReduce(unit));
            self.all_reducing = Some(unit);
        } else if self.replicated {
            actions.push(Action::KeepPartial(unit));
        } else {
            actions.push(Action::Accumulate(unit));
        }
    }

    fn finish_all_reduce(&mut self, actions: &mut Vec<Action>) {
        if let Some(unit) = self.all_reducing.take() {
            actions.extend([Action::AwaitAllReduce(unit), Action::Accumulate(unit)]);
        }
    }

    /// Notes which unit followed a use of one.
    fn learn(&mut self, Use { unit, nth }: Use, next: Option<usize>) {
        let successors = &mut self.units[unit].successors;
        let len = successors.len().max(nth + 1);
        successors.resize(len, next);
        successors[nth] = next;
    }

    fn forward_targets(&self, Use { unit, nth }: Use) -> Vec<usize> {
        if let Some(targets) = &self.units[unit].forward_targets {
            return targets.clone();
        }
        let (mut chain, mut at) = (vec![unit], Use { unit, nth });
        // Units that are used in turns follow each other for ever.
        while chain.len() <= self.depth.forward.min(self.units.len()) {
            let Unit { successors, .. } = &self.units[at.unit];
            let Some(next) = successors.get(at.nth).or(successors.last()).copied().flatten() else { break };
            let uses_on_the_way = chain.iter().filter(|unit| **unit == next).count();
            at = Use { unit: next, nth: self.units[next].positions.len() + uses_on_the_way };
            chain.push(next);
        }
        chain.split_off(1)
    }

    /// The units that ended their forward before this one, the last first.
    fn backward_targets(&mut self, unit: usize) -> Vec<usize> {
        let position = self.units[unit].positions.pop();
        if let Some(targets) = &self.units[unit].backward_targets {
            return targets.clone();
        }
        let before = &self.order[..position.unwrap_or_default()];
        before.iter().rev().take(self.depth.backward).copied().collect()
    }

    fn check(&self, call: &'static str, unit: usize) -> Result<()> {
        if unit < self.units.len() {
            return Ok(());
        }
        Err(Error::usage(call, "unit", unit, format!("must be below {}, the number of units", self.units.len())))
    }

    fn unit(&mut self, call: &'static str, unit: usize) -> Result<&mut Unit> {
        self.check(call, unit)?;
        Ok(&mut self.units[unit])
    }
}
