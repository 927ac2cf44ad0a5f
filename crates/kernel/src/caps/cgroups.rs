//! Memory cgroups: which version, and which of its files.

use super::{Finding, may_write, readable, reclaim, writable};
use crate::cgroup::{Cgroup, Version};
use crate::root::{Error, Kernel, value_of};

/// How to get what only version 2 has.
const V2: &str = "boot with cgroup v2: systemd.unified_cgroup_hierarchy=1, or cgroup_no_v1=memory";

/// The memory cgroup of this process, as `/proc/self` tells it: a captured tree knows no other process.
fn own(kernel: &Kernel) -> Result<Cgroup, Finding> {
    let found = kernel.read_text("/proc/self/status").and_then(|status| {
        let pid = value_of(&status, "Pid").and_then(|pid| u32::try_from(pid).ok());
        Cgroup::of(kernel, pid.ok_or_else(|| Error::unexpected("/proc/self/status", "no Pid line"))?)
    });
    match found {
        // The path of the root cgroup ends with a slash, which only its components leave out.
        Ok(Some(cgroup)) => Ok(Cgroup { path: cgroup.path.components().collect(), ..cgroup }),
        Ok(None) => Err(none(&kernel.read_text("/proc/cgroups").unwrap_or_default())),
        Err(error) => Err(Finding::failed(&error, "mount -t cgroup2 none /sys/fs/cgroup")),
    }
}

/// Why there is no memory controller; `/proc/cgroups` says `memory <hierarchy> <cgroups> <enabled>`.
fn none(controllers: &str) -> Finding {
    let memory = controllers.lines().find(|line| line.split_whitespace().next() == Some("memory"));
    match memory.and_then(|line| line.split_whitespace().nth(3)) {
        Some("0") => Finding::blocked("/proc/cgroups: memory is disabled", "boot with cgroup_enable=memory"),
        Some(_) => Finding::blocked(
            "/proc/self/mountinfo: no cgroup file system with the memory controller",
            "mount -t cgroup2 none /sys/fs/cgroup",
        ),
        None => Finding::no("/proc/cgroups: no memory controller", "a kernel with CONFIG_MEMCG=y"),
    }
}

pub(super) fn memory(kernel: &Kernel) -> Finding {
    match own(kernel) {
        Ok(Cgroup { version: Version::V1, path, .. }) => Finding::yes(format!(
            "{} is version 1: accounting and limits only, no reclaim, protection or pressure",
            path.display()
        )),
        Ok(cgroup) => Finding::yes(format!("{} is version 2", cgroup.path.display())),
        Err(finding) => finding,
    }
}

/// Where [`Cgroup::create_own`] would make one: version 2 wants an ancestor that hands the controller down.
pub(super) fn child(kernel: &Kernel) -> Finding {
    let here = match own(kernel) {
        Ok(cgroup) => cgroup,
        Err(finding) => return finding,
    };
    let hands_down = |path: &&std::path::Path| {
        let file = path.join("cgroup.subtree_control");
        kernel.read_text(file).is_ok_and(|text| text.split_whitespace().any(|word| word == "memory"))
    };
    let parent = match here.version {
        Version::V1 => Some(here.path.as_path()),
        Version::V2 => here.path.ancestors().find(hands_down),
    };
    let Some(parent) = parent else {
        return Finding::blocked(
            format!("no cgroup.subtree_control from {} upwards holds memory", here.path.display()),
            "echo +memory > cgroup.subtree_control of the parent, or systemd-run with -p Delegate=yes",
        );
    };
    match may_write(kernel, &parent.to_string_lossy()) {
        Ok(()) => Finding::yes(format!("below {}, which is writable", parent.display())),
        Err(error) if error.is_permission() => {
            Finding::blocked(error.to_string(), "run as root, or systemd-run --user with -p Delegate=yes")
        }
        Err(error) => Finding::failed(&error, V2),
    }
}

/// A file of version 2, in this process' cgroup or, since the root has not all of them, in one below the root.
fn file(kernel: &Kernel, name: &str, look: fn(&Kernel, &str, &str) -> Finding, enable: &str) -> Finding {
    let own = match own(kernel) {
        Ok(cgroup) if cgroup.version == Version::V1 => {
            return Finding::no(format!("{} is version 1, which has no {name}", cgroup.path.display()), V2);
        }
        Ok(cgroup) => cgroup,
        Err(finding) => return finding,
    };
    let root = Cgroup::named(kernel, "/").map_or_else(|_| own.path.clone(), |cgroup| cgroup.path);
    let below = kernel.list(&root).unwrap_or_default().into_iter().map(|name| root.join(name));
    let mut files = std::iter::once(own.path.clone()).chain(below).map(|cgroup| cgroup.join(name));
    match files.find(|file| kernel.exists(file)) {
        Some(file) => look(kernel, &file.to_string_lossy(), enable),
        None => Finding::no(format!("no cgroup at or below {} has {name}", root.display()), enable),
    }
}

pub(super) fn peak(kernel: &Kernel) -> Finding {
    match own(kernel) {
        Ok(Cgroup { version: Version::V1, path, .. }) => {
            readable(kernel, &path.join("memory.max_usage_in_bytes").to_string_lossy(), V2)
        }
        Ok(_) => file(kernel, "memory.peak", readable, "a newer kernel; lowtide's own samples give the peak instead"),
        Err(finding) => finding,
    }
}

pub(super) fn memory_reclaim(kernel: &Kernel) -> Finding {
    file(kernel, "memory.reclaim", writable, "a newer kernel; lowtide advises page ranges instead")
}

pub(super) fn low(kernel: &Kernel) -> Finding {
    file(kernel, "memory.low", writable, "a cgroup below the root that has the memory controller")
}

pub(super) fn psi(kernel: &Kernel) -> Finding {
    let cgroup = match own(kernel) {
        Ok(cgroup) => cgroup,
        Err(finding) => return finding,
    };
    match cgroup.pressure_file(kernel, "memory") {
        Some(path) => reclaim::pressure(&path, crate::pressure::read(kernel, &path)),
        None if cgroup.version == Version::V1 => {
            Finding::no(format!("{} is version 1, which has no memory.pressure", cgroup.path.display()), V2)
        }
        None => Finding::no(
            format!("{} has no memory.pressure", cgroup.path.display()),
            "a kernel with CONFIG_PSI=y; boot with psi=1 and without cgroup_disable=pressure",
        ),
    }
}

#[cfg(test)]
mod tests {
    use lowtide_model::capability::State;

    use super::*;

    #[test]
    fn why_there_is_no_controller() {
        let heading = "#subsys_name\thierarchy\tnum_cgroups\tenabled\n";
        assert_eq!(none(heading).state, State::No);
        let disabled = none(&format!("{heading}memory\t0\t1\t0\n"));
        assert!(disabled.state == State::Blocked && disabled.enable.contains("cgroup_enable=memory"));
        assert!(none(&format!("{heading}memory\t0\t1\t1\n")).enable.starts_with("mount"));
    }
}
