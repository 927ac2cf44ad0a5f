//! The budgets of records: of each record, and of the nodes on which its program's ranks ran.

use std::fmt;
use std::path::{Path, PathBuf};

use lowtide_engine::failure;
use lowtide_kernel::cgroup::Cgroup;
use lowtide_kernel::root::Kernel;
use lowtide_kernel::swap;
use lowtide_model::bottom_line::BottomLine;
use lowtide_model::budget::{Budget, Known, Mechanism, OwnBudgets, budgets, by};
use lowtide_model::curve::RefaultCosts;
use lowtide_model::meta::{DURATION, Meta};
use lowtide_model::task::Task;
use lowtide_model::units::{Share, float, human_bytes};

use lowtide_record::{Record, StoreError};

use crate::verify::{self, Verified};

mod answer;
pub mod emit;
pub mod tables;

pub use answer::{BudgetAnswer, RankedRun};

/// Programs that are known by the script they run.
const INTERPRETERS: [&str; 9] = ["sh", "bash", "python", "perl", "Rscript", "julia", "ruby", "node", "java"];

/// Where the pages go that a budget has no room for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Below {
    /// File pages to their files; anonymous memory stays.
    Nothing,
    /// Swap of so many bytes.
    Swap(u64),
    /// Slower memory; seconds of a refault from it.
    Slower(f64),
}

impl Below {
    /// With so many bytes of swap, or none.
    #[must_use]
    pub fn of_swap(bytes: u64) -> Self {
        if bytes > 0 { Self::Swap(bytes) } else { Self::Nothing }
    }

    /// Whether anonymous memory can be paged out to swap.
    #[must_use]
    pub fn has_swap(self) -> bool {
        matches!(self, Self::Swap(_))
    }

    /// Bytes that can be paged out.
    fn room(self) -> f64 {
        match self {
            Self::Nothing => 0.0,
            // u64::MAX: as much as it takes.
            Self::Swap(bytes) if bytes < u64::MAX => float(bytes),
            _ => f64::INFINITY,
        }
    }

    /// The costs of refaults, where those of the record's machine are these.
    fn costs(self, recorded: RefaultCosts) -> RefaultCosts {
        match self {
            // File pages are moved there as well.
            Self::Slower(seconds) => RefaultCosts { swap_s: seconds, disk_s: seconds },
            _ => recorded,
        }
    }
}

/// What is asked of a record.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Question {
    /// Share of the time that may be lost.
    pub slowdown: Share,
    /// Where the other pages go.
    pub below: Below,
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {} slower, ", self.slowdown)?;
        match self.below {
            Below::Nothing => f.write_str("without swap"),
            Below::Swap(bytes) if bytes < u64::MAX => write!(f, "with {} of swap", human_bytes(float(bytes))),
            Below::Swap(_) => f.write_str("with swap"),
            Below::Slower(seconds) => write!(f, "the rest in slower memory, {:.1} us a page", 1e6 * seconds),
        }
    }
}

/// The budgets of one record.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordBudget {
    /// Its folder.
    pub record: PathBuf,
    /// What ran.
    pub argv: Vec<String>,
    /// When it started, seconds since 1970.
    pub started_s: f64,
    /// Seconds it ran.
    pub runtime_s: f64,
    /// Which rank it was.
    pub task: Option<Task>,
    /// The kind of node it ran on.
    pub class: String,
    /// Why it might have needed more, if it had run longer.
    pub cut_short: Option<String>,
    /// Its bottom line.
    pub bottom_line: BottomLine,
    /// Its budgets.
    pub budgets: Vec<Budget>,
}

impl RecordBudget {
    /// The command on a line.
    #[must_use]
    pub fn command(&self) -> String {
        self.argv.join(" ")
    }

    /// One of its budgets, bytes.
    #[must_use]
    pub fn bytes(&self, mechanism: Mechanism) -> Option<u64> {
        by(mechanism, &self.budgets).map(|budget| budget.bytes)
    }

