//! What the probe reports for complete kernel trees, and that it leaves them, and this machine, as it found them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lowtide_kernel::caps;
use lowtide_kernel::root::Kernel;
use lowtide_model::capability::{Capability, State};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Every file below a folder and what it holds.
fn contents(folder: &Path, into: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).expect("a fixture folder").flatten() {
        let path = entry.path();
        if entry.file_type().expect("a file type").is_dir() {
            contents(&path, into);
        } else if let Ok(bytes) = std::fs::read(&path) {
            into.insert(path, bytes);
        }
    }
}

/// Probes a tree and compares states: `y` yes, `b` blocked, `n` no, then what "how found" must say.
fn check(name: &str, expected: &[(&str, char, &str)]) -> Vec<Capability> {
    let root = fixture(name);
    let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
    contents(&root, &mut before);
    let found = caps::probe(&Kernel::at(&root));
    contents(&root, &mut after);
    assert!(before == after, "{name}: the probe changed the tree");

    for (capability, state, says) in expected {
        let found = found.iter().find(|found| found.name == *capability).unwrap_or_else(|| panic!("no {capability}"));
        let wanted = match state {
            'y' => State::Yes,
            'b' => State::Blocked,
            _ => State::No,
        };
        assert_eq!(found.state, wanted, "{name}: {found:?}");
        assert!(found.how.contains(says), "{name}: {found:?} does not say '{says}'");
        assert_eq!(found.enable.is_empty(), wanted == State::Yes, "{name}: {found:?}");
    }
    let untold: Vec<_> = found.iter().filter(|found| expected.iter().all(|line| line.0 != found.name)).collect();
    assert!(untold.is_empty(), "{name}: not in the table: {untold:?}");
    found
}

#[test]
fn linux_6_18_with_damon_held_and_cgroup_v1() {
    check(
        "6.18",
        &[
            ("cap-sys-admin", 'y', "CapEff 000001fffeffffff"),
            ("cap-sys-ptrace", 'y', "CAP_SYS_PTRACE"),
            ("damon-sysfs", 'b', "another tool is using DAMON (kdamond 77)"),
            ("damon-paddr", 'b', "another tool is using DAMON (kdamond 77)"),
            ("damon-vaddr", 'n', "avail_operations: paddr"),
            ("tracefs", 'y', "/proc/filesystems has tracefs"),
            ("kpageflags", 'y', ""),
            ("kpagecgroup", 'y', ""),
            ("btf", 'y', ""),
            ("mglru", 'n', "not there"),
            ("mglru-debugfs", 'n', "/sys/kernel/mm/lru_gen/enabled"),
            ("idle-page-bitmap", 'n', "page_idle"),
            ("referenced", 'y', "Referenced"),
            ("memory-cgroup", 'y', "/sys/fs/cgroup/memory/job/1 is version 1: accounting and limits only"),
            ("cgroup-child", 'y', "below /sys/fs/cgroup/memory/job/1"),
            ("memory-peak", 'y', "memory.max_usage_in_bytes"),
            ("memory-reclaim", 'n', "version 1"),
            ("cap-sys-nice", 'y', ""),
            ("damon-filter-young", 'y', "DAMOS_FILTER_TYPE_YOUNG"),
            ("node-reclaim", 'y', "node0/reclaim"),
            ("swap", 'n', "no device"),
            ("zram", 'y', "0 of 1 devices set up; compresses with [lzo-rle] lzo lz4"),
            ("zswap", 'b', "switched off"),
            ("thp", 'y', "madvise"),
            ("memory-low", 'n', "version 1"),
            ("psi", 'y', "some 0.000 s"),
            ("psi-cgroup", 'n', "version 1"),
            ("mglru-min-ttl", 'n', ""),
        ],
    );
}

