//! Any bytes in any pieces to the decoders of the store's two dialects, on the server's side and on the client's, and what
//! the server understands on to a small table.
//!
//! The first byte of an input chooses the side, the second the pieces; the rest is what arrives. Nothing may panic, the cuts
//! may not matter, what was read is written again as the same message, and the table stays within its limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use phalanx_core::store::wire::{Malformed, native, torch};
use phalanx_core::store::{Asked, ClientId, Limits, Refusal, Reply, Request, Table};

fuzz_target!(|input: &[u8]| {
    let [side, pieces, bytes @ ..] = input else { return };
    match side % 4 {
        0 => torch_server(bytes, *pieces),
        1 => native_server(bytes, *pieces),
        2 => torch_client(bytes, *pieces),
        _ => native_client(bytes, *pieces),
    }
});

fn torch_server(bytes: &[u8], pieces: u8) {
    let mut decoder = torch::Decoder::new(limits());
    let messages = read(bytes, pieces, |bytes| decoder.decode(bytes));
    let mut whole = torch::Decoder::new(limits());
    assert_eq!(messages, read(bytes, WHOLE, |bytes| whole.decode(bytes)), "the cuts matter");
    let mut shop = Shop::new();
    for message in messages {
        match message {
            torch::Message::Request(request) => {
                let mut again = Vec::new();
                torch::encode_request(&request, &mut again);
                let read = torch::Decoder::new(limits()).decode(&again);
                assert_eq!(read, Ok(Some((torch::Message::Request(request.clone()), again.len()))));
                let verb = request.verb();
                for answer in shop.ask(request) {
                    // What has no encoding closes the connection; nothing may be half written.
                    let mut out = Vec::new();
                    assert!(torch::encode_reply(verb, &answer, &mut out) || out.is_empty());
                }
            }
            torch::Message::CancelWait => shop.cancel(),
            torch::Message::Validate(_) | torch::Message::Ping(_) => {}
        }
    }
}

fn native_server(bytes: &[u8], pieces: u8) {
    let mut decoder = native::Decoder::new(limits());
    let messages = read(bytes, pieces, |bytes| decoder.decode(bytes));
    assert_eq!(messages, read(bytes, WHOLE, |bytes| decoder.decode(bytes)), "the cuts matter");
    let mut shop = Shop::new();
    for message in messages {
        match message {
            native::Message::Request(request) => {
                let mut again = Vec::new();
                native::encode_request(&request, &mut again).expect("as long as it was");
                let read = native::Decoder::new(limits()).decode(&again);
                assert_eq!(read, Ok(Some((native::Message::Request(request.clone()), again.len()))));
                shop.ask(request).into_iter().for_each(travels);
            }
            native::Message::Refuse(refusal) => travels(Err(refusal)),
            native::Message::Cancel => shop.cancel(),
        }
    }
}

fn torch_client(bytes: &[u8], pieces: u8) {
    for request in questions() {
        let mut answer = torch::Answer::to(&request);
        let replies = read(bytes, pieces, |bytes| once(answer.decode(bytes, &limits())));
        let mut whole = torch::Answer::to(&request);
        assert_eq!(replies, read(bytes, WHOLE, |bytes| once(whole.decode(bytes, &limits()))), "the cuts matter");
        for (reply, _) in replies {
            let mut again = Vec::new();
            assert!(torch::encode_reply(request.verb(), &Ok(reply.clone()), &mut again), "{reply:?}");
            let read = torch::Answer::to(&request).decode(&again, &limits());
            assert_eq!(read, Ok(Some((reply, again.len()))));
        }
    }
}

fn native_client(bytes: &[u8], pieces: u8) {
    let mut answers = native::Answers::new(&limits());
    let read_all = read(bytes, pieces, |bytes| answers.decode(bytes));
    assert_eq!(read_all, read(bytes, WHOLE, |bytes| answers.decode(bytes)), "the cuts matter");
    for answer in read_all {
        if let native::Answer::Answered(answer) = answer {
            travels(answer);
        }
    }
}

