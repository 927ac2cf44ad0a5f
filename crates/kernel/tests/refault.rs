//! What a refault costs, measured on the machine that runs the tests.

use lowtide_kernel::refault::{self, Medium};
use lowtide_kernel::root::Kernel;
use lowtide_kernel::swap;
use lowtide_kernel::undo::Journal;
use lowtide_kernel::zram::{Zram, ZramSetup, devices};

#[test]
fn a_disk_has_a_cost_or_a_reason_and_nothing_is_left_on_it() {
    let dir = tempfile::tempdir().unwrap();
    let cost = refault::on_disk(&Kernel::default(), dir.path()).unwrap();
    assert_eq!(cost.medium, Medium::Disk);
    assert!(!cost.note.is_empty());
    match (cost.median_s, cost.p95_s) {
        (Some(median), Some(p95)) => {
            assert!(cost.samples > 0 && 0.0 < median && median <= p95 && p95 < 10.0, "{cost:?}");
        }
        other => assert_eq!((other, cost.samples), ((None, None), 0), "{cost:?}"),
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn zram_has_a_cost_and_is_gone_afterwards() {
    let kernel = Kernel::default();
    if kernel.check_writable("/sys/class/zram-control/hot_remove").is_err() {
        println!("skip - zram has a cost and is gone afterwards: needs root and a kernel with zram");
        return;
    }
    let state = || (swap::devices(&kernel).unwrap(), devices(&kernel));
    let before = state();
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::open(kernel.clone(), dir.path()).unwrap();
    let setup = ZramSetup { bytes: 128 << 20, algorithm: None, priority: 32_767 };
    let zram = Zram::swap_on(&kernel, &journal, &setup).unwrap();
    assert!(!zram.algorithm().unwrap().is_empty());
    let costs = refault::on_swap(&kernel).unwrap();
    let cost = costs.iter().find(|cost| std::path::Path::new(&cost.device) == zram.node()).unwrap();
    assert!(cost.samples > 100, "{costs:?}");
    assert!(cost.median_s.is_some_and(|seconds| seconds > 0.0), "{cost:?}");
    assert!(cost.note.starts_with("zram, "), "{cost:?}");
    // An error on the way takes the device down as well: dropping is enough.
    drop(zram);
    assert_eq!(before, state());
    let wrong = ZramSetup { algorithm: Some("no-such-algorithm".to_owned()), ..setup };
    assert!(Zram::swap_on(&kernel, &journal, &wrong).is_err());
    assert_eq!(before, state());
}
