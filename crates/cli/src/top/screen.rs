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
    let lost = |error: io::Error| Failure::Stopped(format!("the terminal: {error}"));
    let (signals, is_coloured) = (Signals::new().map_err(lost)?, is_coloured());
    let _screen = Screen::enter().map_err(lost)?;
    let mut before: Option<Look> = None;
    loop {
        let now = Look::take(job)?;
        let until = Instant::now() + interval;
        let view = View::between(before.as_ref(), &now);
        loop {
            draw(&table::lines(&view), interval, is_coloured).map_err(lost)?;
            match signals.wait(until).map_err(lost)? {
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

fn draw(lines: &[Line], interval: Duration, is_coloured: bool) -> io::Result<()> {
    // A terminal that does not know its size is taken to be small.
    let size = tcgetwinsize(io::stdout()).map(|size| (size.ws_row, size.ws_col)).unwrap_or_default();
    let (rows, columns) = if size.0 == 0 || size.1 == 0 { (24, 80) } else { size };
    say(&page(lines, (rows.into(), columns.into()), interval, is_coloured))
}

/// The lines as a terminal of this size is told to show them: the findings whole and the head, of the ranks those that have room.
fn page(lines: &[Line], (rows, columns): (usize, usize), interval: Duration, is_coloured: bool) -> String {
    let title = format!("phalanx top, every {} s, q to leave", interval.as_secs_f64());
    let title = Line { text: title, tone: Tone::Plain };
    let mut page = HOME.to_owned();
    for (at, line) in [title].into_iter().chain(arranged(lines, columns)).take(rows).enumerate() {
        let text: String = line.text.chars().take(columns).collect();
        let (colour, plain) = match line.tone {
            _ if !is_coloured => ("", ""),
            Tone::Plain => ("", PLAIN),
            Tone::Head => ("\x1b[1m", PLAIN),
            Tone::Alarm => ("\x1b[31m", PLAIN),
        };
        let begin = if at == 0 { "" } else { "\r\n" };
        let _ = write!(page, "{begin}{colour}{text}{plain}\x1b[K");
    }
    page + CLEAR
}

/// What was found over as many rows as it takes, for its end says who is waited for; then the table, with those ranks above the others.
fn arranged(lines: &[Line], columns: usize) -> Vec<Line> {
    let head = lines.iter().position(|line| line.tone == Tone::Head).unwrap_or(lines.len());
    let (found, table) = lines.split_at(head);
    let (first, others): (Vec<&Line>, Vec<&Line>) = table.iter().partition(|line| line.tone != Tone::Plain);
    let found = found.iter().flat_map(|line| wrapped(line, columns));
    found.chain(first.into_iter().chain(others).cloned()).collect()
}

/// A line in rows of so many letters, broken between words where that is possible.
fn wrapped(line: &Line, columns: usize) -> Vec<Line> {
    let mut rows = Vec::new();
    let mut rest: Vec<char> = line.text.chars().collect();
    while rest.len() > columns && columns > 0 {
        let gap = rest[..=columns].iter().rposition(|letter| *letter == ' ').filter(|gap| *gap > 0);
        let mut next = rest.split_off(gap.unwrap_or(columns));
        next.drain(..usize::from(gap.is_some()));
        rows.push(std::mem::replace(&mut rest, next));
    }
    rows.push(rest);
    rows.into_iter().map(|row| Line { text: row.into_iter().collect(), tone: line.tone }).collect()
}

/// Whether the user and the terminal take colours.
fn is_coloured() -> bool {
    let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !is_refused && std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
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
const PLAIN: &str = "\x1b[0m";
/// All below the cursor.
const CLEAR: &str = "\x1b[J";
/// `q`, Ctrl-C and Ctrl-D.
const LEAVING: [u8; 4] = [b'q', b'Q', 3, 4];

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, tone: Tone) -> Line {
        Line { text: text.to_owned(), tone }
    }

    fn second() -> Duration {
        Duration::from_secs(1)
    }

    #[test]
    fn a_page_fits_its_terminal() {
        let lines = [line("RANK  GROUP", Tone::Head), line("0  wörld", Tone::Alarm), line("1  world", Tone::Plain)];
        assert_eq!(
            page(&lines, (3, 7), second(), true),
            "\x1b[Hphalanx\x1b[0m\x1b[K\r\n\x1b[1mRANK  G\x1b[0m\x1b[K\r\n\x1b[31m0  wörl\x1b[0m\x1b[K\x1b[J"
        );
        assert_eq!(
            page(&lines, (3, 7), second(), false),
            "\x1b[Hphalanx\x1b[K\r\nRANK  G\x1b[K\r\n0  wörl\x1b[K\x1b[J"
        );
    }

    #[test]
    fn a_finding_is_shown_to_its_end() {
        let found = "job nightly, world: ranks 0, 1, 3 in all_reduce 81920 for 3.2 s at jobs/nightly/train.py:12: waiting for rank 2";
        let page = page(&[line(found, Tone::Alarm)], (24, 80), second(), false);
        let rows: Vec<&str> = page.split("\x1b[K\r\n").collect();
        let first = "job nightly, world: ranks 0, 1, 3 in all_reduce 81920 for 3.2 s at";
        assert_eq!(rows[1..], [first, "jobs/nightly/train.py:12: waiting for rank 2\x1b[K\x1b[J"]);
        let rows = |columns| wrapped(&line("ab cdefg h", Tone::Alarm), columns).into_iter().map(|row| row.text);
        assert_eq!(rows(4).collect::<Vec<_>>(), ["ab", "cdef", "g h"]);
        assert_eq!(rows(0).collect::<Vec<_>>(), ["ab cdefg h"]);
    }

    #[test]
    fn ranks_that_are_waited_for_are_above_the_others() {
        let head = [line("found", Tone::Alarm), line("RANK", Tone::Head)];
        let mut lines: Vec<Line> = (0..50).map(|rank| line(&rank.to_string(), Tone::Plain)).collect();
        lines[40].tone = Tone::Alarm;
        let lines = [&head[..], &lines].concat();
        let shown: Vec<String> = arranged(&lines, 80).into_iter().take(4).map(|line| line.text).collect();
        assert_eq!(shown, ["found", "RANK", "40", "0"]);
    }
}
