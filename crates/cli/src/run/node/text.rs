//! Accounts and judgements as JSON, on their way through the store.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::judgement::{Account, Cry, Judgement};
use crate::run::output::{Panic, Remains};
use crate::run::process::exit::Exit;
use crate::run::verdict::{Accusation, Fact, Report, State, Verdict};

impl Account {
    pub(crate) fn to_text(&self) -> String {
        let facts: Vec<Value> = self.facts.iter().map(fact_to_value).collect();
        json!({"facts": facts}).to_string()
    }

    pub(crate) fn from_text(text: &[u8]) -> Option<Account> {
        let value: Value = serde_json::from_slice(text).ok()?;
        Some(Account { facts: value["facts"].as_array()?.iter().map(fact_from_value).collect::<Option<_>>()? })
    }
}

impl Cry {
    pub(crate) fn to_text(&self) -> String {
        json!({"why": self.why, "final": self.is_final, "first": self.is_first}).to_string()
    }

    pub(crate) fn from_text(text: &[u8]) -> Option<Cry> {
        let value: Value = serde_json::from_slice(text).ok()?;
        let (is_final, is_first) = (value["final"].as_bool()?, value["first"] == true);
        Some(Cry { why: value["why"].as_str()?.to_owned(), is_final, is_first })
    }
}

impl Judgement {
    pub(crate) fn to_text(&self) -> String {
        let verdict = self.verdict.as_ref();
        let verdict = verdict.map(|verdict| json!({"headline": verdict.headline, "details": verdict.details}));
        json!({"verdict": verdict, "again": self.again}).to_string()
    }

    pub(crate) fn from_text(text: &[u8]) -> Option<Judgement> {
        let value: Value = serde_json::from_slice(text).ok()?;
        let verdict = match &value["verdict"] {
            Value::Null => None,
            verdict => Some(Verdict {
                headline: verdict["headline"].as_str()?.to_owned(),
                details: strings(&verdict["details"])?,
            }),
        };
        Some(Judgement { verdict, again: value["again"].as_bool()? })
    }
}

fn fact_to_value(fact: &Fact) -> Value {
    let (code, signal) = match fact.state {
        State::Ended(Exit::Code(code)) | State::Stopped(Some(Exit::Code(code))) => (Some(code), None),
        State::Ended(Exit::Signal(signal)) | State::Stopped(Some(Exit::Signal(signal))) => (None, Some(signal)),
        State::Stopped(None) | State::Halted => (None, None),
    };
    let (stopped, halted) = (matches!(fact.state, State::Stopped(_)), fact.state == State::Halted);
    // Only those who may be to blame are quoted.
    let tail = if fact.was_broken(true) { &fact.remains.tail[..] } else { &[] };
    let panic = fact.remains.panic.as_ref().map(|panic| json!([panic.place, panic.message]));
    let report = fact.report.as_ref().map(|report| json!({"message": report.message, "missing": report.missing}));
    let accusation = fact.accusation.as_ref().map(Accusation::to_value);
    json!({
        "rank": fact.rank, "pid": fact.pid, "host": fact.host, "code": code, "signal": signal,
        "stopped": stopped, "halted": halted, "after": fact.after.as_secs_f64(), "report": report, "accusation": accusation, "tail": tail,
        "panic": panic, "memory": fact.memory, "log": fact.log.as_ref().map(|path| path.to_string_lossy()),
    })
}

fn fact_from_value(value: &Value) -> Option<Fact> {
    let exit = number(&value["code"]).map(Exit::Code).or_else(|| number(&value["signal"]).map(Exit::Signal));
    let state = match exit {
        _ if value["halted"] == true => State::Halted,
        Some(exit) if value["stopped"] != true => State::Ended(exit),
        exit => State::Stopped(exit),
    };
    let text = |name: &str| value[name].as_str().map(str::to_owned);
    Some(Fact {
        rank: usize::try_from(value["rank"].as_u64()?).ok()?,
        pid: number(&value["pid"])?,
        host: text("host")?,
        state,
        after: Duration::try_from_secs_f64(value["after"].as_f64()?).ok()?,
        report: report(&value["report"]),
        accusation: Accusation::of(&value["accusation"]),
        remains: Remains { tail: strings(&value["tail"])?, panic: panic(&value["panic"]) },
        memory: text("memory"),
        log: text("log").map(PathBuf::from),
    })
}

