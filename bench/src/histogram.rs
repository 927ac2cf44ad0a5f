//! Idle-age histograms, estimated and true, on common edges, and their distance. Pure.

use lowtide_model::cohort::AgeBin;

use crate::truth::Truth;

/// A kind of memory (anonymous or file) below this share of the bytes does not decide which edges are known.
const SMALL: f64 = 0.01;

/// Bytes idle at least so long: (age in seconds, bytes), ascending in age, beginning with age 0, which holds all.
pub type Idle = Vec<(f64, f64)>;

/// The histogram of a record's bins, anonymous and file memory together. An edge is known where every kind that matters has
/// a bin that begins there.
pub fn estimated(bins: &[AgeBin]) -> Idle {
    let total: f64 = bins.iter().map(|bin| bin.size.bytes).sum();
    let matters = |anon: bool| {
        let bytes: f64 = bins.iter().filter(|bin| bin.anon == anon).map(|bin| bin.size.bytes).sum();
        bytes > SMALL * total
    };
    let begins = |anon: bool, edge: f64| bins.iter().any(|bin| bin.anon == anon && same(bin.min_s, edge));
    let mut edges: Vec<f64> = bins.iter().map(|bin| bin.min_s).collect();
    edges.sort_by(f64::total_cmp);
    edges.dedup_by(|a, b| same(*a, *b));
    edges.retain(|edge| [true, false].into_iter().all(|anon| !matters(anon) || begins(anon, *edge)));
    let older = |edge: f64| bins.iter().filter(|bin| bin.min_s >= edge - 1e-9).map(|bin| bin.size.bytes).sum();
    edges.into_iter().map(|edge| (edge, older(edge))).collect()
}

/// The true histogram at a moment.
pub fn real(truth: &Truth, t_s: f64) -> Option<Idle> {
    let mut idle = vec![(0.0, truth.at(t_s, |line| Some(line.resident))? + truth.header.own_bytes())];
    let ages: Vec<u32> = truth.lines.first()?.cold.keys().copied().collect();
    for age in ages {
        idle.push((f64::from(age), truth.at(t_s, |line| line.cold.get(&age).copied())?));
    }
    Some(idle)
}

/// Share of the true bytes that lie in the wrong bin, percent: half the sum of the bins' differences (the total
/// variation distance), on the edges that both know. Memory that only one of them has counts half. `None` where they have
/// no edge but 0 in common, or there is no memory.
pub fn distance(estimate: &Idle, truth: &Idle) -> Option<f64> {
    let total = truth.first()?.1;
    let shared: Vec<(f64, f64)> = truth
        .iter()
        .filter_map(|(edge, real)| Some((*real, estimate.iter().find(|(at, _)| same(*at, *edge))?.1)))
        .collect();
    if shared.len() < 2 || total <= 0.0 {
        return None;
    }
    let next = shared.iter().skip(1).copied().chain([(0.0, 0.0)]);
    let sum: f64 = shared
        .iter()
        .zip(next)
        .map(|((real, guess), (next_real, next_guess))| ((real - next_real) - (guess - next_guess)).abs())
        .sum();
    Some(100.0 * sum / (2.0 * total))
}

fn same(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_model::cohort::Estimate;
    use proptest::prelude::*;

    fn bin(anon: bool, min_s: f64, max_s: Option<f64>, bytes: f64) -> AgeBin {
        AgeBin { anon, min_s, max_s, size: Estimate { bytes, ci95: 0.0 }, first_touched: None }
    }

    #[test]
    fn kinds_are_added_on_the_edges_both_know() {
        let bins = [
            bin(true, 0.0, Some(1.0), 100.0),
            bin(true, 1.0, Some(5.0), 50.0),
            bin(true, 5.0, None, 30.0),
            bin(false, 0.0, Some(1.0), 10.0),
            bin(false, 1.0, None, 10.0),
        ];
        assert_eq!(estimated(&bins), [(0.0, 200.0), (1.0, 90.0)]);
        let small = [bins[0], bins[1], bins[2], bin(false, 0.0, None, 0.5)];
        assert_eq!(estimated(&small), [(0.0, 180.5), (1.0, 80.0), (5.0, 30.0)]);
    }

    #[test]
    fn all_in_the_wrong_bin_is_a_hundred_percent() {
        let truth = vec![(0.0, 10.0), (1.0, 10.0), (2.0, 0.0)];
        let wrong = vec![(0.0, 10.0), (1.0, 0.0), (2.0, 0.0)];
        assert_eq!(distance(&wrong, &truth), Some(100.0));
        assert_eq!(distance(&vec![(0.0, 10.0)], &truth), None, "nothing to compare");
    }

    fn idle() -> impl Strategy<Value = Idle> {
        prop::collection::vec(0.0f64..1e6, 4).prop_map(|bins| {
            let older = |from: usize| bins[from..].iter().sum::<f64>() + 1.0;
            [0.0, 1.0, 2.0, 5.0].into_iter().enumerate().map(|(at, edge)| (edge, older(at))).collect()
        })
    }

    proptest! {
        #[test]
        fn distances_are_a_metric_up_to_the_total(a in idle(), b in idle(), c in idle()) {
            // All scaled by their own truth's total, so the metric's laws hold for distance times total.
            let apart = |x: &Idle, y: &Idle| distance(x, y).unwrap() * y[0].1;
            prop_assert!(distance(&a, &a).unwrap().abs() < 1e-9);
            prop_assert!((apart(&a, &b) - apart(&b, &a)).abs() < 1e-3);
            prop_assert!(apart(&a, &c) <= apart(&a, &b) + apart(&b, &c) + 1e-3);
        }

        #[test]
        fn equal_totals_are_at_most_a_hundred_percent_apart(a in idle(), b in idle()) {
            let scale = a[0].1 / b[0].1;
            let b: Idle = b.into_iter().map(|(edge, bytes)| (edge, bytes * scale)).collect();
            let apart = distance(&a, &b).unwrap();
            prop_assert!((0.0..=100.0 + 1e-6).contains(&apart));
        }

        #[test]
        fn fewer_edges_never_show_more(a in idle(), b in idle(), drop in 1usize..4) {
            let coarse: Idle = a.iter().enumerate().filter(|(at, _)| *at != drop).map(|(_, point)| *point).collect();
            prop_assert!(distance(&coarse, &b).unwrap() <= distance(&a, &b).unwrap() + 1e-9);
        }
    }
}
