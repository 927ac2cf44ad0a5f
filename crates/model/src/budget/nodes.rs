//! Budgets of programs that run as several ranks: what their nodes have to have. Pure functions of the ranks' budgets.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Budget, Mechanism, by};
use crate::stats;
use crate::task::Task;
use crate::units::{float, rounded};

/// What one record asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Rank<'a> {
    /// Which rank it was; `None` of a program that was no part of others.
    pub task: Option<&'a Task>,
    /// What kind of node it ran on, in words.
    pub class: &'a str,
    /// When it ran, seconds since 1970 by its node's clock.
    pub ran_s: [f64; 2],
    /// What it asks for.
    pub budgets: &'a [Budget],
}

/// A node in a run, or a program that ran alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Node {
    /// Identifies the run; empty for a program that ran alone.
    pub run: String,
    /// Its name; empty for a program that ran alone.
    pub node: String,
    /// Its kind.
    pub class: String,
    /// Which of the ranks that were given ran on it, by their places.
    #[serde(skip)]
    pub members: Vec<usize>,
    /// How many of them ran at a time at most.
    pub at_a_time: usize,
    /// What it has to have for all that run at a time.
    pub budgets: Vec<Budget>,
}

/// Node by node what is needed: the sum over those that ran on it at a time, as each has a limit of its own in it and would else
/// take from the others. What was counted on the entire machine is not added up: each of its ranks has counted all.
#[must_use]
pub fn nodes(ranks: &[Rank<'_>]) -> Vec<Node> {
    let mut members: BTreeMap<(String, String, usize), Vec<usize>> = BTreeMap::new();
    for (place, rank) in ranks.iter().enumerate() {
        let key = match rank.task {
            Some(task) => (task.run.clone(), task.node.clone(), 0),
            None => (String::new(), String::new(), place),
        };
        members.entry(key).or_default().push(place);
    }
    members.into_iter().map(|((run, node, _), members)| of(ranks, run, node, members)).collect()
}

fn of(ranks: &[Rank<'_>], run: String, node: String, members: Vec<usize>) -> Node {
    // Sums only grow where one starts.
    let together = |start: f64| -> Vec<&Rank<'_>> {
        let all = members.iter().map(|place| &ranks[*place]);
        all.filter(|rank| rank.ran_s[0] <= start && start < rank.ran_s[1].max(rank.ran_s[0] + 1e-3)).collect()
    };
    let times: Vec<Vec<&Rank<'_>>> = members.iter().map(|place| together(ranks[*place].ran_s[0])).collect();
    let mut budgets: Vec<Budget> = Mechanism::ALL
        .into_iter()
        .filter_map(|kind| {
            // Where one of them is unknown, so is the sum.
            let sums = times.iter().map(|at| sum(kind, at)).collect::<Option<Vec<Budget>>>()?;
            sums.into_iter().max_by_key(|budget| budget.bytes)
        })
        .collect();
    let of = |kind| move |budget: &Budget| budget.mechanism == kind;
    if let Some(sys) = budgets.iter().copied().find(of(Mechanism::SysMaxrss))
        && let Some(unlimited) = budgets.iter_mut().find(|budget| of(Mechanism::Unlimited)(budget))
        && unlimited.bytes < sys.bytes
    {
        *unlimited = Budget { mechanism: Mechanism::Unlimited, ..sys };
    }
    let at_a_time = times.iter().map(Vec::len).max().unwrap_or(0);
    let class = members.first().map_or("", |place| ranks[*place].class).to_owned();
    Node { run, node, class, members, at_a_time, budgets }
}

/// One budget for several that run together.
fn sum(kind: Mechanism, ranks: &[&Rank<'_>]) -> Option<Budget> {
    let of = |rank: &&Rank<'_>| by(kind, rank.budgets).copied();
    let all = ranks.iter().map(of).collect::<Option<Vec<Budget>>>()?;
    let largest = all.iter().copied().max_by_key(|budget| budget.bytes)?;
    if all.len() == 1 || largest.machine_wide {
        return Some(largest);
    }
    let part = |get: fn(&Budget) -> Option<u64>| all.iter().map(get).sum::<Option<u64>>();
    let headroom = part(|budget| budget.headroom_bytes);
    // Independent errors do not all fall on the same side.
    let joint = all.iter().filter_map(|budget| budget.headroom_bytes).map(|half| float(half).powi(2)).sum::<f64>();
    let joint = headroom.map(|_| rounded(joint.sqrt()));
    let bytes: u64 = all.iter().map(|budget| budget.bytes).sum();
    let sure = bytes - headroom.unwrap_or(0).min(bytes);
    let bytes = sure + joint.unwrap_or(0);
    Some(Budget {
        mechanism: kind,
        bytes,
        heap_bytes: part(|budget| budget.heap_bytes),
        file_bytes: part(|budget| budget.file_bytes),
        other_bytes: part(|budget| budget.other_bytes),
        interval_bytes: joint.map(|half| [sure.saturating_sub(half), bytes]),
        headroom_bytes: joint,
        set_at_s: largest.set_at_s,
        verified: all.iter().all(|budget| budget.verified),
        machine_wide: false,
        basis: largest.basis,
        predicted_slowdown: all.iter().filter_map(|budget| budget.predicted_slowdown).reduce(f64::max),
    })
}

/// How unevenly ranks need memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Skew {
    /// The largest need over the mean.
    pub of_mean: f64,
    /// Whose it is, by its place.
    pub largest: usize,
    /// Bytes.
    pub largest_bytes: u64,
    /// Bytes.
    pub mean_bytes: f64,
}

/// The skew of what each needs, bytes, by place. `None` of less than two, or of nothing.
#[must_use]
pub fn skew(needs: &[(usize, u64)]) -> Option<Skew> {
    let &(largest, largest_bytes) = needs.iter().max_by_key(|(_, bytes)| *bytes)?;
    let mean_bytes = stats::mean(&needs.iter().map(|(_, bytes)| float(*bytes)).collect::<Vec<_>>())?;
    let several = needs.len() > 1 && mean_bytes > 0.0;
    several.then(|| Skew { of_mean: float(largest_bytes) / mean_bytes, largest, largest_bytes, mean_bytes })
}

/// The ranks of a run that are not among these.
#[must_use]
pub fn missing(tasks: &[&Task]) -> Vec<u32> {
    let ranks = tasks.iter().map(|task| task.ranks).max().unwrap_or(0);
    (0..ranks).filter(|rank| !tasks.iter().any(|task| task.rank == *rank)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::budget::Evidence;

    fn budget(mechanism: Mechanism, bytes: u64) -> Budget {
        Budget {
            mechanism,
            bytes,
            heap_bytes: Some(bytes),
            file_bytes: Some(0),
            other_bytes: None,
            interval_bytes: Some([bytes - bytes / 5, bytes]),
            headroom_bytes: Some(bytes / 10),
            set_at_s: Some(1.0),
            verified: false,
            machine_wide: mechanism == Mechanism::Unlimited,
            basis: Evidence::Accounts,
            predicted_slowdown: None,
        }
    }

    fn all(bytes: u64) -> Vec<Budget> {
        vec![budget(Mechanism::Unlimited, 3 * bytes), budget(Mechanism::Lowtide, bytes)]
    }

    fn task(rank: u32, node: &str) -> Task {
        Task { run: "slurm-1.0".to_owned(), rank, ranks: 4, node: node.to_owned(), partition: None }
    }

    #[test]
    fn a_node_holds_all_that_run_on_it_at_a_time() {
        let tasks = [task(0, "a"), task(1, "a"), task(2, "b"), task(3, "b")];
        let budgets = [all(1000), all(2000), all(500), all(700)];
        // The two on b run one after the other.
        let ran = [[0.0, 10.0], [0.5, 8.0], [0.0, 4.0], [4.0, 9.0]];
        let ranks: Vec<Rank<'_>> =
            (0..4).map(|i| Rank { task: Some(&tasks[i]), class: "x", ran_s: ran[i], budgets: &budgets[i] }).collect();
        let nodes = nodes(&ranks);
        assert_eq!(
            nodes.iter().map(|node| (node.node.as_str(), node.at_a_time)).collect::<Vec<_>>(),
            [("a", 2), ("b", 1)]
        );
        // 900 + 1800, and the root of 100^2 + 200^2.
        let own = nodes[0].budgets[1];
        assert_eq!(
            (own.bytes, own.headroom_bytes, own.heap_bytes, own.other_bytes),
            (2924, Some(224), Some(3000), None)
        );
        assert_eq!((nodes[0].budgets[0].bytes, nodes[1].budgets[1].bytes), (6000, 700));
    }

    #[test]
    fn what_is_not_known_of_one_is_not_known_of_its_node() {
        let tasks = [task(0, "a"), task(1, "a")];
        let budgets = [all(1000), vec![budget(Mechanism::Unlimited, 10)]];
        let ranks: Vec<Rank<'_>> = (0..2)
            .map(|i| Rank { task: Some(&tasks[i]), class: "", ran_s: [0.0, 1.0], budgets: &budgets[i] })
            .collect();
        let kinds: Vec<Mechanism> = nodes(&ranks)[0].budgets.iter().map(|budget| budget.mechanism).collect();
        assert_eq!(kinds, [Mechanism::Unlimited]);
        assert_eq!(missing(&[&tasks[0], &tasks[1]]), [2, 3]);
    }

    #[test]
    fn programs_that_ran_alone_are_not_added_up() {
        let budgets = [all(1000), all(2000)];
        let alone = |budgets| Rank { task: None, class: "", ran_s: [0.0, 1.0], budgets };
        assert_eq!(nodes(&[alone(&budgets[0]), alone(&budgets[1])]).len(), 2);
        assert_eq!(skew(&[(0, 100), (1, 300)]).map(|skew| (skew.of_mean, skew.largest)), Some((1.5, 1)));
        assert_eq!(skew(&[(0, 100)]), None);
    }

    proptest! {
        #[test]
        fn a_node_needs_no_less_than_any_of_its_ranks_and_no_more_than_all(
            given in prop::collection::vec((1_u64..1 << 40, 0.0..100.0_f64, 0.0..100.0_f64), 1..20),
        ) {
            let tasks: Vec<Task> = (0..20).map(|rank| task(rank, "a")).collect();
            let budgets: Vec<Vec<Budget>> = given.iter().map(|(bytes, ..)| all(*bytes)).collect();
            let ranks: Vec<Rank<'_>> = given
                .iter()
                .enumerate()
                .map(|(i, (_, from, long))| {
                    Rank { task: Some(&tasks[i]), class: "", ran_s: [*from, from + long], budgets: &budgets[i] }
                })
                .collect();
            let node = nodes(&ranks).remove(0);
            let own = node.budgets.iter().find(|budget| budget.mechanism == Mechanism::Lowtide).unwrap();
            let most = given.iter().map(|(bytes, ..)| *bytes).max().unwrap();
            let sum = given.iter().map(|(bytes, ..)| *bytes).sum::<u64>();
            prop_assert!(own.bytes + 1 >= most && own.bytes <= sum + 1, "{} of {most}..{sum}", own.bytes);
            prop_assert!(node.at_a_time >= 1 && node.at_a_time <= given.len());
        }
    }
}