fn report(value: &Value) -> Option<Report> {
    let missing = value["missing"].as_array()?.iter();
    let missing = missing.filter_map(|rank| usize::try_from(rank.as_u64()?).ok()).collect();
    Some(Report { message: value["message"].as_str()?.to_owned(), missing })
}

fn panic(value: &Value) -> Option<Panic> {
    Some(Panic { place: value[0].as_str()?.to_owned(), message: value[1].as_str()?.to_owned() })
}

fn number(value: &Value) -> Option<i32> {
    i32::try_from(value.as_i64()?).ok()
}

fn strings(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|line| line.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(state: State) -> Fact {
        Fact {
            rank: 3,
            pid: 4711,
            host: "a".to_owned(),
            state,
            after: Duration::from_millis(1500),
            report: Some(Report { message: "no \"way\"".to_owned(), missing: vec![1, 2] }),
            accusation: Some(Accusation { failure: "rank 2 is dead".to_owned(), ranks: vec![2], gone: true }),
            remains: Remains {
                tail: vec!["last\u{fffd}".to_owned()],
                panic: Some(Panic { place: "a.rs:1".to_owned(), message: "m".to_owned() }),
            },
            memory: Some("rose".to_owned()),
            log: Some(PathBuf::from("logs/x")),
        }
    }

    #[test]
    fn accounts_come_back_as_they_were() {
        let bare = Fact {
            report: None,
            accusation: None,
            remains: Remains::default(),
            memory: None,
            log: None,
            ..fact(State::Stopped(None))
        };
        let halted = Fact { state: State::Halted, ..bare.clone() };
        let exits = [Exit::Code(3), Exit::Signal(9)];
        let ended = exits.into_iter().flat_map(|exit| [State::Ended(exit), State::Stopped(Some(exit))]);
        let facts = ended.map(fact).chain([halted, bare]).collect();
        for account in [Account { facts }, Account { facts: vec![] }] {
            assert_eq!(Account::from_text(account.to_text().as_bytes()), Some(account));
        }
    }

    #[test]
    fn cries_come_back_as_they_were() {
        for (is_final, is_first) in [(false, true), (true, false)] {
            let cry = Cry { why: "\"no\"".to_owned(), is_final, is_first };
            assert_eq!(Cry::from_text(cry.to_text().as_bytes()), Some(cry));
        }
    }

    #[test]
    fn judgements_come_back_as_they_were() {
        let verdict = Verdict { headline: "h".to_owned(), details: vec!["  d".to_owned()] };
        for judgement in [Judgement { verdict: None, again: false }, Judgement { verdict: Some(verdict), again: true }]
        {
            assert_eq!(Judgement::from_text(judgement.to_text().as_bytes()), Some(judgement));
        }
    }

    #[test]
    fn odd_text_is_none_of_them() {
        for odd in ["", "{}", "7", r#"{"facts": [{}]}"#, r#"{"verdict": 1, "again": 2}"#, r#"{"why": "a"}"#] {
            assert_eq!(Account::from_text(odd.as_bytes()), None);
            assert_eq!(Cry::from_text(odd.as_bytes()), None);
            assert_eq!(Judgement::from_text(odd.as_bytes()), None);
        }
        let late = r#"{"facts":[{"rank":0,"pid":1,"host":"a","after":-1,"tail":[]}]}"#;
        assert_eq!(Account::from_text(late.as_bytes()), None);
    }
}
