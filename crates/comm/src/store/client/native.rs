//! A request in our frames: one frame out, one back. One that waits too long is cancelled, and what the server answers to
//! the cancel says whether it had been done.

use std::time::{Duration, Instant};

use phalanx_core::store::wire::native::{Answer, Answers, encode_cancel, encode_request};
use phalanx_core::store::wire::refused_from_wire;
use phalanx_core::store::{Reply, Request};

use super::connection::Connection;
use super::pytorch::reply_limits;
use super::time::Times;
use super::trouble::Trouble;
use crate::moment;

/// Asks `request`, whose keys are those of the wire.
pub(super) fn ask(connection: &mut Connection, request: &Request, times: Times) -> Result<Reply, Trouble> {
    connection.begin();
    let mut answers = Answers::new(&reply_limits());
    let mut frame = Vec::new();
    if let Err(refusal) = encode_request(request, &mut frame) {
        connection.finish();
        return Err(Trouble::Refused(refused_from_wire(refusal)));
    }
    let change = if request.repeats() { 0 } else { frame.len() };
    if let Err(trouble) = connection.send(&frame, change, times.end) {
        return Err(refused_meanwhile(connection, &mut answers, times.end).unwrap_or(trouble));
    }
    let until = if request.waits() { times.wait } else { times.end };
    match connection.receive(until, |bytes| answers.decode(bytes))? {
        Some(answer) => {
            let reply = reply(answer);
            connection.finish();
            reply
        }
        None if request.waits() => cancel(connection, request, answers, times.end),
        None => Err(Trouble::Late),
    }
}

/// Stops waiting. A reply that was on its way counts: it may hold what was taken from a queue.
fn cancel(
    connection: &mut Connection,
    request: &Request,
    mut answers: Answers,
    end: Instant,
) -> Result<Reply, Trouble> {
    let mut frame = Vec::new();
    encode_cancel(&mut frame);
    connection.send(&frame, 0, end)?;
    let until = end.min(moment::after(PATIENCE));
    let mut outcome = None;
    // An answer is kept even if the connection breaks behind it, or another comes that nobody asked for.
    while let Ok(Some(answer)) = connection.receive(until, |bytes| answers.decode(bytes)) {
        if answer == Answer::Cancelled {
            cancelled(connection, request, outcome.is_some());
            break;
        }
        if outcome.is_some() {
            break;
        }
        outcome = Some(reply(answer));
    }
    outcome.unwrap_or(Err(Trouble::Late))
}

/// The exchange is at its end. Without a reply nothing was changed, save that an arrival at a barrier counts all the same.
fn cancelled(connection: &mut Connection, request: &Request, answered: bool) {
    connection.finish();
    if !answered && !matches!(request, Request::Barrier { .. }) {
        connection.undelivered();
    }
}

fn reply(answer: Answer) -> Result<Reply, Trouble> {
    match answer {
        Answer::Answered(answer) => answer.map_err(|refusal| Trouble::Refused(refused_from_wire(refusal))),
        Answer::Cancelled => Err(Trouble::Broken("the server cancelled what nobody cancelled".to_owned())),
    }
}

/// Why the server closed the connection before it had the whole request, if it said so.
fn refused_meanwhile(connection: &mut Connection, answers: &mut Answers, end: Instant) -> Option<Trouble> {
    match connection.last_words(end, |bytes| answers.decode(bytes))? {
        Answer::Answered(Err(refusal)) => Some(Trouble::Refused(refused_from_wire(refusal))),
        _ => None,
    }
}

/// How long a cancel may take to be answered.
const PATIENCE: Duration = Duration::from_millis(100);
