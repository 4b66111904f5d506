//! The command as the user starts it: `phalanx run` with the ranks below it, and what the first of them says, shown.

use std::io;
use std::os::unix::process::CommandExt;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use rustix::process::Pid;
use serde_json::Value;
use signal_hook::consts::SIGCHLD;
use signal_hook::iterator::Signals;

use super::corpus::Corpus;
use super::laps::Lap;
use super::options::Options;
use super::plot::Plot;
use super::saving;
use super::show::Show;
use crate::failure::{Failure, tell};
use crate::run::process::exit::Exit;
use crate::run::process::signals;
use crate::tied::{Process, tied_ourselves};

/// Trains, and shows it.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    options.check()?;
    // What ranks would all refuse is refused once.
    Corpus::read(options.text.as_deref())?.check(options.sizes(1).context)?;
    if let Some(done) = saving::newest(options)?.filter(|newest| newest.step() >= options.steps) {
        let place = options.resume.as_deref().unwrap_or(done.path()).display();
        tell(&format!("--resume {place}: step {} of {} was reached already", done.step(), options.steps));
    }
    options.save.as_deref().map_or(Ok(()), saving::probe)?;
    let mut plot = options.plot.as_deref().map(Plot::create).transpose()?;
    let mut show = Show::new(options.steps, options.json);
    let (teller, said) = mpsc::channel();
    // Handlers come first: what ends this process alone would leave the launcher without a word.
    let watched: Vec<i32> = signals::watched().into_iter().filter(|signal| *signal != SIGCHLD).collect();
    let signals = signals::listen(&watched);
    let signals = signals.map_err(|error| Failure::Stopped(format!("signal handlers: {error}")))?;
    // Nobody listens any more once this has ended.
    let mut launcher = Process::start(launcher(options)?, move |line| drop(teller.send(line)))?;
    pass_on(signals, launcher.id())?;
    let shown = show_all(&said, &mut show, plot.as_mut());
    show.end();
    if let Err(error) = shown {
        // What was to be kept would be missing: a disk is full. Ranks have their time to end all the same.
        launcher.ask_to_end(ENDED_WITHIN);
        return Err(Failure::output(&error));
    }
    match launcher.end(ENDED_WITHIN) {
        Some(Exit::Code(0)) => plot.map_or(Ok(()), |plot| plot.draw(&title(options))),
        Some(Exit::Code(code)) => Err(Failure::Code(u8::try_from(code).unwrap_or(1))),
        Some(exit) => Err(Failure::Stopped(format!("the launcher was {exit}"))),
        None => Err(Failure::Stopped("the launcher does not end".to_owned())),
    }
}

/// Shows what is said until no more is.
fn show_all(said: &Receiver<Option<String>>, show: &mut Show, mut plot: Option<&mut Plot>) -> io::Result<()> {
    while let Ok(Some(line)) = said.recv() {
        let Some(told) = line.strip_prefix(FIRST_RANK).and_then(|line| serde_json::from_str::<Value>(line).ok()) else {
            show.word(&line);
            continue;
        };
        match Lap::from_json(&told) {
            Some(lap) => {
                show.lap(&lap, &told)?;
                plot.iter_mut().filter(|_| lap.loss.is_finite()).for_each(|plot| plot.add(lap.step, lap.loss));
            }
            None => show.summary(&told)?,
        }
    }
    Ok(())
}

/// Has the launcher meet every signal as `phalanx run` does.
fn pass_on(mut signals: Signals, launcher: u32) -> Result<(), Failure> {
    if let Some(launcher) = i32::try_from(launcher).ok().and_then(Pid::from_raw) {
        let forward = move || signals.forever().for_each(|signal| signals::send(launcher, signal));
        let thread = thread::Builder::new().name("phalanx-signals".to_owned()).spawn(forward);
        thread.map_err(|error| Failure::Stopped(format!("no thread for signals: {error}")))?;
    }
    Ok(())
}

/// `phalanx run` with ranks that are given the user's own flags. What is sent to this process's group reaches it once, through this process.
fn launcher(options: &Options) -> Result<std::process::Command, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::Stopped(format!("this program's path: {error}")))?;
    let (ranks, restarts) = (options.ranks().to_string(), options.restarts().to_string());
    let mut command =
        tied_ourselves(&["run", "--standalone", "--nproc-per-node", &ranks, "--max-restarts", &restarts, "--"], &[])?;
    command.arg(program).arg("__train_rank").args(std::env::args_os().skip(2)).process_group(0);
    for (name, value) in [(THREADS, "1"), (RETURNED, "2097152"), (TRIMMED, "2097152")] {
        if std::env::var_os(name).is_none() {
            command.env(name, value);
        }
    }
    Ok(command)
}

fn title(options: &Options) -> String {
    format!("loss in nats a character, {} ranks", options.ranks())
}

/// How the launcher marks what the first rank says.
const FIRST_RANK: &str = "[0] ";
/// How many threads each rank computes with: ranks share the machine's cores.
const THREADS: &str = "RAYON_NUM_THREADS";
/// From how many bytes on memory goes back to the system when it is freed. glibc raises this as it sees fit otherwise, and keeps what freed
/// parameters leave: a tenth of a process, with 50 million of them.
const RETURNED: &str = "MALLOC_MMAP_THRESHOLD_";
const TRIMMED: &str = "MALLOC_TRIM_THRESHOLD_";
/// All that it has to do then is to sweep up.
const ENDED_WITHIN: Duration = Duration::from_secs(30);
