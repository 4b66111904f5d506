//! Two ranks alone, and how fast messages go between them: for whoever asks about the machine rather than an operation.

use std::time::Duration;

use phalanx::{DType, ReduceOp};

use super::case::{Case, Memory};
use super::company::{Company, Terms};
use super::kind::Kind;
use super::measure::Pace;
use super::meeting::{Style, Transport};
use crate::failure::Failure;
use crate::run::process::cores;

/// What two ranks see that send each other this many bytes at once, over and over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Exchange {
    pub(crate) bytes: usize,
    /// The median time of one.
    pub(crate) micros: f64,
    /// Elements that came as others than they went.
    pub(crate) wrong: usize,
}

/// Measures messages of each size for this long.
pub(crate) fn pair(transport: Transport, sizes: &[usize], budget: Duration) -> Result<Vec<Exchange>, Failure> {
    let style =
        Style { algorithm: None, links: false, memory: Memory::Ordinary, hosts: 1, profile: None, is_bare: false };
    let pace = Pace { budget, burst: Duration::from_micros(20) };
    let cores = cores::one_each(&cores::usable(), 2);
    let mut company = Company::start(&Terms { np: 2, transport, style, pace, cores })?;
    let exchange = |&bytes: &usize| {
        let case = Case::new(Kind::SendRecv, bytes, 2, DType::U8, ReduceOp::Sum);
        let measured = company.measure(&case)?;
        Ok(Exchange { bytes, micros: measured.quantile(0.5), wrong: measured.wrong })
    };
    let exchanges = sizes.iter().map(exchange).collect::<Result<_, Failure>>()?;
    company.end()?;
    Ok(exchanges)
}