#[test]
fn linux_6_1_without_damon_and_mglru_switched_off() {
    let found = check(
        "6.1",
        &[
            ("cap-sys-admin", 'y', ""),
            ("cap-sys-ptrace", 'y', ""),
            ("damon-sysfs", 'n', "nr_kdamonds is not there"),
            ("damon-paddr", 'n', ""),
            ("damon-vaddr", 'n', ""),
            ("tracefs", 'y', "/sys/kernel/tracing is mounted"),
            ("kpageflags", 'y', ""),
            ("kpagecgroup", 'y', ""),
            ("btf", 'y', ""),
            ("mglru", 'b', "0x0000, switched off"),
            ("mglru-debugfs", 'y', "/sys/kernel/debug/lru_gen"),
            ("idle-page-bitmap", 'n', ""),
            ("referenced", 'y', ""),
            ("memory-cgroup", 'y', "/user.slice/user-0.slice/session-2.scope is version 2"),
            ("cgroup-child", 'y', "below /sys/fs/cgroup/user.slice/user-0.slice,"),
            ("memory-peak", 'y', "session-2.scope/memory.peak"),
            ("memory-reclaim", 'y', "session-2.scope/memory.reclaim is writable"),
            ("cap-sys-nice", 'y', ""),
            ("damon-filter-young", 'n', "lacks DAMOS_FILTER_TYPE_YOUNG"),
            ("node-reclaim", 'n', ""),
            ("swap", 'y', "/dev/sda5"),
            ("zram", 'n', ""),
            ("zswap", 'b', ""),
            ("thp", 'y', "always"),
            ("memory-low", 'y', ""),
            ("psi", 'y', ""),
            ("psi-cgroup", 'y', "session-2.scope/memory.pressure"),
            ("mglru-min-ttl", 'b', "switched off"),
        ],
    );
    let mglru = found.iter().find(|capability| capability.name == "mglru").unwrap();
    assert_eq!(mglru.enable, "echo y > /sys/kernel/mm/lru_gen/enabled");
}

#[test]
fn linux_6_12_with_all_of_damon_and_mglru() {
    check(
        "6.12",
        &[
            ("cap-sys-admin", 'y', ""),
            ("cap-sys-ptrace", 'y', ""),
            ("damon-sysfs", 'y', "no kdamond is on"),
            ("damon-paddr", 'y', "vaddr fvaddr paddr"),
            ("damon-vaddr", 'y', "vaddr fvaddr paddr"),
            ("tracefs", 'y', "lowtide mounts its own"),
            ("kpageflags", 'y', ""),
            ("kpagecgroup", 'y', ""),
            ("btf", 'y', ""),
            ("mglru", 'y', "0x0007, on, leaf batches, non-leaf entries"),
            ("mglru-debugfs", 'y', ""),
            ("idle-page-bitmap", 'n', ""),
            ("referenced", 'y', ""),
            ("memory-cgroup", 'y', "/sys/fs/cgroup is version 2"),
            ("cgroup-child", 'y', "below /sys/fs/cgroup"),
            ("memory-peak", 'y', "/sys/fs/cgroup/test/memory.peak"),
            ("memory-reclaim", 'y', ""),
            ("cap-sys-nice", 'y', ""),
            ("damon-filter-young", 'y', ""),
            ("node-reclaim", 'n', ""),
            ("swap", 'y', "/dev/zram0 (1.00 GiB, 20.0 MiB used, priority 100)"),
            ("zram", 'y', "1 of 1 devices set up"),
            ("zswap", 'n', ""),
            ("thp", 'y', ""),
            ("memory-low", 'y', "/sys/fs/cgroup/test/memory.low"),
            ("psi", 'y', "some 0.250 s"),
            ("psi-cgroup", 'y', "/sys/fs/cgroup/memory.pressure"),
            ("mglru-min-ttl", 'y', ""),
        ],
    );
}

/// What other programs could notice of a probe.
fn damon_state() -> Vec<String> {
    let kernel = Kernel::default();
    let kdamonds = "/sys/kernel/mm/damon/admin/kdamonds";
    let count = kernel.read_number(format!("{kdamonds}/nr_kdamonds")).unwrap_or(0);
    let each = ["state", "pid", "contexts/nr_contexts"];
    let files = (0..count).flat_map(|k| each.map(|file| format!("{kdamonds}/{k}/{file}")));
    std::iter::once(count.to_string()).chain(files.map(|file| kernel.read_text(file).unwrap_or_default())).collect()
}

#[test]
fn this_machine_is_left_as_it_was() {
    let state = || {
        let kernel = Kernel::default();
        let mounts = kernel.read_text("/proc/self/mountinfo").unwrap();
        (damon_state(), mounts, kernel.list("/sys/block").unwrap_or_default())
    };
    let before = state();
    let found = caps::probe(&Kernel::default());
    assert_eq!(before, state());
    assert!(found.iter().any(|capability| capability.name == "pagemap-frames"), "system calls are asked here");
    for capability in found {
        assert_eq!(capability.enable.is_empty(), capability.state == State::Yes, "{capability:?}");
    }
}
