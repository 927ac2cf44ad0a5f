use proptest::prelude::*;

use super::*;
use crate::policies::Policies;

const MIB: f64 = 1_048_576.0;

fn policy(toml: &str) -> Result<Replay, String> {
    let policies: Policies = toml::from_str(toml).unwrap();
    Replay::new(&policies["x"], RefaultCosts::default()).map_err(|error| error.to_string())
}

/// A workload of 100 MiB of which less is idle for longer ages, and little is refaulted.
fn minute(number: u32) -> Minute {
    let idle = AGE_EDGES_S.map(|edge| Some((100.0 - f64::from(edge).min(60.0)) * MIB));
    let back = std::array::from_fn(|at| Some(MIB / f64::from(AGE_EDGES_S[at + 1])));
    let returned = Returned { back, used: 60.0 * MIB, refaulted: 0.0 };
    Minute {
        now_s: 60.0 * f64::from(number + 1),
        lasts_s: 60.0,
        resident: PerKind { anon: 100.0 * MIB, file: 0.0 },
        idle: PerKind { anon: idle, file: [Some(0.0); EDGES] },
        returned: PerKind { anon: returned, file: Returned::default() },
        pressure: Some(0.0),
        ..Minute::default()
    }
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-6 * b.abs().max(1.0), "{a} {b}");
}

#[test]
fn what_is_older_is_gone_on_average_between_two_rounds() {
    let mut past = ReplayState::default();
    let always = policy("[x.age]\nanon = '10s'\nevery = '1ms'").unwrap();
    let effect = always.minute(&mut past, &minute(0));
    assert_eq!(effect.older_s, PerKind { anon: Some(10.0), file: None });
    assert!((effect.gone.anon / MIB - 90.0).abs() < 0.01 && (effect.back.anon / MIB - 0.1).abs() < 1e-3, "{effect:?}");
    // From 10 to 50 seconds on average: 70 MiB.
    let now_and_then = policy("[x.age]\nanon = '10s'\nevery = '40s'").unwrap();
    close(now_and_then.minute(&mut ReplayState::default(), &minute(0)).gone.anon / MIB, 70.0);
    // What was paged out already is gone, too.
    let swapped = Minute { swapped: 7.0 * MIB, ..minute(0) };
    close(now_and_then.minute(&mut ReplayState::default(), &swapped).gone.anon / MIB, 77.0);
}

#[test]
fn an_age_is_found_once_it_is_warm_and_only_from_what_was_before() {
    let promotion = policy("[x.promotion]\nlimit = '5%'\nwarm_up = '2m'").unwrap();
    let mut past = ReplayState::default();
    let ages: Vec<Option<f64>> = (0..6).map(|at| promotion.minute(&mut past, &minute(at)).older_s.anon).collect();
    // 5 % of 60 MiB a minute are 51 KiB a second: what is older than 20 s.
    assert_eq!(ages, [None, None, None, Some(20.0), Some(20.0), Some(20.0)]);
}

#[test]
fn brakes_hold_as_on_a_machine() {
    let age = policy("[x.age]\nanon = '10s'\nevery = '1ms'\nbrakes = { floor = '40M' }").unwrap();
    let mut past = ReplayState::default();
    close(age.minute(&mut past, &minute(0)).gone.anon / MIB, 60.0);
    let pressed = age.minute(&mut past, &Minute { pressure: Some(0.5), ..minute(1) });
    assert_eq!(pressed.held, Some(Brake::Pressure));
    // Of what was gone, what has not been used in that minute.
    close(pressed.gone.anon / MIB, 40.0);
    // Nothing is evicted of a workload under pressure from the start.
    let first = age.minute(&mut ReplayState::default(), &Minute { pressure: Some(0.5), ..minute(0) });
    assert_eq!(first.gone, PerKind::default());
}

