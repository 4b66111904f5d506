//! Several nodes, each a launcher of its own on this machine: they start together, fail together, and tell the same verdict.

use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::{fs, io::Write};

use rustix::process::Signal;

use crate::job::{Ended, Job, Running, kill, until};

/// What all nodes of a job share: where they meet, and the key.
struct Cluster {
    endpoint: String,
    key: PathBuf,
}

impl Cluster {
    fn new() -> Cluster {
        // Somebody else may take the port in between; nothing but luck helps against that.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        let key =
            std::env::temp_dir().join(format!("phalanx-key-{}-{}", std::process::id(), endpoint.replace(':', "-")));
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&key).unwrap();
        writeln!(file, "{}", "5a".repeat(32)).unwrap();
        Cluster { endpoint, key }
    }

    /// Starts a script on one node of `nodes`.
    fn node(&self, node: usize, nodes: usize, ranks: usize, flags: &[&str], script: &str) -> Running {
        let (node, nodes) = (node.to_string(), nodes.to_string());
        let place = ["--nnodes", &nodes, "--node-rank", &node, "--rdzv-endpoint", &self.endpoint];
        let key = ["--key-file", self.key.to_str().unwrap()];
        Job::new().start(ranks, &[&place[..], &key, flags].concat(), script)
    }

    /// What a node has said of itself to the others, once it has.
    fn card(&self, job: &Job, node: usize) -> Vec<u8> {
        let mut card = job.marked(env!("CARGO_BIN_EXE_phalanx"));
        let key = format!("launcher/0/node/{node}");
        card.args(["store", "get", &self.endpoint, &key, "--timeout", "30", "--key-file"]);
        let card = card.arg(&self.key).output().unwrap();
        assert!(card.status.success(), "{card:?}");
        card.stdout
    }

    fn both(&self, flags: &[&str], script: &str) -> [Running; 2] {
        [self.node(0, 2, 2, flags, script), self.node(1, 2, 2, flags, script)]
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.key);
    }
}

/// Waits for the end of a node, of which nothing may be left.
fn end(node: Running) -> Ended {
    let (job, ended) = node.end();
    job.assert_nothing_left();
    ended
}

#[test]
fn ranks_are_numbered_over_all_nodes_and_meet_in_one_store() {
    let cluster = Cluster::new();
    let script = r#"store() { verb=$1; shift; "$PHALANX" store $verb $PHALANX_STORE "$@"; }
        store set from.$RANK "$LOCAL_RANK of $LOCAL_WORLD_SIZE on $GROUP_RANK of $GROUP_WORLD_SIZE" || exit 5
        echo "$WORLD_SIZE $TORCHELASTIC_USE_AGENT_STORE $MASTER_ADDR $MASTER_PORT"
        for rank in 0 1 2; do echo "$rank: $(store get from.$rank)"; done"#;
    let first = cluster.node(0, 2, 1, &[], script);
    let second = cluster.node(1, 2, 2, &[], script);
    let (first, second) = (end(first), end(second));
    assert_eq!((first.code, second.code), (Some(0), Some(0)), "{}{}", first.stderr, second.stderr);
    let of_rank = |text: &str, rank: usize| -> Vec<String> {
        text.lines().filter_map(|line| line.strip_prefix(&format!("[{rank}] "))).map(str::to_owned).collect()
    };
    let expected = ["0: 0 of 1 on 0 of 2", "1: 0 of 2 on 1 of 2", "2: 1 of 2 on 1 of 2"];
    let master = of_rank(&first.stdout, 0)[0].clone();
    assert!(master.starts_with("3 True 127.0.0.1 "), "{master}");
    for lines in [of_rank(&first.stdout, 0), of_rank(&second.stdout, 1), of_rank(&second.stdout, 2)] {
        assert_eq!(lines[0], master);
        assert_eq!(lines[1..], expected);
    }
}

