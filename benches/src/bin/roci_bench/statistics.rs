//! What several rounds say together.

/// The middle of some values, and how far they lie apart.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) rounds: usize,
}

impl Summary {
    /// `None` of nothing. A value that is no number has no place in an order, and is left out.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        let half = values.len() / 2;
        let median =
            if values.len().is_multiple_of(2) { f64::midpoint(values[half - 1], values[half]) } else { values[half] };
        Some(Self { median, min, max, rounds: values.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::Summary;

    #[test]
    fn the_median_is_in_the_middle_whatever_the_order() {
        let of = |values: &[f64]| Summary::of(values.iter().copied());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[f64::NAN]), None);
        assert_eq!(of(&[3.0]), Some(Summary { median: 3.0, min: 3.0, max: 3.0, rounds: 1 }));
        assert_eq!(of(&[9.0, 1.0, 2.0]), Some(Summary { median: 2.0, min: 1.0, max: 9.0, rounds: 3 }));
        assert_eq!(of(&[4.0, f64::INFINITY, 1.0]), Some(Summary { median: 2.5, min: 1.0, max: 4.0, rounds: 2 }));
    }
}
