//! A limit as systemd sets it: a transient scope of the program's own, with the properties that `--emit systemd` prints.

use std::path::Path;
use std::process::{Command, Stdio};

use lowtide_kernel::root::Kernel;

/// There where systemd runs the machine (sd_booted(3)).
const BOOTED: &str = "/run/systemd/system";
const MIB: u64 = 1 << 20;

/// The property that limits memory: in MiB where it is a multiple of one.
#[must_use]
pub fn memory_max(bytes: u64) -> String {
    if bytes.is_multiple_of(MIB) { format!("MemoryMax={}M", bytes / MIB) } else { format!("MemoryMax={bytes}") }
}

/// What stands before a program's words so that it runs in a scope with this limit. The program keeps its process.
#[must_use]
pub fn words(limit: u64, no_swap: bool) -> Vec<String> {
    let user = (!rustix::process::geteuid().is_root()).then_some("--user");
    let fixed = ["systemd-run", "--scope", "--quiet", "--collect"];
    let mut words: Vec<String> = fixed.into_iter().chain(user).map(str::to_owned).collect();
    words.extend(["-p".to_owned(), memory_max(limit)]);
    if no_swap {
        words.extend(["-p".to_owned(), "MemorySwapMax=0".to_owned()]);
    }
    words.push("--".to_owned());
    words
}

/// Whether limits can be set by systemd here; why not where it runs the machine and refuses.
///
/// # Errors
/// If systemd refuses: in its own words.
pub fn serves(kernel: &Kernel) -> Result<bool, String> {
    if !kernel.exists(Path::new(BOOTED)) {
        return Ok(false);
    }
    let words = words(1 << 30, false);
    let mut command = Command::new(&words[0]);
    let done =
        command.args(&words[1..]).arg("true").stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    if done.status.success() {
        return Ok(true);
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(said.lines().last().unwrap_or("systemd-run failed").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_has_what_is_pasted() {
        assert_eq!([memory_max(64 << 20), memory_max((64 << 20) + 4096)], ["MemoryMax=64M", "MemoryMax=67112960"]);
        let line = words(64 << 20, true).join(" ");
        assert!(
            line.starts_with("systemd-run --scope --quiet --collect ")
                && line.ends_with(" -p MemoryMax=64M -p MemorySwapMax=0 --"),
            "{line}"
        );
        assert!(!words(64 << 20, false).join(" ").contains("Swap"));
    }

    #[test]
    fn without_systemd_it_does_not_serve() {
        assert_eq!(serves(&Kernel::at("/nonexistent")), Ok(false));
    }
}
