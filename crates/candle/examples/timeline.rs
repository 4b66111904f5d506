//! Draws a step of a small GPT that two ranks hold, as one of them sees it: what it computes, and which gathers and reductions go on
//! meanwhile. `RAYON_NUM_THREADS=1 cargo run -p phalanx-candle --example timeline >docs/timeline.svg` made the picture in docs/training.md.

use std::error::Error;
use std::fmt::Write;
use std::io::{Write as _, stdout};
use std::time::Duration;

use candle_core::{DType, Device, Tensor};
use phalanx_candle::gpt::{Gpt, GptOptions, initial};
use phalanx_candle::ops::cross_entropy;
use phalanx_candle::{AdamW, FullyShard, Model, Optimizer, Policy};
use phalanx_comm::Threads;
use phalanx_core::{Group, OpKind};
use phalanx_fsdp::{Action, Event, Step, Traced};

const SIZES: GptOptions = GptOptions { vocabulary: 64, context: 128, width: 384, layers: 4, heads: 6 };
const STEPS: usize = 4;

/// A bar: its row, its beginning and end in seconds, and what it is.
struct Bar(usize, f64, f64, String);

fn main() -> Result<(), Box<dyn Error>> {
    let mut ranks = Threads::new(2).run(|group| bars(&group).map_err(|error| error.to_string()))?;
    Ok(stdout().write_all(picture(&ranks.swap_remove(0)?).as_bytes())?)
}

/// The bars of the last step.
fn bars(group: &Group) -> Result<Vec<Bar>, Box<dyn Error>> {
    let units = Gpt::new(SIZES, DType::F32, &Device::Cpu)?.into_units();
    let names: Vec<String> = units.iter().map(|unit| unit.name().to_owned()).collect();
    let mut model = Model::new(units, FullyShard::new(group.clone(), Policy::default().trace(true)))?;
    model.load(|name, shape| Ok(initial(1, name, shape, SIZES.layers)))?;
    let mut optimizer = AdamW::default();
    let ids: Vec<u32> = (0..4 * SIZES.context as u32).map(|at| at * 7 % 64).collect();
    let ids = Tensor::from_vec(ids, (4, SIZES.context), &Device::Cpu)?;
    let mut offset = None;
    for _ in 0..STEPS {
        traced(&mut model);
        let first = group.recorder().records().len();
        let loss = cross_entropy(&model.forward(&ids)?, &ids)?;
        model.backward(&loss)?;
        offset = Some(first);
        optimizer.step(&mut model, 1e-3)?;
        model.zero_gradients();
    }
    let (trace, records) = (traced(&mut model), group.recorder().records());
    let own = &records[offset.unwrap_or_default()..];
    // Two clocks: both saw the first gather begin.
    let begun = trace.iter().find(|one| matches!(one.what, Step::Did(Action::Gather(_)))).ok_or("no gather")?;
    let origin = own.first().ok_or("no operation")?.created.as_secs_f64() - begun.at.as_secs_f64();
    let mut bars = computed(&trace, &names, |at| at.as_secs_f64() + origin);
    let begun = |action: fn(usize) -> Action| {
        let units =
            trace.iter().filter_map(move |one| (0..SIZES.layers + 2).find(|unit| one.what == Step::Did(action(*unit))));
        units.map(|unit| names[unit].clone())
    };
    for (row, op, units) in
        [(1, OpKind::AllGather, begun(Action::Gather)), (2, OpKind::ReduceScatter, begun(Action::ReduceScatter))]
    {
        for (record, unit) in own.iter().filter(|record| record.op == op).zip(units) {
            let ended = record.ended.unwrap_or(record.created);
            bars.push(Bar(row, record.created.as_secs_f64(), ended.as_secs_f64(), unit));
        }
    }
    Ok(bars)
}

fn traced(model: &mut Model) -> Vec<Traced> {
    model.strategy_mut().and_then(FullyShard::engine).map(|engine| engine.take_trace()).unwrap_or_default()
}

/// From when a unit is there until it is done with, forwards and backwards.
fn computed(trace: &[Traced], names: &[String], clock: impl Fn(Duration) -> f64) -> Vec<Bar> {
    let (mut bars, mut began) = (vec![], Duration::ZERO);
    for one in trace {
        match one.what {
            Step::Came(Event::Copied(_)) => began = one.at,
            Step::Came(Event::AfterForward(unit)) => {
                bars.push(Bar(0, clock(began), clock(one.at), names[unit].clone()))
            }
            Step::Came(Event::AfterBackward { unit, .. }) => {
                bars.push(Bar(0, clock(began), clock(one.at), format!("{}, back", names[unit])));
            }
            _ => {}
        }
    }
    bars
}

fn picture(bars: &[Bar]) -> String {
    let first = bars.iter().map(|bar| bar.1).fold(f64::MAX, f64::min);
    let last = bars.iter().map(|bar| bar.2).fold(f64::MIN, f64::max);
    let across = |at: f64| 90.0 + (at - first) / (last - first) * 1090.0;
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1200 210\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"1200\" height=\"210\" fill=\"#ffffff\"/>\n",
    );
    for (row, name) in ["computes", "gathers", "reduces"].iter().enumerate() {
        let _ = writeln!(svg, "<text x=\"8\" y=\"{}\">{name}</text>", 42 + row * 60);
    }
    for Bar(row, begin, end, name) in bars {
        let (x, y, width) = (across(*begin), 20 + row * 60, (across(*end) - across(*begin)).max(0.5));
        let colour = ["#9ecae1", "#a1d99b", "#fdae6b"][*row];
        let _ = writeln!(
            svg,
            "<g><title>{name}, {:.2} ms</title><rect x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"36\" fill=\"{colour}\" stroke=\"#555\" stroke-width=\"0.5\"/>",
            (end - begin) * 1e3
        );
        if width > 6.0 * name.len() as f64 {
            let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{}\">{name}</text>", x + 3.0, y + 22);
        } else if *row > 0 {
            let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{}\" font-size=\"9\">{name}</text>", y + 47);
        }
        svg.push_str("</g>\n");
    }
    let _ = writeln!(
        svg,
        "<text x=\"90\" y=\"203\">one step of rank 0 of 2, {:.0} ms</text>\n</svg>",
        (last - first) * 1e3
    );
    svg
}
