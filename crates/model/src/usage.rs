//! The field table: every figure of `usage.parquet` is one row here, from which the columns of the record, the
//! timeline's tables and the documentation follow.

use crate::WINDOWS_S;
use crate::cohort::Estimate;
use crate::units::float;

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// A number of things.
    Count,
    /// Seconds.
    Seconds,
}

/// Whether a figure is a level or has been counted up since a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A level at the time of the tick.
    Gauge,
    /// A count since the start of the record.
    Counter,
}

/// One row of the field table.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Column name.
    pub name: &'static str,
    /// What it counts.
    pub unit: Unit,
    /// Level or count.
    pub shape: Shape,
    /// One sentence for people.
    pub doc: &'static str,
    /// Reads the figure; `None` = not measured.
    pub get: fn(&Usage) -> Option<f64>,
    /// Sets the figure.
    pub set: fn(&mut Usage, Option<f64>),
}

macro_rules! fields {
    ($($name:ident $unit:ident $shape:ident $doc:literal;)*) => {
        /// What one tick measured. `None` = not measurable here, or not measured in this tick.
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct Usage {
            $(#[doc = $doc] pub $name: Option<f64>,)*
        }

        /// The field table, in the order of the record's columns.
        pub const FIELDS: &[Field] = &[
            $(Field {
                name: stringify!($name),
                unit: Unit::$unit,
                shape: Shape::$shape,
                doc: $doc,
                get: |usage| usage.$name,
                set: |usage, value| usage.$name = value,
            },)*
        ];
    };
}

fields! {
    t_s Seconds Gauge "Time since the start of the record.";
    rss_bytes Bytes Gauge "Resident set: the sum over the processes of the tree.";
    pss_bytes Bytes Gauge "Proportional set: shared pages divided by the number of mappings. Read now and then, as a walk over all pages is dear; `summary.json` says null where the ticks that have it do not stand for the run.";
    swap_bytes Bytes Gauge "Swapped-out memory of the tree's processes.";
    demand_bytes Bytes Gauge "Memory allocation demand (MAD): what the processes asked for and touched, resident or swapped.";
    anon_bytes Bytes Gauge "Anonymous memory: charged to the cgroup, or else resident in the processes.";
    file_bytes Bytes Gauge "File memory: page cache charged to the cgroup, or else mapped files resident in the processes.";
    shmem_bytes Bytes Gauge "Shared memory and tmpfs.";
    unevictable_bytes Bytes Gauge "What the kernel cannot reclaim of the cgroup's anonymous and file memory: locked, mostly.";
    kernel_bytes Bytes Gauge "Kernel memory charged: slab, page tables, stacks, sockets.";
    slab_bytes Bytes Gauge "Slab caches charged.";
    page_table_bytes Bytes Gauge "Page tables.";
    stack_bytes Bytes Gauge "Kernel stacks of the threads.";
    socket_bytes Bytes Gauge "Network buffers charged.";
    mapped_file_bytes Bytes Gauge "The part of file memory that a process maps.";
    zswap_bytes Bytes Gauge "Memory that the cgroup's compressed pages take in zswap.";
    zswapped_bytes Bytes Gauge "What the cgroup's pages in zswap would take uncompressed.";
    zram_bytes Bytes Gauge "Memory that zram devices take, all of the system's: what they hold, compressed, and their own tables.";
    zram_stored_bytes Bytes Gauge "What the zram devices hold would take uncompressed.";
    huge_bytes Bytes Gauge "Anonymous memory in huge pages, charged to the cgroup.";
    huge_zero_bytes Bytes Gauge "Of it, what holds nothing but zeros and would not be there with small pages: an estimate from samples taken now and then while schemes are at work.";
    taken_file_bytes Bytes Gauge "File memory that lowtide's schemes have taken and that has not come back.";
    cgroup_bytes Bytes Gauge "All that is charged to the cgroup.";
    cgroup_lru_bytes Bytes Gauge "Active and inactive lists of the cgroup, anonymous and file, and unevictable.";
    cgroup_inactive_file_bytes Bytes Gauge "File memory on the cgroup's inactive list: what Kubernetes leaves out of its working set.";
    system_used_bytes Bytes Gauge "Memory in use on the system: total minus free.";
    system_available_bytes Bytes Gauge "Memory the kernel says is available without swapping, on the system.";
    system_lru_bytes Bytes Gauge "Active and inactive lists of the system, anonymous and file, and unevictable.";
    minor_faults Count Counter "Page faults served without I/O.";
    major_faults Count Counter "Page faults that waited for I/O.";
    refault_anon Count Counter "Anonymous pages that came back after being reclaimed.";
    refault_file Count Counter "File pages that came back after being reclaimed.";
    high_events Count Counter "Times the cgroup was throttled for being above memory.high.";
    max_events Count Counter "Times the cgroup was about to exceed memory.max (version 1: its limit).";
    oom_kills Count Counter "Processes of the cgroup that the kernel killed for want of memory.";
    cpu_s Seconds Counter "CPU time of the tree, user and system; of a cgroup of version 2, also that of processes that have ended.";
    system_cpu_s Seconds Counter "CPU time of the system, all states, all CPUs.";
    system_iowait_s Seconds Counter "Time CPUs of the system were idle with I/O outstanding.";
    memory_some_s Seconds Counter "Memory pressure: time in which some task stalled on memory.";
    memory_full_s Seconds Counter "Memory pressure: time in which all tasks stalled on memory.";
    memory_stalls Count Counter "Times some task was stalled on memory for a tenth of a second within two seconds (a PSI trigger); each has a row of its own.";
    io_some_s Seconds Counter "I/O pressure: time in which some task stalled on I/O.";
    processes Count Gauge "Processes of the tree.";
    threads Count Gauge "Threads of the tree.";
    monitor_cpu_s Seconds Counter "What measuring cost: CPU time of lowtide and of the kernel threads that work for it.";
    cohort_pages Count Gauge "Pages in the cohort.";
    watched_bytes Bytes Gauge "Bytes the cohort's sample stands for.";
    regions Count Gauge "Regions in the map.";
    ws_1s_bytes Bytes Gauge "Working set: bytes touched in the last second.";
    ws_1s_ci95_bytes Bytes Gauge "Half-width of the 95 % interval of ws_1s_bytes.";
    ws_5s_bytes Bytes Gauge "Working set: bytes touched in the last 5 seconds.";
    ws_5s_ci95_bytes Bytes Gauge "Half-width of the 95 % interval of ws_5s_bytes.";
    ws_10s_bytes Bytes Gauge "Working set: bytes touched in the last 10 seconds.";
    ws_10s_ci95_bytes Bytes Gauge "Half-width of the 95 % interval of ws_10s_bytes.";
    ws_30s_bytes Bytes Gauge "Working set: bytes touched in the last 30 seconds.";
    ws_30s_ci95_bytes Bytes Gauge "Half-width of the 95 % interval of ws_30s_bytes.";
    ws_60s_bytes Bytes Gauge "Working set: bytes touched in the last minute.";
    ws_60s_ci95_bytes Bytes Gauge "Half-width of the 95 % interval of ws_60s_bytes.";
    ws_120s_bytes Bytes Gauge "Working set: bytes touched in the last two minutes.";
    ws_120s_ci95_bytes Bytes Gauge "Half-width of the 95 % interval of ws_120s_bytes.";
}

/// How much a counter rose over the rows.
pub(crate) fn rise(rows: &[Usage], get: impl Fn(&Usage) -> Option<f64>) -> Option<f64> {
    let mut values = rows.iter().filter_map(get);
    let first = values.next()?;
    Some((values.next_back().unwrap_or(first) - first).max(0.0))
}

/// The field of that name.
#[must_use]
pub fn field(name: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.name == name)
}

