//! A made-up run that is the same every time: three processes, a heap that grows, phases of work, hot spots that are
//! scattered, a file that is read now and then, and some figures that could not be measured.
#![allow(dead_code, clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]

use lowtide_model::cohort::{AgeBin, Estimate};
use lowtide_model::episode::{Episode, PageKey, PageKind};
use lowtide_model::generations::CgroupUse;
use lowtide_model::meta::{End, Host, Meta, Monitor, Refusal, SCHEMA};
use lowtide_model::usage::Usage;
use lowtide_model::{AGE_EDGES_S, PAGE, WINDOWS_S};
use lowtide_record::{AgeRow, CgroupRow, RegionRow, Writer};

pub const MIB: f64 = 1048576.0;
const MI: u64 = 1 << 20;

/// Pseudo-random in 0..1 from two numbers.
pub fn noise(a: u64, b: u64) -> f64 {
    let mut x = a.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ b.wrapping_add(0x1234_5678_9abc_def1).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    ((x ^ (x >> 32)) >> 11) as f64 / (1u64 << 53) as f64
}

/// One mapping of a process.
pub struct MadeMapping {
    pub pid: u32,
    pub start: u64,
    pub bytes: u64,
    pub name: &'static str,
    /// Share of its 2 MiB blocks that are hot.
    hot: f64,
    kind: PageKind,
}

pub const MAPPINGS: &[MadeMapping] = &[
    MadeMapping {
        pid: 4211,
        start: 0x55d0_8c00_0000,
        bytes: 12 * MI,
        name: "/usr/sbin/valkey-server",
        hot: 0.3,
        kind: PageKind::File,
    },
    MadeMapping {
        pid: 4211,
        start: 0x55d0_a000_0000,
        bytes: 420 * MI,
        name: "[heap]",
        hot: 0.22,
        kind: PageKind::Anon,
    },
    MadeMapping { pid: 4211, start: 0x7f10_4000_0000, bytes: 192 * MI, name: "", hot: 0.1, kind: PageKind::Anon },
    MadeMapping {
        pid: 4211,
        start: 0x7f10_8000_0000,
        bytes: 256 * MI,
        name: "/var/lib/valkey/dump.rdb",
        hot: 0.05,
        kind: PageKind::File,
    },
    MadeMapping { pid: 4211, start: 0x7ffd_1200_0000, bytes: MI, name: "[stack]", hot: 1.0, kind: PageKind::Anon },
    MadeMapping { pid: 4300, start: 0x5600_1000_0000, bytes: 96 * MI, name: "[heap]", hot: 0.5, kind: PageKind::Anon },
    MadeMapping {
        pid: 4300,
        start: 0x7f44_0000_0000,
        bytes: 24 * MI,
        name: "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
        hot: 0.2,
        kind: PageKind::File,
    },
    MadeMapping { pid: 4301, start: 0x5588_2000_0000, bytes: 16 * MI, name: "[heap]", hot: 0.1, kind: PageKind::Anon },
];

impl MadeMapping {
    /// Bytes of it that exist at `t`: the big heap grows over the first two thirds.
    fn bytes_at(&self, share: f64) -> u64 {
        if self.name == "[heap]" && self.pid == 4211 {
            let grown = 0.2 + 0.8 * (share * 1.5).min(1.0);
            ((self.bytes as f64 * grown) as u64) & !(2 * MI - 1)
        } else {
            self.bytes
        }
    }

    /// Access rate of a 2 MiB block. Phases of a sixth of the run: other blocks are hot in each.
    fn rate(&self, block: u64, share: f64) -> f64 {
        let phase = (share * 6.0) as u64;
        let key = self.start ^ (block << 7);
        if self.kind == PageKind::File && self.bytes > 100 * MI {
            // A sweep over the file in two phases.
            if phase != 2 && phase != 5 {
                return 0.0;
            }
            let at = (share * 6.0).fract() * (self.bytes / (2 * MI)) as f64;
            return if (block as f64 - at).abs() < 6.0 { 0.9 } else { 0.0 };
        }
        let lasting = noise(key, 1) < self.hot * 0.6;
        let phasic = noise(key / 4, 2 + phase) < self.hot;
        if lasting {
            0.6 + 0.4 * noise(key, 3)
        } else if phasic {
            0.15 + 0.5 * noise(key, 4 + phase)
        } else if noise(key, 5) < 0.1 {
            0.05
        } else {
            0.0
        }
    }
}

