//! NUMA nodes: which have memory, and what of a target lies on each (`memory.numa_stat`, `/proc/PID/numa_maps`,
//! `/sys/devices/system/node`), and on which node each page frame is (`/proc/zoneinfo`).

use std::collections::BTreeMap;

use lowtide_model::PAGE;
use lowtide_model::numa::NodeUse;

use crate::cgroup::{Cgroup, Version};
use crate::root::{Kernel, Result, keyed};

const NODES: &str = "/sys/devices/system/node";

/// The nodes that have memory, in order; a single one where the kernel knows of none.
pub fn with_memory(kernel: &Kernel) -> Vec<u32> {
    let text = kernel.read_text(format!("{NODES}/has_memory")).unwrap_or_default();
    let nodes = list(&text);
    if nodes.is_empty() { vec![0] } else { nodes }
}

/// A list of the kernel's: `0-2,7`. What is not one is left out, and so is a range that no machine has.
fn list(text: &str) -> Vec<u32> {
    let range = |part: &str| -> Option<std::ops::RangeInclusive<u32>> {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to) = (from.parse::<u32>().ok()?, to.parse::<u32>().ok()?);
        (to < 4096).then_some(from..=to)
    };
    let mut nodes: Vec<u32> = text.trim().split(',').filter_map(range).flatten().collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// Which page frames are on which node.
#[derive(Debug, Default)]
pub struct FrameNodes {
    /// First frame, the one after the last, and node of each zone; empty where there is one node only.
    zones: Vec<(u64, u64, u32)>,
}

impl FrameNodes {
    /// Of this machine.
    pub fn of(kernel: &Kernel) -> Self {
        if with_memory(kernel).len() < 2 {
            return Self::default();
        }
        Self { zones: parse_zones(&kernel.read_text("/proc/zoneinfo").unwrap_or_default()) }
    }

    /// The node of a frame; 0 where it is not known.
    pub fn node(&self, frame: u64) -> u32 {
        let zone = self.zones.iter().find(|(first, end, _)| (*first..*end).contains(&frame));
        zone.map_or(0, |(_, _, node)| *node)
    }
}

/// Sections that begin with `Node 0, zone DMA` and have lines `spanned 4095` and, last, `start_pfn: 1`.
fn parse_zones(text: &str) -> Vec<(u64, u64, u32)> {
    let (mut zones, mut node, mut spanned) = (Vec::new(), 0, 0);
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (key, value) = (words.next(), words.next().map(|word| word.trim_end_matches(',')));
        let number = value.and_then(|value| value.parse::<u64>().ok());
        match (key, number) {
            (Some("Node"), Some(number)) => (node, spanned) = (u32::try_from(number).unwrap_or(0), 0),
            (Some("spanned"), Some(pages)) => spanned = pages,
            (Some("start_pfn:"), Some(first)) => zones.push((first, first.saturating_add(spanned), node)),
            _ => {}
        }
    }
    zones
}

/// What is charged to a cgroup and what is below it, by node.
pub fn of_cgroup(kernel: &Kernel, cgroup: &Cgroup) -> Result<Vec<NodeUse>> {
    let text = kernel.read_text(cgroup.path.join("memory.numa_stat"))?;
    Ok(match cgroup.version {
        Version::V1 => parse_v1(&text),
        Version::V2 => parse_v2(&text),
    })
}

/// What the system has, by node.
pub fn of_system(kernel: &Kernel) -> Result<Vec<NodeUse>> {
    let of = |node: u32| Ok(parse_meminfo(&kernel.read_text(format!("{NODES}/node{node}/meminfo"))?, node));
    with_memory(kernel).into_iter().map(of).collect()
}

/// What a process has mapped, by node: a walk over all of its pages.
pub fn of_process(kernel: &Kernel, pid: u32) -> Result<Vec<NodeUse>> {
    Ok(parse_maps(&kernel.read_text(format!("/proc/{pid}/numa_maps"))?))
}

/// The sum of several.
pub fn sum(all: impl IntoIterator<Item = NodeUse>) -> Vec<NodeUse> {
    let mut nodes: BTreeMap<u32, NodeUse> = BTreeMap::new();
    for one in all {
        let sum = nodes.entry(one.node).or_insert(NodeUse { node: one.node, ..NodeUse::default() });
        sum.anon = sum.anon.saturating_add(one.anon);
        sum.file = sum.file.saturating_add(one.file);
        sum.kernel = sum.kernel.map_or(one.kernel, |kernel| Some(kernel.saturating_add(one.kernel.unwrap_or(0))));
    }
    nodes.into_values().collect()
}

/// A word `N1=20`.
fn on_node(word: &str) -> Option<(u32, u64)> {
    let (node, number) = word.strip_prefix('N')?.split_once('=')?;
    Some((node.parse().ok()?, number.parse().ok()?))
}

/// Lines of a key, `separator` and words `N0=4096`: each number of each line is turned into the use of a node.
fn by_line(text: &str, separator: char, of: impl Fn(&str, u64) -> NodeUse) -> Vec<NodeUse> {
    let lines = text.lines().filter_map(|line| line.split_once(separator));
    let each = lines.flat_map(|(key, rest)| rest.split(' ').filter_map(on_node).map(move |(node, n)| (key, node, n)));
    sum(each.map(|(key, node, number)| NodeUse { node, ..of(key, number) }))
}

/// Lines `anon N0=4096 N1=0`, bytes.
fn parse_v2(text: &str) -> Vec<NodeUse> {
    by_line(text, ' ', |key, bytes| match key {
        "anon" => NodeUse { anon: bytes, ..NodeUse::default() },
        "file" => NodeUse { file: bytes, ..NodeUse::default() },
        "kernel_stack" | "pagetables" | "sec_pagetables" | "slab_reclaimable" | "slab_unreclaimable" => {
            NodeUse { kernel: Some(bytes), ..NodeUse::default() }
        }
        _ => NodeUse::default(),
    })
}

