//! What the first rank of a host chooses and tells the others where nobody else hears it: where they meet, and the secret that
//! lets them in.

use phalanx_core::{Error, Result};

use super::Door;

/// A door nobody else knows of, and the token that opens it.
#[derive(Clone, Copy)]
pub(crate) struct Invitation([u8; 2 * HALF]);

impl Invitation {
    pub(crate) fn mint() -> Result<Invitation> {
        let mut bytes = [0; 2 * HALF];
        getrandom::fill(&mut bytes).map_err(|error| Error::setup("random bytes", error))?;
        Ok(Invitation(bytes))
    }

    /// What was told; none if that is no invitation.
    pub(crate) fn told(bytes: &[u8]) -> Option<Invitation> {
        bytes.try_into().ok().map(Invitation)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn door(&self) -> Door {
        let name: String = self.0[..HALF].iter().map(|byte| format!("{byte:02x}")).collect();
        Door::named(format!("phalanx-{name}"))
    }

    pub(crate) fn token(&self) -> [u8; HALF] {
        std::array::from_fn(|at| self.0[HALF + at])
    }
}

const HALF: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_told_comes_to_the_same_door_with_the_same_token() {
        let invitation = Invitation::mint().expect("random bytes");
        let told = Invitation::told(invitation.bytes()).expect("as long");
        assert_eq!((told.door(), told.token()), (invitation.door(), invitation.token()));
        let other = Invitation::mint().expect("random bytes");
        assert!(other.door() != told.door() && other.token() != told.token());
        assert!(Invitation::told(b"").is_none());
        assert!(Invitation::told(&[0; 2 * HALF + 1]).is_none());
    }
}