/// How much to make.
#[derive(Clone, Copy)]
pub struct RecordPlan {
    pub seconds: u32,
    /// Episodes a second, at most.
    pub episodes: u64,
    /// Snapshots of the map a second; 0 = none.
    pub snapshots: u32,
    /// Whether a monitor measured.
    pub monitored: bool,
}

impl Default for RecordPlan {
    fn default() -> Self {
        Self { seconds: 600, episodes: 1000, snapshots: 1, monitored: true }
    }
}

pub fn meta(plan: RecordPlan) -> Meta {
    let (backend, refused, notes) = if plan.monitored {
        (
            "damon-vaddr",
            vec![],
            vec![
                "PSS was read every 10 s only: a walk over all pages is dear.".to_owned(),
                "3 processes lived for less than a tick and were not measured.".to_owned(),
            ],
        )
    } else {
        let refusal = |backend: &str, why: &str| Refusal { backend: backend.into(), why: why.into() };
        (
            "none",
            vec![
                refusal("damon-vaddr", "not built into this kernel (CONFIG_DAMON_VADDR); use a kernel that has it"),
                refusal("smaps", "cannot clear referenced bits: not permitted; run as root"),
            ],
            vec!["No cgroup could be made: kernel memory is not counted.".to_owned()],
        )
    };
    Meta {
        attached: false,
        schema: SCHEMA,
        lowtide: "0.1.0".into(),
        command: ["valkey-server", "--save", "60", "1", "--maxmemory", "600mb"].map(String::from).to_vec(),
        started_unix_s: 1_763_600_000.0,
        started_monotonic_s: 1000.0,
        interval_s: 1.0,
        max_overhead_percent: 1.0,
        limit_bytes: None,
        host: Host {
            kernel: "6.12.48-amd64".into(),
            cpus: 8,
            memory_bytes: 16 << 30,
            cgroup_version: 2,
            swap_bytes: 0,
        },
        task: None,
        monitor: Monitor {
            backend: backend.into(),
            sampling_s: if plan.monitored { 1.0 } else { 0.0 },
            aggregation_s: if plan.monitored { 1.0 } else { 0.0 },
            refused,
        },
        schemes: Vec::new(),
        refault_costs: lowtide_model::curve::MeasuredCosts::default(),
        notes,
        end: Some(End {
            reason: "ended".into(),
            exit_code: Some(0),
            runtime_s: f64::from(plan.seconds),
            app_max_rss_bytes: Some(612 * MI),
            cgroup_peak_bytes: Some(901 * MI),
            own_peak_rss_bytes: 9 * MI,
            monitor_cpu_s: 0.004 * f64::from(plan.seconds),
        }),
    }
}

/// Bytes existing and touched lately at `share` of the run, by kind: (anon, file).
fn levels(share: f64) -> [(f64, f64); 2] {
    let mut out = [(0.0, 0.0); 2];
    for mapping in MAPPINGS {
        let blocks = mapping.bytes_at(share) / (2 * MI);
        let hot: f64 = (0..blocks).filter(|block| mapping.rate(*block, share) > 0.1).map(|_| 2.0 * MIB).sum();
        let at = usize::from(mapping.kind != PageKind::Anon);
        out[at].0 += mapping.bytes_at(share) as f64;
        out[at].1 += hot;
    }
    out
}

