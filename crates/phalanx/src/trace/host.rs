//! Who asks the ranks of this host for their dumps, and which of them are meant: jobs may have one name.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use phalanx_core::{Error, Result};
use phalanx_trace::{Dump, files};

use super::collect::Collected;
use crate::inquiry::{Neighbour, Said, TRACE_PATH, ask};

/// What one rank says, or why that is no dump; nothing where it is silent.
struct Answer {
    neighbour: Neighbour,
    said: Option<Result<Dump, String>>,
}

/// Asks the ranks of this host that this user may ask, as [`neighbours`](crate::neighbours) does, for what they have recorded, and writes it into
/// `directory`. They need neither an address nor a store that still answers. Where they are of several jobs, `job` says which is meant, and
/// `pid`, any process of it that answers, which of several of one name. Ranks of the job that are on other hosts are not asked, and named in
/// [`elsewhere`](Collected::elsewhere).
///
/// # Errors
///
/// [`Setup`](phalanx_core::ErrorKind::Setup), where there is no such rank, the job is not clear, process `pid` does not say which is its own, or a
/// file cannot be written.
pub fn collect_host(
    (job, pid): (Option<&str>, Option<u32>),
    directory: &Path,
    patience: Duration,
) -> Result<Collected> {
    let failed = |why: String| Error::setup("traces of this host's ranks", why);
    let told = ask(TRACE_PATH, patience).map_err(|error| failed(error.to_string()))?.into_iter();
    let answers = told.map(|(neighbour, said)| Answer { neighbour, said: read(said) });
    let answers = choose(answers.collect(), job, pid).map_err(failed)?;
    let mut collected = Collected { elsewhere: elsewhere(&answers), ..Collected::default() };
    for Answer { neighbour, said } in answers {
        match said {
            Some(said) => collected.write(neighbour.rank, said, directory)?,
            None => collected.silent.push(neighbour.rank),
        }
    }
    Ok(collected)
}

/// The dump in what a rank says, or why there is none.
fn read(said: Said) -> Option<Result<Dump, String>> {
    match said {
        Said::Page(page) => Some(Dump::from_json(&page).map_err(|broken| broken.to_string())),
        Said::TooLong => {
            let limit = files::LONGEST;
            Some(Err(format!(
                "it is longer than {limit} bytes, or has no room beside those of this host's other ranks"
            )))
        }
        Said::Nothing => None,
    }
}

/// The ranks of the job that are not on this host, as far as one that is here says how many there are.
fn elsewhere(answers: &[Answer]) -> Vec<usize> {
    let here: BTreeSet<usize> = answers.iter().map(|answer| answer.neighbour.rank).collect();
    let size = answers.iter().filter_map(|answer| answer.dump()?.world_size).max().unwrap_or_default();
    (0..size).filter(|rank| !here.contains(rank)).collect()
}

/// The answers of one job.
fn choose(mut answers: Vec<Answer>, job: Option<&str>, pid: Option<u32>) -> Result<Vec<Answer>, String> {
    let own = pid.iter().flat_map(|pid| of(&answers, *pid));
    let mut own: Vec<&str> = own.map(|answer| &*answer.neighbour.job).collect();
    own.dedup();
    if let Some(pid) = pid.filter(|_| own.is_empty()) {
        return Err(format!("process {pid} is no rank that this user may ask"));
    }
    // Of several jobs one has to be named all the same.
    let own = if let [own] = own[..] { Some(own) } else { None };
    let job = job.or(own).map(str::to_owned);
    answers.retain(|answer| job.as_ref().is_none_or(|job| answer.neighbour.is_of(job)));
    let mut jobs: Vec<&str> = answers.iter().map(|answer| &*answer.neighbour.job).collect();
    jobs.dedup();
    match jobs[..] {
        [] => {
            let place = job.map(|job| format!(" in a job {job}")).unwrap_or_default();
            return Err(format!("there is no rank that this user may ask{place}"));
        }
        [_] => {}
        _ => {
            return Err(format!("they are of several jobs, of which one has to be named (`job`): {}", jobs.join(", ")));
        }
    }
    // A process may be in one world after another: the later one is meant. Two of one number in two PID namespaces are two, and those of an older
    // version, which do not say where they are, may each be in its first.
    answers.dedup_by(|later, kept| {
        let process = |answer: &Answer| (answer.neighbour.uid, answer.neighbour.pid, answer.neighbour.namespace);
        let own = |answer: &Answer| (process(answer), answer.neighbour.rank);
        let is_same = own(later) == own(kept) && later.neighbour.world != kept.neighbour.world;
        if is_same {
            std::mem::swap(later, kept);
        }
        is_same
    });
    let worlds: BTreeSet<u64> = answers.iter().filter_map(Answer::met_ns).collect();
    // Asked also where there seems to be one job: the answers may all be of another one than this process's.
    let own = pid.map(|pid| met(&answers, pid)).transpose()?;
    match (count(&answers, &worlds), own) {
        (0 | 1, _) => Ok(answers),
        (_, Some(own)) => Ok(only(own, answers)),
        (count, None) => Err(several(&answers, &worlds, count)),
    }
}

