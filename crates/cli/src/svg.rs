//! Pictures as plain SVG, line by line. What they show is the commands' affair.

use std::fmt::Write as _;

/// A picture in the making, on white.
#[derive(Debug)]
pub(crate) struct Drawing(String);

impl Drawing {
    pub(crate) fn new(width: f64, height: f64) -> Drawing {
        Drawing(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        ))
    }

    pub(crate) fn stroke(&mut self, [x1, y1, x2, y2]: [f64; 4], colour: &str, width: f64) {
        let _ = writeln!(
            self.0,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\" stroke-width=\"{width}\"/>"
        );
    }

    pub(crate) fn text(&mut self, [x, y]: [f64; 2], anchor: &str, words: &str) {
        let words = escaped(words);
        let _ =
            writeln!(self.0, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{INK}\">{words}</text>");
    }

    /// Words that run upwards, centred.
    pub(crate) fn upright_text(&mut self, [x, y]: [f64; 2], words: &str) {
        let words = escaped(words);
        let _ = writeln!(
            self.0,
            "<text x=\"{x}\" y=\"{y}\" transform=\"rotate(-90 {x} {y})\" text-anchor=\"middle\" fill=\"{INK}\">{words}</text>"
        );
    }

    pub(crate) fn polyline(&mut self, points: &[[f64; 2]], colour: &str) {
        let list: Vec<String> = points.iter().map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
        let list = list.join(" ");
        let _ = writeln!(self.0, "<polyline points=\"{list}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>");
    }

    pub(crate) fn dot(&mut self, [x, y]: [f64; 2], colour: &str) {
        let _ = writeln!(self.0, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.2\" fill=\"{colour}\"/>");
    }

    pub(crate) fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;")
}

pub(crate) const INK: &str = "#222222";
pub(crate) const GRID: &str = "#cccccc";
