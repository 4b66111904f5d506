//! What many figures come to: those in the middle, and at the edges.

/// The figure that this share of all does not exceed, of figures in ascending order.
pub(crate) fn quantile<T: Copy + Default>(ascending: &[T], share: f64) -> T {
    let last = ascending.len().saturating_sub(1);
    ascending.get((last as f64 * share).round() as usize).copied().unwrap_or_default()
}

/// The figure in the middle, or what is halfway between the two that are.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => 0.0,
        len if len % 2 == 1 => figures[middle],
        _ => f64::midpoint(figures[middle - 1], figures[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_found() {
        assert_eq!(median(vec![]), 0.0);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn a_share_of_the_figures_is_not_exceeded() {
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|share| quantile(&[1, 2, 3, 4, 5], share)), [1, 3, 5, 5]);
        assert_eq!(quantile::<u8>(&[], 0.5), 0);
    }
}
