//! Numbers and names as people read them in a narrow column.

use std::time::Duration;

/// A time with two digits or so.
pub(super) fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        ..0.001 => format!("{:.0} us", seconds * 1e6),
        ..1.0 => format!("{:.0} ms", seconds * 1e3),
        ..10.0 => format!("{seconds:.1} s"),
        ..120.0 => format!("{seconds:.0} s"),
        ..7200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

/// A number with three digits or so, in steps of a thousand.
pub(super) fn number(number: f64) -> String {
    let mut rest = number;
    for unit in ["", "k", "M", "G", "T"] {
        if rest < 999.5 {
            let digits = if rest < 9.95 && (rest.fract() > 0.05 || !unit.is_empty()) { 1 } else { 0 };
            return format!("{rest:.digits$}{unit}");
        }
        rest /= 1000.0;
    }
    format!("{rest:.0}P")
}

/// A name that others chose, without what a terminal would take for a command.
pub(super) fn plain(name: &str) -> String {
    name.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

#[cfg(test)]
pub(super) mod sample;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_numbers_are_short() {
        let time = |seconds| time(Duration::from_secs_f64(seconds));
        assert_eq!(
            [time(12e-6), time(0.25), time(3.12), time(61.0), time(600.0), time(9000.0)],
            ["12 us", "250 ms", "3.1 s", "61 s", "10 min", "2.5 h"]
        );
        assert_eq!(
            [0.0, 0.5, 3.0, 999.0, 1523.0, 12_300_000.0, 1e18].map(number),
            ["0", "0.5", "3", "999", "1.5k", "12M", "1000P"]
        );
    }

    #[test]
    fn a_name_gives_the_terminal_no_commands() {
        assert_eq!(plain("a\x1b[2Jb\n"), "a?[2Jb?");
    }
}