#[test]
fn a_first_node_that_listens_everywhere_is_named_as_the_others_have_found_it() {
    let cluster = Cluster::new();
    let port = cluster.endpoint.rsplit(':').next().unwrap();
    let at = |host: &str| Cluster { endpoint: format!("{host}:{port}"), key: cluster.key.clone() };
    let (everywhere, one) = (at("0.0.0.0"), at("127.0.0.2"));
    let first = everywhere.node(0, 2, 1, &[], "echo $MASTER_ADDR");
    let second = one.node(1, 2, 1, &[], "echo $MASTER_ADDR");
    let (first, second) = (end(first), end(second));
    assert_eq!((first.code, second.code), (Some(0), Some(0)), "{}{}", first.stderr, second.stderr);
    assert_eq!((first.stdout.as_str(), second.stdout.as_str()), ("[0] 127.0.0.1\n", "[1] 127.0.0.2\n"));
}

/// What a node knows travels as one value, and a store takes no value without end.
#[test]
fn error_reports_without_end_are_cut() {
    let cluster = Cluster::new();
    let script = r#"trap '' TERM
        printf '{"message": {"message": "bad input: ' > "$TORCHELASTIC_ERROR_FILE"
        { head -c 900000 /dev/zero | tr '\0' x; printf '"}}'; } >> "$TORCHELASTIC_ERROR_FILE"
        exit 1"#;
    let (first, second) = (cluster.node(0, 2, 1, &[], script), cluster.node(1, 2, 10, &[], script));
    for ended in [first, second].map(end) {
        assert_eq!(ended.code, Some(1));
        let verdict = ended.verdict();
        assert!(verdict.contains(" gave up after ") && verdict.contains("xxx ... (host "), "{verdict}");
    }
}

#[test]
fn a_failure_on_one_node_stops_all_and_every_node_tells_it() {
    let cluster = Cluster::new();
    let nodes = cluster.both(&[], "[ $RANK = 3 ] || exec sleep 1000; echo the reason >&2; exit 3");
    for ended in nodes.map(end) {
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        assert!(ended.verdict().starts_with("phalanx: rank 3 failed: exit code 3 after "), "{}", ended.stderr);
        assert!(ended.verdict().ends_with("; 3 other ranks were stopped"), "{}", ended.stderr);
        assert!(ended.stderr.ends_with("    the reason\n"), "{}", ended.stderr);
    }
}

#[test]
fn all_nodes_start_again_in_step() {
    let cluster = Cluster::new();
    let script = "echo epoch $PHALANX_EPOCH; [ $RANK != 2 ] || [ $PHALANX_EPOCH = 2 ] || exit 7";
    for (node, ended) in cluster.both(&["--max-restarts", "2"], script).map(end).into_iter().enumerate() {
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let told: Vec<&str> = ended.stderr.lines().collect();
        assert!(told[0].starts_with("phalanx: rank 2 failed: exit code 7"), "{}", ended.stderr);
        assert!(told.iter().all(|line| line.contains("starting again")), "{}", ended.stderr);
        assert_eq!(told.len(), 2, "{}", ended.stderr);
        // In the epochs before, ranks may have been stopped before they came to say it.
        for rank in [2 * node, 2 * node + 1] {
            assert!(ended.stdout.contains(&format!("[{rank}] epoch 2\n")), "{}", ended.stdout);
        }
    }
}

#[test]
fn ranks_that_never_joined_are_named_across_nodes() {
    let cluster = Cluster::new();
    let script = r#"[ $RANK != 2 ] || exec sleep 1000
        echo '{"message": "rank 2 is missing", "missing": [2]}' > "$PHALANX_ERROR_FILE"; exit 1"#;
    for ended in cluster.both(&[], script).map(end) {
        let verdict = ended.verdict();
        assert!(verdict.starts_with("phalanx: rank 2 never joined the world within "), "{verdict}");
        assert!(verdict.contains("3 of 4 ranks came (missing: 2); rank 2 was still running"), "{verdict}");
    }
}

#[test]
fn a_signal_to_one_node_ends_all() {
    let cluster = Cluster::new();
    let [mut first, mut second] = cluster.both(&["--max-restarts", "5"], "echo ready; exec sleep 1000");
    first.lines(2);
    second.lines(2);
    kill(second.guard(), Signal::INT);
    let (first, second) = (end(first), end(second));
    assert_eq!((first.code, second.code), (Some(1), Some(130)), "{}{}", first.stderr, second.stderr);
    assert!(first.verdict().starts_with("phalanx: node 1 (host "), "{}", first.stderr);
    assert!(first.verdict().ends_with(") was ended by SIGINT"), "{}", first.stderr);
    assert!(second.stderr.contains("ended by SIGINT: 2 ranks ended"), "{}", second.stderr);
}

