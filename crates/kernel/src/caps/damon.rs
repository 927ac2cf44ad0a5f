//! DAMON: whether it is there, which operations it offers, and which program holds it.

use std::path::Path;

use super::pages::{BTF, btf_holds};
use super::{Absent, Finding, OrAbsent, PRIVILEGE};
use crate::damon::{self, Damon};
use crate::root::{Kernel, Result};
use crate::trace;
use crate::undo::{self, Journal};

const KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds";
const SYSFS: &str = "a kernel with CONFIG_DAMON_SYSFS=y";
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// What holds DAMON, and how to free it.
fn holder(kernel: &Kernel) -> Option<(String, String)> {
    if let Some(pid) = damon::running(kernel).unwrap_or_default().first() {
        return Some(match undo::damon_holder(&kernel.path(undo::folder())) {
            Some((owner, command)) if kernel.exists(format!("/proc/{owner}")) => {
                (format!("lowtide {owner} ({command}) runs kdamond {pid}"), format!("wait, or end process {owner}"))
            }
            Some((owner, command)) => (
                format!("kdamond {pid} was left on by lowtide {owner} ({command}), which is gone"),
                "lowtide recover".to_owned(),
            ),
            None => (
                format!("another tool is using DAMON (kdamond {pid})"),
                "end what set it up (`damo stop` if that was damo)".to_owned(),
            ),
        });
    }
    let module = damon::exclusive_module(kernel).filter(|module| *module != damon::STATISTICS)?;
    Some((format!("{module} is on"), format!("echo N > {module}/parameters/enabled")))
}

pub(super) fn sysfs(kernel: &Kernel) -> Finding {
    damon::probe(kernel).or_absent(SYSFS)?;
    if let Some((held, enable)) = holder(kernel) {
        return Err(Absent::blocked(held, enable));
    }
    let statistics = damon::exclusive_module(kernel).is_some();
    let state = if statistics { "damon_stat is on, and pauses while lowtide uses DAMON" } else { "no kdamond is on" };
    Ok(format!("{KDAMONDS}/nr_kdamonds reads; {state}"))
}

pub(super) fn paddr(kernel: &Kernel) -> Finding {
    operations(kernel, "paddr", "a kernel with CONFIG_DAMON_PADDR=y")
}

pub(super) fn vaddr(kernel: &Kernel) -> Finding {
    operations(kernel, "vaddr", "a kernel with CONFIG_DAMON_VADDR=y")
}

fn operations(kernel: &Kernel, name: &str, config: &str) -> Finding {
    damon::probe(kernel).or_absent(SYSFS)?;
    let (path, offered) = match existing_operations(kernel) {
        Some(found) => found,
        None if kernel.is_running() && !kernel.is_dry_run() => {
            let offered = operations_by_lease(kernel, &kernel.path(undo::folder())).or_absent(SYSFS)?;
            ("avail_operations of a context made for this and taken away".to_owned(), offered)
        }
        None => return Err(Absent::blocked(format!("{KDAMONDS}: no context that could be asked"), PRIVILEGE)),
    };
    let offered: Vec<&str> = offered.split_whitespace().collect();
    let said = format!("{path}: {}", offered.join(" "));
    match holder(kernel) {
        _ if !offered.contains(&name) => Err(Absent::no(said, config)),
        Some((held, enable)) => Err(Absent::blocked(format!("{said}; {held}"), enable)),
        None => Ok(said),
    }
}

/// The operations that an existing context offers. Reading does not disturb one that is on.
fn existing_operations(kernel: &Kernel) -> Option<(String, String)> {
    let kdamonds = kernel.read_number(format!("{KDAMONDS}/nr_kdamonds")).ok()?;
    (0..kdamonds).find_map(|k| {
        let path = format!("{KDAMONDS}/{k}/contexts/0/avail_operations");
        let text = kernel.read_text(&path).ok()?;
        Some((path, text))
    })
}

/// Asks a context that is made for this under lease; `EBUSY` while a kdamond is on.
fn operations_by_lease(kernel: &Kernel, folder: &Path) -> Result<String> {
    let journal = Journal::open(kernel.clone(), folder)?;
    let damon = Damon::take(kernel, &journal, 1)?;
    let offered = damon.operations(0)?;
    Ok(offered.iter().map(|operations| operations.name()).collect::<Vec<_>>().join(" "))
}

/// DAMON shows its filters only by refusing others, which takes writing; the kernel's types show them without.
pub(super) fn filter_young(kernel: &Kernel) -> Finding {
    /// An enumerator of `enum damos_filter_type` (include/linux/damon.h).
    const YOUNG: &str = "DAMOS_FILTER_TYPE_YOUNG";
    match kernel.read(BTF) {
        Ok(types) if btf_holds(&types, YOUNG) => Ok(format!("{BTF} has {YOUNG}")),
        Ok(_) => Err(Absent::no(format!("{BTF} lacks {YOUNG}"), "a newer kernel with CONFIG_DAMON_PADDR=y")),
        Err(error) => {
            Err(Absent::no(format!("not known: {error}"), "a kernel with CONFIG_DEBUG_INFO_BTF=y would show it"))
        }
    }
}

