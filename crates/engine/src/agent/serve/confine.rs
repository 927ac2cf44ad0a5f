//! The rights of the thread that reads what strangers send: none but to answer them.

use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

/// What a server without files needs: sockets, waiting, time, and memory of its own. Others fail with EPERM.
const CALLS: [i64; 44] = [
    libc::SYS_accept4,
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fcntl,
    libc::SYS_futex,
    libc::SYS_getpeername,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_set_robust_list,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Gives up all capabilities of this thread, and all system calls but [`CALLS`]. Fails if a filter of the unit or container
/// refuses that; what was given up by then stays given up.
pub(super) fn confine() -> io::Result<()> {
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    apply_filter(&filter().map_err(io::Error::other)?).map_err(io::Error::other)
}

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let calls = CALLS.iter().copied();
    // What older processors have beside it.
    #[cfg(target_arch = "x86_64")]
    let calls = calls.chain([libc::SYS_epoll_wait, libc::SYS_poll]);
    let (refused, allowed) = (SeccompAction::Errno(libc::EPERM.unsigned_abs()), SeccompAction::Allow);
    let rules = calls.map(|call| (call, Vec::new())).collect();
    SeccompFilter::new(rules, refused, allowed, TargetArch::try_from(std::env::consts::ARCH)?)?.try_into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{PidfdFlags, getpid, pidfd_open};
    use std::fs::File;

    #[test]
    fn a_confined_thread_opens_no_file_and_others_do() {
        let confined = std::thread::spawn(|| {
            confine().unwrap();
            let found = pidfd_open(getpid(), PidfdFlags::empty()).map(drop);
            (File::open("/proc/self/status").map(drop), found)
        });
        let (opened, found) = confined.join().unwrap();
        assert_eq!(opened.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(found, Err(rustix::io::Errno::PERM));
        assert!(File::open("/proc/self/status").is_ok());
    }
}
