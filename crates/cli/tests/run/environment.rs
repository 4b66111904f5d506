//! What a rank finds: torchrun's variables and ours, its cores, an empty standard input.

use std::collections::BTreeMap;

use crate::job::Job;

/// The variables of each rank.
fn environments(ranks: usize) -> Vec<BTreeMap<String, String>> {
    let job = Job::new();
    let flags = ["--job-id", "named", "--max-restarts", "5"];
    let mut command = job.command(&[&flags[..], &["--nproc-per-node", &ranks.to_string(), "env"]].concat());
    command
        .env("PHALANX_KEY", "5a".repeat(32))
        .env_remove("OMP_NUM_THREADS")
        .env_remove("TORCH_NCCL_ASYNC_ERROR_HANDLING");
    let output = command.output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let of_rank = |rank: usize| {
        let prefix = format!("[{rank}] ");
        let lines = text.lines().filter_map(|line| line.strip_prefix(&prefix)?.split_once('='));
        lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    (0..ranks).map(of_rank).collect()
}

#[test]
fn variables_are_those_of_torchrun() {
    for (rank, variables) in environments(3).iter().enumerate() {
        let rank = rank.to_string();
        let expected = [
            ("RANK", rank.as_str()),
            ("LOCAL_RANK", &rank),
            ("ROLE_RANK", &rank),
            ("WORLD_SIZE", "3"),
            ("LOCAL_WORLD_SIZE", "3"),
            ("ROLE_WORLD_SIZE", "3"),
            ("GROUP_RANK", "0"),
            ("GROUP_WORLD_SIZE", "1"),
            ("ROLE_NAME", "default"),
            ("MASTER_ADDR", "127.0.0.1"),
            ("TORCHELASTIC_RUN_ID", "named"),
            ("TORCHELASTIC_RESTART_COUNT", "0"),
            ("TORCHELASTIC_MAX_RESTARTS", "5"),
            ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
            ("OMP_NUM_THREADS", "1"),
            ("PHALANX_JOB", "named"),
            ("PHALANX_EPOCH", "0"),
            ("PHALANX_JOIN_TIMEOUT", "300"),
        ];
        for (name, value) in expected {
            assert_eq!(variables.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert!(variables["MASTER_PORT"].parse::<u16>().unwrap() > 0);
        assert_eq!(variables["TORCHELASTIC_USE_AGENT_STORE"], "True");
        assert!(variables["TORCHELASTIC_ERROR_FILE"].ends_with(&format!("/0/{rank}/error.json")));
        assert!(variables["PHALANX_ERROR_FILE"].ends_with(&format!("/0/{rank}/phalanx.json")));
        assert!(!variables.contains_key("PHALANX_KEY"), "the key must not be inherited");
    }
}

#[test]
fn a_job_without_a_name_is_called_by_the_process_that_was_started() {
    let running = Job::new().start(1, &[], "echo $PHALANX_JOB $TORCHELASTIC_RUN_ID");
    let name = format!("run-{}", running.guard());
    assert_eq!(running.end().1.stdout, format!("[0] {name} {name}\n"));
}

#[test]
fn a_relative_temporary_directory_holds_where_ranks_change_theirs() {
    let job = Job::new();
    let script = r#"cd /; echo '{"message": "out of data"}' > "$TORCHELASTIC_ERROR_FILE"; exit 1"#;
    let mut command = job.command(&["sh", "-c", script]);
    let output = command.env("TMPDIR", ".").current_dir(&job.directory).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.starts_with("phalanx: rank 0 gave up after ") && told.contains(" s: out of data (host "), "{told}");
    job.assert_nothing_left();
}

#[test]
fn a_key_whose_descriptor_is_closed_is_told_as_such() {
    let job = Job::new();
    let script = r#"PHALANX_KEY_FD=101 exec "$PHALANX" store keys $PHALANX_STORE --job-id $PHALANX_JOB"#;
    let output = job.command(&["sh", "-c", script]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("phalanx: descriptor 101 is not open: what started this program closed it"), "{told}");
    job.assert_nothing_left();
}

/// The launcher needs more than this to hand over the key.
#[test]
fn ranks_have_the_limit_of_open_files_that_the_user_has_set() {
    let job = Job::new();
    let script = "ulimit -S -n 60; exec $PHALANX run sh -c 'ulimit -S -n'";
    let output = job.marked("sh").args(["-c", script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "[0] 60\n", "{output:?}");
    job.assert_nothing_left();
}

#[test]
fn standard_input_is_empty_and_the_group_is_its_own() {
    let job = Job::new();
    let ended = job.script(2, &[], "cat; [ $(cut -d' ' -f5 /proc/self/stat) = $$ ]");
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn pinned_ranks_keep_to_their_share() {
    let job = Job::new();
    let script = "while read name value; do [ $name != Cpus_allowed_list: ] || echo $value; done < /proc/self/status";
    let alone = job.script(1, &["--pin"], script);
    let cores = |line: &str| -> Vec<usize> {
        let ranges = line.split_once(' ').unwrap().1.split(',');
        let range = |range: &str| match range.split_once('-') {
            Some((first, last)) => first.parse().unwrap()..=last.parse().unwrap(),
            None => range.parse().unwrap()..=range.parse().unwrap(),
        };
        ranges.flat_map(range).collect()
    };
    let all = cores(alone.stdout.lines().next().unwrap());
    let both = job.script(2, &["--pin"], script);
    let mut shares: Vec<usize> = both.stdout.lines().flat_map(cores).collect();
    shares.sort_unstable();
    let expected = if all.len() == 1 { [&all[..], &all].concat() } else { all };
    assert_eq!(shares, expected, "{}", both.stdout);
}

#[test]
fn ranks_meet_in_the_store_with_the_key_they_inherit() {
    let job = Job::new();
    let script = r#"store() { verb=$1; shift; "$PHALANX" store $verb $PHALANX_STORE --job-id $PHALANX_JOB --epoch $PHALANX_EPOCH "$@"; }
        store set $PHALANX_EPOCH/$RANK "I am $RANK" || exit 4
        [ "$(store get $PHALANX_EPOCH/$((1 - RANK)))" = "I am $((1 - RANK))" ] || exit 5
        grep -q PHALANX_KEY= /proc/self/environ && exit 6
        [ $PHALANX_EPOCH = 1 ]"#;
    let mut command = job.command(&["--nproc-per-node", "2", "--max-restarts", "1", "sh", "-c", script]);
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.lines().next().unwrap().contains("failed: exit code 1"), "{stderr}");
    job.assert_nothing_left();
}

#[test]
fn a_stranger_without_the_key_is_not_let_in() {
    let job = Job::new();
    // It tries until its time is over, and tells what it has seen last: on a busy machine that may be no answer yet.
    let script = r#"unset PHALANX_KEY_FD
        for timeout in 1 4 16; do
            "$PHALANX" store keys $PHALANX_STORE --job-id $PHALANX_JOB --timeout $timeout 2> $TMPDIR/told && break
            grep -q 'asks for a key' $TMPDIR/told && break
        done
        cat $TMPDIR/told >&2; rm $TMPDIR/told; exit 1"#;
    let mut command = job.command(&["sh", "-c", script]);
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout, b"");
    assert!(told.contains("it asks for a key, and none was given"), "{told}");
}