/// An answer comes back as it was sent, or as the refusal that it is too long.
fn travels(answer: Result<Reply, Refusal>) {
    let answer = native::Answer::Answered(answer);
    let mut out = Vec::new();
    native::encode_answer(&answer, &limits(), &mut out);
    let roomy = Limits::default();
    let read = native::Answers::new(&roomy).decode(&out).expect("well formed").expect("whole");
    let too_long = matches!(read.0, native::Answer::Answered(Err(Refusal::MessageTooLong { .. })));
    assert!(read == (answer, out.len()) || too_long, "{read:?}");
}

/// Everything that `decode` finds, handed what arrived in pieces.
fn read<T>(bytes: &[u8], pieces: u8, mut decode: impl FnMut(&[u8]) -> Result<Option<(T, usize)>, Malformed>) -> Vec<T> {
    let (mut begin, mut end, mut state, mut found) = (0, 0, pieces, Vec::new());
    loop {
        while let Some((message, len)) = match decode(&bytes[begin..end]) {
            Ok(message) => message,
            Err(_) => return found,
        } {
            assert!(len <= end - begin, "took {len} of {} bytes", end - begin);
            begin += len;
            found.push(message);
            if len == 0 {
                return found;
            }
        }
        if end == bytes.len() {
            return found;
        }
        state = state.wrapping_mul(5).wrapping_add(3);
        let step = if pieces == WHOLE || state % 4 == 0 { bytes.len() } else { usize::from(state / 8) };
        end = bytes.len().min(end + step.max(1));
    }
}

/// The first answer only, marked by its length, which may be 0: then it would be found for ever.
fn once(answer: Result<Option<(Reply, usize)>, Malformed>) -> Result<Option<((Reply, usize), usize)>, Malformed> {
    Ok(answer?.map(|(reply, len)| ((reply, len), 0)))
}

/// A table with one client, which waits for one thing at a time.
struct Shop {
    table: Table,
    waits: Option<phalanx_core::store::Ticket>,
}

impl Shop {
    fn new() -> Shop {
        Shop { table: Table::new(limits()), waits: None }
    }

    /// Asks, and returns every answer that this brings.
    fn ask(&mut self, request: Request) -> Vec<Result<Reply, Refusal>> {
        self.cancel();
        let mut answers = Vec::new();
        match self.table.ask(ClientId(1), request) {
            Asked::Answered(answer) => answers.push(answer),
            Asked::Waiting(ticket) => self.waits = Some(ticket),
        }
        while let Some((_, ticket, answer)) = self.table.woken() {
            assert_eq!(self.waits.take(), Some(ticket), "nobody else waits");
            answers.push(answer);
        }
        assert!(self.table.byte_len() <= TOTAL, "{} bytes", self.table.byte_len());
        assert_eq!(self.table.waiting(), usize::from(self.waits.is_some()));
        answers
    }

    fn cancel(&mut self) {
        if let Some(ticket) = self.waits.take() {
            assert!(self.table.cancel(ticket));
        }
    }
}

fn questions() -> [Request; 9] {
    let key = || b"k".as_slice().into();
    [
        Request::Get { keys: vec![key()], wait: false },
        Request::Get { keys: vec![key(), key(), key()], wait: false },
        Request::Wait { keys: vec![key()] },
        Request::Check { keys: vec![key()] },
        Request::Add { key: key(), delta: 1 },
        Request::Delete { key: key() },
        Request::Pop { key: key(), wait: false },
        Request::ListKeys,
        Request::CompareSet { key: key(), expected: Default::default(), desired: Default::default() },
    ]
}

fn limits() -> Limits {
    Limits::default().key(64).value(256).keys(16).message(1024).client(TOTAL).total(TOTAL)
}

const TOTAL: usize = 4096;
/// Pieces that are none: everything at once.
const WHOLE: u8 = 255;
