//! The order of workloads.

use lowtide_engine::agent::serve::api::WorkloadRow;

/// By what rows are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum TopOrder {
    /// Memory in use
    Memory,
    /// Working set
    Set,
    /// Cold memory
    Cold,
    /// Net saving
    Saved,
    /// Pressure
    Pressure,
    /// Name
    Name,
}

impl TopOrder {
    /// The order that a letter asks for.
    #[must_use]
    pub fn of(letter: char) -> Option<Self> {
        Self::ALL.iter().find(|(_, key, ..)| *key == letter).map(|(order, ..)| *order)
    }

    /// Its place in [`Self::ALL`].
    #[must_use]
    pub fn at(self) -> usize {
        Self::ALL.iter().position(|(order, ..)| *order == self).unwrap_or(0)
    }

    /// The column of the table that it goes by.
    #[must_use]
    pub fn column(self) -> usize {
        Self::ALL[self.at()].3
    }

    /// All, as they are offered, each with its letter and its name; the column of the table that it goes by.
    pub const ALL: [(Self, char, &'static str, usize); 6] = [
        (Self::Memory, 'm', "memory", 2),
        (Self::Set, 'w', "working set", 3),
        (Self::Cold, 'c', "cold", 4),
        (Self::Saved, 'v', "saved net", 5),
        (Self::Pressure, 'p', "pressure", 6),
        (Self::Name, 'n', "name", 0),
    ];

    /// The figure by which rows are ordered; the largest first.
    fn figure(self, row: &WorkloadRow) -> Option<f64> {
        match self {
            Self::Memory => Some(row.memory_bytes),
            Self::Set => row.working_set_bytes,
            Self::Cold => row.cold_bytes,
            Self::Saved => row.saved_net_bytes,
            Self::Pressure => row.pressure_percent,
            Self::Name => None,
        }
    }
}

/// Puts rows in order; what is not known comes last, however it is turned.
pub fn order(rows: &mut [WorkloadRow], sort: TopOrder, reverse: bool) {
    rows.sort_by(|a, b| {
        let by_name = || a.name.cmp(&b.name);
        let turned = |order: std::cmp::Ordering| if reverse { order.reverse() } else { order };
        match (sort, sort.figure(a), sort.figure(b)) {
            (TopOrder::Name, ..) => turned(by_name()),
            (_, Some(x), Some(y)) => turned(y.total_cmp(&x)).then_with(by_name),
            (_, x, y) => y.is_some().cmp(&x.is_some()).then_with(by_name),
        }
    });
}
