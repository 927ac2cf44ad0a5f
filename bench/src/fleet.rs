//! Replays of a fleet: speed and memory, accuracy, and quality of the search.

use std::path::{Path, PathBuf};
use std::time::Instant;

use lowtide_fleet::generate::{self, FleetPlan};
use lowtide_fleet::replay::{Named, OfFleet};
use lowtide_fleet::store::Fleet;
use lowtide_fleet::tally::PolicyTally;
use lowtide_fleet::tune::{self, Search, TuneGoal};
use lowtide_model::PAGE;
use lowtide_model::curve::RefaultCosts;
use lowtide_model::units::{float, human_bytes, integer};
use lowtide_policy::policies::{Policies, Spec};
use lowtide_policy::replay::Replay;
use lowtide_policy::sim::{self, Simulated};

use crate::grid::{counted_size, table};
use crate::machine::own_status;

#[derive(Debug, clap::Args)]
pub struct FleetBenchArgs {
    /// What to measure
    #[arg(value_enum, default_values = ["speed", "fidelity", "tune"])]
    what: Vec<What>,
    /// Rows that are replayed for speed, in millions: a simulated fleet, repeated under other names
    #[arg(long, default_value = "10")]
    millions: f64,
    /// Machines of the simulated fleets
    #[arg(long, default_value = "8")]
    hosts: u32,
    /// Keep the fleet for speed in this folder, and use it from there if it exists
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// Rows a minute and core, and memory
    Speed,
    /// The replay, compared to the simulated machine
    Fidelity,
    /// The search, compared to trying everything
    Tune,
}

const COSTS: RefaultCosts = RefaultCosts { swap_s: 10e-6, disk_s: 100e-6 };

pub fn run(args: &FleetBenchArgs) -> anyhow::Result<()> {
    for what in &args.what {
        match what {
            What::Speed => speed(args)?,
            What::Fidelity => fidelity(args)?,
            What::Tune => searches(args)?,
        }
    }
    Ok(())
}

fn spec(toml: &str) -> anyhow::Result<Spec> {
    let policies: Policies = toml::from_str(toml)?;
    policies.into_values().next().ok_or_else(|| anyhow::anyhow!("no policy"))
}

fn named(spec: &Spec) -> anyhow::Result<Vec<Named>> {
    Ok(vec![Named { name: "x".to_owned(), replay: Replay::new(spec, COSTS)? }])
}

fn replayed(fleet: &Fleet, policies: &[Named]) -> OfFleet {
    fleet.replay(policies, None, &|_| true, &mut |_| {})
}

/// Byte-seconds evicted; the tally has milliseconds.
fn gone(tally: &PolicyTally) -> f64 {
    float(u64::try_from(tally.gone.total() / 1000).unwrap_or(u64::MAX))
}

fn back(tally: &PolicyTally) -> f64 {
    float(tally.back.total())
}

/// The same hosts under other names, as hard links.
fn copied(dir: &Path, times: u64) -> anyhow::Result<()> {
    for day in std::fs::read_dir(dir)? {
        let day = day?.path();
        let hosts: Vec<_> = std::fs::read_dir(&day)?.collect::<Result<_, _>>()?;
        for host in hosts {
            for copy in 0..times {
                let folder = day.join(format!("{}-copy{copy}", host.file_name().to_string_lossy()));
                std::fs::create_dir_all(&folder)?;
                for file in std::fs::read_dir(host.path())? {
                    let file = file?;
                    std::fs::hard_link(file.path(), folder.join(file.file_name()))?;
                }
            }
        }
    }
    Ok(())
}

fn speed(args: &FleetBenchArgs) -> anyhow::Result<()> {
    let temporary = tempfile::tempdir()?;
    let dir = args.keep.as_deref().unwrap_or(temporary.path());
    if !dir.exists() || std::fs::read_dir(dir)?.next().is_none() {
        let plan = FleetPlan { hosts: args.hosts, ..FleetPlan::default() };
        let start = Instant::now();
        let rows = generate::fleet(&plan, dir, &|_| {})?;
        println!("{rows} rows made in {:.1} s", start.elapsed().as_secs_f64());
        copied(dir, integer((args.millions * 1e6 / float(rows)).ceil()).saturating_sub(1))?;
    }
    let fleet = Fleet::open(dir)?;
    let mut rows = Vec::new();
    for (name, toml) in POLICIES {
        for threads in [1, 2] {
            let policies = named(&spec(toml)?)?;
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
            let start = Instant::now();
            let of = pool.install(|| replayed(&fleet, &policies));
            let seconds = start.elapsed().as_secs_f64();
            let millions = float(of.tallies[0].rows) / 1e6;
            let each = 60.0 * millions / seconds / float(threads);
            rows.push(vec![
                name.to_owned(),
                threads.to_string(),
                format!("{millions:.1} M"),
                format!("{seconds:.2} s"),
                format!("{each:.1} M"),
                counted_size(own_status().map(|status| status.peak_rss)),
            ]);
        }
    }
    let head = "policy | threads | rows | time | rows a minute and thread | peak RSS so far";
    print!("{}", table("Replay", head, &rows));
    Ok(())
}

