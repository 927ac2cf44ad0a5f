//! The budgets of several records together: ranks are added up on their nodes, and the largest node counts.

use std::collections::BTreeMap;

use lowtide_model::budget::nodes::{self, Node, Rank, Skew};
use lowtide_model::budget::{Budget, Mechanism, by};
use lowtide_model::task::Task;
use serde::Serialize;

use super::{Question, RecordBudget};

/// The budgets of all records together.
#[derive(Debug, Clone, PartialEq)]
pub struct BudgetAnswer {
    /// Each of them.
    pub records: Vec<RecordBudget>,
    /// The budgets of each node; a program that ran alone is a node of its own.
    pub nodes: Vec<Node>,
    /// Of each kind of budget the largest of any node.
    pub largest: Vec<Budget>,
    /// For what they are.
    pub question: Question,
}

/// The ranks of one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RankedRun {
    /// Its name.
    pub run: String,
    /// How many ranks it had.
    pub ranks: u32,
    /// Ranks without a record.
    pub missing: Vec<u32>,
    /// How unevenly they need memory; places are those of the records.
    pub skew: Option<Skew>,
}

impl BudgetAnswer {
    /// Puts records together.
    #[must_use]
    pub fn of(records: Vec<RecordBudget>, question: Question) -> Self {
        let rank = |one| {
            let RecordBudget { task, class, started_s, runtime_s, budgets, .. }: &RecordBudget = one;
            Rank { task: task.as_ref(), class, ran_s: [*started_s, started_s + runtime_s], budgets }
        };
        let nodes = nodes::nodes(&records.iter().map(rank).collect::<Vec<_>>());
        let largest = largest(nodes.iter().flat_map(|node| &node.budgets));
        Self { records, nodes, largest, question }
    }

    /// One of the largest.
    #[must_use]
    pub fn budget(&self, mechanism: Mechanism) -> Option<&Budget> {
        by(mechanism, &self.largest)
    }

    /// Whether any record is of a rank among several.
    #[must_use]
    pub fn has_ranks(&self) -> bool {
        self.records.iter().any(|one| one.task.as_ref().is_some_and(|task| task.ranks > 1))
    }

    /// The budgets of each kind of node.
    #[must_use]
    pub fn classes(&self) -> BTreeMap<&str, Vec<Budget>> {
        let mut all: BTreeMap<&str, Vec<&Budget>> = BTreeMap::new();
        self.nodes.iter().for_each(|node| all.entry(&node.class).or_default().extend(&node.budgets));
        all.into_iter().map(|(class, budgets)| (class, largest(budgets.into_iter()))).collect()
    }

    /// The runs that had several ranks.
    #[must_use]
    pub fn runs(&self) -> Vec<RankedRun> {
        let mut all: BTreeMap<&str, Vec<(usize, &RecordBudget, &Task)>> = BTreeMap::new();
        for (place, one) in self.records.iter().enumerate() {
            if let Some(task) = one.task.as_ref().filter(|task| task.ranks > 1) {
                all.entry(&task.run).or_default().push((place, one, task));
            }
        }
        let run = |(run, members): (&str, Vec<(usize, &RecordBudget, &Task)>)| {
            let tasks: Vec<&Task> = members.iter().map(|(.., task)| *task).collect();
            let needs = members.iter().filter_map(|(place, one, _)| Some((*place, one.bytes(Mechanism::Lowtide)?)));
            let needs: Vec<(usize, u64)> = needs.collect();
            RankedRun {
                run: run.to_owned(),
                ranks: tasks.iter().map(|task| task.ranks).max().unwrap_or(0),
                missing: nodes::missing(&tasks),
                skew: nodes::skew(&needs),
            }
        };
        all.into_iter().map(run).collect()
    }

    /// Reasons for doubt; a sentence each.
    #[must_use]
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        // Ranks of one run may well be of several programs.
        let mut programs: BTreeMap<String, &str> = BTreeMap::new();
        for one in &self.records {
            let run = one.task.as_ref().map_or("", |task| task.run.as_str());
            let known = programs.values().any(|other| !run.is_empty() && *other == run);
            if !known {
                programs.insert(one.program(), run);
            }
        }
        if programs.len() > 1 {
            let names: Vec<&str> = programs.keys().map(String::as_str).collect();
            doubts.push(format!("these are records of different programs: {}", names.join("; ")));
        }
        for run in self.runs().into_iter().filter(|run| !run.missing.is_empty()) {
            let missing: Vec<String> = run.missing.iter().take(8).map(ToString::to_string).collect();
            let more = if run.missing.len() > 8 { ", ..." } else { "" };
            doubts.push(format!(
                "{}: no records of {} of its {} ranks ({}{more}): their nodes need more than is shown here",
                run.run,
                run.missing.len(),
                run.ranks,
                missing.join(", ")
            ));
        }
        for one in &self.records {
            if let Some(why) = &one.cut_short {
                doubts.push(format!("{}: {why}: running longer, it might have needed more", one.record.display()));
            }
            doubts.extend(one.bottom_line.doubts.iter().map(|doubt| format!("{}: {doubt}", one.record.display())));
        }
        doubts
    }
}

/// Of each kind the largest.
fn largest<'a>(budgets: impl Iterator<Item = &'a Budget>) -> Vec<Budget> {
    let all: Vec<&Budget> = budgets.collect();
    let of = |kind: Mechanism| {
        let these = all.iter().filter(move |budget| budget.mechanism == kind);
        these.max_by_key(|budget| budget.bytes).map(|budget| **budget)
    };
    Mechanism::ALL.into_iter().filter_map(of).collect()
}
