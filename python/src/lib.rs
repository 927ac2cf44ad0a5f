//! lowtide for Python. Everything is passed as JSON, which the package `lowtide` around this makes Python's own of; telemetry that
//! comes from elsewhere comes as an Arrow stream.

mod arrow;

use std::io::Cursor;
use std::path::{Path, PathBuf};

use arrow_ipc::reader::StreamReader;
use bytes::Bytes;
use lowtide::budgets::{self, Below, Question};
use lowtide_fleet::replay::{self, HostReplay, Named, OfFleet, OfHost};
use lowtide_fleet::store::{Fleet, Reader};
use lowtide_fleet::tally::PolicyTally;
use lowtide_fleet::tune::{self, TuneGoal};
use lowtide_model::curve::RefaultCosts;
use lowtide_model::units::Share;
use lowtide_policy::policies::Policies;
use lowtide_record::Record;
use lowtide_report::fleet::{Money, ReplayResult, Tuned};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use serde_json::json;

/// Wrong use, or what cannot be read.
fn wrong(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn failed(error: impl std::fmt::Display) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

fn costs(swap_cost: f64, file_cost: f64) -> RefaultCosts {
    RefaultCosts { swap_s: swap_cost, disk_s: file_cost }
}

/// Policies of a file's text, or those that need none.
fn policies(text: Option<&str>, costs: RefaultCosts) -> PyResult<Vec<Named>> {
    let specs: Option<Policies> = text.map(toml::from_str).transpose().map_err(wrong)?;
    replay::named(specs, costs).map_err(wrong)
}

/// The summary of a record, as `summary.json` has it.
#[pyfunction]
fn summary(record: PathBuf) -> PyResult<String> {
    let record = Record::open(&record).map_err(wrong)?;
    serde_json::to_string(&record.summary()).map_err(failed)
}

/// The tide curve of a record; null where it has not the measurements for one.
#[pyfunction]
fn curve(record: PathBuf) -> PyResult<String> {
    let record = Record::open(&record).map_err(wrong)?;
    let costs = record.meta().refault_costs.or_usual();
    let curve = record.curve(&record.usage(), &record.ages());
    let points = curve.as_ref().map(|curve| {
        let point = |point: &lowtide_model::curve::Point| {
            let slowdown = point.slowdown(&costs);
            json!({
                "age_s": point.age_s,
                "anon_gone_bytes": point.cold.anon.at,
                "file_gone_bytes": point.cold.file.at,
                "kept_bytes": point.kept,
                "kept_peak_bytes": point.kept_peak,
                "anon_back_bytes_per_s": point.back.anon.at,
                "file_back_bytes_per_s": point.back.file.at,
                "slowdown": slowdown.at,
                "slowdown_low": slowdown.low,
                "slowdown_high": slowdown.high,
            })
        };
        curve.points.iter().map(point).collect::<Vec<_>>()
    });
    serde_json::to_string(&points).map_err(failed)
}

/// The budgets of a record.
#[pyfunction]
#[pyo3(signature = (record, slowdown, swap=None))]
fn budget(record: PathBuf, slowdown: f64, swap: Option<bool>) -> PyResult<String> {
    let swap = match swap {
        Some(true) => u64::MAX,
        Some(false) => 0,
        None => budgets::sure_swap(std::slice::from_ref(&record)).map_err(wrong)?,
    };
    let question = Question { slowdown: Share(slowdown), below: Below::of_swap(swap) };
    let result = budgets::of_record(&record, question).map_err(wrong)?;
    serde_json::to_string(&result.budgets).map_err(failed)
}

fn on<T: Send>(threads: Option<usize>, work: impl FnOnce() -> PyResult<T> + Send) -> PyResult<T> {
    rayon::ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0)).build().map_err(failed)?.install(work)
}

fn open(dir: &Path) -> PyResult<Fleet> {
    let fleet = Fleet::open(dir).map_err(wrong)?;
    if fleet.is_empty() {
        return Err(wrong(format!("{}: no day=.../host=... in it", dir.display())));
    }
    Ok(fleet)
}