#[test]
fn a_signal_to_a_node_whose_ranks_have_ended_ends_all() {
    let cluster = Cluster::new();
    let script = "echo ready; [ $RANK = 1 ] || exec sleep 1000";
    let mut first = cluster.node(0, 2, 1, &["--max-restarts", "5"], script);
    let mut second = cluster.node(1, 2, 1, &["--max-restarts", "5"], script);
    first.lines(1);
    second.lines(1);
    until("only guard and launcher are left", || second.job.census().len() == 2);
    kill(second.guard(), Signal::INT);
    let (first, second) = (end(first), end(second));
    assert_eq!((first.code, second.code), (Some(1), Some(130)), "{}{}", first.stderr, second.stderr);
    assert!(first.verdict().ends_with(") was ended by SIGINT"), "{}", first.stderr);
}

#[test]
fn a_node_whose_guard_is_killed_ends_all() {
    let cluster = Cluster::new();
    let [mut first, mut second] = cluster.both(&["--max-restarts", "5"], "echo ready; exec sleep 1000");
    first.lines(2);
    second.lines(2);
    kill(second.guard(), Signal::KILL);
    second.child.wait().unwrap();
    second.job.assert_nothing_left();
    let first = end(first);
    assert_eq!(first.code, Some(1), "{}", first.stderr);
    assert!(first.verdict().ends_with("): the process of `phalanx run` was killed"), "{}", first.stderr);
}

/// Rank 0 fails at once when rank 1 ends, as ranks that work together do.
#[test]
fn who_fails_because_a_node_left_is_not_the_cause() {
    for (signal, why) in
        [(Signal::KILL, "): the process of `phalanx run` was killed"), (Signal::TERM, ") was ended by SIGTERM")]
    {
        let cluster = Cluster::new();
        let fifo = cluster.key.with_extension("fifo");
        let fifo = fifo.to_str().unwrap();
        let script = format!(
            "mkfifo {fifo} 2> /dev/null; [ $RANK = 0 ] || {{ exec 3> {fifo}; echo ready; exec sleep 1000; }}
            exec 3< {fifo}; echo ready; read line <&3; exit 1"
        );
        let mut first = cluster.node(0, 2, 1, &["--max-restarts", "5"], &script);
        let mut second = cluster.node(1, 2, 1, &["--max-restarts", "5"], &script);
        first.lines(1);
        second.lines(1);
        kill(second.guard(), signal);
        let first = end(first);
        second.child.wait().unwrap();
        second.job.assert_nothing_left();
        fs::remove_file(fifo).unwrap();
        assert!(first.verdict().starts_with("phalanx: node 1 (host "), "{}", first.stderr);
        assert!(first.verdict().ends_with(why), "{}", first.stderr);
    }
}

#[test]
fn a_node_that_cannot_start_its_ranks_tells_all_why() {
    let cluster = Cluster::new();
    let first = cluster.node(0, 2, 1, &["--max-restarts", "5"], "exec sleep 1000");
    let second = cluster.node(1, 2, 1, &["--max-restarts", "5", "--log-dir", "/dev/null/logs"], "exec sleep 1000");
    let (first, second) = (end(first), end(second));
    assert_eq!((first.code, second.code), (Some(1), Some(1)), "{}{}", first.stderr, second.stderr);
    let why = "rank 1 could not be started: /dev/null/logs/0/1: Not a directory (os error 20)";
    assert!(first.verdict().starts_with("phalanx: node 1 (host "), "{}", first.stderr);
    assert!(first.verdict().ends_with(why), "{}", first.stderr);
    assert_eq!(second.stderr, format!("phalanx: {why}\n"));
}

