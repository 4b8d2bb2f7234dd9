//! Numbers out of measurements.
#![allow(clippy::as_conversions, reason = "figures to look at: beyond 2^53 nothing is measured")]

use std::time::Duration;

/// A count as a number to calculate with.
pub(crate) fn real(count: usize) -> f64 {
    count as f64
}

/// How many per second.
pub(crate) fn rate(count: usize, elapsed: Duration) -> f64 {
    real(count) / elapsed.as_secs_f64().max(1e-9)
}

/// The value in the middle; the mean of the two in the middle of an even number. 0 of nothing.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match (values.get(half), half.checked_sub(1).and_then(|below| values.get(below))) {
        (Some(upper), Some(lower)) if values.len().is_multiple_of(2) => f64::midpoint(*upper, *lower),
        (Some(middle), _) => *middle,
        (None, _) => 0.0,
    }
}

/// The value that this share (0 to 1) of the sorted latencies does not exceed, in microseconds.
pub(crate) fn percentile(sorted: &[Duration], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let index = (real(last) * share).round() as usize;
    sorted.get(index).map_or(0.0, |latency| latency.as_secs_f64() * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(Vec::new()), 0.0);
    }

    #[test]
    fn percentile_of_sorted_latencies() {
        let latencies: Vec<_> = (1..=101).map(Duration::from_micros).collect();
        assert_eq!(percentile(&latencies, 0.5).round(), 51.0);
        assert_eq!(percentile(&latencies, 1.0).round(), 101.0);
        assert_eq!(percentile(&[], 0.5), 0.0);
    }
}
