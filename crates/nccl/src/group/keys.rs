//! The keys under which PyTorch's ranks find a communicator's id, so that its ranks and ours can share one.

use phalanx_core::store::Store;

/// The keys of a group of PyTorch on its device, in the store of a job as PyTorch sees it.
///
/// The default group is `0`, and each `new_group` has the next number, counted on every rank whether or not it is a member; its keys lie
/// below those of the default group.
pub fn torch_keys(store: &Store, group: usize) -> Store {
    let default = store.scope("/default_pg").scope("0");
    let own = if group == 0 { default } else { default.scope(&format!("/{group}")) };
    own.scope("/cuda").scope("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_comm::store::LocalStore;

    #[test]
    fn keys_are_those_of_pytorch() {
        let store = Store::new(LocalStore::default());
        torch_keys(&store, 0).set("0", "id").expect("stored");
        torch_keys(&store, 1).set("0:1", "id").expect("stored");
        let keys = store.list_keys().expect("listed");
        assert_eq!(keys, ["/default_pg/0//1//cuda//0:1", "/default_pg/0//cuda//0"]);
    }
}
