//! How a program is started: as it is, or by Python. Not when, and not with which variables.

use std::ffi::{OsStr, OsString};

use super::Options;

/// The words that start the program of a rank.
pub(super) fn words(options: &Options) -> Vec<OsString> {
    let is_script = options.program.first().is_some_and(|program| ends_in_py(program)) && !options.no_python;
    let python: &[&str] = match (options.module, is_script) {
        (true, _) => &[PYTHON, "-u", "-m"],
        // Unbuffered, as torchrun has it: what a rank printed before it died is seen.
        (false, true) => &[PYTHON, "-u"],
        (false, false) => &[],
    };
    python.iter().map(OsString::from).chain(options.program.iter().cloned()).collect()
}

fn ends_in_py(program: &OsStr) -> bool {
    program.as_encoded_bytes().ends_with(b".py")
}

const PYTHON: &str = "python3";

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn scripts_and_modules_are_started_by_python() {
        let cases = [
            ("run ./train --x 1", "./train --x 1"),
            ("run train.py a.py", "python3 -u train.py a.py"),
            ("run -m train.main x", "python3 -u -m train.main x"),
            ("run --no_python train.py", "train.py"),
        ];
        for (line, expected) in cases {
            let options = Line::try_parse_from(line.split(' ')).unwrap().options;
            assert_eq!(words(&options).join(OsStr::new(" ")), expected);
        }
    }
}
