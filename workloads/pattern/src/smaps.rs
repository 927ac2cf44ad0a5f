//! Reading `/proc/self/smaps`: whether the kernel gave huge pages.

use crate::units::usize_of;

/// The `AnonHugePages` bytes of the mapping that starts at `start`, in the text of an smaps file.
pub fn anon_huge_bytes(smaps: &str, start: usize) -> usize {
    let first = format!("{start:x}-");
    let mapping = smaps.lines().skip_while(|line| !line.starts_with(&first));
    let huge = mapping.skip(1).find_map(|line| line.strip_prefix("AnonHugePages:"));
    let kib = huge.and_then(|value| value.trim().trim_end_matches("kB").trim().parse().ok());
    usize_of(kib.unwrap_or(0)) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
7f0000000000-7f0000400000 rw-p 00000000 00:00 0 [anon:a]
Rss:                4096 kB
AnonHugePages:      2048 kB
VmFlags: rd wr hg
7f0000600000-7f0000a00000 rw-p 00000000 00:00 0
AnonHugePages:      4096 kB
";

    #[test]
    fn the_right_mapping_is_found() {
        assert_eq!(anon_huge_bytes(SMAPS, 0x7f00_0000_0000), 2 << 20);
        assert_eq!(anon_huge_bytes(SMAPS, 0x7f00_0060_0000), 4 << 20);
        assert_eq!(anon_huge_bytes(SMAPS, 0x7f00_0020_0000), 0);
    }
}