pub fn usage(plan: RecordPlan, second: u32) -> Usage {
    let t = f64::from(second);
    let share = t / f64::from(plan.seconds);
    if second == 0 {
        return Usage {
            t_s: Some(0.0),
            system_used_bytes: Some(1800.0 * MIB),
            system_lru_bytes: Some(900.0 * MIB),
            ..Usage::default()
        };
    }
    let [(anon, hot_anon), (file, hot_file)] = levels(share);
    let jitter = |key: u64, span: f64| (noise(u64::from(second), key) - 0.5) * span;
    let swap = (anon * (share - 0.7).max(0.0) * 0.4).floor();
    let (anon, cache) = ((anon - swap).floor(), (180.0 * MIB * share.sqrt()).floor());
    let kernel = ((24.0 + 14.0 * share + jitter(9, 1.0)) * MIB).floor();
    let stall = (share - 0.7).max(0.0);
    let mut usage = Usage {
        t_s: Some(t + 0.002 * noise(u64::from(second), 77)),
        rss_bytes: Some(anon + file),
        pss_bytes: (second.is_multiple_of(10)).then_some((anon + 0.8 * file).floor()),
        swap_bytes: Some(swap),
        demand_bytes: Some(anon + file + swap),
        anon_bytes: Some(anon),
        file_bytes: Some(file + cache),
        shmem_bytes: Some(8.0 * MIB),
        kernel_bytes: Some(kernel),
        slab_bytes: Some((kernel * 0.55).floor()),
        page_table_bytes: Some((kernel * 0.2).floor()),
        stack_bytes: Some((kernel * 0.06).floor()),
        socket_bytes: Some((kernel * 0.1).floor()),
        mapped_file_bytes: Some(file),
        cgroup_bytes: Some(anon + file + cache + kernel),
        cgroup_lru_bytes: Some(anon + file + cache),
        system_used_bytes: Some(((1800.0 + 40.0 * share) * MIB + anon + file + cache + kernel).floor()),
        system_available_bytes: Some(12_000.0 * MIB),
        system_lru_bytes: Some(900.0 * MIB + anon + file + cache),
        minor_faults: Some((2000.0 + t * 340.0 + 40_000.0 * share.sqrt()).floor()),
        major_faults: Some((3.0 + 220.0 * stall * t).floor()),
        refault_anon: Some((90.0 * stall * t).floor()),
        refault_file: Some((20.0 * stall * t).floor()),
        cpu_s: Some(0.6 * t),
        system_cpu_s: Some(8.0 * t),
        system_iowait_s: Some(0.05 * t + 20.0 * stall * stall * t / 10.0),
        memory_some_s: Some(0.3 * stall * stall * t),
        memory_full_s: Some(0.1 * stall * stall * t),
        io_some_s: Some(0.02 * t + 0.3 * stall * stall * t),
        processes: Some(3.0),
        threads: Some(11.0),
        monitor_cpu_s: Some(0.004 * t),
        ..Usage::default()
    };
    if plan.monitored {
        usage.cohort_pages = Some(2000.0);
        usage.watched_bytes = Some((0.97 * (anon + file + cache)).floor());
        usage.regions = Some(210.0);
        usage.set_working_sets(&working_sets(second, (hot_anon + hot_file) * (1.0 + jitter(10, 0.04)), anon + file));
    }
    usage
}

/// Working sets that grow with the window. A tick in fifty is lost to a read that came too late.
fn working_sets(second: u32, hot: f64, resident: f64) -> [Option<Estimate>; WINDOWS_S.len()] {
    WINDOWS_S.map(|window| {
        let bytes = (hot * (1.0 + 0.16 * f64::from(window).ln())).min(resident).floor();
        (second >= window && second % 50 != 49).then(|| Estimate { bytes, ci95: (0.07 * bytes).floor() })
    })
}

pub fn ages(plan: RecordPlan, second: u32) -> Vec<AgeBin> {
    let share = f64::from(second) / f64::from(plan.seconds);
    let mut list = Vec::new();
    for (side, (total, hot)) in levels(share).into_iter().enumerate() {
        let total = if side == 1 { total + 180.0 * MIB * share.sqrt() } else { total };
        let mut left = total;
        let reached: Vec<u32> = AGE_EDGES_S.iter().copied().filter(|edge| *edge <= second).collect();
        for pair in reached.windows(2) {
            let bytes = if pair[0] == 0 {
                hot
            } else {
                (left * 0.07 * (1.0 + noise(u64::from(second), u64::from(pair[0])))).floor()
            };
            let bytes = bytes.min(left).floor();
            left -= bytes;
            list.push(AgeBin {
                anon: side == 0,
                min_s: f64::from(pair[0]),
                max_s: Some(f64::from(pair[1])),
                size: Estimate { bytes, ci95: (bytes * 0.1).floor() },
                first_touched: None,
            });
        }
        let min_s = reached.last().copied().map_or(0.0, f64::from);
        list.push(AgeBin {
            anon: side == 0,
            min_s,
            max_s: None,
            size: Estimate { bytes: left.floor(), ci95: (left * 0.05).floor() },
            first_touched: None,
        });
    }
    list
}

