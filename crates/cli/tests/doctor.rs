//! `phalanx doctor` as a user meets it: what it prints, and what it says of limits that are too low.

use std::process::{Command, Output};

use serde_json::Value;

fn doctor(limits: &str, arguments: &str) -> Output {
    let script = format!("{limits} exec \"$0\" doctor {arguments}");
    Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_phalanx")]).output().expect("a shell")
}

fn findings(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))).collect()
}

fn of<'a>(findings: &'a [Value], check: &str) -> &'a Value {
    findings.iter().find(|finding| finding["check"] == check).unwrap_or_else(|| panic!("no {check} in {findings:?}"))
}

#[test]
fn everything_is_looked_at_and_the_exit_code_follows() {
    let output = doctor("", "--json");
    let findings = findings(&output);
    assert_eq!(findings.len(), 11, "{findings:?}");
    for check in ["messages over shm", "messages over tcp"] {
        let finding = of(&findings, check);
        assert_ne!(finding["level"], "wrong", "{finding}");
        assert!(finding["found"].as_str().is_some_and(|found| found.contains(" us for 8 bytes, ")), "{finding}");
    }
    let is_wrong = findings.iter().any(|finding| finding["level"] == "wrong");
    assert_eq!(output.status.code(), Some(i32::from(is_wrong)), "{findings:?}");
}

#[test]
fn limits_that_are_too_low_are_wrong_and_what_mends_them_is_told() {
    let output = doctor("ulimit -f 2000; ulimit -n 100; ulimit -l 0;", "--json --no-bandwidth");
    let findings = findings(&output);
    for (check, word) in [("shared memory", "ulimit -f"), ("open files", "hard limit, 100"), ("locked memory", "-l")] {
        let finding = of(&findings, check);
        assert_eq!(finding["level"], "wrong", "{finding}");
        assert!(finding["how"].as_str().is_some_and(|how| how.contains(word)), "{finding}");
    }
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_table_has_a_row_for_each_and_counts_what_is_wrong() {
    let output = doctor("ulimit -Sn 100;", "--no-bandwidth");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("\nwrong  open files          100, enough for 13 ranks over TCP\n"), "{text}");
    let last = text.lines().last().expect("a summary");
    assert!(last.contains(" wrong, ") && last.ends_with(" slower than could be"), "{last}");
    assert_eq!(output.status.code(), Some(1));
}