/// The trace file system is used where it is mounted; where not, lowtide mounts one that no path leads to.
pub(super) fn tracefs(kernel: &Kernel) -> Finding {
    if let Some(base) = TRACEFS.into_iter().find(|base| kernel.exists(format!("{base}/instances"))) {
        return Ok(format!("{base} is mounted"));
    }
    let path = "/proc/filesystems";
    let known = kernel.read_text(path).or_absent("mount /proc")?;
    if !known.split_whitespace().any(|word| word == "tracefs") {
        return Err(Absent::no(format!("{path} lacks tracefs"), "a kernel with CONFIG_FTRACE=y"));
    }
    let how = format!("{path} has tracefs; not mounted in sight");
    if super::pages::privilege(kernel, "CAP_SYS_ADMIN", 21).is_err() {
        return Err(Absent::blocked(how, PRIVILEGE));
    }
    if kernel.is_running() {
        trace::tracefs(kernel).or_absent(PRIVILEGE)?;
    }
    Ok(format!("{how}, lowtide mounts its own"))
}

pub(super) fn tracepoint(kernel: &Kernel) -> Finding {
    trace::probe(kernel).or_absent("a kernel with CONFIG_DAMON=y and CONFIG_FTRACE=y")?;
    Ok("events/damon/damon_aggregated/format reads".to_owned())
}

#[cfg(test)]
mod tests {
    use lowtide_model::capability::State;

    use super::*;

    /// A kernel tree with one kdamond folder whose files hold what is given.
    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Kernel) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let file = dir.path().join(KDAMONDS.trim_start_matches('/')).join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let kernel = Kernel::at(dir.path());
        (dir, kernel)
    }

    #[test]
    fn a_context_of_our_own_is_asked_and_taken_away() {
        // A plain folder does not make `0` when 1 is written to nr_kdamonds, so it is there beforehand.
        let (dir, kernel) = tree(&[
            ("nr_kdamonds", "0\n"),
            ("0/state", "off\n"),
            ("0/pid", "-1\n"),
            ("0/contexts/nr_contexts", "0\n"),
            ("0/contexts/0/avail_operations", "vaddr\nfvaddr\npaddr\n"),
        ]);
        let folder = dir.path().join("run");
        assert_eq!(operations_by_lease(&kernel, &folder).unwrap(), "vaddr paddr");
        assert_eq!(kernel.read_number(format!("{KDAMONDS}/nr_kdamonds")).unwrap(), 0);
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0, "the journal is gone");
    }

    #[test]
    fn who_holds_it_is_named() {
        let on = [
            ("nr_kdamonds", "1\n"),
            ("0/state", "on\n"),
            ("0/pid", "77\n"),
            ("0/contexts/nr_contexts", "1\n"),
            ("0/contexts/0/avail_operations", "paddr\n"),
        ];
        let (dir, kernel) = tree(&on);
        assert!(operations_by_lease(&kernel, &dir.path().join("run")).unwrap_err().is_busy());
        let found = paddr(&kernel).unwrap_err();
        assert!(found.state == State::Blocked && found.how.contains("kdamond 77"), "{found:?}");
        assert_eq!(vaddr(&kernel).unwrap_err().state, State::No, "not offered, whoever holds it");

        // Its journal is where this process searches for it.
        let folder = kernel.path(undo::folder());
        let journal = Journal::open(kernel.clone(), &folder).unwrap();
        let contexts = vec![1];
        let lease = journal.lease(&crate::damon::Taken { kdamonds: 1, contexts, made: None }).unwrap();
        assert!(sysfs(&kernel).unwrap_err().enable == "lowtide recover", "no such process in this tree");
        std::fs::create_dir_all(dir.path().join(format!("proc/{}", std::process::id()))).unwrap();
        assert!(sysfs(&kernel).unwrap_err().how.starts_with("lowtide "));
        lease.give_back().unwrap();

        let (dir, kernel) = tree(&[("nr_kdamonds", "0\n")]);
        let on = |module: &str| {
            let module = dir.path().join(format!("sys/module/{module}/parameters"));
            std::fs::create_dir_all(&module).unwrap();
            std::fs::write(module.join("enabled"), "Y\n").unwrap();
        };
        on("damon_stat");
        let found = sysfs(&kernel);
        assert!(found.as_ref().is_ok_and(|how| how.contains("pauses")), "{found:?}");
        std::fs::remove_dir_all(dir.path().join("sys/module/damon_stat")).unwrap();
        on("damon_reclaim");
        let found = sysfs(&kernel).unwrap_err();
        assert!(found.state == State::Blocked && found.enable.contains("damon_reclaim"), "{found:?}");
    }

    #[test]
    fn a_captured_tree_is_never_written() {
        let (_dir, kernel) = tree(&[("nr_kdamonds", "0\n")]);
        assert_eq!(paddr(&kernel).unwrap_err().state, State::Blocked);
        assert_eq!(kernel.read_text(format!("{KDAMONDS}/nr_kdamonds")).unwrap(), "0\n");
    }
}