#[test]
fn a_node_that_dies_is_noticed() {
    let cluster = Cluster::new();
    let [mut first, mut second] = cluster.both(&["--max-restarts", "5"], "echo ready; exec sleep 1000");
    first.lines(2);
    second.lines(2);
    kill(second.launcher(), Signal::KILL);
    assert_eq!(end(second).code, Some(137));
    let first = end(first);
    assert_eq!(first.code, Some(1));
    assert!(first.verdict().starts_with("phalanx: node 1 was lost: no sign of life for 5s"), "{}", first.stderr);
    assert!(first.verdict().ends_with("with ranks 2, 3 (epoch 0)"), "{}", first.stderr);
}

#[test]
fn the_death_of_the_first_node_is_noticed() {
    let cluster = Cluster::new();
    let [mut first, mut second] = cluster.both(&[], "echo ready; exec sleep 1000");
    first.lines(2);
    second.lines(2);
    kill(first.launcher(), Signal::KILL);
    assert_eq!(end(first).code, Some(137));
    let second = end(second);
    assert_eq!(second.code, Some(1));
    assert!(second.stderr.contains("phalanx: the judgement of node 0 was not heard: "), "{}", second.stderr);
}

#[test]
fn a_node_that_waits_for_others_ends_with_its_guard() {
    let cluster = Cluster::new();
    let mut waiting = cluster.node(0, 2, 1, &[], "exit 0");
    until("the launcher runs", || waiting.job.census().iter().any(|(_, command)| command.contains("__launch")));
    kill(waiting.guard(), Signal::KILL);
    waiting.child.wait().unwrap();
    waiting.job.assert_nothing_left();
}

#[test]
fn a_node_that_never_comes_is_named() {
    let cluster = Cluster::new();
    let first = end(cluster.node(0, 3, 1, &["--join-timeout", "3"], "exit 0"));
    assert_eq!(first.code, Some(1));
    assert_eq!(first.stderr, "phalanx: nodes 1, 2 never came within 3s: 1 of 3 nodes came\n");
}

/// The store goes with the first node, and what becomes of it tells nobody who it is that did not come.
#[test]
fn nodes_that_came_are_told_who_did_not() {
    for seconds in [3, 15] {
        let cluster = Cluster::new();
        let waiting = cluster.node(1, 3, 1, &[], "true");
        let first = end(cluster.node(0, 3, 1, &["--join-timeout", &seconds.to_string()], "true"));
        if seconds == 3 && first.stderr.starts_with("phalanx: nodes 1, 2 never came") {
            // On a busy machine the other may need longer than that.
            continue;
        }
        let expected = format!("phalanx: node 2 never came within {seconds}s: 2 of 3 nodes came\n");
        assert_eq!((first.stderr, end(waiting).stderr), (expected.clone(), expected));
        break;
    }
}

#[test]
fn nodes_that_were_told_other_numbers_of_nodes_say_so() {
    let cluster = Cluster::new();
    let other = cluster.node(1, 3, 1, &[], "true");
    let first = end(cluster.node(0, 2, 1, &[], "true"));
    let expected = "phalanx: --nnodes is 2 on node 0 and 3 on node 1\n";
    assert_eq!((first.stderr.as_str(), end(other).stderr.as_str()), (expected, expected));
}

#[test]
fn nodes_that_were_told_other_numbers_of_restarts_say_so() {
    let cluster = Cluster::new();
    let other = cluster.node(1, 2, 1, &["--max-restarts", "2"], "true");
    let first = end(cluster.node(0, 2, 1, &[], "true"));
    let expected = "phalanx: --max-restarts is 0 on node 0 and 2 on node 1\n";
    assert_eq!((first.code, first.stderr.as_str(), end(other).stderr.as_str()), (Some(1), expected, expected));
}

