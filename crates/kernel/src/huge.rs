//! Huge pages of a process that hold nothing: parts of them that are all zeros would not be there with small pages.

use std::os::unix::fs::FileExt;

use lowtide_model::PAGE;
use lowtide_model::random::Random;

use crate::monitor::mapping_use::MappingUse;
use crate::pagemap::{FrameFile, PageMap, flag};
use crate::root::{Error, Kernel, Result};

/// Pages that are read, at most. Reading marks the huge page that a page is part of as used, so it is seldom done,
/// and to few.
const SAMPLE: f64 = 32.0;

/// Places that are tried to find so many: a mapping may be huge in part only.
const TRIES: usize = 256;

/// Bytes of a huge page on x86-64 and arm64 with pages of 4 KiB.
pub const HUGE: u64 = 2 << 20;

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
    use crate::monitor::mapping_use::parse_mappings;

    #[test]
    fn a_process_without_huge_pages_has_no_share() {
        let kernel = Kernel::default();
        let mappings = parse_mappings("1000-2000 rw-p 0 00:00 0\nRss: 4 kB\nAnonHugePages: 0 kB\n");
        assert_eq!(zero_share(&kernel, std::process::id(), &mappings, 1).unwrap(), None);
    }
}