/// Lines `hierarchical_anon=3 N0=1 N1=2`, pages; only those count descendants.
fn parse_v1(text: &str) -> Vec<NodeUse> {
    by_line(text, '=', |key, pages| match key {
        "hierarchical_anon" => NodeUse { anon: pages.saturating_mul(PAGE), ..NodeUse::default() },
        "hierarchical_file" => NodeUse { file: pages.saturating_mul(PAGE), ..NodeUse::default() },
        _ => NodeUse::default(),
    })
}

/// Lines `Node 0 AnonPages:  12 kB`.
fn parse_meminfo(text: &str, node: u32) -> NodeUse {
    let plain: String = text.lines().filter_map(|line| line.splitn(3, ' ').nth(2)).map(|l| format!("{l}\n")).collect();
    let mut found = NodeUse { node, kernel: Some(0), ..NodeUse::default() };
    for (key, bytes) in keyed(&plain) {
        match key {
            "AnonPages" => found.anon = bytes,
            "FilePages" => found.file = bytes,
            "KernelStack" | "PageTables" | "Slab" => found.kernel = found.kernel.map(|sum| sum.saturating_add(bytes)),
            _ => {}
        }
    }
    found
}

/// Lines `7f.. default file=/x anon=2 N0=1 N1=4 kernelpagesize_kB=4`: what is anonymous of a mapping is not reported by node, so it
/// is shared out as its pages are.
fn parse_maps(text: &str) -> Vec<NodeUse> {
    let each = text.lines().flat_map(|line| {
        let value =
            |key: &str| line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('=')?.parse().ok());
        let page = value("kernelpagesize_kB").unwrap_or(PAGE >> 10).saturating_mul(1024);
        let on: Vec<(u32, u64)> = line.split(' ').filter_map(on_node).collect();
        let all = on.iter().map(|(_, pages)| *pages).fold(0_u64, u64::saturating_add);
        let anon: u64 = value("anon").unwrap_or(0).min(all);
        on.into_iter().map(move |(node, pages)| {
            let of_it = u64::try_from(u128::from(pages) * u128::from(anon) / u128::from(all.max(1))).unwrap_or(pages);
            let bytes = |pages: u64| pages.saturating_mul(page);
            NodeUse { node, anon: bytes(of_it), file: bytes(pages - of_it.min(pages)), kernel: None }
        })
    });
    sum(each)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node(node: u32, anon: u64, file: u64, kernel: Option<u64>) -> NodeUse {
        NodeUse { node, anon, file, kernel }
    }

    #[test]
    fn both_versions_tell_by_node() {
        let v2 = "anon N0=8192 N1=4096\nfile N0=0 N1=20480\nkernel_stack N0=16384 N1=0\nslab_reclaimable N0=100 N1=7\n";
        assert_eq!(parse_v2(v2), [node(0, 8192, 0, Some(16484)), node(1, 4096, 20480, Some(7))]);
        let v1 = "total=9 N0=9\nanon=1 N0=1\nhierarchical_total=6 N0=3 N1=3\nhierarchical_file=1 N0=1 N1=0\n\
                  hierarchical_anon=5 N0=2 N1=3\nhierarchical_unevictable=0 N0=0 N1=0\n";
        assert_eq!(parse_v1(v1), [node(0, 8192, 4096, None), node(1, 12288, 0, None)]);
    }

    #[test]
    fn processes_and_nodes_tell_too() {
        let maps = "55 default file=/bin/x mapped=3 N0=2 N1=1 kernelpagesize_kB=4\n\
                    7f default anon=4 dirty=4 N0=1 N1=3 kernelpagesize_kB=4\n7g default\n\
                    80 default huge anon=1 N1=1 kernelpagesize_kB=2048\n";
        assert_eq!(parse_maps(maps), [node(0, 4096, 8192, None), node(1, 3 * 4096 + (2 << 20), 4096, None)]);
        let meminfo = "Node 1 MemTotal:  100 kB\nNode 1 AnonPages:   4 kB\nNode 1 FilePages: 8 kB\nNode 1 Slab: 1 kB\n";
        assert_eq!(parse_meminfo(meminfo, 1), node(1, 4096, 8192, Some(1024)));
    }

    #[test]
    fn frames_are_on_the_node_whose_zone_spans_them() {
        let text = "Node 0, zone      DMA\n  pages free     9\n        spanned  4095\n  start_pfn:           1\nNode 0, zone  Movable\n\
                    spanned  0\nNode 1, zone   Normal\n        spanned  100\n  start_pfn:           4096\n";
        let nodes = FrameNodes { zones: parse_zones(text) };
        assert_eq!([0, 1, 4095, 4096, 4195, 4196].map(|frame| nodes.node(frame)), [0, 0, 0, 1, 1, 0]);
        assert_eq!(FrameNodes::default().node(4096), 0);
    }

    #[test]
    fn lists_are_read() {
        assert_eq!(list("0-2,7\n"), [0, 1, 2, 7]);
        assert_eq!(list("1"), [1]);
        assert_eq!(list("\n"), [0; 0]);
        assert_eq!(list("0-4000000000,x,3"), [3]);
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(with_memory(&Kernel::at(dir.path())), [0]);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(anon|file|spanned|start_pfn:|hierarchical_anon|N[0-9]{1,9}|=|[0-9]{1,25}|-| |\n|kernelpagesize_kB|Node 0 |kB){0,60}") {
            parse_v1(&text);
            parse_v2(&text);
            parse_maps(&text);
            parse_meminfo(&text, 0);
            list(&text);
            parse_zones(&text);
        }
    }
}
