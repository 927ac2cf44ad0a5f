//! Sets of addresses as ranges, and their intersection. Pure.

/// First byte, and one past the last.
pub type Range = (u64, u64);

/// The same bytes in ascending ranges that neither overlap nor touch.
pub fn normal(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.retain(|(start, end)| start < end);
    ranges.sort_unstable();
    let mut out: Vec<Range> = Vec::with_capacity(ranges.len());
    for (start, end) in ranges {
        match out.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => out.push((start, end)),
        }
    }
    out
}

/// Number of bytes. The ranges must be normal.
pub fn bytes(ranges: &[Range]) -> u64 {
    ranges.iter().map(|(start, end)| end - start).sum()
}

/// The bytes that lie in both. Both must be normal.
pub fn common(a: &[Range], b: &[Range]) -> Vec<Range> {
    let (mut i, mut j) = (0, 0);
    let mut out = Vec::new();
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        let (start, end) = (x.0.max(y.0), x.1.min(y.1));
        if start < end {
            out.push((start, end));
        }
        if x.1 <= y.1 {
            i += 1;
        } else {
            j += 1;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn any_ranges() -> impl Strategy<Value = Vec<Range>> {
        prop::collection::vec((0u64..200, 0u64..20), 0..30)
            .prop_map(|list| list.into_iter().map(|(start, len)| (start, start + len)).collect())
    }

    fn set(ranges: &[Range]) -> BTreeSet<u64> {
        ranges.iter().flat_map(|(start, end)| *start..*end).collect()
    }

    proptest! {
        #[test]
        fn normal_ranges_are_the_same_bytes_apart_from_each_other(ranges in any_ranges()) {
            let sorted = normal(ranges.clone());
            prop_assert_eq!(set(&sorted), set(&ranges));
            prop_assert_eq!(bytes(&sorted), set(&ranges).len() as u64);
            prop_assert!(sorted.windows(2).all(|pair| pair[0].1 < pair[1].0));
            prop_assert_eq!(normal(sorted.clone()), sorted);
        }

        #[test]
        fn what_is_common_is_the_intersection(a in any_ranges(), b in any_ranges()) {
            let (a, b) = (normal(a), normal(b));
            let both = common(&a, &b);
            let expected: BTreeSet<u64> = set(&a).intersection(&set(&b)).copied().collect();
            prop_assert_eq!(set(&both), expected);
            prop_assert_eq!(bytes(&common(&b, &a)), bytes(&both));
            // Inclusion and exclusion.
            let union = normal(a.iter().chain(&b).copied().collect());
            prop_assert_eq!(bytes(&union) + bytes(&both), bytes(&a) + bytes(&b));
        }
    }
}
