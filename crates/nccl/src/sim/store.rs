//! The store of a simulated job: core's table, where whoever waits gives the stage away.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use phalanx_core::store::{Asked, ClientId, Doubt, Home, Limits, Reply, Request, StoreError, Table};

use super::process::SimBell;
use super::stage::Stage;
use crate::api::Bell;

/// One rank's way to the store that all ranks share.
pub(super) struct SimStore {
    pub(super) stage: Arc<Stage>,
    pub(super) rank: usize,
    pub(super) table: Arc<Mutex<Table>>,
    pub(super) changed: SimBell,
}

impl SimStore {
    /// A store's ways for so many ranks.
    pub(super) fn shared(stage: &Arc<Stage>, size: usize) -> Vec<SimStore> {
        let table = Arc::new(Mutex::new(Table::new(Limits::default())));
        let bell = SimBell::new(Arc::clone(stage), 0);
        let way = |rank| SimStore { stage: Arc::clone(stage), rank, table: Arc::clone(&table), changed: bell.of(rank) };
        (0..size).map(way).collect()
    }

    fn try_ask(&self, request: &Request) -> Option<Result<Reply, StoreError>> {
        let verb = request.verb();
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        match table.ask(ClientId(self.rank as u64), request.clone()) {
            Asked::Answered(answer) => Some(answer.map_err(|refusal| StoreError::Refused { verb, refusal })),
            Asked::Waiting(ticket) => {
                table.cancel(ticket);
                None
            }
        }
    }
}

impl Home for SimStore {
    /// Asks again whenever something has changed: barriers, which count each time they are asked, are not for this store.
    fn ask(&self, request: Request, timeout: Duration) -> Result<Reply, StoreError> {
        let (verb, until) = (request.verb(), self.stage.enter(self.rank).now + timeout);
        loop {
            let seen = self.changed.count();
            // Whoever reads what is written here comes after whoever wrote it, even before that one rings: what is known goes into the bell
            // before the table is asked, and is taken from its count after.
            self.changed.tell();
            let stalls = {
                let state = self.stage.look();
                state.engine.store_stalls(self.rank, state.now)
            };
            if stalls.is_none()
                && let Some(answer) = self.try_ask(&request)
            {
                self.changed.count();
                self.changed.ring();
                return answer;
            }
            if self.stage.look().now >= until {
                let (keys, detail, doubt) = (Vec::new(), self.describe(), Doubt::None);
                return Err(StoreError::Timeout { verb, after: timeout, keys, detail, doubt });
            }
            self.changed.wait(seen, Some(stalls.map_or(until, |end| end.min(until))));
        }
    }

    fn describe(&self) -> String {
        "the simulated store".to_owned()
    }
}
