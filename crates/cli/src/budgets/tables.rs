//! Budgets as tables, and as JSON.

use std::cmp::Reverse;

use lowtide_model::budget::{Budget, Mechanism, by};
use lowtide_model::stats;
use lowtide_model::units::{float, human_bytes, human_seconds};
use serde_json::json;

use super::{Below, BudgetAnswer, RecordBudget};
use crate::verify::Verdicts;
use lowtide_report::text::{Grid, whole_bytes};

/// Rows of a table of records or nodes; of more, the largest.
const ROWS: usize = 32;

/// All of it.
#[must_use]
pub fn grids(answer: &BudgetAnswer) -> Vec<Grid> {
    let mut grids = vec![budgets(answer)];
    if answer.has_ranks() {
        grids.extend([nodes(answer), runs(answer)]);
    }
    if answer.classes().len() > 1 {
        grids.push(classes(answer));
    }
    if answer.records.len() > 1 {
        grids.push(records(answer));
    }
    grids
}

fn budgets(answer: &BudgetAnswer) -> Grid {
    let who = if answer.has_ranks() { "each node" } else { "it" };
    let fast = if let Below::Slower(_) = answer.question.below { "fast " } else { "" };
    let title = format!("How much {fast}memory to give {who} ({})", answer.question);
    let mut grid = Grid::new(&title, &["", "budget", "heap", "file", "other", "95 % interval", "headroom", "set at"]);
    for budget in &answer.largest {
        let interval = budget.interval_bytes.map_or_else(
            || "-".to_owned(),
            |[low, high]| format!("{} to {}", whole_bytes(Some(low)), whole_bytes(Some(high))),
        );
        let parts = [budget.heap_bytes, budget.file_bytes, budget.other_bytes].map(whole_bytes);
        let set_at = budget.set_at_s.map_or_else(|| "-".to_owned(), human_seconds);
        let name = format!("{}{}", budget.mechanism.name(), if budget.verified { ", verified" } else { "" });
        let cells = [name, whole_bytes(Some(budget.bytes))].into_iter().chain(parts);
        grid.row(cells.chain([interval, whole_bytes(budget.headroom_bytes), set_at]));
    }
    grid
}

fn bytes(budgets: &[Budget], mechanism: Mechanism) -> Option<u64> {
    by(mechanism, budgets).map(|budget| budget.bytes)
}

/// The kinds in the order of their columns.
const COLUMNS: [Mechanism; 5] =
    [Mechanism::Lowtide, Mechanism::AppMaxrss, Mechanism::SysMaxrss, Mechanism::Vpa, Mechanism::Unlimited];

fn cells(budgets: &[Budget]) -> [String; 5] {
    COLUMNS.map(|mechanism| whole_bytes(bytes(budgets, mechanism)))
}

/// The first of these in their order, if they are few; else the largest. And how many were left out.
fn shown<T>(all: &[T], need: impl Fn(&T) -> Option<u64>) -> (Vec<&T>, usize) {
    let mut these: Vec<&T> = all.iter().collect();
    if these.len() > ROWS {
        these.sort_by_key(|one| Reverse(need(one)));
        these.truncate(ROWS);
    }
    let left_out = all.len() - these.len();
    (these, left_out)
}

fn left_out(grid: &mut Grid, count: usize) {
    if count > 0 {
        let cells = grid.head.len();
        grid.row(std::iter::once(format!("and {count} that need less")).chain(vec![String::new(); cells - 1]));
    }
}

fn nodes(answer: &BudgetAnswer) -> Grid {
    let head = ["node", "run", "ranks at a time", "lowtide", "App-MaxRSS", "Sys-MaxRSS", "VPA", "Unlimited"];
    let sets = answer.budget(Mechanism::Lowtide);
    let sets = answer.nodes.iter().find(|node| sets.is_some_and(|own| node.budgets.contains(own)));
    let sets = sets.map_or_else(String::new, |node| format!(" ({} sets the number)", node.node));
    let mut grid = Grid::new(&format!("Node by node{sets}: the sum over the ranks that ran on it at a time"), &head);
    let (these, more) = shown(&answer.nodes, |node| bytes(&node.budgets, Mechanism::Lowtide));
    for node in these {
        let name = [node.node.clone(), node.run.clone(), node.at_a_time.to_string()];
        grid.row(name.into_iter().chain(cells(&node.budgets)));
    }
    left_out(&mut grid, more);
    grid
}

fn runs(answer: &BudgetAnswer) -> Grid {
    let head = ["run", "ranks", "without a record", "needs most", "as much as", "mean of all", "skew"];
    let mut grid = Grid::new("How even its ranks are", &head);
    for run in answer.runs() {
        let name = [run.run, run.ranks.to_string(), run.missing.len().to_string()];
        let skew = run.skew.map_or_else(
            || ["-"; 4].map(str::to_owned),
            |skew| {
                let task = answer.records[skew.largest].task.as_ref();
                [
                    task.map_or_else(String::new, |task| format!("rank {} on {}", task.rank, task.node)),
                    whole_bytes(Some(skew.largest_bytes)),
                    human_bytes(skew.mean_bytes),
                    format!("{:.2}", skew.of_mean),
                ]
            },
        );
        grid.row(name.into_iter().chain(skew));
    }
    grid
}

