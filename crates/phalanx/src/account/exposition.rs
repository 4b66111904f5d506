//! An account in the text format of Prometheus, version 0.0.4.

use std::fmt::{self, Display, Write};

use super::Account;
use super::series::{Family, Shape, Value, families};

/// The account as a page for Prometheus.
pub(crate) fn exposition(account: &Account) -> String {
    let mut page = String::new();
    for Family { name, shape, help, samples } in families(account) {
        let _ = write!(page, "# HELP {name} {help}\n# TYPE {name} {shape}\n");
        for sample in samples {
            let labels: Vec<String> =
                sample.labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
            let _ = writeln!(page, "{name}{}{{{}}} {}", sample.suffix, labels.join(","), sample.value);
        }
    }
    page
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

impl Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Shape::Counter => "counter",
            Shape::Gauge => "gauge",
            Shape::Histogram => "histogram",
        })
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Count(count) => count.fmt(f),
            Value::Measure(measure) => measure.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