impl Usage {
    /// Bytes of its file memory that come back from a disk; what lies on tmpfs comes back from swap.
    #[must_use]
    pub fn on_disk(&self) -> Option<f64> {
        Some(self.file_bytes? - self.shmem_bytes.unwrap_or(0.0))
    }

    /// What its processes hold, bytes: pages that they share once where a cgroup counts them.
    #[must_use]
    pub fn held(&self) -> Option<f64> {
        let charged =
            self.cgroup_bytes.and(self.anon_bytes.zip(self.mapped_file_bytes)).map(|(anon, file)| anon + file);
        self.rss_bytes
            .zip(charged)
            .map(|(rss, charged)| rss.min(charged))
            .or(self.rss_bytes)
            .or(charged)
            .or(self.anon_bytes)
    }

    /// The same with what is swapped out: what they have asked for and touched.
    #[must_use]
    pub fn touched(&self) -> Option<f64> {
        let charged = self.cgroup_bytes.and(self.mapped_file_bytes).and(self.held());
        charged.map(|held| held + self.swap_bytes.unwrap_or(0.0)).or(self.demand_bytes).or(self.held())
    }

    /// Working set of that window and the half-width of its interval.
    #[must_use]
    pub fn working_set(&self, window_s: u32) -> Option<Estimate> {
        let (bytes, ci95) = match window_s {
            1 => (self.ws_1s_bytes, self.ws_1s_ci95_bytes),
            5 => (self.ws_5s_bytes, self.ws_5s_ci95_bytes),
            10 => (self.ws_10s_bytes, self.ws_10s_ci95_bytes),
            30 => (self.ws_30s_bytes, self.ws_30s_ci95_bytes),
            60 => (self.ws_60s_bytes, self.ws_60s_ci95_bytes),
            120 => (self.ws_120s_bytes, self.ws_120s_ci95_bytes),
            _ => (None, None),
        };
        Some(Estimate { bytes: bytes?, ci95: ci95.unwrap_or(0.0) })
    }