fn classes(answer: &BudgetAnswer) -> Grid {
    let head = ["nodes with", "lowtide", "App-MaxRSS", "Sys-MaxRSS", "VPA", "Unlimited"];
    let mut grid = Grid::new("For each kind of node", &head);
    for (class, budgets) in answer.classes() {
        grid.row(std::iter::once(class.to_owned()).chain(cells(&budgets)));
    }
    grid
}

fn records(answer: &BudgetAnswer) -> Grid {
    let head = ["record", "rank", "runtime", "lowtide", "App-MaxRSS", "Sys-MaxRSS", "VPA", "Unlimited"];
    let mut grid = Grid::new("Record by record", &head);
    let (these, more) = shown(&answer.records, |one| one.bytes(Mechanism::Lowtide));
    for one in these {
        let rank = one.task.as_ref().map_or_else(|| "-".to_owned(), |task| format!("{} of {}", task.rank, task.ranks));
        let name = [one.record.display().to_string(), rank, human_seconds(one.runtime_s)];
        grid.row(name.into_iter().chain(cells(&one.budgets)));
    }
    left_out(&mut grid, more);
    let own = own(answer);
    for (name, share) in [("median", 0.5), ("90 %", 0.9), ("largest", 1.0)] {
        let value = stats::quantile(&own, share).map_or_else(|| "-".to_owned(), human_bytes);
        let blank = String::new;
        grid.row([name.to_owned(), blank(), blank(), value, blank(), blank(), blank(), blank()]);
    }
    grid
}

/// What each record asks for, bytes.
fn own(answer: &BudgetAnswer) -> Vec<f64> {
    answer.records.iter().filter_map(|one| one.bytes(Mechanism::Lowtide)).map(float).collect()
}

/// All of it as JSON.
#[must_use]
pub fn json(answer: &BudgetAnswer, verdicts: Option<&Verdicts>) -> serde_json::Value {
    let own = own(answer);
    let record = |one: &RecordBudget| {
        json!({
            "record": one.record,
            "command": one.command(),
            "runtime_s": one.runtime_s,
            "task": one.task,
            "class": one.class,
            "budgets": one.budgets,
            "answer": one.bottom_line,
        })
    };
    let slower = if let Below::Slower(seconds) = answer.question.below { Some(seconds) } else { None };
    let nodes: Vec<_> = answer.nodes.iter().filter(|node| !node.run.is_empty()).collect();
    json!({
        "schema": 1,
        "slowdown_percent": 100.0 * answer.question.slowdown.0,
        "swap": answer.question.below.has_swap(),
        "swap_bytes": if let Below::Swap(bytes) = answer.question.below { Some(bytes) } else { None },
        "slow_tier_s": slower,
        "budgets": answer.largest,
        "lowtide_p50_bytes": stats::quantile(&own, 0.5),
        "lowtide_p90_bytes": stats::quantile(&own, 0.9),
        "verify": verdicts,
        "nodes": nodes,
        "classes": answer.classes(),
        "runs": answer.runs(),
        "records": answer.records.iter().map(record).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MIB, question, rank, record_of};
    use super::*;

    fn answer(records: Vec<RecordBudget>) -> BudgetAnswer {
        BudgetAnswer::of(records, question(true))
    }

    #[test]
    fn several_records_are_listed_one_by_one() {
        let all = answer(vec![record_of(100 * MIB), record_of(300 * MIB), record_of(200 * MIB)]);
        assert_eq!(json(&all, None)["lowtide_p50_bytes"], 200.0 * 1_048_576.0);
        assert_eq!((grids(&all).len(), grids(&all)[1].rows.len()), (2, 6));
        assert_eq!(grids(&answer(vec![record_of(MIB)])).len(), 1);
    }

    #[test]
    fn nodes_say_which_sets_the_number_and_ranks_how_even_they_are() {
        let ranks = [(0, "a", 100), (1, "a", 140), (2, "b", 100), (3, "b", 60)];
        let all = answer(ranks.into_iter().map(|(i, node, mib)| rank(i, node, mib * MIB)).collect());
        let grids = grids(&all);
        assert_eq!(grids.len(), 4);
        assert_eq!(grids[1].rows.iter().map(|row| row[0].as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert!(grids[1].title.contains("(a sets the number)"), "{}", grids[1].title);
        assert_eq!((grids[2].rows[0][3].as_str(), grids[2].rows[0][6].as_str()), ("rank 1 on a", "1.40"));
        let value = json(&all, None);
        assert_eq!(
            (value["nodes"][0]["node"].as_str(), value["runs"][0]["skew"]["of_mean"].as_f64()),
            (Some("a"), Some(1.4))
        );
    }

    #[test]
    fn a_thousand_ranks_do_not_fill_the_screen() {
        let grids = grids(&answer((0..1000).map(|i| rank(i, &format!("n{i}"), MIB * u64::from(i + 2))).collect()));
        assert_eq!(grids[1].rows.len(), ROWS + 1);
        assert_eq!(grids[1].rows.last().unwrap()[0], "and 968 that need less");
    }
}
