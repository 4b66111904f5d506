//! How often this thread computed with curve points, the costly part of a handshake.
use std::cell::Cell;

use snow::types::{Dh, Random};

/// The count so far.
pub(crate) fn count() -> usize {
    DH_COUNT.get()
}

thread_local! {
    static DH_COUNT: Cell<usize> = const { Cell::new(0) };
}

/// Counts what is computed with curve points by this thread.
pub(crate) struct CountedDh(pub(crate) Box<dyn Dh>);

impl Dh for CountedDh {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn pub_len(&self) -> usize {
        self.0.pub_len()
    }

    fn priv_len(&self) -> usize {
        self.0.priv_len()
    }

    fn set(&mut self, privkey: &[u8]) {
        self.0.set(privkey);
    }

    fn generate(&mut self, rng: &mut dyn Random) -> Result<(), snow::Error> {
        DH_COUNT.set(DH_COUNT.get() + 1);
        self.0.generate(rng)
    }

    fn pubkey(&self) -> &[u8] {
        self.0.pubkey()
    }

    fn privkey(&self) -> &[u8] {
        self.0.privkey()
    }

    fn dh(&self, pubkey: &[u8], out: &mut [u8]) -> Result<(), snow::Error> {
        DH_COUNT.set(DH_COUNT.get() + 1);
        self.0.dh(pubkey, out)
    }
}
