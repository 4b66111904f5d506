//! Keys as users know them and as they travel. PyTorch puts a slash before each, and so do we, so that both see the same keys.

use crate::store::{Key, Refusal, Reply};

/// The key as it travels.
pub fn to_wire(key: &Key) -> Key {
    [PREFIX, key.as_bytes()].concat().as_slice().into()
}

/// The reply with its keys as users know them. Keys that are no user's, such as PyTorch's `init/`, are dropped.
pub fn from_wire(reply: Reply) -> Reply {
    match reply {
        Reply::Keys(keys) => Reply::Keys(keys.iter().filter_map(user_key).collect()),
        other => other,
    }
}

/// The refusal with its keys as users know them.
pub fn refused_from_wire(mut refusal: Refusal) -> Refusal {
    match &mut refusal {
        Refusal::ValueTooLong { key, .. } | Refusal::NotANumber { key, .. } | Refusal::Overflow { key, .. } => {
            *key = user_key(key).unwrap_or_else(|| key.clone());
        }
        Refusal::KeyTooLong { len, limit, start } => {
            // The slash takes one of the bytes that are allowed.
            if let Some(rest) = start.strip_prefix('/') {
                *start = rest.to_owned();
                (*len, *limit) = (len.saturating_sub(1), limit.saturating_sub(1));
            }
        }
        _ => {}
    }
    refusal
}

fn user_key(key: &Key) -> Option<Key> {
    key.as_bytes().strip_prefix(PREFIX).map(Key::from)
}

const PREFIX: &[u8] = b"/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_as_they_went() {
        for text in ["", "k", "/", "a/b"] {
            let key = Key::from(text);
            assert_eq!(to_wire(&key).as_bytes(), format!("/{text}").as_bytes());
            assert_eq!(from_wire(Reply::Keys(vec![to_wire(&key)])), Reply::Keys(vec![key]));
        }
    }

    #[test]
    fn keys_of_no_user_are_dropped() {
        let listed = Reply::Keys(vec!["init/".into(), "/a".into()]);
        assert_eq!(from_wire(listed), Reply::Keys(vec!["a".into()]));
        assert_eq!(from_wire(Reply::Number(2)), Reply::Number(2));
    }

    #[test]
    fn refusals_name_the_users_key() {
        let refusal = Refusal::NotANumber { key: "/ctr".into(), start: "abc".into() };
        assert_eq!(refused_from_wire(refusal), Refusal::NotANumber { key: "ctr".into(), start: "abc".into() });
        let refusal = Refusal::KeyTooLong { len: 9, limit: 8, start: "/abc".into() };
        assert_eq!(refused_from_wire(refusal), Refusal::KeyTooLong { len: 8, limit: 7, start: "abc".into() });
    }
}