    /// Sets what was sampled: working sets of all windows, in the order of [`WINDOWS_S`], and from how many pages.
    pub fn set_sampled(&mut self, pages: u64, sets: &[Option<Estimate>; WINDOWS_S.len()]) {
        self.cohort_pages = Some(float(pages));
        self.set_working_sets(sets);
    }

    /// Sets the working sets of all windows, in the order of [`WINDOWS_S`].
    pub fn set_working_sets(&mut self, sets: &[Option<Estimate>; WINDOWS_S.len()]) {
        for (window, set) in WINDOWS_S.iter().zip(sets) {
            for (name, value) in [("bytes", set.map(|s| s.bytes)), ("ci95_bytes", set.map(|s| s.ci95))] {
                if let Some(field) = field(&format!("ws_{window}s_{name}")) {
                    (field.set)(self, value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_reads_back_what_was_set_and_names_its_unit() {
        let mut usage = Usage::default();
        for (value, field) in (1u32..).zip(FIELDS) {
            (field.set)(&mut usage, Some(f64::from(value)));
            assert_eq!((field.get)(&usage), Some(f64::from(value)), "{}", field.name);
            assert_eq!(field.unit == Unit::Bytes, field.name.ends_with("_bytes"), "{}", field.name);
            assert_eq!(field.unit == Unit::Seconds, field.name.ends_with("_s"), "{}", field.name);
        }
    }

    #[test]
    fn working_sets_by_window() {
        let mut usage = Usage::default();
        let mut sets = [None; WINDOWS_S.len()];
        sets[2] = Some(Estimate { bytes: 10.0, ci95: 1.0 });
        usage.set_working_sets(&sets);
        assert_eq!(usage.working_set(10), sets[2]);
        assert_eq!(usage.working_set(1), None);
        assert_eq!(usage.working_set(7), None);
    }
}
