//! What a replay says is what happens: the same fleet on the simulated machine, under the same policy; and searches find it.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use lowtide_fleet::generate::{self, FleetPlan};
use lowtide_fleet::replay::{Named, OfFleet};
use lowtide_fleet::store::Fleet;
use lowtide_fleet::tune::{self, Search, TuneGoal};
use lowtide_model::curve::RefaultCosts;
use lowtide_policy::policies::{Policies, Spec};
use lowtide_policy::replay::Replay;
use lowtide_policy::sim::{self, Simulated};

const COSTS: RefaultCosts = RefaultCosts { swap_s: 10e-6, disk_s: 100e-6 };

fn plan() -> FleetPlan {
    FleetPlan {
        hosts: 4,
        workloads: 8,
        duration_s: 4.0 * 3600.0,
        step_s: 2.0,
        sampling_s: 5.0,
        sample: 0,
        ..FleetPlan::default()
    }
}

fn made(plan: &FleetPlan) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    generate::fleet(plan, dir.path(), &|_| {}).unwrap();
    dir
}

fn spec(toml: &str) -> Spec {
    let policies: Policies = toml::from_str(toml).unwrap();
    policies["x"].clone()
}

fn named(spec: &Spec) -> Vec<Named> {
    vec![Named { name: "x".to_owned(), replay: Replay::new(spec, COSTS).unwrap() }]
}

fn replayed(fleet: &Fleet, policies: &[Named]) -> OfFleet {
    fleet.replay(policies, None, &|_| true, &mut |_| {})
}

#[expect(clippy::cast_precision_loss, reason = "a figure to be compared")]
fn float(sum: u128) -> f64 {
    sum as f64
}

#[test]
fn a_replay_says_what_the_machine_does() {
    let plan = plan();
    let dir = made(&plan);
    let fleet = Fleet::open(dir.path()).unwrap();
    let free = "brakes = { slowdown = '100%', pressure = '100%', cpu = '100%' }";
    for (toml, most) in [
        (format!("[x.age]\nanon = '30s'\nfile = '30s'\nevery = '10s'\n{free}"), [0.05, 0.05]),
        // What a policy learns while it acts is not quite what it would have learnt without.
        (format!("[x.promotion]\nlimit = '10%'\nwarm_up = '5m'\n{free}"), [0.05, 0.2]),
        // Brakes hold for bursts, of which telemetry records the size and not the order.
        ("[x.age]\nanon = '30s'\nfile = '30s'\nevery = '10s'".to_owned(), [0.1, 0.2]),
    ] {
        let spec = spec(&toml);
        let returned = replayed(&fleet, &named(&spec));
        let gone = float(returned.tallies[0].gone.total()) / 1e3;
        let back = float(u128::from(returned.tallies[0].back.total()));
        let (mut truly_gone, mut truly_back) = (0.0, 0.0);
        for host in 0..plan.hosts {
            let machine = Simulated::new(generate::setup(&plan, host));
            let outcome = sim::run(machine, Some(spec.build(1).unwrap()));
            truly_gone += outcome.out_bytes.total() * outcome.duration_s;
            truly_back += float(u128::from(outcome.refaults.total())) * 4096.0;
        }
        let off = |returned: f64, truly: f64| returned / truly - 1.0;
        eprintln!("{toml}: gone {:+.3}, back {:+.3}", off(gone, truly_gone), off(back, truly_back));
        assert!(
            off(gone, truly_gone).abs() < most[0] && off(back, truly_back).abs() < most[1],
            "{toml}: {gone} {truly_gone}, {back} {truly_back}"
        );
    }
}

#[test]
fn a_search_comes_close_to_trying_everything_and_finds_the_same_again() {
    let dir = made(&plan());
    let fleet = Fleet::open(dir.path()).unwrap();
    let ages = [5, 10, 20, 30, 45, 60, 90, 120];
    let grid = ages.iter().flat_map(|anon| ages.iter().map(move |file| (anon, file)));
    let all: Vec<String> =
        grid.map(|(anon, file)| format!("[tuned.age]\nanon = '{anon}s'\nfile = '{file}s'\nevery = '5s'")).collect();
    let of = replayed(&fleet, &tune::policies(&all, COSTS).unwrap());
    // What half of them keep.
    let mut rates: Vec<f64> = of.tallies.iter().map(tune::rate).collect();
    rates.sort_by(f64::total_cmp);
    let goal = TuneGoal { rate: rates[rates.len() / 2], costs: COSTS };
    let searched = |seed: u64| {
        let mut search = Search::new("age", goal, seed).unwrap();
        while search.tried.len() < 64 {
            let candidates = search.ask(8).unwrap();
            let of = replayed(&fleet, &tune::policies(&candidates, COSTS).unwrap());
            search.report(candidates, &of.tallies);
        }
        search
    };
    let search = searched(1);
    let best = search.best().unwrap();
    let within = of.tallies.iter().filter(|tally| tune::rate(tally) <= goal.rate);
    let most = within.filter_map(|tally| tally.saved()).fold(0.0, f64::max);
    eprintln!("found {} of {most}: {}", best.saved, best.toml);
    assert!(most > 0.0 && best.saved >= 0.9 * most, "{} {most}", best.saved);
    assert!(search.frontier().windows(2).all(|pair| pair[0].rate < pair[1].rate && pair[0].saved < pair[1].saved));
    assert_eq!(searched(1).tried, search.tried);
    assert!(matches!(Search::new("guard", goal, 1), Err(tune::TuneError::Nothing(_))));
}