fn result(
    dir: &Path,
    of: &OfFleet,
    (names, by): (&[&str], Option<&str>),
    money: Money,
    tuned: Option<&Tuned>,
) -> PyResult<String> {
    if of.tallies.iter().all(|tally| tally.rows == 0) {
        let first = of.trouble.first.first().map_or("there are no rows", String::as_str);
        return Err(wrong(format!("nothing of {} files could be read: {first}", of.files)));
    }
    let result = serde_json::to_value(ReplayResult::new(dir, of, names, money).by(by, of, money)).map_err(failed)?;
    let tuned = serde_json::to_value(tuned).map_err(failed)?;
    serde_json::to_string(&json!({ "result": result, "tuned": tuned })).map_err(failed)
}

/// Replays policies over telemetry in a folder.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
fn replay_folder(
    py: Python<'_>,
    dir: PathBuf,
    policy: Option<String>,
    swap_cost: f64,
    file_cost: f64,
    kept: f64,
    price: Option<f64>,
    by: Option<String>,
    threads: Option<usize>,
) -> PyResult<String> {
    let work = || {
        let policies = policies(policy.as_deref(), costs(swap_cost, file_cost))?;
        let of = open(&dir)?.replay(&policies, by.as_deref(), &|_| true, &mut |_| {});
        let names: Vec<&str> = policies.iter().map(|named| named.name.as_str()).collect();
        result(&dir, &of, (&names, by.as_deref()), Money { kept, price }, None)
    };
    py.detach(|| on(threads, work))
}

/// Replays policies over rows of one host, an Arrow stream in the order of time. The results, to be combined.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
fn replay_host(
    py: Python<'_>,
    host: String,
    stream: PyBackedBytes,
    policy: Option<String>,
    swap_cost: f64,
    file_cost: f64,
    by: Option<String>,
) -> PyResult<String> {
    py.detach(|| {
        let policies = policies(policy.as_deref(), costs(swap_cost, file_cost))?;
        let mut replay = HostReplay::new(&policies, by.as_deref());
        for batch in StreamReader::try_new(Cursor::new(stream), None).map_err(wrong)? {
            replay.batch(&arrow::batch(&batch.map_err(wrong)?).map_err(wrong)?);
        }
        serde_json::to_string(&replay.end(&host)).map_err(failed)
    })
}

/// Replays policies over files of one host in the order of time: an iterator of names with their bytes, or with why there are none.
/// The results, to be combined.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
fn replay_files(
    py: Python<'_>,
    host: &str,
    files: &Bound<'_, PyAny>,
    policy: Option<&str>,
    swap_cost: f64,
    file_cost: f64,
    by: Option<&str>,
) -> PyResult<String> {
    let policies = policies(policy, costs(swap_cost, file_cost))?;
    let mut replay = HostReplay::new(&policies, by);
    for file in files.try_iter()? {
        let (name, bytes, why): (String, Option<PyBackedBytes>, String) = file?.extract()?;
        py.detach(|| {
            let bytes = bytes.ok_or(why);
            let opened = bytes.and_then(|bytes| Reader::new(Bytes::from_owner(bytes), by.is_some()));
            replay.file(Path::new(&name), opened);
        });
    }
    serde_json::to_string(&replay.end(host)).map_err(failed)
}

/// The results of all hosts, from those of each.
#[pyfunction]
fn combine(
    hosts: Vec<String>,
    policy: Option<String>,
    kept: f64,
    price: Option<f64>,
    by: Option<String>,
) -> PyResult<String> {
    let policies = policies(policy.as_deref(), RefaultCosts::default())?;
    let of = combined(&hosts, policies.len())?;
    let names: Vec<&str> = policies.iter().map(|named| named.name.as_str()).collect();
    result(Path::new(""), &of, (&names, by.as_deref()), Money { kept, price }, None)
}

fn combined(hosts: &[String], policies: usize) -> PyResult<OfFleet> {
    let mut hosts: Vec<OfHost> =
        hosts.iter().map(|host| serde_json::from_str(host).map_err(wrong)).collect::<PyResult<_>>()?;
    hosts.sort_by(|a, b| a.host.cmp(&b.host));
    let mut of = OfFleet::new(policies);
    hosts.into_iter().for_each(|host| of.add(host));
    Ok(of)
}

/// Whether a host is among those on which candidates are judged.
#[pyfunction]
fn is_judge(host: &str) -> bool {
    tune::is_judge(host)
}

/// A search for settings that asks for candidates, and is given their results on each host.
#[pyclass]
struct Search {
    search: tune::Search,
    goal: TuneGoal,
    asked: Vec<String>,
}