#[test]
fn what_comes_back_comes_as_much_at_once_as_was_recorded() {
    // 6 MiB a minute, at once or 30 MiB each time.
    let run = |burst: f64, slowdown: &str| {
        let age =
            policy(&format!("[x.age]\nanon = '10s'\nevery = '1ms'\nbrakes = {{ slowdown = '{slowdown}' }}")).unwrap();
        let mut past = ReplayState::default();
        let minute = |at| Minute { burst: PerKind::both([Some(burst * MIB); BURSTS.len()]), ..minute(at) };
        (0..20).map(|at| age.minute(&mut past, &minute(at))).collect::<Vec<_>>()
    };
    let come = |effects: &[Effect]| effects.iter().map(|effect| 60.0 * effect.back.anon / MIB).collect::<Vec<f64>>();
    let (even, bursts) = (come(&run(0.0, "100%")), come(&run(30.0, "100%")));
    assert!(even.iter().all(|mib| (mib - 6.0).abs() < 0.01), "{even:?}");
    let at: Vec<usize> = (0..20).filter(|at| bursts[*at] > 0.0).collect();
    // A little less than 6 MiB a minute, as a workload that waits uses its memory less often.
    assert_eq!(at, [5, 10, 15], "{bursts:?}");
    assert!(at.iter().all(|at| (bursts[*at] - 30.0).abs() < 6.0), "{bursts:?}");
    // The brake holds for a burst, and what is used during it is not evicted again.
    let least = |effects: &[Effect]| effects.iter().map(|effect| effect.gone.anon / MIB).fold(f64::INFINITY, f64::min);
    let (even, bursts) = (least(&run(0.0, "0.5%")), least(&run(30.0, "0.5%")));
    assert!(even > 89.9 && bursts < 89.0, "{even} {bursts}");
}

#[test]
fn a_burst_is_that_of_the_age_in_use() {
    let returned =
        Minute { burst: PerKind { anon: [None, Some(2.0), Some(3.0)], file: [None; BURSTS.len()] }, ..minute(0) };
    let at = [10.0, 30.0, 60.0, 119.0, 120.0, 500.0].map(|age_s| returned.burst(Kind::Anon, age_s));
    assert_eq!((at, returned.burst(Kind::File, 60.0)), ([2.0, 2.0, 2.0, 2.0, 3.0, 3.0], 0.0));
}

#[test]
fn what_cannot_be_replayed_says_why() {
    for (toml, why) in [
        ("[x.pressure]", "pressure"),
        ("[x.lifecycle]", "background"),
        ("[x.guard]", "thrashes"),
        ("[x.schemes]\nuse = ['prcl']", "regions"),
        ("[x.age]\nevery = '0s'", "every"),
    ] {
        let said = policy(toml).err().unwrap();
        assert!(said.contains(why), "{toml}: {said}");
    }
}

fn histogram() -> impl Strategy<Value = [Option<f64>; EDGES]> {
    prop::collection::vec(prop::option::weighted(0.8, 0.0..1e9f64), EDGES).prop_map(|mut values| {
        let mut least = f64::INFINITY;
        for value in values.iter_mut().flatten() {
            least = least.min(*value);
            *value = least;
        }
        std::array::from_fn(|at| values[at])
    })
}

proptest! {
    #[test]
    fn an_older_age_takes_less_and_never_more_than_there_is(
        idle in histogram(), back in histogram(), young in 1u32..120, older in 0u32..60, every in 1u32..100, floor in 0.0..1e9f64,
    ) {
        // So little that no brake holds.
        let returned = Returned { back: std::array::from_fn(|at| back[at + 1].map(|back| 1e-5 * back)), used: 1e8, refaulted: 0.0 };
        let most = idle.iter().flatten().copied().fold(0.0, f64::max);
        let minute = Minute { resident: [most, 0.0].into(), idle: [idle, [None; EDGES]].into(), returned: PerKind { anon: returned, file: Returned::default() }, floor, ..minute(0) };
        let at = |age: u32| {
            let age = age.min(120);
            let replay = policy(&format!("[x.age]\nanon = '{age}s'\nfile = '120s'\nevery = '{every}s'\nbrakes = {{ pressure = '100%' }}"));
            replay.unwrap().minute(&mut ReplayState::default(), &minute)
        };
        let (first, second) = (at(young), at(young + older));
        prop_assert!(first.gone.anon <= (most - floor).max(0.0) + 1e-3 && first.gone.anon >= 0.0);
        // Below the youngest known age nothing is reported.
        if idle[1].is_some() {
            prop_assert!(second.gone.anon <= first.gone.anon * (1.0 + 1e-9) + 1e-3, "{} {}", first.gone.anon, second.gone.anon);
        }
        prop_assert!(first.back.iter().chain(second.back.iter()).all(|(_, back)| back.is_finite() && *back >= 0.0));
    }
}
