//! A picture of latency over size, one line an operation, both axes logarithmic: plain SVG, written by hand.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use super::case::Case;
use crate::failure::Failure;
use crate::sizes;
use crate::svg::{Drawing, GRID, INK};

/// A picture in the making.
#[derive(Debug)]
pub(super) struct Plot {
    file: File,
    path: String,
    lines: Vec<Line>,
}

/// One operation: bytes and microseconds.
#[derive(Debug)]
struct Line {
    name: &'static str,
    points: Vec<(f64, f64)>,
}

/// From a range of values to a range of the picture, logarithmically.
#[derive(Clone, Copy, Debug)]
struct Axis {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
}

impl Plot {
    /// Creates the file, so that a path that cannot be written is told of before anything is measured.
    pub(super) fn create(path: &Path) -> Result<Plot, Failure> {
        let path_text = path.display().to_string();
        let file = File::create(path).map_err(|error| Failure::Stopped(format!("--plot {path_text}: {error}")))?;
        Ok(Plot { file, path: path_text, lines: vec![] })
    }

    /// Adds what was measured. A size of nothing has no place on a logarithmic axis.
    pub(super) fn add(&mut self, case: &Case, micros: f64) {
        let (name, bytes) = (case.kind.name(), case.byte_len() as f64);
        if bytes <= 0.0 || micros <= 0.0 {
            return;
        }
        match self.lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push((bytes, micros)),
            None => self.lines.push(Line { name, points: vec![(bytes, micros)] }),
        }
    }

    /// Writes the picture under this title.
    pub(super) fn draw(mut self, title: &str) -> Result<(), Failure> {
        let picture = picture(&self.lines, title);
        let written = self.file.write_all(picture.as_bytes());
        written.map_err(|error| Failure::Stopped(format!("--plot {}: {error}", self.path)))
    }
}

impl Axis {
    fn at(&self, value: f64) -> f64 {
        let share = (value / self.from).ln() / (self.to / self.from).ln();
        self.start + share * (self.end - self.start)
    }

    /// Powers of `base` on the axis.
    fn ticks(&self, base: f64) -> impl Iterator<Item = f64> {
        let last = self.to * 1.001;
        let first = base.powf((self.from / 1.001).log(base).ceil());
        std::iter::successors(Some(first), move |tick| Some(tick * base)).take_while(move |tick| *tick <= last)
    }
}

fn picture(lines: &[Line], title: &str) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let across = axis(points().map(|point| point.0), 2.0, [LEFT, RIGHT]);
    let up = axis(points().map(|point| point.1), 10.0, [BOTTOM, TOP]);
    let mut svg = Drawing::new(WIDTH, HEIGHT);
    svg.text([LEFT, TOP - 22.0], "start", title);
    grid(&mut svg, across, up);
    for (at, line) in lines.iter().enumerate() {
        draw_line(&mut svg, line, COLOURS[at % COLOURS.len()], across, up);
        let y = TOP + 10.0 + 22.0 * at as f64;
        let colour = COLOURS[at % COLOURS.len()];
        svg.stroke([RIGHT + 18.0, y, RIGHT + 42.0, y], colour, 2.5);
        svg.text([RIGHT + 50.0, y + 4.5], "start", line.name);
    }
    svg.finish()
}

/// An axis that begins and ends at powers of `base` around the values.
fn axis(values: impl Iterator<Item = f64>, base: f64, [start, end]: [f64; 2]) -> Axis {
    let (least, most) =
        values.fold((f64::INFINITY, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
    let (least, most) = if most > 0.0 { (least, most) } else { (1.0, 1.0) };
    let from = base.powf(least.log(base).floor());
    let to = base.powf(most.log(base).ceil()).max(from * base);
    Axis { from, to, start, end }
}

fn grid(svg: &mut Drawing, across: Axis, up: Axis) {
    let octaves = (across.to / across.from).log2();
    let step = 2.0_f64.powf((octaves / 9.0).ceil());
    for bytes in std::iter::successors(Some(across.from), |bytes| Some(bytes * step)).take_while(|at| *at <= across.to)
    {
        let x = across.at(bytes);
        svg.stroke([x, BOTTOM, x, TOP], GRID, 1.0);
        svg.text([x, BOTTOM + 20.0], "middle", &sizes::show(bytes as usize));
    }
    for micros in up.ticks(10.0) {
        let y = up.at(micros);
        svg.stroke([LEFT, y, RIGHT, y], GRID, 1.0);
        svg.text([LEFT - 8.0, y + 4.5], "end", &time(micros));
        for minor in [2.0, 5.0].map(|times| micros * times).into_iter().filter(|minor| *minor < up.to) {
            svg.stroke([LEFT, up.at(minor), RIGHT, up.at(minor)], MINOR_GRID, 1.0);
        }
    }
    svg.stroke([LEFT, BOTTOM, RIGHT, BOTTOM], INK, 1.0);
    svg.stroke([LEFT, BOTTOM, LEFT, TOP], INK, 1.0);
    svg.text([(LEFT + RIGHT) / 2.0, BOTTOM + 44.0], "middle", "bytes of the larger of a rank's input and output");
    svg.upright_text([22.0, (TOP + BOTTOM) / 2.0], "median time of a call");
}

fn draw_line(svg: &mut Drawing, line: &Line, colour: &str, across: Axis, up: Axis) {
    let mut points = line.points.clone();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let places: Vec<[f64; 2]> = points.into_iter().map(|(bytes, micros)| [across.at(bytes), up.at(micros)]).collect();
    svg.polyline(&places, colour);
    places.into_iter().for_each(|place| svg.dot(place, colour));
}

fn time(micros: f64) -> String {
    match micros {
        micros if micros >= 1e6 => format!("{} s", micros / 1e6),
        micros if micros >= 1e3 => format!("{} ms", micros / 1e3),
        micros => format!("{} us", (micros * 1e3).round() / 1e3),
    }
}

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 540.0;
const LEFT: f64 = 92.0;
const RIGHT: f64 = 730.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 470.0;
const MINOR_GRID: &str = "#eeeeee";
/// One for each operation that has sizes, as far apart as can be.
const COLOURS: [&str; 9] =
    ["#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#e377c2", "#555555", "#17a2b8"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_inside_and_every_line_has_its_name() {
        let lines = [
            Line { name: "all_reduce", points: vec![(1e6, 900.0), (8.0, 0.4)] },
            Line { name: "broadcast", points: vec![(64.0, 1.0)] },
        ];
        let svg = picture(&lines, "2 ranks, a < b");
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n") && svg.contains("a &lt; b"), "{svg}");
        assert!(svg.contains(">all_reduce<") && svg.contains(">broadcast<") && svg.contains(">100 us<"), "{svg}");
        let number = |text: &str| text.split('"').next().and_then(|text| text.parse::<f64>().ok());
        let centres: Vec<f64> = svg.split("cx=\"").skip(1).filter_map(number).collect();
        assert_eq!(centres.len(), 3);
        assert!(centres.iter().all(|x| (LEFT..=RIGHT).contains(x)), "{centres:?}");
    }

    #[test]
    fn nothing_and_one_point_can_be_drawn_too() {
        assert!(!picture(&[], "none").contains("NaN"));
        let one = picture(&[Line { name: "scatter", points: vec![(8.0, 1.0)] }], "one");
        assert!(!one.contains("NaN") && !one.contains("inf"), "{one}");
    }
}
