//! The dissemination barrier: in step k every member tells the one 2^k after it that it has come.

use super::draft::Draft;
use super::team::Team;
use super::{Recv, Send, Then};

/// No member leaves before every member has come.
pub(super) fn disseminate(draft: &mut Draft, team: &Team) {
    let (told, heard) = (draft.scratch(1), draft.scratch(1));
    let mut distance = 1;
    while distance < team.len() {
        draft.swap(
            Send { to: team.rank(team.after(distance)), span: told },
            Recv { from: team.rank(team.before(distance)), span: heard, then: Then::Store },
        );
        distance *= 2;
    }
}
