//! Huge pages that hold nothing: parts of them that are all zeros would not be there with small pages.

use std::os::unix::fs::FileExt;
use std::path::Path;

use lowtide_model::PAGE;
use lowtide_model::random::Random;
use lowtide_model::units::{float, integer};

use crate::monitor::mapping_use::{MappingUse, parse_mappings};
use crate::pagemap::{FrameFile, PageMap, flag};
use crate::root::{Error, Kernel, Result};
use crate::undo::{Journal, Lease};

/// Pages that are read, at most. Reading marks the huge page that a page is part of as used, so it is seldom done,
/// and to few.
const SAMPLE: f64 = 32.0;

/// Places that are tried to find so many: a mapping may be huge in part only.
const TRIES: usize = 256;

/// Bytes of a huge page on x86-64 and arm64 with pages of 4 KiB.
pub const HUGE: u64 = 2 << 20;

/// Whether the kernel splits huge pages at all (Documentation/admin-guide/mm/transhuge.rst; Linux 6.12).
const SPLITS: &str = "/sys/kernel/mm/transparent_hugepage/shrink_underused";
/// Small pages of a huge one that hold only zeros, at most: emptier ones are split where memory is reclaimed, and none are
/// made. Linux allows all but one.
const MOST_EMPTY: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none";

/// Has the kernel split huge pages of which more than this share holds only zeros, where it reclaims memory, and make none that would
/// be. The zeros are freed. This is for all of the machine, until the leases end.
///
/// # Errors
/// If the kernel cannot (before Linux 6.12), or may not be asked.
pub fn split_emptier(journal: &Journal, share: f64) -> Result<[Lease; 2]> {
    let pages = integer((share * float(HUGE / PAGE)).floor()).min(HUGE / PAGE - 1);
    Ok([journal.write(Path::new(SPLITS), "1")?, journal.write(Path::new(MOST_EMPTY), &pages.to_string())?])
}

/// The mappings of a process that are huge at least in part.
///
/// # Errors
/// If they may not be read.
pub fn mappings(kernel: &Kernel, pid: u32) -> Result<Vec<MappingUse>> {
    let text = kernel.read_text(format!("/proc/{pid}/smaps"))?;
    Ok(parse_mappings(&text).into_iter().filter(|mapping| mapping.huge >= HUGE).collect())
}

/// The share of a process' memory in huge pages that holds nothing but zeros, by a sample drawn with `seed`; `None` if it
/// has no huge pages. A page of a mapping of which only a part is huge counts as far as it is huge.
///
/// # Errors
/// If the process' memory may not be read.
pub fn zero_share(kernel: &Kernel, pid: u32, mappings: &[MappingUse], seed: u64) -> Result<Option<f64>> {
    let huge: u64 = mappings.iter().map(|mapping| mapping.huge / HUGE).sum();
    if huge == 0 {
        return Ok(None);
    }
    let path = format!("/proc/{pid}/mem");
    let memory = kernel.open(&path)?;
    let (table, flags) = (PageMap::open(kernel, pid)?, FrameFile::flags(kernel)?);
    // Reading a page that is not there would bring it into being.
    let is_huge = |at: u64| {
        let entry = table.entry(at / PAGE).ok().filter(|entry| entry.is_present())?;
        flags.value(entry.frame()).ok().flatten().filter(|flags| flags & flag::THP != 0)
    };
    let mut random = Random::new(seed);
    let (mut zero, mut all) = (0.0, 0.0);
    let mut page = [0u8; 4096];
    for _ in 0..TRIES {
        if all >= SAMPLE {
            break;
        }
        // A mapping by its huge pages, then any page of it that lies entirely in a huge page.
        let mut rank = random.below(huge);
        let Some(mapping) = mappings.iter().find(|mapping| {
            let here = mapping.huge / HUGE;
            let found = rank < here;
            rank = rank.saturating_sub(here);
            found
        }) else {
            continue;
        };
        let (first, end) = (mapping.start.div_ceil(HUGE), mapping.end / HUGE);
        if first >= end {
            continue;
        }
        let at = (first + random.below(end - first)) * HUGE + random.below(HUGE / PAGE) * PAGE;
        if is_huge(at).is_none() {
            continue;
        }
        match memory.read_exact_at(&mut page, at) {
            Ok(()) => {
                all += 1.0;
                zero += f64::from(u8::from(page.iter().all(|byte| *byte == 0)));
            }
            // Unmapped since.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => {}
            Err(error) => return Err(Error::new("read", path, error)),
        }
    }
    Ok((all > 0.0).then_some(zero / all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_written_in_small_pages_and_the_old_values_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(at(MOST_EMPTY).parent().unwrap()).unwrap();
        std::fs::write(at(MOST_EMPTY), "511\n").unwrap();
        let journal = Journal::open(Kernel::at(dir.path()), &dir.path().join("undo")).unwrap();
        // Before Linux 6.12: nothing is changed.
        assert!(split_emptier(&journal, 0.5).unwrap_err().is_gone());
        assert_eq!(std::fs::read_to_string(at(MOST_EMPTY)).unwrap(), "511\n");
        std::fs::write(at(SPLITS), "0\n").unwrap();
        let leases = split_emptier(&journal, 0.5).unwrap();
        let both = || [SPLITS, MOST_EMPTY].map(|path| std::fs::read_to_string(at(path)).unwrap().trim().to_owned());
        assert_eq!(both(), ["1", "256"]);
        drop(leases);
        assert_eq!(both(), ["0", "511"]);
    }

    #[test]
    fn a_process_without_huge_pages_has_no_share() {
        let kernel = Kernel::default();
        let mappings = parse_mappings("1000-2000 rw-p 0 00:00 0\nRss: 4 kB\nAnonHugePages: 0 kB\n");
        assert_eq!(zero_share(&kernel, std::process::id(), &mappings, 1).unwrap(), None);
    }
}
