//! Budgets in the form that other tools read, with the evidence as a comment.

use lowtide_model::budget::{Budget, Evidence, Mechanism, by};
use lowtide_model::units::human_seconds;

use super::BudgetAnswer;
use crate::compare::scope::memory_max;
use lowtide_report::bottom_line::limit;

/// Which tool reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Emit {
    /// A drop-in of a unit.
    Systemd,
    /// A patch of a container's resources.
    Kubernetes,
    /// A line of a batch script.
    Slurm,
}

const MIB: u64 = 1 << 20;
/// Records that the comment names; of more, the largest.
const NAMED: usize = 8;

/// The text to paste.
#[must_use]
pub fn emitted(emit: Emit, own: &Budget, answer: &BudgetAnswer) -> String {
    let mib = own.bytes.div_ceil(MIB);
    let evidence: String = evidence(own, answer).iter().map(|line| format!("# {line}\n")).collect();
    match emit {
        Emit::Systemd => format!("{evidence}[Service]\n{}\n", memory_max(mib * MIB)),
        Emit::Kubernetes => {
            format!("{evidence}resources:\n  requests:\n    memory: {mib}Mi\n  limits:\n    memory: {mib}Mi\n")
        }
        // A batch script's options end at the first line that is none.
        Emit::Slurm => format!("#SBATCH --mem={mib}M\n{evidence}"),
    }
}

fn evidence(own: &Budget, answer: &BudgetAnswer) -> Vec<String> {
    let mib = |bytes: Option<u64>| bytes.map_or_else(|| "no budget".to_owned(), limit);
    let of = |budgets: &[Budget]| mib(by(Mechanism::Lowtide, budgets).map(|budget| budget.bytes));
    let proof = match own.basis {
        _ if own.verified => "verified by runs under it",
        Evidence::Peak => "the peak of the run: nothing measured shows that less would be enough",
        _ => "predicted",
    };
    let a_node = if answer.has_ranks() { " a node" } else { "" };
    let mut evidence = vec![format!("lowtide budget: {}{a_node}, {}, {proof}", mib(Some(own.bytes)), answer.question)];
    if let Some([low, high]) = own.interval_bytes {
        evidence.push(format!("95 % interval {} to {} MiB", low.div_ceil(MIB), high.div_ceil(MIB)));
    }
    let setting = answer.nodes.iter().find(|node| node.budgets.contains(own)).filter(|_| answer.has_ranks());
    if let Some(node) = setting {
        evidence.push(format!("set by {} in {}: {} ranks at a time", node.node, node.run, node.at_a_time));
    }
    let classes = answer.classes();
    if classes.len() > 1 {
        evidence.extend(classes.iter().map(|(class, budgets)| format!("nodes with {class}: {}", of(budgets))));
    }
    let mut records: Vec<_> = answer.records.iter().collect();
    if records.len() > NAMED {
        records.sort_by_key(|one| std::cmp::Reverse(one.bytes(Mechanism::Lowtide)));
        evidence.push(format!("{} records; the {NAMED} largest:", records.len()));
    }
    for one in records.into_iter().take(NAMED) {
        let need = mib(one.bytes(Mechanism::Lowtide));
        evidence.push(format!("measured {}: {}: {need}", human_seconds(one.runtime_s), one.command()));
    }
    evidence.extend(answer.doubts().iter().map(|doubt| format!("note: {doubt}")));
    // A command with a line break must not end the comment.
    let plain = |line: &String| line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    evidence.iter().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MIB, question, rank, record_of};
    use super::*;

    #[test]
    fn other_tools_get_their_form_with_the_evidence() {
        let answer = BudgetAnswer::of(vec![record_of(100 * MIB + 1)], question(true));
        let own = *answer.budget(Mechanism::Lowtide).unwrap();
        let text = |emit| emitted(emit, &own, &answer);
        assert!(text(Emit::Systemd).ends_with("[Service]\nMemoryMax=101M\n"));
        assert!(text(Emit::Kubernetes).contains("limits:\n    memory: 101Mi"));
        assert!(text(Emit::Slurm).starts_with("#SBATCH --mem=101M\n# lowtide budget: 101 MiB, at most"));
        let lines = |line: &str| line.starts_with('#') || line.starts_with("[S") || line.starts_with('M');
        assert!(text(Emit::Systemd).lines().all(lines));
    }

    #[test]
    fn a_batch_script_names_the_node_that_sets_it() {
        let ranks = (0..4).map(|i| rank(i, if i < 3 { "a" } else { "b" }, 100 * MIB)).collect();
        let answer = BudgetAnswer::of(ranks, question(false));
        let text = emitted(Emit::Slurm, answer.budget(Mechanism::Lowtide).unwrap(), &answer);
        assert!(text.starts_with("#SBATCH --mem=300M\n# lowtide budget: 300 MiB a node"), "{text}");
        assert!(text.contains("# set by a in slurm-7.0: 3 ranks at a time\n"), "{text}");
    }
}
