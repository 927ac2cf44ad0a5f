//! Ranks: processes of one program that a launcher starts together, on one node or many.

use serde::{Deserialize, Serialize};

/// What is known of the rank that a record is of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Identifies the launcher's run, for example `slurm-12.0` (job and step).
    pub run: String,
    /// Its number, from 0.
    pub rank: u32,
    /// How many the launcher started.
    pub ranks: u32,
    /// Name of the node.
    pub node: String,
    /// The partition of the cluster, where the launcher reports one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
}

/// Variables in which launchers pass a process its rank and how many there are (Open MPI; MPICH, Intel MPI and `srun
/// --mpi=pmi2`; `srun`, in whose steps another launcher may have started it, so it is asked last).
const RANKS: [[&str; 2]; 3] =
    [["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"], ["PMI_RANK", "PMI_SIZE"], ["SLURM_PROCID", "SLURM_NTASKS"]];

impl Task {
    /// The rank in an environment, on the node of this name. `None` outside of any launcher.
    #[must_use]
    pub fn of(variable: impl Fn(&str) -> Option<String>, host: &str) -> Option<Self> {
        let number = |name: &str| variable(name).and_then(|text| text.parse::<u32>().ok());
        let job = variable("SLURM_JOB_ID");
        // A batch script has a rank too, but it is the only one that runs it.
        let step = variable("SLURM_STEP_ID");
        let asked = RANKS.iter().filter(|[rank, _]| *rank != "SLURM_PROCID" || step.is_some());
        let given = asked.filter_map(|[rank, ranks]| Some((number(rank)?, number(ranks)?))).next();
        if job.is_none() && given.is_none() {
            return None;
        }
        let (rank, ranks) = given.filter(|(rank, ranks)| rank < ranks).unwrap_or((0, 1));
        let run = match (job, step) {
            (Some(job), Some(step)) => format!("slurm-{job}.{step}"),
            (Some(job), None) => format!("slurm-{job}.batch"),
            (None, _) => variable("PMIX_NAMESPACE").unwrap_or_else(|| "mpi".to_owned()),
        };
        let node = variable("SLURMD_NODENAME").unwrap_or_else(|| host.to_owned());
        Some(Self { run, rank, ranks, node, partition: variable("SLURM_JOB_PARTITION") })
    }

    /// Its number, with as many digits as the last one has, so that names sort.
    #[must_use]
    pub fn number(&self) -> String {
        let digits = self.ranks.saturating_sub(1).to_string().len();
        format!("{:0digits$}", self.rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(variables: &[(&str, &str)]) -> Option<Task> {
        let of = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Task::of(of, "host")
    }

    #[test]
    fn a_step_of_slurm_names_all() {
        let step = [
            ("SLURM_JOB_ID", "12"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "3"),
            ("SLURM_NTASKS", "128"),
            ("SLURMD_NODENAME", "n2"),
            ("SLURM_JOB_PARTITION", "fat"),
        ];
        let one = task(&step).unwrap();
        assert_eq!((one.run.as_str(), one.rank, one.ranks, one.node.as_str()), ("slurm-12.0", 3, 128, "n2"));
        assert_eq!((one.partition.as_deref(), one.number().as_str()), (Some("fat"), "003"));
        // A launcher within the step counts for more: all its processes have the step's rank.
        let within = task(&[&step[..], &[("OMPI_COMM_WORLD_RANK", "7"), ("OMPI_COMM_WORLD_SIZE", "8")]].concat());
        assert_eq!(within.map(|one| (one.rank, one.ranks)), Some((7, 8)));
    }

    #[test]
    fn a_batch_script_is_no_rank_of_its_tasks() {
        let one = task(&[("SLURM_JOB_ID", "12"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")]).unwrap();
        assert_eq!((one.run.as_str(), one.rank, one.ranks, one.number().as_str()), ("slurm-12.batch", 0, 1, "0"));
    }

    #[test]
    fn other_launchers_are_understood_and_nonsense_is_not_believed() {
        let one = task(&[("PMI_RANK", "1"), ("PMI_SIZE", "4")]).unwrap();
        assert_eq!((one.run.as_str(), one.rank, one.node.as_str()), ("mpi", 1, "host"));
        assert_eq!(task(&[]), None);
        assert_eq!(task(&[("PMI_RANK", "x"), ("PMI_SIZE", "4")]), None);
        assert_eq!(task(&[("PMI_RANK", "4"), ("PMI_SIZE", "4")]).map(|one| (one.rank, one.ranks)), Some((0, 1)));
    }
}