    /// The program without its arguments.
    fn program(&self) -> String {
        let base = |word: &String| Path::new(word).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = self.argv.first().map(base).unwrap_or_default();
        let interpreter = INTERPRETERS.contains(&name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'));
        let script = self.argv.iter().skip(1).find(|word| !word.starts_with('-')).filter(|_| interpreter);
        script.map_or(name.clone(), |script| format!("{name} {}", base(script)))
    }
}

/// Records in these folders: each of them, or those in it.
#[must_use]
pub fn records(folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = Vec::new();
    let mut paths = Vec::new();
    for folder in folders {
        let mut within: Vec<PathBuf> = match std::fs::read_dir(folder) {
            Ok(entries) if !lowtide_record::is_record(folder) => {
                entries.flatten().map(|entry| entry.path()).filter(|path| lowtide_record::is_record(path)).collect()
            }
            _ => Vec::new(),
        };
        within.sort();
        if within.is_empty() {
            within.push(folder.clone());
        }
        for record in within {
            // A record given twice would count twice in the sums of ranks.
            let real = record.canonicalize().unwrap_or_else(|_| record.clone());
            if !paths.contains(&real) {
                paths.push(real);
                all.push(record);
            }
        }
    }
    all
}

/// Bytes of swap that a budget may count on: available when the records were made, and here. A limit that counts on swap that
/// is not there kills.
///
/// # Errors
/// If there is no record.
pub fn sure_swap(records: &[PathBuf]) -> anyhow::Result<u64> {
    let kernel = Kernel::default();
    let own = Cgroup::of(&kernel, std::process::id()).ok().flatten();
    let mut least = swap::available(&kernel, own.as_ref()).unwrap_or(0);
    for record in records {
        least = least.min(Record::open(record)?.meta().host.swap_bytes);
    }
    Ok(least)
}

/// The budgets of a record: a verified one replaces the predicted one.
///
/// # Errors
/// If there is no record.
pub fn of_record(dir: &Path, question: Question) -> anyhow::Result<RecordBudget> {
    let mut all = predicted(dir, question)?;
    let verified = verify::verified(dir);
    // A budget that held with more swap need not hold with less, nor with slower memory.
    let enough = |one: &Verified| match question.below {
        Below::Nothing => !one.swap,
        Below::Swap(bytes) => one.swap_bytes.is_some_and(|swap| 0 < swap && swap <= bytes),
        Below::Slower(_) => false,
    };
    let same = |one: &&Verified| enough(one) && one.slowdown.total_cmp(&question.slowdown.0).is_eq();
    let own = all.budgets.iter_mut().find(|budget| budget.mechanism == Mechanism::Lowtide);
    if let (Some(own), Some(verified)) = (own, verified.iter().find(same)) {
        if own.bytes != verified.bytes {
            // The parts are those of the predicted budget.
            *own = Budget { heap_bytes: None, file_bytes: None, other_bytes: None, headroom_bytes: None, ..*own };
            own.interval_bytes = None;
        }
        (own.bytes, own.verified) = (verified.bytes, true);
    }
    Ok(all)
}

/// The predicted budgets of a record.
///
/// # Errors
/// If there is no record.
pub fn predicted(dir: &Path, question: Question) -> anyhow::Result<RecordBudget> {
    match lowtide_record::finish(dir) {
        Ok(_) | Err(StoreError::Live(_)) => {}
        Err(error @ StoreError::NotARecord { .. }) => return Err(error.into()),
        Err(error) => lowtide_kernel::message!("lowtide: the record could not be finished: {error}"),
    }
    let record = Record::open(dir)?;
    let (ages, lives, rows) = (record.ages(), record.lives(), record.usage());
    let (curve, phases) = (record.curve(&rows, &ages), record.phases(&rows));
    let meta = record.meta();
    let Known { costs, swap_bytes, .. } = Known::of(meta, &rows);
    let known = Known {
        meta,
        rows: &rows,
        ages: &ages,
        episodes: &lives,
        curve: curve.as_ref(),
        tick_s: record.tick_s(),
        // Ranks share the swap of their node; how many run on it at a time is not known yet.
        swap_bytes: question.below.room() / f64::from(meta.task.as_ref().map_or(1, |task| task.ranks.max(1))),
        phases: &phases,
        costs: question.below.costs(costs),
    };
    // The bottom line is for the machine of the record, whatever is asked, as in the report.
    let recorded = Known { costs, swap_bytes, ..known };
    let own = OwnBudgets::of(&recorded, question.slowdown.0);
    let same = known.swap_bytes == swap_bytes && known.costs == costs;
    let asked = if same { own } else { OwnBudgets::of(&known, question.slowdown.0) };
    let last_s = rows.last().and_then(|row| row.t_s).unwrap_or(0.0);
    record.warnings().iter().for_each(|warning| lowtide_kernel::message!("lowtide: {warning}"));
    Ok(RecordBudget {
        record: dir.to_path_buf(),
        argv: meta.command.clone(),
        started_s: meta.started_unix_s,
        runtime_s: meta.end.as_ref().map_or(last_s, |end| end.runtime_s),
        task: meta.task.clone(),
        class: class(meta),
        cut_short: cut_short(meta),
        bottom_line: BottomLine::of(&recorded, &own),
        budgets: budgets(&known, &asked),
    })
}

/// The kind of a node: its partition, CPUs and memory.
fn class(meta: &Meta) -> String {
    let memory = human_bytes(float(meta.host.memory_bytes));
    let partition = meta.task.as_ref().and_then(|task| task.partition.as_ref());
    let partition = partition.map_or_else(String::new, |name| format!("{name}: "));
    format!("{partition}{} CPUs, {memory}", meta.host.cpus)
}

fn cut_short(meta: &Meta) -> Option<String> {
    match &meta.end {
        None => Some("its record has no end".to_owned()),
        // Its end was asked for.
        Some(end) if end.reason == DURATION => None,
        Some(end) if end.reason == "ended" => failure::ended(end.exit_code.or(Some(0))),
        Some(end) if end.reason == "disk full" => Some("its record ended when the disk was full".to_owned()),
        Some(_) => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use lowtide_model::budget::Evidence;

    use super::*;

    /// Bytes of a MiB.
    pub const MIB: u64 = 1 << 20;

    fn budget(mechanism: Mechanism, bytes: u64) -> Budget {
        Budget {
            mechanism,
            bytes,
            heap_bytes: Some(bytes),
            file_bytes: Some(0),
            other_bytes: Some(0),
            interval_bytes: Some([bytes - MIB, bytes]),
            headroom_bytes: Some(MIB / 2),
            set_at_s: Some(3.0),
            verified: false,
            machine_wide: false,
            basis: Evidence::Accounts,
            predicted_slowdown: None,
        }
    }

    /// Within 2 %.
    pub fn question(swap: bool) -> Question {
        Question { slowdown: Share(0.02), below: Below::of_swap(if swap { u64::MAX } else { 0 }) }
    }

    /// A record of a program that asks for so much.
    pub fn record_of(bytes: u64) -> RecordBudget {
        RecordBudget {
            record: "a".into(),
            argv: vec!["solve\nx".to_owned()],
            started_s: 0.0,
            runtime_s: 60.0,
            task: None,
            class: "2 CPUs, 4 GiB".to_owned(),
            cut_short: None,
            bottom_line: BottomLine::default(),
            budgets: vec![budget(Mechanism::AppMaxrss, 2 * bytes), budget(Mechanism::Lowtide, bytes)],
        }
    }

    /// A rank of four.
    pub fn rank(rank: u32, node: &str, bytes: u64) -> RecordBudget {
        let task = Task { run: "slurm-7.0".to_owned(), rank, ranks: 4, node: node.to_owned(), partition: None };
        RecordBudget { task: Some(task), record: format!("r{rank}").into(), ..record_of(bytes) }
    }

    #[test]
    fn slower_memory_has_its_own_price() {
        let slower = Question { below: Below::Slower(3e-6), ..question(true) };
        assert_eq!(slower.to_string(), "at most 2% slower, the rest in slower memory, 3.0 us a page");
        assert_eq!(slower.below.costs(RefaultCosts::default()), RefaultCosts { swap_s: 3e-6, disk_s: 3e-6 });
        assert_eq!(question(false).to_string(), "at most 2% slower, without swap");
    }

    #[test]
    fn the_largest_of_several_counts() {
        let all = [record_of(100 * MIB), record_of(300 * MIB), record_of(200 * MIB)];
        let answer = BudgetAnswer::of(all.to_vec(), question(true));
        assert_eq!(answer.largest.iter().map(|budget| budget.bytes / MIB).collect::<Vec<_>>(), [600, 300]);
        assert!(!answer.has_ranks() && answer.runs().is_empty() && answer.doubts().is_empty());
    }

    #[test]
    fn ranks_are_added_up_on_their_node_and_what_is_not_known_is_said() {
        let all = vec![rank(0, "a", 100 * MIB), rank(1, "a", 100 * MIB), rank(2, "b", 150 * MIB)];
        let answer = BudgetAnswer::of(all, question(true));
        // Half a MiB of headroom each: the root of two halves squared for both.
        let own = answer.budget(Mechanism::Lowtide).unwrap();
        assert_eq!((own.bytes / MIB, answer.nodes.len()), (199, 2));
        let runs = answer.runs();
        assert_eq!((runs[0].missing.as_slice(), runs[0].skew.map(|skew| skew.largest)), (&[3][..], Some(2)));
        assert!(answer.doubts()[0].contains("no records of 1 of its 4 ranks (3)"), "{:?}", answer.doubts());
        assert_eq!(answer.classes().len(), 1);
    }

    #[test]
    fn programs_are_distinguished_and_their_inputs_are_not() {
        let with =
            |argv: &[&str]| RecordBudget { argv: argv.iter().map(|&word| word.to_owned()).collect(), ..record_of(MIB) };
        let doubts = |all: &[RecordBudget]| BudgetAnswer::of(all.to_vec(), question(true)).doubts();
        assert_eq!(doubts(&[with(&["/bin/solve", "a"]), with(&["solve", "b"])]), [""; 0]);
        assert_eq!(doubts(&[with(&["python3", "-u", "x.py", "1"]), with(&["python3.13", "x.py"])]).len(), 1);
        assert_eq!(doubts(&[with(&["python3", "x.py"]), with(&["python3", "y.py"])]).len(), 1);
        // One job may have a server and its clients.
        let mut several = [rank(0, "a", MIB), rank(1, "a", MIB), rank(2, "a", MIB), rank(3, "a", MIB)];
        several[1].argv = vec!["other".to_owned()];
        assert_eq!(doubts(&several), [""; 0]);
    }

    #[test]
    fn folders_of_records_are_gone_through_and_nothing_is_counted_twice() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["rank-1", "rank-0", "else"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        std::fs::write(at("rank-0").join("meta.json"), "{}").unwrap();
        std::fs::write(at("rank-1").join("meta.json"), "{}").unwrap();
        let all = records(&[dir.path().to_path_buf(), at("rank-1"), at("nothing")]);
        assert_eq!(all, [at("rank-0"), at("rank-1"), at("nothing")]);
    }
}