#[pymethods]
impl Search {
    #[new]
    fn new(policy: &str, rate: f64, seed: u64, swap_cost: f64, file_cost: f64) -> PyResult<Self> {
        let goal = TuneGoal { rate, costs: costs(swap_cost, file_cost) };
        Ok(Self { search: tune::Search::new(policy, goal, seed).map_err(wrong)?, goal, asked: Vec::new() })
    }

    /// The next candidates, as the text of a file in which they are distinguished by their names, in this order.
    fn ask(&mut self, count: usize) -> PyResult<String> {
        self.asked = self.search.ask(count).map_err(failed)?;
        let name = |(at, toml): (usize, &String)| toml.replacen("[tuned.", &format!("[c{at:03}."), 1);
        Ok(self.asked.iter().enumerate().map(name).collect::<Vec<_>>().join("\n"))
    }

    /// Takes their results on each host.
    fn report(&mut self, hosts: Vec<String>) -> PyResult<()> {
        let of = combined(&hosts, self.asked.len())?;
        self.search.report(std::mem::take(&mut self.asked), &of.tallies);
        Ok(())
    }

    /// How many were tried.
    fn tried(&self) -> usize {
        self.search.tried.len()
    }

    /// The best that stays within the limit, as a policy's file.
    fn best(&self) -> Option<String> {
        self.search.best().map(|best| best.toml.clone())
    }

    /// What is expected of the best, from its results on each host that is asked for that.
    fn result(&self, hosts: Vec<String>, held_out: bool, kept: f64, price: Option<f64>) -> PyResult<String> {
        let best = self.search.best().ok_or_else(|| wrong("no candidate stays within the limit"))?;
        let tuned = Tuned::new(&self.search, best, self.goal.rate, held_out);
        result(Path::new(""), &combined(&hosts, 1)?, (&["tuned"], None), Money { kept, price }, Some(&tuned))
    }
}

/// Searches settings over telemetry in a folder.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
fn tune_folder(
    py: Python<'_>,
    dir: PathBuf,
    policy: &str,
    rate: f64,
    tries: usize,
    seed: u64,
    swap_cost: f64,
    file_cost: f64,
    kept: f64,
    price: Option<f64>,
    threads: Option<usize>,
) -> PyResult<String> {
    let goal = TuneGoal { rate, costs: costs(swap_cost, file_cost) };
    let mut search = tune::Search::new(policy, goal, seed).map_err(wrong)?;
    let work = move || {
        let fleet = open(&dir)?;
        let held_out = fleet.len() >= tune::ENOUGH_HOSTS;
        let judges = |host: &str| !held_out || tune::is_judge(host);
        let replay = |candidates: &[String]| -> Result<Vec<PolicyTally>, tune::TuneError> {
            let named = tune::policies(candidates, goal.costs)?;
            Ok(fleet.replay(&named, None, &judges, &mut |_| {}).tallies)
        };
        tune::run(&mut search, tries, replay, |_| {}).map_err(failed)?;
        let best = search.best().cloned().ok_or_else(|| wrong("no candidate stays within the limit"))?;
        let named = tune::policies(std::slice::from_ref(&best.toml), goal.costs).map_err(failed)?;
        let others = |host: &str| !held_out || !tune::is_judge(host);
        let of = fleet.replay(&named, None, &others, &mut |_| {});
        let tuned = Tuned::new(&search, &best, rate, held_out);
        result(&dir, &of, (&["tuned"], None), Money { kept, price }, Some(&tuned))
    };
    py.detach(|| on(threads, work))
}

#[pymodule]
fn _lowtide(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("ENOUGH_HOSTS", tune::ENOUGH_HOSTS)?;
    module.add("AT_A_TIME", tune::AT_A_TIME)?;
    module.add("TRIES", tune::TRIES)?;
    module.add_function(wrap_pyfunction!(summary, module)?)?;
    module.add_function(wrap_pyfunction!(curve, module)?)?;
    module.add_function(wrap_pyfunction!(budget, module)?)?;
    module.add_function(wrap_pyfunction!(replay_folder, module)?)?;
    module.add_function(wrap_pyfunction!(replay_host, module)?)?;
    module.add_function(wrap_pyfunction!(replay_files, module)?)?;
    module.add_function(wrap_pyfunction!(combine, module)?)?;
    module.add_function(wrap_pyfunction!(is_judge, module)?)?;
    module.add_function(wrap_pyfunction!(tune_folder, module)?)?;
    module.add_class::<Search>()
}
