use proptest::prelude::*;

use super::*;
use crate::PAGE;
use crate::curve::tests::{lru_misses, trace, watch, watch_some};

/// Every page that comes back costs a second, so that time lost is pages a second.
const A_SECOND: RefaultCosts = RefaultCosts { swap_s: 1.0, disk_s: 1.0 };

#[test]
fn a_limit_costs_what_an_lru_list_of_that_length_misses() {
    let (pages, ticks) = (2000u64, 400u32);
    let trace = trace(pages, ticks, 3);
    let (rows, episodes) = watch(pages, pages, 1, ticks, &mut |page, tick| {
        trace[usize::try_from(tick).unwrap()][usize::try_from(page).unwrap()]
    });
    let limits = Limits::of(&rows, &episodes, 1.0, true).unwrap();
    for capacity in [1100usize, 1250, 1400] {
        #[expect(clippy::cast_precision_loss)]
        let (bytes, misses) = ((capacity * 4096) as f64, lru_misses(&trace, capacity) as f64 / f64::from(ticks));
        let lost = limits.slowdown(bytes, &A_SECOND);
        assert!((lost - misses).abs() < 0.25 * misses, "{capacity} pages: {lost} against {misses} misses a second");
        // And back again: what is least for that loss.
        let least = limits.least(misses, &A_SECOND);
        assert!((least - bytes).abs() < 0.06 * bytes, "{least} against {bytes}");
    }
    assert_eq!(limits.slowdown(2000.0 * 4096.0, &A_SECOND), 0.0);
    // Without swap nothing of it can go.
    let limits = Limits::of(&rows, &episodes, 1.0, false).unwrap();
    assert!((limits.least(0.5, &A_SECOND) - 2000.0 * 4096.0).abs() <= 4096.0);
}

#[test]
fn more_pages_of_a_sample_or_fewer_change_nothing() {
    for sizes in [[500, 2000], [2000, 500]] {
        let limit = |tick: u32| sizes[usize::from(tick >= 45)];
        let (rows, episodes) = watch_some(8000, (&limit, 1), 80, &mut |page, _| page < 2000);
        let limits = Limits::of(&rows, &episodes, 1.0, true).unwrap();
        // To use 2,000 pages for the first time takes 2 s of the 80.
        let costs = RefaultCosts { swap_s: 1e-3, disk_s: 1e-3 };
        let least = limits.least(0.03, &costs) / 4096.0;
        assert!((1900.0..2200.0).contains(&least), "{least} of 2,000 pages, {sizes:?}");
    }
}

#[test]
fn what_is_used_in_phases_is_needed_in_one_at_a_time() {
    // 600 pages for 100 ticks, then 200 others, in turns.
    let phase = |tick: u32| (tick / 100) % 2;
    let uses = |page: u64, tick: u32| if phase(tick) == 0 { page < 600 } else { (600..800).contains(&page) };
    let (rows, episodes) = watch(1000, 1000, 1, 600, &mut { |page, tick| uses(page, tick) });
    let limits = Limits::of(&rows, &episodes, 1.0, true).unwrap();
    // A change of phase brings 600 or 200 pages back: five changes in 600 s, at 1 ms each some 0.3 %.
    let costs = RefaultCosts { swap_s: 1e-3, disk_s: 1e-3 };
    let least = limits.least(0.01, &costs) / 4096.0;
    assert!((590.0..640.0).contains(&least), "{least} pages");
    // Where nothing may be lost, both phases' pages are needed.
    let least = limits.least(1e-6, &costs) / 4096.0;
    assert!((790.0..1001.0).contains(&least), "{least} pages");
    let at = limits.tightest(400.0 * 4096.0, &costs).unwrap();
    assert_eq!(phase(u32_of(0.5 * (at.from_s + at.to_s))), 0, "the larger phase sets it: {at:?}");
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn u32_of(seconds: f64) -> u32 {
    seconds as u32
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn more_memory_never_costs_more(seed: u64, pages in 200u64..600, ticks in 60u32..200) {
        let trace = trace(pages, ticks, seed);
        let (rows, episodes) = watch(pages, 200, seed, ticks, &mut |page, tick| {
            trace[usize::try_from(tick).unwrap()][usize::try_from(page).unwrap()]
        });
        let limits = Limits::of(&rows, &episodes, 1.0, true).unwrap();
        #[expect(clippy::cast_precision_loss)]
        let all = (pages * PAGE) as f64;
        let lost: Vec<f64> = (0..=20).map(|part| limits.slowdown(all * f64::from(part) / 20.0, &A_SECOND)).collect();
        prop_assert!(lost.windows(2).all(|pair| pair[1] <= pair[0] + 1e-9), "{lost:?}");
        prop_assert_eq!(lost[20], 0.0);
        let least = limits.least(lost[10], &A_SECOND);
        prop_assert!(limits.slowdown(least, &A_SECOND) <= lost[10]);
    }
}
