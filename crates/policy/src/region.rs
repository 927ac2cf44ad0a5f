//! Ranges of processes' memory, as policies of operation schemes know them.

use lowtide_model::scheme::{Action, Filter};

/// Memory of a process that may be acted on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// The process.
    pub pid: u32,
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Share of the samples, or of the memory, that was accessed.
    pub access_rate: f64,
    /// Seconds for which it has been like this.
    pub age_s: f64,
    /// Bytes in memory.
    pub resident: f64,
    /// Bytes of them that were idle for all of that time. Less than `resident`: where they are is not known.
    pub idle: f64,
    /// Bytes of them in huge pages, as far as that is known.
    pub huge: f64,
}

/// The result of one order.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    /// Which scheme's.
    pub scheme: usize,
    /// CPU seconds that it took.
    pub cpu_s: f64,
    /// For each block of the order that was reached.
    pub blocks: Vec<BlockDone>,
    /// Those that were not, as something stopped the work before: they are as they were.
    pub skipped: Vec<Block>,
}

/// What was evicted of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockDone {
    /// The process.
    pub pid: u32,
    /// Where it begins.
    pub start: u64,
    /// Pages evicted.
    pub evicted: u32,
    /// Pages of it in memory right after: they came back at once, or could not be evicted.
    pub left: u32,
}

/// A range of a process' memory whose resident pages are to be counted.
pub type Block = (u32, (u64, u64));

/// Advice on a process' memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// Whose scheme it is.
    pub scheme: usize,
    /// What.
    pub action: Action,
    /// To which process.
    pub pid: u32,
    /// To which addresses: blocks, ascending.
    pub ranges: Vec<(u64, u64)>,
    /// Of them, to which pages.
    pub filters: Vec<Filter>,
    /// Why.
    pub reason: String,
}

/// What is known of them at one time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RegionObservation {
    /// Seconds since the start.
    pub now_s: f64,
    /// Memory of processes, as it was last read.
    pub candidates: Vec<Candidate>,
    /// Pages in memory, of each block that was to be counted, by its process and where it begins.
    pub back: Vec<(u32, u64, u32)>,
    /// The result of the orders before.
    pub done: Vec<Done>,
    /// Share of the time since the last observation that some task stalled on memory.
    pub pressure: Option<f64>,
    /// Anonymous pages that were refaulted since the last observation, whatever evicted them.
    pub refaults: Option<f64>,
    /// Bytes of the target in memory or swap.
    pub demand: Option<f64>,
    /// Share of the system's memory that is free.
    pub free: Option<f64>,
    /// Bytes of swap that are free.
    pub swap_free: Option<u64>,
}

/// What a policy of schemes asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum RegionAction {
    /// Advice on ranges of a process.
    Advise(Order),
    /// The resident pages of a block, before the next decision: some may have come back.
    Count(Block),
}