const POLICIES: [(&str, &str); 3] = [
    ("age 30 s", "[x.age]\nanon = '30s'\nfile = '30s'\nevery = '10s'"),
    ("promotion", "[x.promotion]\nwarm_up = '10m'"),
    ("promotion 1 %", "[x.promotion]\nlimit = '1%'\nwarm_up = '10m'"),
];

/// A fleet with all pages sampled at every turn of the agent.
fn close(hosts: u32) -> FleetPlan {
    FleetPlan {
        hosts,
        workloads: 10,
        duration_s: 6.0 * 3600.0,
        step_s: 2.0,
        sampling_s: 5.0,
        sample: 0,
        ..FleetPlan::default()
    }
}

fn fidelity(args: &FleetBenchArgs) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let plan = close(args.hosts);
    generate::fleet(&plan, dir.path(), &|_| {})?;
    let fleet = Fleet::open(dir.path())?;
    let mut rows = Vec::new();
    for (name, toml) in POLICIES {
        let spec = spec(toml)?;
        let replay = replayed(&fleet, &named(&spec)?);
        let (mut truly_gone, mut truly_back) = (0.0, 0.0);
        for host in 0..plan.hosts {
            let outcome = sim::run(Simulated::new(generate::setup(&plan, host)), Some(spec.build(1)?));
            truly_gone += outcome.out_bytes.total() * outcome.duration_s;
            truly_back += float(outcome.refaults.total() * PAGE);
        }
        let off = |replayed: f64, truly: f64| format!("{:+.1} %", 100.0 * (replayed / truly - 1.0));
        let (gone, back) = (gone(&replay.tallies[0]), back(&replay.tallies[0]));
        rows.push(vec![
            name.to_owned(),
            human_bytes(gone / plan.duration_s),
            human_bytes(truly_gone / plan.duration_s),
            off(gone, truly_gone),
            human_bytes(back / plan.duration_s),
            human_bytes(truly_back / plan.duration_s),
            off(back, truly_back),
        ]);
    }
    let head = "policy | gone, replayed | simulated | | back/s, replayed | simulated |";
    print!("{}", table("A replay, and the same policy on the simulated machines", head, &rows));
    Ok(())
}

/// Settings of a policy to compare a search to: nearly everything.
fn grid(policy: &str) -> Vec<String> {
    let mut all = Vec::new();
    match policy {
        "age" => {
            let ages = [2, 5, 10, 15, 20, 25, 30, 40, 50, 60, 75, 90, 105, 120];
            for (anon, file) in ages.iter().flat_map(|anon| ages.iter().map(move |file| (anon, file))) {
                all.push(format!("[tuned.age]\nanon = '{anon}s'\nfile = '{file}s'\nevery = '5s'"));
            }
        }
        _ => {
            // A finer grid gains nothing.
            for limit in [0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0] {
                for percentile in [50, 70, 80, 90, 95, 98, 100] {
                    for (history, warm_up) in [600, 3600, 14_400].into_iter().flat_map(|h| [(h, 60), (h, 600)]) {
                        all.push(format!(
                            "[tuned.promotion]\nlimit = '{limit}%'\npercentile = '{percentile}%'\n\
                             history = '{history}s'\nwarm_up = '{warm_up}s'"
                        ));
                    }
                }
            }
        }
    }
    all
}

fn searches(args: &FleetBenchArgs) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    generate::fleet(&close(args.hosts), dir.path(), &|_| {})?;
    let fleet = Fleet::open(dir.path())?;
    for policy in ["age", "promotion"] {
        let all = grid(policy);
        let mut tallies = Vec::new();
        for some in all.chunks(64) {
            tallies.extend(replayed(&fleet, &tune::policies(some, COSTS)?).tallies);
        }
        // Limits that a quarter, half and three quarters of them meet.
        let mut rates: Vec<f64> = tallies.iter().map(tune::rate).collect();
        rates.sort_by(f64::total_cmp);
        let mut rows = Vec::new();
        for rate in [1, 2, 3].map(|quarter| rates[quarter * (rates.len() - 1) / 4]) {
            let goal = TuneGoal { rate, costs: COSTS };
            let within = tallies.iter().filter(|tally| tune::rate(tally) <= rate);
            let most = within.filter_map(PolicyTally::saved).fold(0.0, f64::max);
            for seed in 1..=3 {
                let mut search = Search::new(policy, goal, seed)?;
                let replay = |candidates: &[String]| -> anyhow::Result<Vec<PolicyTally>> {
                    Ok(replayed(&fleet, &tune::policies(candidates, COSTS)?).tallies)
                };
                tune::run(&mut search, tune::TRIES, replay, |_| {})?;
                let found = search.best().map_or(0.0, |tried| tried.saved);
                rows.push(vec![
                    format!("{:.2} %", 100.0 * rate),
                    seed.to_string(),
                    format!("{:.2} %", 100.0 * found),
                    format!("{:.2} %", 100.0 * most),
                    format!("{:+.1} %", 100.0 * (found / most - 1.0)),
                ]);
            }
        }
        let title = format!("Searching {policy}, {} candidates, and the best of {}", tune::TRIES, all.len());
        print!("{}", table(&title, "rate, p98 | seed | found | best of all |", &rows));
    }
    Ok(())
}