/// What process `pid` says: the one that has this number here, or those that have it where they are.
fn of(answers: &[Answer], pid: u32) -> Vec<&Answer> {
    let named = answers.iter().filter(|answer| answer.neighbour.pid == pid);
    let (elsewhere, here): (Vec<&Answer>, Vec<&Answer>) = named.partition(|answer| answer.neighbour.is_elsewhere);
    if here.is_empty() { elsewhere } else { here }
}

/// When the ranks of this process's job met.
fn met(answers: &[Answer], pid: u32) -> Result<u64, String> {
    let own = of(answers, pid);
    let met: BTreeSet<u64> = own.iter().filter_map(|answer| answer.met_ns()).collect();
    if met.len() > 1 && own.iter().any(|answer| answer.neighbour.is_elsewhere) {
        let why = "is the number of ranks of several jobs, in PID namespaces of their own";
        return Err(format!("process {pid} {why}: another process of the job may say which is meant (`pid`)"));
    }
    if let Some(met_ns) = met.last() {
        return Ok(*met_ns);
    }
    let why = match own.last().map(|answer| &answer.said) {
        None => return Err(format!("process {pid} is no rank of job {}", answers[0].neighbour.job)),
        Some(None) => "does not answer".to_owned(),
        Some(Some(Err(broken))) => format!("answers what is no dump ({broken})"),
        Some(Some(Ok(_))) => "does not say when its ranks met".to_owned(),
    };
    Err(format!(
        "process {pid} {why}: which ranks are of its job is not known, but another process of it may say (`pid`)"
    ))
}

/// How many jobs there are at least: as many as worlds, and as processes that hold one number, also where these are silent. Answers are in the
/// order of ranks.
fn count(answers: &[Answer], worlds: &BTreeSet<u64>) -> usize {
    let holders = answers.chunk_by(|one, other| one.neighbour.rank == other.neighbour.rank).map(<[Answer]>::len);
    holders.chain([worlds.len()]).max().unwrap_or_default()
}

/// The answers of the ranks that met then, and the ranks besides that do not say when they did. What these answer is not taken: it may be of
/// another job.
fn only(met_ns: u64, mut answers: Vec<Answer>) -> Vec<Answer> {
    answers.retain(|answer| answer.met_ns().is_none_or(|theirs| theirs == met_ns));
    let known: BTreeSet<usize> =
        answers.iter().filter(|answer| answer.met_ns().is_some()).map(|answer| answer.neighbour.rank).collect();
    answers.retain(|answer| answer.met_ns().is_some() || !known.contains(&answer.neighbour.rank));
    for answer in answers.iter_mut().filter(|answer| answer.met_ns().is_none()) {
        if answer.said.take_if(|said| said.is_ok()).is_some() {
            let Neighbour { pid, rank, .. } = &answer.neighbour;
            log::warn!("the dump of rank {rank} in process {pid} is left out: it does not say of which job it is");
        }
    }
    answers
}

/// That there are several jobs of one name, and how one is chosen.
fn several(answers: &[Answer], worlds: &BTreeSet<u64>, count: usize) -> String {
    let listed = |all: Vec<String>| all.join(", ");
    let who = |met_ns: Option<u64>| {
        let own = || answers.iter().filter(move |answer| answer.met_ns() == met_ns).map(|answer| &answer.neighbour);
        let ranks = listed(own().map(|neighbour| neighbour.rank.to_string()).collect());
        let pids = listed(own().map(|neighbour| neighbour.pid.to_string()).collect());
        format!("ranks {ranks} in processes {pids}")
    };
    let mut told: Vec<String> = worlds.iter().map(|world| who(Some(*world))).collect();
    if answers.iter().any(|answer| answer.met_ns().is_none()) {
        told.push(format!("{}, which do not say", who(None)));
    }
    let (job, told) = (&answers[0].neighbour.job, told.join("; "));
    format!(
        "they are of {count} jobs of the name {job}, of which any process of one says which is meant (`pid`): {told}"
    )
}