/// Regions of one snapshot: blocks of like rate joined, as DAMON would.
pub fn regions(plan: RecordPlan, t_s: f64) -> Vec<RegionRow> {
    let share = (t_s / f64::from(plan.seconds)).min(0.999);
    let mut rows: Vec<RegionRow> = Vec::new();
    for mapping in MAPPINGS {
        let blocks = mapping.bytes_at(share).div_ceil(2 * MI);
        for block in 0..blocks {
            let base = mapping.rate(block, share);
            let wobble = if base > 0.0 { (noise(block, (t_s * 10.0) as u64) - 0.5) * 0.1 } else { 0.0 };
            let rate = (((base + wobble).clamp(0.0, 1.0) * 20.0).round() / 20.0) as f32;
            let start = mapping.start + block * 2 * MI;
            let end = (start + 2 * MI).min(mapping.start + mapping.bytes);
            match rows.last_mut() {
                Some(last) if last.end == start && (last.access_rate - rate).abs() < 0.06 => last.end = end,
                _ => rows.push(RegionRow {
                    t_s,
                    pid: mapping.pid,
                    start,
                    end,
                    access_rate: rate,
                    age_s: (noise(block, mapping.start) * t_s).floor() as f32,
                    mapping: mapping.name.into(),
                }),
            }
        }
    }
    rows
}

/// What the cohort says of one second.
pub fn episodes(plan: RecordPlan, second: u32) -> Vec<Episode> {
    let share = f64::from(second) / f64::from(plan.seconds);
    let each = plan.episodes / MAPPINGS.len() as u64;
    let mut rows = Vec::new();
    for mapping in MAPPINGS {
        for n in 0..each {
            let page = (noise(n, mapping.start) * (mapping.bytes_at(share) / PAGE) as f64) as u64;
            let block = page * PAGE / (2 * MI);
            let rate = mapping.rate(block, share);
            if second == plan.seconds {
                // The watch ends: of every page its last stretch of idleness.
                rows.push(Episode {
                    key: PageKey { space: mapping.pid, page: mapping.start / PAGE + page },
                    kind: mapping.kind,
                    weight_bytes: mapping.bytes_at(share) as f64 / each as f64,
                    share: None,
                    touched: false,
                    start_s: 0.0,
                    end_s: f64::from(second),
                    reuse_s: None,
                });
                continue;
            }
            if noise(n ^ 99, u64::from(second)) > rate {
                continue;
            }
            let length = (noise(n, u64::from(second)) * 5.0).floor();
            let end = f64::from(second) + 0.001 * noise(u64::from(second), 4);
            rows.push(Episode {
                key: PageKey { space: mapping.pid, page: mapping.start / PAGE + page },
                kind: mapping.kind,
                weight_bytes: mapping.bytes_at(share) as f64 / each as f64,
                share: None,
                touched: true,
                start_s: (end - length).max(0.0),
                end_s: end,
                reuse_s: (!n.is_multiple_of(7))
                    .then(|| f64::from((1.0 + 30.0 * noise(n, 8) * noise(u64::from(second), n)) as f32)),
            });
        }
    }
    rows
}

/// Writes the run as the recorder would: a flush every five seconds.
pub fn record(writer: &mut Writer, plan: RecordPlan) {
    for second in 0..=plan.seconds {
        writer.add([usage(plan, second)]);
        if plan.monitored && second > 0 {
            let t_s = f64::from(second);
            writer.add(ages(plan, second).into_iter().map(|bin| AgeRow { t_s, bin }));
            let row = |cgroup: &str, anon, share: f64| CgroupUse {
                cgroup: cgroup.to_owned(),
                node: 0,
                anon,
                bytes: share * 1e9,
                used: std::array::from_fn(|window| (window != 3).then(|| share * 1e8 * (window + 1) as f64)),
                promoted: share * 1e6,
            };
            if second % 60 == 0 {
                let cgroups = vec![row("/kube", true, 1.0), row("/kube", false, 0.4), row("/kube/pod", true, 0.5)];
                writer.add(cgroups.into_iter().map(|memory| CgroupRow { t_s, memory }));
            }
            if plan.episodes > 0 {
                writer.add(episodes(plan, second));
            }
            for snapshot in 0..plan.snapshots {
                writer.add(regions(plan, f64::from(second) + f64::from(snapshot) / f64::from(plan.snapshots)));
            }
        }
        if second % 5 == 4 {
            writer.flush().unwrap();
        }
    }
}

/// A complete record in `dir`, not finished.
pub fn make(dir: &std::path::Path, plan: RecordPlan) {
    let meta = meta(plan);
    let mut writer = Writer::create(dir, &Meta { end: None, ..meta.clone() }).unwrap();
    record(&mut writer, plan);
    writer.close(&meta).unwrap();
}
