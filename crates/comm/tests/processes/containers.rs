//! Ranks in containers that share the network of this host and no more: each has process numbers of its own. Making PID namespaces takes
//! rights; the tests say so where they are missing.

use std::io::{self, Write};
use std::process::Command;

use phalanx_comm::rendezvous::{World as Members, WorldOptions};
use phalanx_comm::{Door, Processes};
use phalanx_core::ReduceOp;

use crate::play::{PATIENCE, listen, own_number, say, store};
use crate::world::{Ground, World};

/// A command that begins a program in a container of its own, which ends with the command.
pub(crate) fn enter() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command
}

fn are_allowed() -> bool {
    let why = match enter().arg("true").output() {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => format!("unshare: {error}"),
    };
    let line = format!("skipped, because there can be no PID namespaces here: {why}\n");
    io::stderr().write_all(line.as_bytes()).expect("stderr");
    false
}

#[test]
fn ranks_in_containers_with_one_network_form_a_group() {
    if !are_allowed() {
        return;
    }
    let world = World::start_apart(Ground::Tcp, "member", 2);
    for rank in 0..2 {
        assert_eq!(world.hear(rank, "on host").1, format!("{rank} of 2"));
        world.expect(rank, "done");
    }
    world.end();
}

/// What a program asks for that forms its groups itself.
#[test]
fn ranks_that_cannot_see_each_others_processes_share_no_memory() {
    if !are_allowed() {
        return;
    }
    let world = World::start_apart(Ground::Segment, "recluse", 2);
    let (_, why) = world.hear(1, "refused");
    assert!(why.ends_with(" was opened in another PID namespace"), "{why}");
}

/// Forms a world's group, whichever way its bytes then go.
pub(crate) fn member() {
    let (rank, size, door) = own_number();
    let world = Members::join(store(&door), &WorldOptions::new(rank, size).timeout(PATIENCE)).expect("all come");
    say(&format!("on host {} of {}", world.node(), world.nodes()));
    let group = world.group().expect("all come");
    let mut sum = [rank as u32 + 1];
    group.all_reduce(&mut sum, ReduceOp::Sum).expect("all take part");
    assert_eq!(sum, [3]);
    say("done");
    while !listen().is_empty() {}
}

/// Asks for shared memory.
pub(crate) fn recluse() {
    let (rank, size, door) = own_number();
    let joined = Processes::new(rank, size, Door::named(door), [9; 16]).join(PATIENCE);
    say(&format!("refused {}", joined.expect_err("there can be none")));
}
