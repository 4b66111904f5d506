//! Datagrams that are encrypted one by one under a key that both sides have: each may be lost, and none is taken twice or
//! after a later one. How the key came to both is not known here.

use snow::params::CipherChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::Cipher;

use super::noise::TAG;

/// The key of one direction between two processes.
pub(crate) type DatagramKey = [u8; 32];

/// The side that sends.
pub(crate) struct DatagramSealer {
    cipher: Box<dyn Cipher>,
    count: u64,
}

/// The side that receives.
pub(crate) struct DatagramOpener {
    cipher: Box<dyn Cipher>,
    /// The number of the first datagram that is not too old.
    next: u64,
}

impl DatagramSealer {
    /// Seals under this key, which no other sealer may have.
    pub(crate) fn new(key: &DatagramKey) -> Option<DatagramSealer> {
        Some(DatagramSealer { cipher: cipher(key)?, count: 0 })
    }

    /// The datagram that carries these bytes.
    pub(crate) fn seal(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut datagram = self.count.to_le_bytes().to_vec();
        datagram.resize(COUNT + plain.len() + TAG, 0);
        self.cipher.encrypt(self.count, &[], plain, &mut datagram[COUNT..]);
        // One a nanosecond would last for centuries.
        self.count += 1;
        datagram
    }
}

impl DatagramOpener {
    /// Opens what was sealed under this key.
    pub(crate) fn new(key: &DatagramKey) -> Option<DatagramOpener> {
        Some(DatagramOpener { cipher: cipher(key)?, next: 0 })
    }

    /// What this datagram carries; nothing where it is none of the other side's, or not newer than the last.
    pub(crate) fn open(&mut self, datagram: &[u8]) -> Option<Vec<u8>> {
        let (count, sealed) = datagram.split_first_chunk::<COUNT>()?;
        let count = u64::from_le_bytes(*count);
        let after = count.checked_add(1).filter(|_| count >= self.next)?;
        let mut plain = vec![0; sealed.len().checked_sub(TAG)?];
        self.cipher.decrypt(count, &[], sealed, &mut plain).ok()?;
        self.next = after;
        Some(plain)
    }
}

fn cipher(key: &DatagramKey) -> Option<Box<dyn Cipher>> {
    let mut cipher = DefaultResolver.resolve_cipher(&CipherChoice::ChaChaPoly)?;
    cipher.set(key);
    Some(cipher)
}

/// The bytes of a datagram's number, which stands in front.
const COUNT: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> (DatagramSealer, DatagramOpener) {
        let key = [7; 32];
        (DatagramSealer::new(&key).expect("built in"), DatagramOpener::new(&key).expect("built in"))
    }

    #[test]
    fn datagrams_are_taken_once_and_in_order_whichever_are_lost() {
        let (mut sealer, mut opener) = ends();
        let sent: Vec<_> = (0..4_u8).map(|at| sealer.seal(&[at; 3])).collect();
        assert_eq!(opener.open(&sent[0]), Some(vec![0; 3]));
        assert_eq!(opener.open(&sent[0]), None, "taken before");
        assert_eq!(opener.open(&sent[2]), Some(vec![2; 3]));
        assert_eq!(opener.open(&sent[1]), None, "older than the last");
        assert_eq!(opener.open(&sent[3]), Some(vec![3; 3]));
        assert_eq!(opener.open(&sealer.seal(&[])), Some(vec![]));
    }

    #[test]
    fn any_other_bytes_are_nothing_and_change_nothing() {
        let (mut sealer, mut opener) = ends();
        let sent = sealer.seal(b"beat");
        for bit in 0..sent.len() * 8 {
            let mut changed = sent.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(opener.open(&changed), None);
        }
        (0..sent.len()).for_each(|len| assert_eq!(opener.open(&sent[..len]), None));
        let last = [&u64::MAX.to_le_bytes()[..], &[0; TAG]].concat();
        assert_eq!(opener.open(&last), None);
        let mut stranger = DatagramSealer::new(&[8; 32]).expect("built in");
        assert_eq!(opener.open(&stranger.seal(b"beat")), None);
        assert_eq!(opener.open(&sent), Some(b"beat".to_vec()));
    }
}
