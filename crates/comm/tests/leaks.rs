//! What a world leaves behind when it ends: no thread, no shared memory, and no socket. In a process of its own, because it counts
//! them.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use phalanx_comm::store::LocalStore;
use phalanx_comm::{Door, Network, Processes, Threads};
use phalanx_core::store::{Limits, Store};
use phalanx_core::{Group, GroupOptions, ReduceOp};

/// What a rank does before its world ends.
type End = fn(Group);

/// How a world ends, on each rank.
const ENDS: &[(&str, End)] = &[
    ("all is waited for", |group| {
        let work = group.all_reduce_async(vec![1_u32; 100], ReduceOp::Sum).unwrap();
        assert_eq!(work.wait().unwrap(), [3; 100]);
    }),
    ("work is dropped", |group| {
        (0..20).for_each(|_| drop(group.all_reduce_async(vec![1_u32; 10_000], ReduceOp::Sum).unwrap()));
    }),
    ("work is leaked", |group| {
        (0..20).for_each(|_| std::mem::forget(group.barrier_async().unwrap()));
    }),
    ("work outlives the group", |group| {
        let work = group.all_reduce_async(vec![1_u32; 10], ReduceOp::Sum).unwrap();
        drop(group);
        assert_eq!(work.wait().unwrap(), [3; 10]);
    }),
    ("everybody waits for a message that nobody sends", |group| {
        drop(group.recv_async(vec![0_u8], (group.rank() + 1) % 3, 0).unwrap());
        drop(group.recv_async(vec![0_u8], None, 1).unwrap());
    }),
    ("long messages are never asked for", |group| {
        drop(group.send_async(vec![0_u8; 1 << 20], (group.rank() + 1) % 3, 0).unwrap());
    }),
    ("a rank leaves out its part", |group| {
        if group.rank() != 1 {
            drop(group.barrier_async().unwrap());
        }
    }),
    ("a rank aborts", |group| {
        let work = group.recv_async(vec![0_u8], None, 0).unwrap();
        if group.rank() == 2 {
            group.abort("planted");
        }
        work.wait().unwrap_err();
    }),
    ("a rank panics", |group| {
        let work = group.barrier_async().unwrap();
        if group.rank() == 0 {
            std::panic::panic_any("planted");
        }
        let _ = work.wait();
    }),
    ("all ranks panic", |group| {
        std::mem::forget(group.recv_async(vec![0_u8], None, 0).unwrap());
        std::panic::panic_any("planted");
    }),
];

#[test]
fn no_thread_segment_or_socket_outlives_its_world() {
    BEFORE.get_or_init(open_sockets);
    for (what, end) in ENDS {
        for windows in [true, false] {
            // Operations may take an hour: no thread ends because its time is up.
            let options = GroupOptions::default().timeout(Duration::from_secs(3600));
            let world = Threads::new(3).windows(windows).options(options);
            let _ = catch_unwind(AssertUnwindSafe(|| world.run(end)));
            nothing_stays(what);
        }
    }
    for (number, (what, end)) in ENDS.iter().enumerate() {
        in_a_segment(number, *end);
        nothing_stays(what);
    }
    for (what, end) in ENDS {
        over_tcp(false, *end);
        nothing_stays(what);
        over_tcp(true, *end);
        nothing_stays(what);
    }
}

/// Lets each rank of a world meet the others and end, as processes do.
fn in_a_segment(world: usize, end: End) {
    let door = Door::named(format!("phalanx-leaks-{}-{world}", std::process::id()));
    let rank = |rank| {
        let options = GroupOptions::default().timeout(Duration::from_secs(3600));
        let group = Processes::new(rank, 3, door.clone(), [1; 16]).options(options).join(Duration::from_secs(30));
        let group = group.expect("a world");
        let _ = catch_unwind(AssertUnwindSafe(|| end(group)));
    };
    thread::scope(|scope| {
        let rank = &rank;
        (0..3).for_each(|number| drop(scope.spawn(move || rank(number))));
    });
}

/// Lets each rank of a world connect to the others and end, as processes do; where told, they share memory besides.
fn over_tcp(shared_memory: bool, end: End) {
    let store = Store::new(LocalStore::new(Limits::default()));
    let rank = |rank| {
        let options = GroupOptions::default().timeout(Duration::from_secs(3600));
        let group = Network::new(rank, 3, store.clone())
            .shared_memory(shared_memory)
            .options(options)
            .join(Duration::from_secs(30));
        let group = group.expect("a world");
        let _ = catch_unwind(AssertUnwindSafe(|| end(group)));
    };
    thread::scope(|scope| {
        let rank = &rank;
        (0..3).for_each(|number| drop(scope.spawn(move || rank(number))));
    });
}

fn nothing_stays(what: &str) {
    let began = Instant::now();
    while threads() + mappings() + sockets() > 0 {
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "{} threads, {} segments and {} sockets stay: {what}",
            threads(),
            mappings(),
            sockets()
        );
        thread::yield_now();
    }
}

/// The shared segments that this process maps.
fn mappings() -> usize {
    let maps = fs::read_to_string("/proc/self/maps").expect("the mappings of this process");
    maps.lines().filter(|line| line.contains("memfd:phalanx")).count()
}

/// The sockets, and what waits for them, that this process has open and did not have before.
fn sockets() -> usize {
    open_sockets().saturating_sub(*BEFORE.get().expect("counted"))
}

/// What this process was started with.
static BEFORE: OnceLock<usize> = OnceLock::new();

fn open_sockets() -> usize {
    let open = fs::read_dir("/proc/self/fd").expect("the descriptors of this process");
    let targets = open.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
    let is_ours = |target: &String| ["socket:", "eventpoll", "eventfd"].iter().any(|kind| target.contains(kind));
    targets.map(|target| target.display().to_string()).filter(is_ours).count()
}

/// The threads of worlds in this process.
fn threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("the threads of this process");
    // A thread may end between the list and the look at it.
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| ["phalanx-lane", "phalanx-watch", "phalanx-keeper"].contains(&name.trim_end())).count()
}
