//! Memory cgroups: which version, and which of its files.

use super::{Absent, Finding, OrAbsent, may_write, readable, reclaim, writable};
use crate::cgroup::{Cgroup, Version};
use crate::root::{Error, Kernel, value_of};

/// How to get what only version 2 has.
const V2: &str = "boot with cgroup v2: systemd.unified_cgroup_hierarchy=1, or cgroup_no_v1=memory";

/// The memory cgroup of this process, from `/proc/self`: a captured tree has no other process.
fn own(kernel: &Kernel) -> Result<Cgroup, Absent> {
    let found = kernel.read_text("/proc/self/status").and_then(|status| {
        let pid = value_of(&status, "Pid").and_then(|pid| u32::try_from(pid).ok());
        Cgroup::of(kernel, pid.ok_or_else(|| Error::unexpected("/proc/self/status", "no Pid line"))?)
    });
    let cgroup = found.or_absent("mount -t cgroup2 none /sys/fs/cgroup")?;
    // The path of the root cgroup ends with a slash, which only its components leave out.
    cgroup
        .map(|cgroup| Cgroup { path: cgroup.path.components().collect(), ..cgroup })
        .ok_or_else(|| none(&kernel.read_text("/proc/cgroups").unwrap_or_default()))
}

/// Why there is no memory controller; `/proc/cgroups` says `memory <hierarchy> <cgroups> <enabled>`.
fn none(controllers: &str) -> Absent {
    let memory = controllers.lines().find(|line| line.split_whitespace().next() == Some("memory"));
    match memory.and_then(|line| line.split_whitespace().nth(3)) {
        Some("0") => Absent::blocked("/proc/cgroups: memory is disabled", "boot with cgroup_enable=memory"),
        Some(_) => Absent::blocked(
            "/proc/self/mountinfo: no cgroup file system with the memory controller",
            "mount -t cgroup2 none /sys/fs/cgroup",
        ),
        None => Absent::no("/proc/cgroups: no memory controller", "a kernel with CONFIG_MEMCG=y"),
    }
}

pub(super) fn memory(kernel: &Kernel) -> Finding {
    let cgroup = own(kernel)?;
    let limits = match cgroup.version {
        Version::V1 => "version 1: accounting and limits only, no reclaim, protection or pressure",
        Version::V2 => "version 2",
    };
    Ok(format!("{} is {limits}", cgroup.path.display()))
}

/// Where [`Cgroup::create_own`] would make one.
pub(super) fn child(kernel: &Kernel) -> Finding {
    let here = own(kernel)?;
    let parent = here.parent_of_own(kernel).ok_or_else(|| {
        Absent::blocked(
            format!("no cgroup.subtree_control from {} upwards holds memory", here.path.display()),
            "echo +memory > cgroup.subtree_control of the parent, or systemd-run with -p Delegate=yes",
        )
    })?;
    match may_write(kernel, &parent.to_string_lossy()) {
        Err(error) if error.is_permission() => {
            Err(Absent::blocked(error.to_string(), "run as root, or systemd-run --user with -p Delegate=yes"))
        }
        result => result.or_absent(V2).map(|()| format!("below {}, which is writable", parent.display())),
    }
}

/// A file of version 2, in this process' cgroup or, since the root has not all of them, in one below the root.
fn file(kernel: &Kernel, name: &str, check: fn(&Kernel, &str, &str) -> Finding, enable: &str) -> Finding {
    let own = own(kernel)?;
    if own.version == Version::V1 {
        return Err(version_1(&own, name));
    }
    let root = Cgroup::named(kernel, "/").map_or_else(|_| own.path.clone(), |cgroup| cgroup.path);
    let below = kernel.list(&root).unwrap_or_default().into_iter().map(|name| root.join(name));
    let mut files = std::iter::once(own.path.clone()).chain(below).map(|cgroup| cgroup.join(name));
    match files.find(|file| kernel.exists(file)) {
        Some(file) => check(kernel, &file.to_string_lossy(), enable),
        None => Err(Absent::no(format!("no cgroup at or below {} has {name}", root.display()), enable)),
    }
}

fn version_1(cgroup: &Cgroup, name: &str) -> Absent {
    Absent::no(format!("{} is version 1, which has no {name}", cgroup.path.display()), V2)
}

pub(super) fn peak(kernel: &Kernel) -> Finding {
    let own = own(kernel)?;
    if own.version == Version::V1 {
        return readable(kernel, &own.path.join("memory.max_usage_in_bytes").to_string_lossy(), V2);
    }
    file(kernel, "memory.peak", readable, "a newer kernel; lowtide's own samples give the peak instead")
}

pub(super) fn memory_reclaim(kernel: &Kernel) -> Finding {
    file(kernel, "memory.reclaim", writable, "a newer kernel; lowtide advises page ranges instead")
}

pub(super) fn low(kernel: &Kernel) -> Finding {
    file(kernel, "memory.low", writable, "a cgroup below the root that has the memory controller")
}

pub(super) fn psi(kernel: &Kernel) -> Finding {
    let cgroup = own(kernel)?;
    match cgroup.pressure_file(kernel, "memory") {
        Some(path) => reclaim::pressure(&path, crate::pressure::read(kernel, &path)),
        None if cgroup.version == Version::V1 => Err(version_1(&cgroup, "memory.pressure")),
        None => Err(Absent::no(
            format!("{} has no memory.pressure", cgroup.path.display()),
            "a kernel with CONFIG_PSI=y; boot with psi=1 and without cgroup_disable=pressure",
        )),
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
