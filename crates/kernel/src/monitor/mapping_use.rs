//! `/proc/PID/smaps`: how much of each mapping is in memory, and was referenced.

use crate::proc::parse_mapping;
use crate::root::keyed;

/// The use of one mapping since the accessed bits were taken back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MappingUse {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Bytes in memory.
    pub resident: u64,
    /// The same with each page divided by the number of processes that map it (PSS).
    pub proportional: u64,
    /// Bytes in memory that were used.
    pub referenced: u64,
    /// Bytes swapped out.
    pub swapped: u64,
    /// Bytes that are parts of huge pages.
    pub huge: u64,
    /// Whether it is a file's.
    pub file: bool,
    /// What it maps: device and inode with the offset, or 0 with the address of memory that has no file.
    pub object: (u64, u64),
    /// Whether its pages cannot be reclaimed: locked, device memory, pages of hugetlbfs.
    pub fixed: bool,
}

/// Device and inode as one number, and the offset, of a line that opens a mapping.
fn object(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_whitespace().skip(2);
    let offset = u64::from_str_radix(words.next()?, 16).ok()?;
    let (major, minor) = words.next()?.split_once(':')?;
    let device = u64::from_str_radix(major, 16).ok()? << 20 | u64::from_str_radix(minor, 16).ok()?;
    let inode: u64 = words.next()?.parse().ok()?;
    (inode != 0).then_some((inode ^ device.rotate_left(32), offset))
}

/// The mappings of an smaps file. A line that starts with an address range opens one; one whose inode is not 0 is a file's.
pub fn parse_mappings(text: &str) -> Vec<MappingUse> {
    let mut mappings: Vec<MappingUse> = Vec::new();
    for line in text.lines() {
        if let Some(mapping) =
            line.split(' ').next().filter(|word| !word.ends_with(':')).and_then(|_| parse_mapping(line))
        {
            let of_file = object(line);
            mappings.push(MappingUse {
                start: mapping.start,
                end: mapping.end,
                file: of_file.is_some(),
                object: of_file.unwrap_or((0, mapping.start)),
                ..MappingUse::default()
            });
            continue;
        }
        let Some(last) = mappings.last_mut() else { continue };
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            // Those that the kernel will not advise on (mm/madvise.c, can_madv_lru_vma).
            last.fixed = flags.split_whitespace().any(|flag| ["lo", "pf", "ht"].contains(&flag));
            continue;
        }
        match keyed(line).next() {
            Some(("Rss", bytes)) => last.resident = bytes,
            Some(("Pss", bytes)) => last.proportional = bytes,
            Some(("Referenced", bytes)) => last.referenced = bytes,
            Some(("Swap", bytes)) => last.swapped = bytes,
            Some(("AnonHugePages", bytes)) => last.huge = bytes,
            _ => {}
        }
    }
    mappings
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mappings_are_parsed_with_what_they_map() {
        let text = "7f00-7f10 rw-p 00000000 00:00 0 \nRss: 8 kB\nPss: 4 kB\nReferenced:            4 kB\nSwap: 16 kB\nSwapPss: 8 kB\n7f20-7f30 r--p 00001000 fe:00 77 /lib/x\nRss: 12 kB\nReferenced:  12 kB\nVmFlags: rd\nffff-fffff rw-p 00000000 00:00 0 [stack]\nReferenced: 8 kB\n";
        let mappings = parse_mappings(text);
        assert_eq!((mappings[0].start, mappings[0].end, mappings[0].resident), (0x7f00, 0x7f10, 8192));
        assert_eq!((mappings[0].proportional, mappings[0].referenced, mappings[0].object), (4096, 4096, (0, 0x7f00)));
        assert_eq!((mappings[0].swapped, mappings[1].swapped), (16_384, 0));
        assert!(!mappings[1].fixed && mappings[1].file && !mappings[2].file);
        assert_eq!(mappings[1].object, (77 ^ (0xfe_u64 << 20).rotate_left(32), 0x1000));
        assert!(parse_mappings("1000-2000 rw-p 0 00:00 0\nVmFlags: rd wr mr lo\n")[0].fixed);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(\\PC|\\n)*") {
            let _ = parse_mappings(&text);
        }
    }
}
