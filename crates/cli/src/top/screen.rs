//! The live view: the table drawn again and again, and the terminal left as it was, however that ends.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};

use super::look::{Look, View};
use super::table::{self, Line, Tone};
use crate::failure::Failure;

/// Shows the ranks until the user leaves.
pub(super) fn watch(interval: Duration, job: Option<&str>) -> Result<(), Failure> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Failure::Usage("the live view needs a terminal: use --once or --json".to_owned()));
    }
    let signals = Signals::new()?;
    let _screen = Screen::enter()?;
    let mut before: Option<Look> = None;
    loop {
        let now = Look::take(job)?;
        let until = Instant::now() + interval;
        let view = View::between(before.as_ref(), &now);
        loop {
            draw(&table::lines(&view), interval)?;
            match signals.wait(until)? {
                Event::Time => break,
                Event::Resized => {}
                Event::End => return Ok(()),
            }
        }
        before = Some(now);
    }
}

/// What ends a wait.
enum Event {
    Time,
    Resized,
    End,
}

/// Signals as bytes to wait for.
struct Signals {
    ending: UnixStream,
    resized: UnixStream,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        let (ending, resized) = (UnixStream::pair()?, UnixStream::pair()?);
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::low_level::pipe::register(signal, ending.1.try_clone()?)?;
        }
        signal_hook::low_level::pipe::register(SIGWINCH, resized.1)?;
        resized.0.set_nonblocking(true)?;
        Ok(Signals { ending: ending.0, resized: resized.0 })
    }

    fn wait(&self, until: Instant) -> io::Result<Event> {
        let stdin = io::stdin();
        loop {
            let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok();
            let mut waited = [
                PollFd::new(&stdin, PollFlags::IN),
                PollFd::new(&self.ending, PollFlags::IN),
                PollFd::new(&self.resized, PollFlags::IN),
            ];
            match poll(&mut waited, left.as_ref()) {
                Err(rustix::io::Errno::INTR) => continue,
                polled => polled?,
            };
            let [key, ending, resized] = waited.map(|waited| !waited.revents().is_empty());
            if ending || (key && is_leaving()?) {
                return Ok(Event::End);
            }
            if resized {
                while matches!(io::Read::read(&mut &self.resized, &mut [0; 64]), Ok(1..)) {}
                return Ok(Event::Resized);
            }
            if !key {
                return Ok(Event::Time);
            }
        }
    }
}

/// Whether a key that was pressed is one to leave with; a terminal that is gone is left too.
fn is_leaving() -> io::Result<bool> {
    let mut keys = [0; 64];
    let count = rustix::io::read(io::stdin(), &mut keys)?;
    Ok(count == 0 || keys[..count].iter().any(|key| LEAVING.contains(key)))
}

/// The terminal while it is ours.
struct Screen {
    before: Termios,
}

impl Screen {
    fn enter() -> io::Result<Screen> {
        let before = tcgetattr(io::stdin())?;
        let mut ours = before.clone();
        // Keys come at once and unseen; those for signals too, so that nobody is put aside with the terminal in our hands.
        ours.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        (ours.special_codes[SpecialCodeIndex::VMIN], ours.special_codes[SpecialCodeIndex::VTIME]) = (1, 0);
        tcsetattr(io::stdin(), OptionalActions::Flush, &ours)?;
        let screen = Screen { before };
        say(ENTER)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nobody is left to tell where the terminal is gone.
        let _ = say(LEAVE);
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.before);
    }
}

fn draw(lines: &[Line], interval: Duration) -> io::Result<()> {
    // A terminal that does not know its size is taken to be small.
    let size = tcgetwinsize(io::stdout()).map(|size| (size.ws_row, size.ws_col)).unwrap_or_default();
    let (rows, columns) = if size.0 == 0 || size.1 == 0 { (24, 80) } else { size };
    say(&page(lines, (rows.into(), columns.into()), interval))
}

/// The lines as a terminal of this size is told to show them: the findings and the head stay, of the ranks those that have room.
fn page(lines: &[Line], (rows, columns): (usize, usize), interval: Duration) -> String {
    let title = format!("phalanx top, every {} s, q to leave", interval.as_secs_f64());
    let title = Line { text: title, tone: Tone::Plain };
    let mut page = HOME.to_owned();
    for (at, line) in [&title].into_iter().chain(lines).take(rows).enumerate() {
        let text: String = line.text.chars().take(columns).collect();
        let colour = match line.tone {
            Tone::Plain => "",
            Tone::Head => "\x1b[1m",
            Tone::Alarm => "\x1b[31m",
        };
        let begin = if at == 0 { "" } else { "\r\n" };
        let _ = write!(page, "{begin}{colour}{text}\x1b[0m\x1b[K");
    }
    page + CLEAR
}

fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// The other screen, without a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
/// All below the cursor.
const CLEAR: &str = "\x1b[J";
/// `q`, Ctrl-C and Ctrl-D.
const LEAVING: [u8; 4] = [b'q', b'Q', 3, 4];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_fits_its_terminal() {
        let line = |text: &str, tone| Line { text: text.to_owned(), tone };
        let lines = [line("RANK  GROUP", Tone::Head), line("0  wörld", Tone::Alarm), line("1  world", Tone::Plain)];
        let page = page(&lines, (3, 7), Duration::from_secs(1));
        assert_eq!(
            page,
            "\x1b[Hphalanx\x1b[0m\x1b[K\r\n\x1b[1mRANK  G\x1b[0m\x1b[K\r\n\x1b[31m0  wörl\x1b[0m\x1b[K\x1b[J"
        );
    }
}