impl Answer {
    fn dump(&self) -> Option<&Dump> {
        self.said.as_ref()?.as_ref().ok()
    }

    fn met_ns(&self) -> Option<u64> {
        self.dump()?.met_ns
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use phalanx_trace::{Broken, Identity};

    use super::*;

    fn answer(job: &str, rank: usize, (pid, world): (u32, u32), met_ns: Option<u64>) -> Answer {
        let neighbour = Neighbour {
            pid,
            uid: 1,
            world,
            job: job.to_owned(),
            rank,
            world_size: 2,
            account: None,
            job_is_cut: false,
            is_elsewhere: false,
            namespace: 0,
        };
        let mut dump =
            Dump::new(Identity { rank, world_size: 2, host_name: "host".to_owned(), pid }, SystemTime::UNIX_EPOCH);
        dump.met_ns = met_ns;
        Answer { neighbour, said: Some(Ok(dump)) }
    }

    /// The processes that are asked, or why nobody is; in the order of job, rank, process and world.
    fn chosen(answers: Vec<Answer>, job: Option<&str>, pid: Option<u32>) -> Result<Vec<u32>, String> {
        choose(answers, job, pid).map(|answers| answers.iter().map(|answer| answer.neighbour.pid).collect())
    }

    #[test]
    fn two_jobs_of_one_name_are_kept_apart() {
        let answers = || {
            let mut silent = answer("a", 1, (22, 0), None);
            silent.said = None;
            let [first, second] = [(10, Some(7)), (20, Some(9))].map(|(pid, met)| answer("a", 0, (pid, 0), met));
            vec![first, second, answer("a", 1, (11, 0), Some(7)), silent, answer("b", 0, (30, 0), Some(8))]
        };
        let told = "they are of 2 jobs of the name a, of which any process of one says which is meant (`pid`): \
                    ranks 0, 1 in processes 10, 11; ranks 0 in processes 20; ranks 1 in processes 22, which do not say";
        assert_eq!(chosen(answers(), Some("a"), None), Err(told.to_owned()));
        assert_eq!(chosen(answers(), None, Some(11)), Ok(vec![10, 11]));
        assert_eq!(chosen(answers(), Some("a"), Some(20)), Ok(vec![20, 22]));
        assert_eq!(chosen(answers(), None, Some(30)), Ok(vec![30]));
        assert!(chosen(answers(), None, Some(22)).is_err_and(|why| why.starts_with("process 22 does not answer")));
        assert!(chosen(answers(), None, Some(5)).is_err_and(|why| why.starts_with("process 5 is no rank")));
        assert_eq!(chosen(answers(), Some("a"), Some(30)), Err("process 30 is no rank of job a".to_owned()));
        let nobody = "there is no rank that this user may ask in a job c";
        assert_eq!(chosen(answers(), Some("c"), None), Err(nobody.to_owned()));
        let several = "they are of several jobs, of which one has to be named (`job`): a, b";
        assert_eq!(chosen(answers(), None, None), Err(several.to_owned()));
    }

    #[test]
    fn the_dumps_of_another_job_are_not_taken_for_those_of_one_that_is_silent() {
        let mute = |rank, pid, said: Option<Broken>| {
            let said = said.map(|broken| Err(broken.to_string()));
            Answer { said, ..answer("a", rank, (pid, 0), None) }
        };
        // Processes 10 and 11 are of one job, 20 and 21 of the other.
        let answers = |said: fn() -> Option<Broken>| {
            let [zero, one] = [(0, 20), (1, 21)].map(|(rank, pid)| answer("a", rank, (pid, 0), Some(9)));
            vec![mute(0, 10, said()), zero, mute(1, 11, said()), one]
        };
        let refused = |said: fn() -> Option<Broken>, pid| chosen(answers(said), Some("a"), Some(pid)).unwrap_err();
        assert!(refused(|| None, 10).starts_with("process 10 does not answer"));
        assert!(refused(|| Some(Broken::Empty), 11).starts_with("process 11 answers what is no dump"));
        assert_eq!(chosen(answers(|| None), Some("a"), Some(21)), Ok(vec![20, 21]));
        let told = "they are of 2 jobs of the name a, of which any process of one says which is meant (`pid`): \
                    ranks 0, 1 in processes 20, 21; ranks 0, 1 in processes 10, 11, which do not say";
        assert_eq!(chosen(answers(|| None), Some("a"), None), Err(told.to_owned()));
    }

    #[test]
    fn a_dump_that_names_no_job_is_taken_where_there_is_one_alone() {
        let first = || vec![answer("a", 0, (10, 0), Some(7)), answer("a", 1, (11, 0), None)];
        let given = |answers: Vec<Answer>| {
            let chosen = choose(answers, None, Some(10)).unwrap();
            chosen.iter().map(|answer| (answer.neighbour.pid, answer.said.is_some())).collect::<Vec<_>>()
        };
        assert_eq!(given(first()), [(10, true), (11, true)]);
        let mut both = first();
        both.insert(1, answer("a", 0, (20, 0), Some(9)));
        assert_eq!(given(both), [(10, true), (11, false)]);
        let refused = chosen(first(), None, Some(11)).unwrap_err();
        assert!(refused.starts_with("process 11 does not say when its ranks met"), "{refused}");
    }

    /// As in two containers that share the network of this host.
    #[test]
    fn processes_of_one_number_in_other_namespaces_are_not_taken_for_one() {
        let elsewhere = |job, rank, pid, met_ns| {
            let mut answer = answer(job, rank, (pid, 0), Some(met_ns));
            answer.neighbour.is_elsewhere = true;
            answer
        };
        // Two jobs of one name, whose ranks have the same numbers.
        let twins = || vec![elsewhere("a", 0, 1, 7), elsewhere("a", 0, 1, 9), elsewhere("a", 1, 2, 7)];
        let told = "they are of 2 jobs of the name a, of which any process of one says which is meant (`pid`): \
                    ranks 0, 1 in processes 1, 2; ranks 0 in processes 1";
        assert_eq!(chosen(twins(), None, None), Err(told.to_owned()));
        assert_eq!(chosen(twins(), None, Some(2)), Ok(vec![1, 2]));
        let several = "process 1 is the number of ranks of several jobs, in PID namespaces of their own: \
                       another process of the job may say which is meant (`pid`)";
        assert_eq!(chosen(twins(), None, Some(1)), Err(several.to_owned()));
        // One of them is in its second world.
        let mut twins = twins();
        (twins[0].neighbour.namespace, twins[1].neighbour.namespace, twins[1].neighbour.world) = (4, 5, 1);
        assert_eq!(chosen(twins, None, None), Err(told.to_owned()));
        // A number that a process has here is that process's.
        let beside = || vec![answer("a", 0, (1, 0), Some(5)), elsewhere("b", 0, 1, 7), elsewhere("c", 0, 1, 9)];
        assert_eq!(chosen(beside(), None, Some(1)), Ok(vec![1]));
        let several = "they are of several jobs, of which one has to be named (`job`): b, c";
        assert_eq!(chosen(beside().split_off(1), None, Some(1)), Err(several.to_owned()));
        assert_eq!(chosen(beside(), Some("c"), Some(1)), Ok(vec![1]));
    }

    #[test]
    fn a_rank_whose_dump_is_too_long_is_told_from_a_silent_one() {
        assert_eq!(read(Said::Nothing), None);
        let why = read(Said::TooLong).unwrap().unwrap_err();
        assert!(why.starts_with("it is longer than 268435456 bytes"), "{why}");
        assert!(read(Said::Page(b"{}".to_vec())).is_some_and(|said| said.is_err()));
    }

    #[test]
    fn ranks_that_are_not_on_this_host_are_known() {
        let of = |world_size, ranks: [usize; 2]| {
            let mut answers = ranks.map(|rank| answer("a", rank, (10, 0), None));
            // One that is silent is on this host all the same.
            answers[1].said = None;
            answers[0].said.iter_mut().flatten().for_each(|dump| dump.world_size = world_size);
            elsewhere(&answers)
        };
        assert_eq!(of(Some(6), [1, 4]), [0, 2, 3, 5]);
        assert_eq!(of(Some(2), [0, 1]), Vec::<usize>::new());
        assert_eq!(of(None, [0, 1]), Vec::<usize>::new());
    }

    #[test]
    fn of_one_world_after_another_the_later_is_meant() {
        let answers = vec![answer("a", 0, (10, 0), Some(7)), answer("a", 0, (10, 1), Some(9))];
        let [last] = &choose(answers, None, None).unwrap()[..] else { panic!("one answer") };
        assert_eq!(last.met_ns(), Some(9));
        // Ranks of an older version do not say it.
        let older = vec![answer("a", 0, (10, 0), None), answer("a", 1, (11, 0), None)];
        assert_eq!(chosen(older, Some("a"), None), Ok(vec![10, 11]));
    }
}
