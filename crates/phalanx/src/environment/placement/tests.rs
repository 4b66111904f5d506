//! Every launcher's variables as it sets them, and every way to get them wrong.

use super::*;

/// `NAME=value` pairs, parted by spaces.
fn placed(variables: &str) -> Result<Placement> {
    let lookup = |name: &str| {
        let mut pairs = variables.split_whitespace().filter_map(|pair| pair.split_once('='));
        pairs.find(|(other, _)| *other == name).map(|(_, value)| value.to_owned())
    };
    Placement::from_lookup(&lookup)
}

fn master(host: &str, port: u16) -> Door {
    Door::Master { host: host.to_owned(), port, agent: false }
}

/// Launcher, rank, size, local rank, local size, epoch, job and door.
type Expected = (Launcher, usize, usize, Option<usize>, Option<usize>, u32, Option<&'static str>, Door);

fn expect(variables: &str, expected: Expected) {
    let placement = placed(variables).unwrap();
    let job = placement.job().map(str::to_owned);
    let Placement { launcher, rank, size, local_rank, local_size, epoch, door, .. } = placement;
    let found = (launcher, rank, size, local_rank, local_size, epoch, job.as_deref(), door);
    assert_eq!(found, expected, "{variables}");
}

#[test]
fn variables_in_the_way_of_torchrun() {
    let torch = "RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=node-0 MASTER_PORT=29400";
    let door = master("node-0", 29_400);
    expect(torch, (Launcher::Variables, 3, 8, Some(1), Some(2), 0, None, door));
    expect(
        &format!("{torch} TORCHELASTIC_RUN_ID=a/b TORCHELASTIC_RESTART_COUNT=2 TORCHELASTIC_USE_AGENT_STORE=True"),
        (
            Launcher::Torchrun,
            3,
            8,
            Some(1),
            Some(2),
            0,
            Some("a-b-e620c3190468cf61"),
            Door::Master { host: "node-0".into(), port: 29_400, agent: true },
        ),
    );
    // Its agents count apart from each other: the ranks agree on the agents' store, and one that rank 0 serves is new.
    for (more, agrees) in [
        ("TORCHELASTIC_RUN_ID=x TORCHELASTIC_RESTART_COUNT=2 TORCHELASTIC_USE_AGENT_STORE=True", true),
        ("TORCHELASTIC_RUN_ID=x TORCHELASTIC_RESTART_COUNT=2 TORCHELASTIC_USE_AGENT_STORE=False", false),
        ("TORCHELASTIC_RUN_ID=x TORCHELASTIC_USE_AGENT_STORE=True PHALANX_EPOCH=4", false),
        ("TORCHELASTIC_RESTART_COUNT=2 TORCHELASTIC_USE_AGENT_STORE=True", false),
    ] {
        assert_eq!(placed(&format!("{torch} {more}")).unwrap().agrees_on_start, agrees, "{more}");
    }
    expect(
        &format!("{torch} TORCHELASTIC_RUN_ID=x PHALANX_STORE=127.0.0.1:7 PHALANX_JOB=j PHALANX_EPOCH=5"),
        (Launcher::Phalanx, 3, 8, Some(1), Some(2), 5, Some("j"), Door::Store("127.0.0.1:7".into())),
    );
}

#[test]
fn slurm_on_one_host_and_on_several() {
    let one = "SLURM_PROCID=1 SLURM_NTASKS=4 SLURM_LOCALID=1 SLURM_JOB_ID=77 SLURM_STEP_ID=2 SLURM_JOB_NODELIST=n7";
    let job = Some("slurm-77.2");
    expect(one, (Launcher::Slurm, 1, 4, Some(1), Some(4), 0, job, Door::Lobby));

    let several = "SLURM_PROCID=5 SLURM_NTASKS=16 SLURM_STEP_NUM_TASKS=8 SLURM_LOCALID=1 SLURM_JOB_ID=77 SLURM_STEP_ID=2 \
                   SLURM_JOB_NODELIST=x[1-9] SLURM_STEP_NODELIST=gpu[08-09],m SLURM_RESTART_COUNT=1";
    let door = master("gpu08", port_of("slurm-77.2"));
    expect(several, (Launcher::Slurm, 5, 8, Some(1), None, 1, job, door));
    let said = format!("{several} MASTER_ADDR=10.0.0.1 MASTER_PORT=80");
    expect(&said, (Launcher::Slurm, 5, 8, Some(1), None, 1, job, master("10.0.0.1", 80)));
}

#[test]
fn open_mpi_on_one_host_and_on_several() {
    let one = "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2 \
               PMIX_NAMESPACE=prterun-n@1";
    let job = Some("ompi-prterun-n-1-4228961af1d78395");
    expect(one, (Launcher::OpenMpi, 0, 2, Some(0), Some(2), 0, job, Door::Lobby));
    let several = one.replace("LOCAL_SIZE=2", "LOCAL_SIZE=1");
    let error = placed(&several).unwrap_err().to_string();
    assert!(error.contains("MASTER_ADDR is not set") && error.contains("mpirun -x"), "{error}");
    let said = format!("{several} MASTER_ADDR=h MASTER_PORT=1");
    expect(&said, (Launcher::OpenMpi, 0, 2, Some(0), Some(1), 0, job, master("h", 1)));
}

/// Their ranks meet on one host by the job's name alone.
#[test]
fn jobs_whose_names_differ_behind_a_long_host_name_are_told_apart() {
    let job = |number: u32| {
        let name = format!("prterun-trainer-a100-0.us-central1-a.c.my-ml-project.internal-{number}@1");
        let alone = "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1";
        placed(&format!("{alone} PMIX_NAMESPACE={name}")).unwrap().job.unwrap()
    };
    let cut = "ompi-prterun-trainer-a100-0.us-central1-a.c.my-";
    assert_eq!(job(47_111).as_str(), format!("{cut}-889c10248eb4805c"));
    assert!(job(47_111) != job(48_222) && job(48_222).as_str().starts_with(cut));
}

#[test]
fn a_jobs_name_is_kept_where_it_can_be_and_never_becomes_that_of_another() {
    let name = |job: &str| plain(job).unwrap().as_str().to_owned();
    let longest = "x".repeat(64);
    assert_eq!((name("slurm-77.2"), name(&longest)), ("slurm-77.2".to_owned(), longest.clone()));
    let (longer, other) = (name(&format!("{longest}a")), name(&format!("{longest}b")));
    assert!(longer != other && longer.len() == 64, "{longer} and {other}");
    assert!(name("a/b") != name("a:b") && name("a/b") != name("a-b"));
    assert_eq!(name("é").len(), "--0123456789abcdef".len());
}

#[test]
fn launchers_within_a_slurm_job_come_before_slurm() {
    let slurm = "SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2 SLURM_JOB_ID=9 SLURM_STEP_NODELIST=n[1-2]";
    let helper = format!("{slurm} OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 MASTER_ADDR=n1 MASTER_PORT=5");
    expect(&helper, (Launcher::OpenMpi, 3, 4, None, None, 0, None, master("n1", 5)));
    let hydra = format!("{slurm} PMI_RANK=3 PMI_SIZE=4 MASTER_ADDR=n1 MASTER_PORT=5");
    expect(&hydra, (Launcher::Pmi, 3, 4, None, None, 0, None, master("n1", 5)));
    // Here srun itself set both.
    let srun = format!("{slurm} PMI_RANK=0 PMI_SIZE=2");
    assert_eq!(placed(&srun).unwrap().launcher(), Launcher::Slurm);
}

#[test]
fn mpiexec_that_speaks_pmi() {
    let one = "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2";
    expect(one, (Launcher::Pmi, 1, 2, Some(1), Some(2), 0, None, Door::Lobby));
    let named = format!("{one} PMI_JOBID=12");
    assert_eq!(placed(&named).unwrap().job(), Some("pmi-12"));
}

#[test]
fn kubernetes_by_the_names_of_its_pods() {
    let pod = "JOB_COMPLETION_INDEX=2 HOSTNAME=train-2 WORLD_SIZE=4";
    let job = Some("train");
    expect(pod, (Launcher::Kubernetes, 2, 4, None, None, 0, job, master("train-0.train", DEFAULT_PORT)));
    let service = format!("{pod} PHALANX_SERVICE=svc MASTER_PORT=7000");
    expect(&service, (Launcher::Kubernetes, 2, 4, None, None, 0, job, master("train-0.svc", 7000)));
    let full = "JOB_COMPLETION_INDEX=0 HOSTNAME=a-b-0.svc.ns JOB_COMPLETIONS=1";
    expect(full, (Launcher::Kubernetes, 0, 1, None, None, 0, Some("a-b"), master("a-b-0.a-b", DEFAULT_PORT)));
}

/// Where it shares the network of its node, its name is the node's.
#[test]
fn a_pod_whose_name_says_nothing_needs_it_only_where_nobody_says_where_to_meet() {
    let pod = "JOB_COMPLETION_INDEX=0 WORLD_SIZE=1 HOSTNAME=gpu-node-7";
    let told = format!("{pod} MASTER_ADDR=127.0.0.1 MASTER_PORT=29512");
    let door = master("127.0.0.1", 29_512);
    expect(&told, (Launcher::Kubernetes, 0, 1, None, None, 0, None, door.clone()));
    expect(&format!("{told} PHALANX_JOB=j"), (Launcher::Kubernetes, 0, 1, None, None, 0, Some("j"), door));
    let store = Door::Store("10.0.0.1:7".to_owned());
    let told = format!("{pod} PHALANX_STORE=10.0.0.1:7 PHALANX_JOB=j");
    expect(&told, (Launcher::Kubernetes, 0, 1, None, None, 0, Some("j"), store));
    let error = placed(&format!("{pod} PHALANX_JOB=j")).unwrap_err().to_string();
    assert_eq!(error, "environment: HOSTNAME is \"gpu-node-7\", must end in \"-0\", the pod's index");
}

#[test]
fn what_is_wrong_is_told_with_name_and_value() {
    let torch = "MASTER_ADDR=h MASTER_PORT=1";
    for (variables, text) in [
        (format!("{torch} RANK=x WORLD_SIZE=2"), "RANK is \"x\", must be a whole number"),
        (format!("{torch} RANK=0"), "WORLD_SIZE is not set"),
        (format!("{torch} RANK=0 WORLD_SIZE=0"), "WORLD_SIZE is \"0\", must be at least 1"),
        (format!("{torch} RANK=2 WORLD_SIZE=2"), "RANK is \"2\", must be below WORLD_SIZE, which is 2"),
        (format!("{torch} RANK=0 WORLD_SIZE=2 LOCAL_RANK=-1"), "LOCAL_RANK is \"-1\", must be a whole number"),
        (
            format!("{torch} RANK=0 WORLD_SIZE=2 TORCHELASTIC_RESTART_COUNT=1e3"),
            "TORCHELASTIC_RESTART_COUNT is \"1e3\", must be a whole number",
        ),
        ("RANK=0 WORLD_SIZE=2 MASTER_ADDR=h".to_owned(), "MASTER_PORT is not set"),
        ("RANK=0 WORLD_SIZE=2".to_owned(), "MASTER_ADDR is not set"),
        (
            "RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=70000".to_owned(),
            "MASTER_PORT is \"70000\", must be a port, at most 65535",
        ),
        (
            format!("{torch} RANK=0 WORLD_SIZE=2 TORCHELASTIC_USE_AGENT_STORE=perhaps"),
            "TORCHELASTIC_USE_AGENT_STORE is \"perhaps\", must be 1 or 0",
        ),
        (format!("{torch} RANK=0 WORLD_SIZE=2 PHALANX_EPOCH=x"), "PHALANX_EPOCH is \"x\", must be a whole number"),
        (format!("{torch} RANK=0 WORLD_SIZE=2 PHALANX_JOB=a/b"), "PHALANX_JOB is \"a/b\", must be 1 to 64"),
        (
            format!("{torch} RANK=0 WORLD_SIZE=2 PHALANX_KEY_FD=key"),
            "PHALANX_KEY_FD is \"key\", must be a whole number",
        ),
        (
            format!("{torch} RANK=0 WORLD_SIZE=2 PHALANX_JOIN_TIMEOUT=0.0"),
            "PHALANX_JOIN_TIMEOUT is \"0\", must be above 0",
        ),
        (format!("{torch} RANK=0 WORLD_SIZE=2 PHALANX_INSECURE=oui"), "PHALANX_INSECURE is \"oui\", must be 1 or 0"),
        (
            "SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_JOB_NODELIST=n[1".to_owned(),
            "SLURM_JOB_NODELIST is \"n[1\", must be a list of hosts",
        ),
        ("SLURM_PROCID=0 SLURM_NTASKS=2".to_owned(), "neither SLURM_STEP_NODELIST nor MASTER_ADDR is set"),
        ("SLURM_PROCID=0".to_owned(), "SLURM_STEP_NUM_TASKS is not set"),
        ("OMPI_COMM_WORLD_RANK=0".to_owned(), "OMPI_COMM_WORLD_SIZE is not set"),
        ("PMI_RANK=0 PMI_SIZE=many".to_owned(), "PMI_SIZE is \"many\", must be a whole number"),
        ("JOB_COMPLETION_INDEX=0".to_owned(), "WORLD_SIZE is not set"),
        ("JOB_COMPLETION_INDEX=0 WORLD_SIZE=2".to_owned(), "neither MASTER_ADDR nor HOSTNAME is set"),
        (
            "JOB_COMPLETION_INDEX=1 WORLD_SIZE=2 HOSTNAME=pod-0".to_owned(),
            "HOSTNAME is \"pod-0\", must end in \"-1\", the pod's index",
        ),
        (String::new(), "no launcher's variables are set"),
    ] {
        let error = placed(&variables).unwrap_err();
        assert_eq!(error.kind(), phalanx_core::ErrorKind::Setup);
        let said = error.to_string();
        assert!(said.starts_with(&format!("environment: {text}")), "{variables}: {said}");
    }
}

#[test]
fn a_key_is_taken_from_the_safest_place_and_never_shown() {
    let torch = "RANK=0 WORLD_SIZE=1 MASTER_ADDR=h MASTER_PORT=1";
    let key = |more: &str| placed(&format!("{torch} {more}")).unwrap().key;
    assert_eq!(key(""), None);
    assert_eq!(key("PHALANX_KEY=secret"), Some(KeySource::Text("secret".into())));
    assert_eq!(key("PHALANX_KEY=secret PHALANX_KEY_FILE=k"), Some(KeySource::File("k".into())));
    assert_eq!(key("PHALANX_KEY=secret PHALANX_KEY_FILE=k PHALANX_KEY_FD=7"), Some(KeySource::Descriptor(7)));
    let shown = format!("{:?}", placed(&format!("{torch} PHALANX_KEY=secret")).unwrap());
    assert!(!shown.contains("secret"), "{shown}");
}

#[test]
fn the_log_says_who_was_recognised_and_what_was_taken() {
    let placement = placed("PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2").unwrap();
    let text = "recognised PMI: rank 1 of 2, local rank 1, epoch 0, job unnamed, store of rank 0 on this host";
    assert_eq!(placement.to_string(), text);
}

#[test]
fn ports_of_jobs_are_the_same_everywhere_and_not_given_to_clients() {
    assert_eq!(port_of("slurm-77.2"), port_of("slurm-77.2"));
    assert_ne!(port_of("slurm-77.2"), port_of("slurm-77.3"));
    assert!((0..1000).all(|job| (20_000..30_000).contains(&port_of(&format!("slurm-{job}.0")))));
}
