//! A rank whose process is forked while it has a group and serves a store: the child can use neither, and nobody else notices.

use std::time::{Duration, Instant};

use phalanx_comm::store::{ClientOptions, FileStore, FileStoreOptions, ServerOptions, StoreServer, TcpStore};
use phalanx_core::store::{Store, StoreError};
use phalanx_core::{Group, ReduceOp};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};

use crate::SIZE;
use crate::play::{listen, say};
use crate::world::{Ground, World};

/// Row 46.
#[test]
fn a_forked_child_cannot_use_the_group_and_the_parent_can() {
    for ground in [Ground::Segment, Ground::Tcp] {
        let mut world = World::start_on(ground, "fork", SIZE);
        (0..SIZE).for_each(|rank| world.expect(rank, "ready"));
        world.tell_all("go on");
        for rank in 0..SIZE {
            let refused =
                format!("group: rank {rank} belongs to the process that joined, and this one was forked from it");
            (0..4).for_each(|_| assert_eq!(world.hear(rank, "refused").1, refused));
            world.expect(rank, "child dropped both, and saw 0 connections");
            world.expect(rank, "done");
        }
        world.end();
    }
}

/// Forks, lets the child try everything and end, and goes on.
pub(crate) fn fork(group: Group) {
    let server =
        StoreServer::start(ServerOptions::new("127.0.0.1:0".parse().expect("an address"))).expect("a free port");
    let options = ClientOptions::new(server.address().clone());
    let store = Store::new(TcpStore::connect(options).expect("it is served"));
    let path = std::env::temp_dir().join(format!("phalanx-forked-{}", std::process::id()));
    let file = Store::new(FileStore::open(&path, FileStoreOptions::new()).expect("a file"));
    say("ready");
    listen();
    // SAFETY: the other threads of this process wait, and hold no lock that the child takes.
    match unsafe { nix::unistd::fork() }.expect("memory") {
        nix::unistd::ForkResult::Child => be_refused(group, server, &file),
        nix::unistd::ForkResult::Parent { child } => {
            let child = Pid::from_raw(child.as_raw()).expect("a pid");
            waitpid(Some(child), WaitOptions::empty()).expect("a child");
        }
    }
    for _ in 0..100 {
        let mut data = vec![1_u32; 1000];
        group.all_reduce(&mut data, ReduceOp::Sum).expect("all take part");
        assert!(data.iter().all(|sum| *sum as usize == group.size()));
    }
    store.set("key", "value").expect("it is served as before");
    assert_eq!(server.counts().connections, 1);
    file.set("key", "value").expect("it is this process's as before");
    std::fs::remove_file(path).expect("it is there");
    say("done");
    while !listen().is_empty() {}
}

fn be_refused(group: Group, server: StoreServer, file: &Store) -> ! {
    let calls = [
        group.barrier().map(drop),
        group.all_reduce_async(vec![1_u8; 10], ReduceOp::Sum).and_then(|work| work.wait()).map(drop),
        group.send(&[1_u8], (group.rank() + 1) % group.size(), 0),
        group.buffer(10).map(drop),
    ];
    for call in calls {
        say(&format!("refused {}", call.expect_err("it is the parent's")));
    }
    assert!(matches!(file.set("key", "value"), Err(StoreError::Denied { .. })));
    group.abort("a child said so");
    drop(group);
    // There is no thread to wait for.
    let began = Instant::now();
    let seen = server.counts().connections;
    drop(server);
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    say(&format!("child dropped both, and saw {seen} connections"));
    // Without what a process does at its end, which is the parent's.
    kill_process(getpid(), Signal::KILL).expect("this process");
    unreachable!("killed")
}
