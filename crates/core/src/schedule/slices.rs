//! A span cut into one slice a member: who owns what in the sliced operations.

use super::step::portion;
use super::{Place, Span};
use crate::Counts;

/// Neighbouring slices of one place, numbered from 0.
#[derive(Clone, Debug)]
pub(super) struct Slices {
    place: Place,
    starts: Vec<usize>,
}

impl Slices {
    /// `span` cut into `parts` slices that differ by at most one element.
    pub(super) fn even(span: Span, parts: usize) -> Slices {
        let starts = (0..=parts).map(|part| span.start + portion(span.len, part, parts)).collect();
        Slices { place: span.place, starts }
    }

    /// One slice for each of `size` ranks, as an operation's counts have it.
    pub(super) fn counted(place: Place, counts: &Counts, size: usize) -> Slices {
        let mut starts = vec![0];
        starts.extend((0..size).scan(0, |end, rank| {
            *end += counts.of(rank);
            Some(*end)
        }));
        Slices { place, starts }
    }

    /// The same slices in the order of a team, laid end to end from the start of `place`.
    pub(super) fn reordered(&self, order: &[usize], place: Place) -> Slices {
        let mut starts = vec![0];
        starts.extend(order.iter().scan(0, |end, &slice| {
            *end += self.of(slice).len;
            Some(*end)
        }));
        Slices { place, starts }
    }

    /// The same cuts in another place, `start` elements from its beginning.
    pub(super) fn moved(&self, place: Place, start: usize) -> Slices {
        let starts = self.starts.iter().map(|&cut| cut - self.starts[0] + start).collect();
        Slices { place, starts }
    }

    /// The slice with this number.
    pub(super) fn of(&self, slice: usize) -> Span {
        self.run(slice, slice + 1)
    }

    /// Every slice.
    pub(super) fn spans(&self) -> Vec<Span> {
        self.pieces(0, 1)
    }

    /// The same piece of every slice.
    pub(super) fn pieces(&self, index: usize, pieces: usize) -> Vec<Span> {
        (0..self.starts.len() - 1).map(|slice| self.of(slice).piece(index, pieces)).collect()
    }

    /// The slices `first..end` as one span.
    pub(super) fn run(&self, first: usize, end: usize) -> Span {
        self.place.span(self.starts[first], self.starts[end] - self.starts[first])
    }

    /// All slices as one span.
    pub(super) fn whole(&self) -> Span {
        self.run(0, self.starts.len() - 1)
    }

    /// Elements of the longest slice.
    pub(super) fn longest(&self) -> usize {
        self.starts.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
    }
}
