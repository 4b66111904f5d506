//! A server that does what a test tells it, connection by connection.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use phalanx_comm::secure::{Plane, ServerHandshake, ServerStep, Welcome};
use phalanx_comm::store::{ClientOptions, StoreAddress, TcpStore};
use phalanx_core::store::wire::torch::{Decoder, Message, PROBE, encode_cancelled, encode_pong, encode_reply};
use phalanx_core::store::{Asked, ClientId, Limits, Request, StoreError, Table};

/// A listening server that hands each connection, with its number, to a script on a thread of its own.
pub(crate) struct Scripted {
    address: StoreAddress,
    stop: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    thread: Option<JoinHandle<()>>,
}

impl Scripted {
    pub(crate) fn start(script: impl Fn(usize, TcpStream) + Send + Sync + 'static) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = StoreAddress::tcp("127.0.0.1", listener.local_addr().expect("bound").port());
        let (stop, open) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (stopped, kept, script) = (Arc::clone(&stop), Arc::clone(&open), Arc::new(script));
        let thread = thread::spawn(move || accept(&listener, &stopped, &kept, &script));
        Scripted { address, stop, open, thread: Some(thread) }
    }

    pub(crate) fn address(&self) -> StoreAddress {
        self.address.clone()
    }

    pub(crate) fn client(&self) -> TcpStore {
        self.connect(Duration::from_secs(20)).expect("the script greets")
    }

    pub(crate) fn connect(&self, timeout: Duration) -> Result<TcpStore, StoreError> {
        TcpStore::connect(ClientOptions::new(self.address()).timeout(timeout))
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let StoreAddress::Tcp { host, port } = &self.address else { unreachable!("it is a port") };
        // It wakes the listener; scripts end with their connections.
        let _ = TcpStream::connect((host.as_str(), *port));
        self.open.lock().expect("no script holds it").iter().for_each(|stream| {
            let _ = stream.shutdown(Shutdown::Both);
        });
        self.thread.take().into_iter().for_each(|thread| thread.join().expect("no script fails"));
    }
}

fn accept<F: Fn(usize, TcpStream) + Send + Sync + 'static>(
    listener: &TcpListener,
    stop: &AtomicBool,
    open: &Mutex<Vec<TcpStream>>,
    script: &Arc<F>,
) {
    let mut threads = Vec::new();
    for (number, stream) in listener.incoming().enumerate() {
        let stream = stream.expect("a connection");
        if stop.load(Ordering::SeqCst) {
            break;
        }
        open.lock().expect("no script holds it").push(stream.try_clone().expect("another handle"));
        let script = Arc::clone(script);
        threads.push(thread::spawn(move || {
            let other = stream.try_clone().expect("another handle");
            script(number, stream);
            // The list above keeps a handle, which would keep the connection open.
            let _ = other.shutdown(Shutdown::Both);
        }));
    }
    open.lock().expect("no script holds it").iter().for_each(|stream| {
        let _ = stream.shutdown(Shutdown::Both);
    });
    threads.into_iter().for_each(|thread| thread.join().expect("no script fails"));
}

/// Answers the opening of a client as PyTorch's servers do; whether the client was still there.
pub(crate) fn greet(stream: &mut TcpStream) -> bool {
    let mut opening = [0; 10];
    stream.read_exact(&mut opening).is_ok() && stream.write_all(&opening[6..]).is_ok()
}

/// Lets a client in that speaks our frames, as our server does without a key; whether the client was still there.
pub(crate) fn welcome(stream: &mut TcpStream) -> bool {
    let mut opening = [0; 10];
    if stream.read_exact(&mut opening).is_err() || stream.write_all(&(!PROBE).to_le_bytes()).is_err() {
        return false;
    }
    let mut handshake = ServerHandshake::new(None, Plane::Store);
    let mut byte = [0];
    while stream.read_exact(&mut byte).is_ok() {
        if let (_, ServerStep::Claimed(claimant)) = handshake.receive(&byte).expect("a hello") {
            let (answer, _) = claimant.admit(&Welcome { instance: 1, epoch: 0 }).expect("no key is needed");
            return stream.write_all(&answer).is_ok();
        }
    }
    false
}

/// Reads until the client goes.
pub(crate) fn swallow(stream: &mut TcpStream) {
    let mut bytes = [0; 4096];
    while matches!(stream.read(&mut bytes), Ok(1..)) {}
}

/// A server of PyTorch's protocol over a table, whose answers pass through `tamper` on their way out: the bytes of one
/// answer in, whether the connection goes on out.
pub(crate) struct Honest<'a> {
    pub(crate) table: &'a Mutex<Table>,
    pub(crate) client: u64,
    pub(crate) limits: Limits,
    /// Opcodes from here on are unknown.
    pub(crate) knows: u8,
}

impl Honest<'_> {
    pub(crate) fn serve(
        &self,
        stream: &mut TcpStream,
        mut tamper: impl FnMut(&mut TcpStream, &Request, &[u8]) -> bool,
    ) {
        if !greet(stream) {
            return;
        }
        let (mut decoder, mut inbox) = (Decoder::new(self.limits), Vec::new());
        let mut chunk = vec![0; 64 << 10];
        loop {
            while let Some((message, len)) = decoder.decode(&inbox).expect("a well-behaved client") {
                let opcode = inbox[0];
                inbox.drain(..len);
                if opcode >= self.knows || !self.answer(message, stream, &mut tamper) {
                    return;
                }
            }
            match stream.read(&mut chunk) {
                Ok(len @ 1..) => inbox.extend_from_slice(&chunk[..len]),
                _ => return,
            }
        }
    }

    fn answer(
        &self,
        message: Message,
        stream: &mut TcpStream,
        tamper: &mut impl FnMut(&mut TcpStream, &Request, &[u8]) -> bool,
    ) -> bool {
        let mut out = Vec::new();
        let request = match message {
            Message::Ping(nonce) => {
                encode_pong(nonce, &mut out);
                Request::Ping
            }
            Message::CancelWait => {
                encode_cancelled(&mut out);
                Request::Ping
            }
            Message::Request(request) => {
                let asked = self.table.lock().expect("whole").ask(ClientId(self.client), request.clone());
                let Asked::Answered(answer) = asked else { return true };
                if !encode_reply(request.verb(), &answer, &mut out) {
                    return false;
                }
                request
            }
            Message::Validate(_) => return false,
        };
        tamper(stream, &request, &out)
    }
}
