//! A picture of the loss over the steps: plain SVG.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use crate::failure::Failure;
use crate::svg::{Drawing, GRID, INK};

/// A picture in the making.
#[derive(Debug)]
pub(super) struct Plot {
    file: File,
    path: String,
    losses: BTreeMap<u64, f64>,
}

impl Plot {
    /// Creates the file, so that a path that cannot be written is told of before anything is trained.
    pub(super) fn create(path: &Path) -> Result<Plot, Failure> {
        let text = path.display().to_string();
        let file = File::create(path).map_err(|error| Failure::Stopped(format!("--plot {text}: {error}")))?;
        Ok(Plot { file, path: text, losses: BTreeMap::new() })
    }

    /// Adds a step. One that was made again replaces what it was.
    pub(super) fn add(&mut self, step: u64, loss: f64) {
        self.losses.insert(step, loss);
    }

    /// Writes the picture under this title.
    pub(super) fn draw(mut self, title: &str) -> Result<(), Failure> {
        let written = self.file.write_all(picture(&self.losses, title).as_bytes());
        written.map_err(|error| Failure::Stopped(format!("--plot {}: {error}", self.path)))
    }
}

fn picture(losses: &BTreeMap<u64, f64>, title: &str) -> String {
    let most = losses.values().fold(0.0_f64, |most, loss| most.max(*loss)).ceil().max(1.0);
    let last = losses.keys().last().copied().unwrap_or(1).max(1) as f64;
    let across = |step: f64| LEFT + step / last * (RIGHT - LEFT);
    let up = |loss: f64| BOTTOM - loss / most * (BOTTOM - TOP);
    let mut drawing = Drawing::new(WIDTH, HEIGHT);
    drawing.text([LEFT, TOP - 22.0], "start", title);
    for share in 0..=4 {
        let (step, loss) = (last * f64::from(share) / 4.0, most * f64::from(share) / 4.0);
        drawing.stroke([LEFT, up(loss), RIGHT, up(loss)], GRID, 1.0);
        drawing.text([LEFT - 8.0, up(loss) + 4.5], "end", &format!("{loss}"));
        drawing.text([across(step), BOTTOM + 20.0], "middle", &format!("{step:.0}"));
    }
    drawing.stroke([LEFT, BOTTOM, RIGHT, BOTTOM], INK, 1.0);
    drawing.stroke([LEFT, BOTTOM, LEFT, TOP], INK, 1.0);
    drawing.text([(LEFT + RIGHT) / 2.0, BOTTOM + 44.0], "middle", "steps");
    let points: Vec<[f64; 2]> = losses.iter().map(|(step, loss)| [across(*step as f64), up(*loss)]).collect();
    drawing.polyline(&points, COLOUR);
    drawing.finish()
}

const WIDTH: f64 = 820.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 790.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 420.0;
const COLOUR: &str = "#1f77b4";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_a_point_inside() {
        let svg = picture(&BTreeMap::from([(1, 4.2), (2, 3.0), (10, 1.5)]), "a < b");
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n") && svg.contains("a &lt; b"), "{svg}");
        let points = svg.split("points=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
        let places: Vec<f64> = points.split([' ', ',']).map(|number| number.parse().unwrap()).collect();
        assert_eq!(places.len(), 6);
        assert!(
            places.chunks(2).all(|at| (LEFT..=RIGHT).contains(&at[0]) && (TOP..=BOTTOM).contains(&at[1])),
            "{places:?}"
        );
        assert!(!picture(&BTreeMap::new(), "none").contains("NaN"));
    }
}