/// As a pod that is moved while others are still to come.
#[test]
fn a_node_that_is_ended_while_it_waits_can_come_again() {
    let cluster = Cluster::new();
    let first = cluster.node(0, 3, 1, &[], "true");
    let second = cluster.node(1, 3, 1, &[], "true");
    let job = Job::new();
    let before = cluster.card(&job, 1);
    kill(second.guard(), Signal::TERM);
    let second = end(second);
    let expected = "phalanx: ended by SIGTERM before the nodes had met\n";
    assert_eq!((second.code, second.stderr.as_str()), (Some(143), expected));
    let again = cluster.node(1, 3, 1, &[], "true");
    // Where the store was slow to answer, the place is free only once nothing was heard from there for a while.
    until("another is in its place", || cluster.card(&job, 1) != before);
    let third = cluster.node(2, 3, 1, &[], "true");
    for ended in [first, again, third].map(end) {
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }
}

/// As on a machine that was suspended.
#[test]
fn a_node_that_was_halted_while_another_took_its_place_is_not_in() {
    let cluster = Cluster::new();
    let first = cluster.node(0, 3, 1, &[], "true");
    let halted = cluster.node(1, 3, 1, &[], "echo it runs");
    let job = Job::new();
    let before = cluster.card(&job, 1);
    let launcher = halted.launcher();
    kill(launcher, Signal::STOP);
    let again = cluster.node(1, 3, 1, &[], "true");
    until("another is in its place", || cluster.card(&job, 1) != before);
    kill(launcher, Signal::CONT);
    let halted = end(halted);
    assert_eq!((halted.code, halted.stdout.as_str()), (Some(1), ""), "{}", halted.stderr);
    assert!(halted.verdict().starts_with("phalanx: --node-rank is 1, which is taken by host "), "{}", halted.stderr);
    let third = cluster.node(2, 3, 1, &[], "true");
    for ended in [first, again, third].map(end) {
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }
}

#[test]
fn two_nodes_of_one_number_are_told_apart() {
    let cluster = Cluster::new();
    let first = cluster.node(0, 2, 1, &[], "exit 0");
    let wait = "mkfifo $TMPDIR/fifo; echo ready; read line < $TMPDIR/fifo; rm $TMPDIR/fifo";
    let mut second = cluster.node(1, 2, 1, &[], wait);
    second.lines(1);
    let third = end(cluster.node(1, 2, 1, &[], "exit 0"));
    assert_eq!(third.code, Some(1));
    assert!(third.verdict().starts_with("phalanx: --node-rank is 1, which is taken by host "), "{}", third.stderr);
    fs::write(second.job.directory.join("fifo"), "go\n").unwrap();
    assert_eq!((end(first).code, end(second).code), (Some(0), Some(0)));
}

#[test]
fn without_a_key_several_nodes_are_refused() {
    let job = Job::new();
    let flags = ["--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", "127.0.0.1:1"];
    let ended = job.script(1, &flags, "exit 0");
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    let expected = "make one with `phalanx store mint-key job.key` and give each node --key-file job.key";
    assert!(ended.verdict().contains(expected), "{}", ended.stderr);
    job.assert_nothing_left();
}

#[test]
fn several_nodes_are_told_where_they_cannot_meet() {
    let job = Job::new();
    for endpoint in ["nonsense", "127.0.0.1:0"] {
        let flags = ["--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", endpoint, "--insecure"];
        let ended = job.script(1, &flags, "exit 0");
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        let names_it = ["--rdzv-endpoint: ", endpoint].iter().all(|part| ended.verdict().contains(part));
        assert!(names_it, "{}", ended.stderr);
    }
    job.assert_nothing_left();
}

/// The first address is of no machine: a node that took itself for node 0 would blame it. At the second, node 1 would look for node 0 in vain.
#[test]
fn what_a_node_was_not_told_is_named_rather_than_the_address() {
    let job = Job::new();
    let flags = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-id", "j", "--insecure", "--rdzv-endpoint"];
    let cases: [(&[&str], &str); 2] = [
        (&["192.0.2.1:29400"], "phalanx: --nnodes is 2: each node needs a --node-rank of its own, from 0 to 1"),
        (&["0.0.0.0:29400", "--node-rank", "1"], "phalanx: --rdzv-endpoint is 0.0.0.0:29400, which stands for "),
    ];
    for (rest, expected) in cases {
        let ended = job.script(1, &[&flags[..], rest].concat(), "exit 0");
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(ended.verdict().starts_with(expected), "{}", ended.stderr);
    }
    job.assert_nothing_left();
}
